"""Reading what runs write, line by line: nothing in it is trusted."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from conqur.runs.files import Damaged, file_size
from conqur.search.config import HUGE

LARGEST = 64 << 20
"""Bytes of a file that is read."""

Row = TypeVar("Row")
Interval = tuple[float | None, float | None]


def read_rows(path: Path, make: Callable[[dict[str, Any]], Row]) -> list[Row]:
    """The lines of a file; the last may have been cut off, and none be there."""
    if not is_there(path):
        return []
    if file_size(path) > LARGEST:
        raise Damaged(f"{path.name} is too large to be true")
    rows = []
    lines = path.read_text("utf-8", errors="replace").rstrip().split("\n")
    for number, line in enumerate(lines, 1):
        try:
            rows.append(make(json.loads(line)))
        except KeyError as error:
            raise Damaged(f"line {number} of {path.name} has no {error.args[0]}") from None
        except json.JSONDecodeError:
            if number == len(lines):
                break
            raise Damaged(f"line {number} of {path.name} is no JSON") from None
        except (TypeError, ValueError, RecursionError, AttributeError) as error:
            raise Damaged(f"line {number} of {path.name}: {str(error)[:100]}") from None
    return rows


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, of whatever kind."""
    return os.path.lexists(path)


def pair(values: Any) -> Interval:
    """An interval, whose ends may be unknown."""
    low, high = values
    return number_or_none(low), number_or_none(high)


def number_or_none(value: Any) -> float | None:
    """A number that may be unknown."""
    return None if value is None else finite(value)


def finite(value: Any) -> float:
    """A number, if it is one."""
    if type(value) not in (int, float) or not abs(value) < HUGE:
        raise ValueError(f"{str(value)[:40]!r} is no number that can be")
    return float(value)


def whole(value: Any) -> int:
    """A whole number, if it is one."""
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError(f"{str(value)[:40]!r} is no whole number that can be")
    return value
