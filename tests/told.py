"""What the documents say, and what was measured."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def text(document):
    """A document, or all that are in a folder."""
    path = ROOT / document
    documents = sorted(path.glob("*.md")) if path.is_dir() else [path]
    return "\n".join(each.read_text() for each in documents)


def words(document):
    return re.sub(r"\s+", " ", text(document))
