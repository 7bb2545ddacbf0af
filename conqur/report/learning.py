"""What training runs learned: curves, a figure and a table, out of run folders and evaluations.

    python -m conqur.report.learning RUN... --evaluation FILE... --output results/training/NAME

The folder then holds `results.json` (settings, versions, curves and scores), `curves.svg` and
`table.md`. Runs that train the same environment belong together: their seeds and penalty weights
may be spread over several of them.
"""

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from conqur._files import replacing
from conqur.report.charts import number
from conqur.report.learning_curves import MOST_SEEDS_SHOWN, Line, figure
from conqur.report.trained_runs import (
    Curve,
    Kind,
    Scores,
    TrainedRuns,
    by_kind,
    grid_of,
    on_grid,
    read_trained,
    to_json,
)
from conqur.statistics import difference, student_interval

LAST_PART = 0.1
"""Of the steps, over which returns at the end of training are averaged."""


def lines(curves: Iterable[Curve]) -> list[Line]:
    """The figure's lines: for each kind the mean over its seeds and its 95 % interval.

    Where no episode of a seed ended, its last value before counts; a line begins where all of its
    seeds have one.
    """
    drawn = []
    for kind, members in by_kind(curves).items():
        grid = grid_of(members)
        values = np.stack([on_grid(curve, grid) for curve in members])
        begun = ~np.isnan(values).any(axis=0)
        grid, values = grid[begun], values[:, begun]
        bounds = np.array([student_interval(at) for at in values.T])
        low, high = bounds.reshape(-1, 2).T
        drawn.append(Line(str(kind), grid, values.mean(axis=0), low, high, values))
    return drawn


def last_returns(curves: Iterable[Curve]) -> Scores:
    """The mean return of the episodes that ended in the last tenth of the steps."""
    scores: Scores = {}
    for curve in curves:
        last = (curve.steps > (1 - LAST_PART) * curve.steps[-1]) & (curve.episodes > 0)
        if last.any():
            mean = np.average(curve.returns[last], weights=curve.episodes[last])
            scores.setdefault(curve.kind, {})[curve.seed] = float(mean)
    return scores


def table(trained: TrainedRuns) -> str:
    """All that was scored, as Markdown: by kind, and against λ = 0."""
    lengths = sorted({curve.steps[-1] for curve in trained.curves})
    steps = " to ".join(number(length) for length in dict.fromkeys((lengths[0], lengths[-1])))
    parts = [f"# {trained.environment}, {steps} steps\n"]
    training = f"While training: mean return in the last {LAST_PART * 100:g} % of the steps"
    for heading, scores in (*trained.evaluations, (training, last_returns(trained.curves))):
        if scores:
            parts.append(f"## {heading}\n\n{_score_table(scores)}{_difference_table(scores)}")
    parts.append(
        "Intervals are over seeds, at 95 %: Student's of means, Welch's of differences "
        "(see `conqur.statistics`).\n"
    )
    return "\n".join(parts)


def write_files(trained: TrainedRuns, folder: Path) -> None:
    """Write `results.json`, `curves.svg` and `table.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = lines(trained.curves)
    seeds = max(len(line.seeds) for line in drawn)
    subtitle = f"Mean and 95 % interval over {seeds} seeds" if seeds > 1 else "One seed"
    if 1 < seeds <= MOST_SEEDS_SHOWN:
        subtitle += "; thin: each seed"
    picture = figure(
        drawn,
        title=f"{trained.environment}: return of an episode while training",
        subtitle=subtitle,
        y_label="return",
    )
    for name, text in (
        ("results.json", to_json(trained)),
        ("curves.svg", picture),
        ("table.md", table(trained)),
    ):
        with replacing(folder / name) as file:
            file.write(text.encode())


def _score_table(scores: Scores) -> str:
    rows = [
        "| | seeds | mean | 95 % interval | of each seed |",
        "|---|---:|---:|---:|---|",
    ]
    for kind, by_seed in scores.items():
        values = list(by_seed.values())
        each = ", ".join(f"{seed}: {_short(value)}" for seed, value in sorted(by_seed.items()))
        rows.append(
            f"| {kind} | {len(values)} | {_short(float(np.mean(values)))} "
            f"| {_interval(student_interval(values))} | {each} |"
        )
    return "\n".join(rows) + "\n"


def _difference_table(scores: Scores) -> str:
    """Of every λ above zero from λ = 0."""
    rows = []
    for kind, by_seed in scores.items():
        plain = scores.get(Kind(kind.algorithm, 0.0), {})
        if kind.penalty_weight and plain:
            found = difference(list(by_seed.values()), list(plain.values()))
            sign = "+" if found.mean > 0 else ""
            rows.append(f"| {kind} | {sign}{_short(found.mean)} | {_interval(found.interval)} |")
    if not rows:
        return ""
    head = "| against λ = 0 | difference | 95 % interval |"
    return "\n".join(["", head, "|---|---:|---:|", *rows]) + "\n"


def _short(value: float) -> str:
    return number(value, 2 if abs(value) < 100 else 0)


def _interval(bounds: tuple[float, float]) -> str:
    return "–" if math.isnan(bounds[0]) else f"{_short(bounds[0])} to {_short(bounds[1])}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m conqur.report.learning", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument(
        "--evaluation",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="what `conqur evaluate RUN --json` printed",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="made if missing")
    given = parser.parse_args(arguments)
    try:
        trained = read_trained(given.runs, given.evaluation)
        write_files(trained, given.output)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(table(trained))


if __name__ == "__main__":
    main()
