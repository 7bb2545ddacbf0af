"""`conqur report`: a page about a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from conqur._messages import printable
from conqur.commands.support import UsageError, check_writable, option


@dataclass(frozen=True)
class Report:
    """Make a page about a run: what came of it, and how.

    RUN is the folder of a `conqur tune` run, at its end or not. The page shows scores before and
    after with intervals, the search tree (click on a node for its numbers), nodes against the
    checkpoint, lineages, what every level was like, and all settings. It is one HTML file that
    loads nothing. A run that comes to its end makes its page itself.

    Examples:
      conqur report runs/tune-MinAtar-Asterix
      conqur report runs/tune-MinAtar-Asterix --output asterix.html
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    output: Annotated[Path | None, option("FILE", "report.html in the run's folder")] = None
    """Where to write the page."""

    def run(self, command: str) -> None:
        """Read the run and write the page."""
        from conqur.report.run_page import PAGE, headline, write_page
        from conqur.report.tuned_run import read_tuned

        if not self.folder.is_dir():
            kind = "is a file: name the run's folder" if self.folder.exists() else "is not there"
            raise UsageError(f"{self.folder} {kind}")
        output = self.output or self.folder / PAGE
        check_writable("--output", output, keep=[self.folder])
        told = read_tuned(self.folder)
        written = write_page(told, output)
        print(f"{printable(headline(told))}\nReport: {printable(str(written))}")
