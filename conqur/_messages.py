"""What people are told besides results."""

import sys


def warn(line: str) -> None:
    """Say in one line, on stderr, what is wrong without being in the way."""
    print(f"conqur: {line}", file=sys.stderr)
