"""What the documents say, and what was measured."""

import functools
import re
from pathlib import Path

from conqur.report.study_page import study_exhibits
from conqur.suite.results import read_results

ROOT = Path(__file__).parent.parent


def text(document):
    """A document, or all that are in a folder."""
    path = ROOT / document
    documents = sorted(path.glob("*.md")) if path.is_dir() else [path]
    return "\n".join(each.read_text() for each in documents)


def words(document):
    return re.sub(r"\s+", " ", text(document))


@functools.cache
def study(name):
    """What was measured, and the exhibits of it."""
    results = read_results(ROOT / "results/studies" / name)
    return results, {exhibit.key: exhibit for exhibit in study_exhibits(results)}
