"""`conqur report`: a page about runs or a study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import tyro

from conqur._messages import printable
from conqur.commands.support import Flag, UsageError, check_writable, named_as_typed, option, warn

if TYPE_CHECKING:
    from conqur.report.exhibits import Exhibit


@dataclass(frozen=True)
class Report:
    """Make a page about runs or a study: what came of it, and how.

    Of a `conqur tune` run, at its end or not, the page shows scores before and after with
    intervals, the search tree (click on a node for its numbers), nodes against the checkpoint,
    lineages and what every level was like. Of a `conqur train` run it shows learning curves and
    what training was like. Of several runs, or of the folder of a `conqur suite` study, it shows
    the tables and figures of the paper that there is data for, with the paper's numbers beside
    them where games agree. It is one HTML file that loads nothing.

    --export writes all tables as CSV and LaTeX too, and all figures as SVG and PNG.

    With --watch no file is written: the page is shown at an address of this machine and follows
    the run until Ctrl-C. If that machine is elsewhere: ssh -L 8000:127.0.0.1:8000 HOST, and --port
    8000 there.

    Examples:
      conqur report runs/tune-MinAtar-Asterix
      conqur report runs/tune-MinAtar-Asterix --output asterix.html
      conqur report runs/tune-MinAtar-Asterix --watch
      conqur report runs/dqn runs/ddqn --output both.html
      conqur report studies/minatar-search --export figures
    """

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], option("RUN|STUDY [MORE RUNS ...]", "")
    ]
    """Folders of runs, or the folder of a study."""
    output: Annotated[Path | None, option("FILE", "report.html in the folder")] = None
    """Where to write the page."""
    export: Annotated[Path | None, option("FOLDER", "nowhere")] = None
    """Where to write tables and figures as files of their own."""
    watch: Flag = False
    """Show a page that follows the run, in a browser on this machine."""
    port: Annotated[int | None, option("INT", "any that is free")] = None
    """With --watch: where the page is."""

    def run(self, command: str) -> None:
        """Read the runs and write the page, or show it."""
        from conqur.report.pages import PAGE

        self._check()
        told = _told(self.folders)
        if self.watch:
            self._watch(told, command)
        output = self.output or self.folders[0] / PAGE
        check_writable("--output", output, keep=list(self.folders))
        headline, exhibits = told.write(output)
        print(printable(headline))
        if self.export is not None:
            from conqur.report.exporting import export

            try:
                written = export(exhibits, self.export, warn=warn)
            except OSError as error:
                raise UsageError(f"--export {self.export}: {error.strerror}") from None
            print(f"Tables and figures: {len(written)} files in {printable(str(self.export))}")
        print(f"Report: {printable(str(output))}")

    def _check(self) -> None:
        if not self.folders:
            raise UsageError("name the folder of a run or of a study")
        for folder in self.folders:
            if not folder.is_dir():
                kind = "is a file: name a folder" if folder.exists() else "is not there"
                raise UsageError(f"{folder} {kind}")
        if len(self.folders) > 1 and self.output is None and not self.watch:
            raise UsageError("a page about several runs is in none of their folders: say --output")
        if self.watch and (self.output is not None or self.export is not None):
            raise UsageError("--watch writes no file: leave --output and --export away")
        if self.export is not None and self.export.exists() and not self.export.is_dir():
            raise UsageError(f"--export {self.export} is a file: name a folder")
        if self.port is not None and not self.watch:
            raise UsageError("--port is where --watch shows the page: give both")

    def _watch(self, told: "_Told", command: str) -> NoReturn:
        """Show the page, made anew whenever something was written, until asked to stop."""
        from conqur.report.watching import fingerprint, watch

        with named_as_typed({"port": "--port"}):
            asked = watch(
                lambda: told.render(command),
                lambda: fingerprint(*told.watched()),
                port=self.port or 0,
                announce=lambda address: print(f"Watching, Ctrl-C ends it: {address}", flush=True),
            )
        raise SystemExit(0 if asked is None else 128 + asked)


@dataclass(frozen=True)
class _Told:
    """A page: how it is written, rendered and what it depends on."""

    write: Callable[[Path], tuple[str, Sequence["Exhibit"]]]
    render: Callable[[str], str]
    watched: Callable[[], Sequence[Path]]


def _told(folders: tuple[Path, ...]) -> _Told:
    from conqur.runs.layout import CONFIG
    from conqur.suite.results import is_study, read_results, read_runs

    studies = [folder for folder in folders if is_study(folder)]
    if studies and len(folders) > 1:
        raise UsageError(f"{studies[0]} is a study: report on it alone")
    if len(folders) == 1 and not (folders[0] / CONFIG).exists() and not studies:
        inside = sorted(path.parent.name for path in folders[0].glob(f"*/{CONFIG}"))
        if inside:
            raise UsageError(f"{folders[0]} is a folder of runs: name one, such as {inside[0]}")
    if len(folders) == 1 and not studies and not _trains(folders[0]):
        return _tuning_run(folders[0])

    from conqur.report.study_page import (
        headline,
        render_study_page,
        study_exhibits,
        write_study_page,
    )

    def write(output: Path) -> tuple[str, Sequence["Exhibit"]]:
        results = read_results(folders[0]) if studies else read_runs(folders)
        exhibits = study_exhibits(results)
        write_study_page(results, exhibits, folders, output)
        return headline(results), exhibits

    def render(command: str) -> str:
        results = read_results(folders[0]) if studies else read_runs(folders)
        return render_study_page(results, study_exhibits(results), command)

    def watched() -> Sequence[Path]:
        runs = folders[0] / "runs"
        own = sorted(runs.iterdir()) if studies and runs.is_dir() else []
        return [*folders, *own]

    return _Told(write, render, watched)


def _trains(folder: Path) -> bool:
    from conqur.runs.files import Damaged, read_json
    from conqur.runs.layout import CONFIG

    try:
        return "algorithm" in read_json(folder / CONFIG)
    except Damaged:
        return False


def _tuning_run(folder: Path) -> _Told:
    from conqur.report.run_exhibits import run_exhibits
    from conqur.report.run_page import headline, render_run_page, write_page
    from conqur.report.tuned_run import read_tuned

    def write(output: Path) -> tuple[str, Sequence["Exhibit"]]:
        told = read_tuned(folder)
        write_page(told, output)
        return headline(told), run_exhibits(told)

    def render(command: str) -> str:
        return render_run_page(read_tuned(folder), command)

    return _Told(write, render, lambda: [folder])
