"""What a training run was like beside its returns: losses, penalties, values over time."""

from pathlib import Path
from typing import Any

from conqur.report.charts import line_chart, number
from conqur.report.comparing import BLACK, mean_line
from conqur.report.exhibits import Exhibit, Figure, colour
from conqur.report.lines import finite, read_rows, whole
from conqur.runs import RunError
from conqur.runs.files import Damaged
from conqur.runs.layout import LOG
from conqur.search.config import HUGE

COLUMNS = {
    "loss": "Loss",
    "penalty": "Consistency penalty",
    "inconsistent": "Choices broken, per cent",
    "churn": "Decisions that changed, per cent",
    "action_gap": "Action gap",
    "q_mean": "Mean Q-value",
    "q_max": "Mean highest Q-value",
}
"""Of the log: what a panel is called."""
SHARES = ("inconsistent", "churn")
MOST_POINTS = 100


def training_exhibits(folder: Path) -> list[Exhibit]:
    """Small charts of the log's other columns: the mean over seeds for every λ."""
    try:
        rows = read_rows(folder / LOG, _numbers)
    except (Damaged, OSError) as error:
        raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
    weights = sorted({row["penalty_weight"] for row in rows})
    others = [weight for weight in weights if weight]
    colours = {0.0: BLACK} | {weight: colour(i) for i, weight in enumerate(others)}
    figures = []
    for column, title in COLUMNS.items():
        lines = []
        for weight in weights:
            curves = _curves(rows, column, weight)
            if curves:
                lines.append(mean_line(f"λ = {number(weight)}", curves, colours[weight]))
        if lines:
            chart = line_chart(lines, title=title, x_label="step", y_label="")
            figures.append(Figure(title, chart))
    if not figures:
        return []
    return [
        Exhibit(
            key="training",
            title="What training was like",
            paper="",
            words="Means over seeds, with Student's 95 % intervals where there are several.",
            figures=tuple(figures),
            legend=tuple((f"λ = {number(weight)}", colours[weight]) for weight in weights),
        )
    ]


def _curves(
    rows: list[dict[str, Any]], column: str, weight: float
) -> list[list[tuple[float, float]]]:
    """Of each seed, at no more points than can be seen."""
    by_seed: dict[int, list[tuple[float, float]]] = {}
    factor = 100.0 if column in SHARES else 1.0
    for row in rows:
        if row["penalty_weight"] == weight and column in row:
            by_seed.setdefault(row["seed"], []).append((row["step"], factor * row[column]))
    curves = [points[:: -(-len(points) // MOST_POINTS)] for points in by_seed.values()]
    return [points for points in curves if len(points) > 1]


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the log with its numbers, those that are known."""
    numbers = {n: v for n, v in row.items() if type(v) in (int, float) and abs(v) < HUGE}
    return numbers | {
        "step": finite(row["step"]),
        "seed": whole(row["seed"]),
        "penalty_weight": finite(row["penalty_weight"]),
    }
