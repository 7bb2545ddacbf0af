"""`conqur report`: a page about a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import tyro

from conqur._messages import printable
from conqur.commands.support import Flag, UsageError, check_writable, named_as_typed, option


@dataclass(frozen=True)
class Report:
    """Make a page about a run: what came of it, and how.

    RUN is the folder of a `conqur tune` run, at its end or not. The page shows scores before and
    after with intervals, the search tree (click on a node for its numbers), nodes against the
    checkpoint, lineages, what every level was like, and all settings. It is one HTML file that
    loads nothing. A run that comes to its end makes its page itself.

    With --watch no file is written: the page is shown at an address of this machine and follows
    the run until Ctrl-C. If that machine is elsewhere: ssh -L 8000:127.0.0.1:8000 HOST, and --port
    8000 there.

    Examples:
      conqur report runs/tune-MinAtar-Asterix
      conqur report runs/tune-MinAtar-Asterix --output asterix.html
      conqur report runs/tune-MinAtar-Asterix --watch
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    output: Annotated[Path | None, option("FILE", "report.html in the run's folder")] = None
    """Where to write the page."""
    watch: Flag = False
    """Show a page that follows the run, in a browser on this machine."""
    port: Annotated[int | None, option("INT", "any that is free")] = None
    """With --watch: where the page is."""

    def run(self, command: str) -> None:
        """Read the run and write the page, or show it."""
        from conqur.report.run_page import PAGE, headline, write_page
        from conqur.report.tuned_run import read_tuned

        if not self.folder.is_dir():
            kind = "is a file: name the run's folder" if self.folder.exists() else "is not there"
            raise UsageError(f"{self.folder} {kind}")
        if self.watch:
            self._watch(command)
        if self.port is not None:
            raise UsageError("--port is where --watch shows the page: give both")
        output = self.output or self.folder / PAGE
        check_writable("--output", output, keep=[self.folder])
        told = read_tuned(self.folder)
        written = write_page(told, output)
        print(f"{printable(headline(told))}\nReport: {printable(str(written))}")

    def _watch(self, command: str) -> NoReturn:
        """Show the page, made anew whenever the run has written something, until asked to stop."""
        from conqur.report.run_page import render_run_page
        from conqur.report.tuned_run import read_tuned
        from conqur.report.watching import fingerprint, watch

        if self.output is not None:
            raise UsageError("--watch writes no file: leave --output away")
        with named_as_typed({"port": "--port"}):
            asked = watch(
                lambda: render_run_page(read_tuned(self.folder), command),
                lambda: fingerprint(self.folder),
                port=self.port or 0,
                announce=lambda address: print(f"Watching, Ctrl-C ends it: {address}", flush=True),
            )
        raise SystemExit(0 if asked is None else 128 + asked)
