"""The tidy tables of a study: of its networks, of points of their curves, of the last nodes.

They are what `conqur suite collect` writes and `conqur report` reads: a study's page can be made
from these files alone, wherever its runs are.
"""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from conqur.runs.files import Damaged, file_size

RESULTS, CURVES, NODES = "results.csv", "curves.csv", "nodes.csv"
LARGEST = 64 << 20
"""Bytes of a table that is read."""


class Trained(NamedTuple):
    """A network that was trained, and what it scored in fresh episodes."""

    game: str
    algorithm: str
    preset: str
    penalty_weight: float
    seed: int
    score: float
    score_low: float | None
    score_high: float | None
    human_normalised: float | None
    episodes: int
    run: str


class Tuned(NamedTuple):
    """A network that was tuned.

    `checkpoint`, `score` and `gain` are on fresh starts, of the node that rollouts chose;
    `score_by_score` and `gain_by_score` of the one that its score chose. `best_evaluation` is the
    highest mean score in all evaluations of the search, of nodes and at first of the checkpoint,
    which is the paper's number, and `best_evaluation_checkpoint` the checkpoint's mean on the
    starts on which nodes were evaluated. With `diverged` (1 or 0) no node was left, and the
    checkpoint was handed back. None: not played.
    """

    network: str
    game: str
    algorithm: str
    preset: str
    nodes: int
    penalty_weight: float
    seed: int
    checkpoint: float | None
    score: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    handed_back_gain: float | None
    score_by_score: float | None
    gain_by_score: float | None
    best_evaluation: float | None
    best_evaluation_checkpoint: float | None
    diverged: int
    episodes: int | None
    frames: int
    seconds: float | None
    run: str


class TrainedPoint(NamedTuple):
    """What a network's episodes returned while it was trained, up to a step."""

    game: str
    algorithm: str
    preset: str
    penalty_weight: float
    seed: int
    step: int
    score: float


class TunedPoint(NamedTuple):
    """What the nodes of a search scored after a level, and the checkpoint on the same starts."""

    network: str
    game: str
    algorithm: str
    preset: str
    nodes: int
    penalty_weight: float
    seed: int
    level: int
    best: float
    mean: float
    checkpoint: float


class RankedNode(NamedTuple):
    """A node in the last evaluation of a search, and the checkpoint on the same starts.

    `rank` is 1 for the node that scored most there.
    """

    network: str
    game: str
    algorithm: str
    preset: str
    nodes: int
    penalty_weight: float
    seed: int
    level: int
    rank: int
    score: float
    checkpoint: float


Row = TypeVar("Row", Trained, Tuned, TrainedPoint, TunedPoint, RankedNode)


def as_csv(kind: Any, rows: Sequence[Any]) -> str:
    """Rows of a NamedTuple as CSV; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind._fields)
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(kind: type[Row], rows: Sequence[Row]) -> bytes:
    """The table as Parquet. This needs pyarrow."""
    import pyarrow
    import pyarrow.parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [(name, types[_plain(hint)]) for name, hint in kind.__annotations__.items()]
    )
    table = pyarrow.Table.from_pylist([row._asdict() for row in rows], schema)
    target = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, target)
    return bytes(target.getvalue().to_pybytes())


def read_csv(kinds: Sequence[type[Any]], path: Path) -> tuple[type[Any], list[Any]]:
    """A table that is one of these kinds, by its columns.

    Raises:
        ValueError: if it is none of them.
    """
    try:
        if file_size(path) > LARGEST:
            raise ValueError(f"{path} is too large to be true")
        lines = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline=""), strict=True))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except Damaged as error:
        raise ValueError(f"{path}: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no table: {error}") from None
    head = tuple(lines[0]) if lines else ()
    for kind in kinds:
        if kind._fields == head:
            return kind, [_row(kind, cells, path, i) for i, cells in enumerate(lines[1:], 2)]
    raise ValueError(f"{path} is no table of a study of this version: its columns are others")


def _row(kind: type[Any], cells: Sequence[str], path: Path, line: int) -> Any:
    if len(cells) != len(kind._fields):
        raise ValueError(f"{path} has {len(cells)} cells in line {line}")
    try:
        hints = kind.__annotations__.values()
        return kind(*(_value(hint, cell) for hint, cell in zip(hints, cells, strict=True)))
    except (ValueError, OverflowError):
        raise ValueError(f"{path} holds what is no number in line {line}") from None


def _value(hint: Any, cell: str) -> Any:
    plain = _plain(hint)
    if plain is str:
        return cell
    if not cell and plain is not hint:
        return None
    value = plain(cell)
    if not math.isfinite(value):
        raise ValueError(cell)
    return value


def _plain(hint: Any) -> Any:
    """The type of a column without its None."""
    return next((kind for kind in (str, int, float) if hint == kind or hint == kind | None), hint)
