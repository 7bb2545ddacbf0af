"""What was meant by a name that there is not."""

import difflib
from collections.abc import Sequence


def did_you_mean(given: str, names: Sequence[str], *, written: str = "{}") -> str:
    """The end of a sentence about a name that there is not: a guess, or nothing.

    Args:
        given: the name.
        names: those that there are.
        written: how they are written in sentences.
    """
    by_letters = {name.lower(): name for name in names}
    near = difflib.get_close_matches(given.lower(), by_letters, 1, 0.63)
    return f"; did you mean {written.format(by_letters[near[0]])}?" if near else ""
