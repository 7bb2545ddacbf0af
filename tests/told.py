"""What the documents say, and what was measured."""

import functools
import re
from pathlib import Path

from conqur.report.study_page import study_exhibits
from conqur.suite.results import read_results

ROOT = Path(__file__).parent.parent


def words(document):
    return re.sub(r"\s+", " ", (ROOT / document).read_text())


@functools.cache
def study(name):
    """What was measured, and the exhibits of it."""
    results = read_results(ROOT / "results/studies" / name)
    return results, {exhibit.key: exhibit for exhibit in study_exhibits(results)}
