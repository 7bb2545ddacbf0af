"""What tests of the pages of `conqur diagnose` have in common."""

import re
from html.parser import HTMLParser

import numpy as np

from conqur.diagnosis.satisfiable import Satisfiable
from conqur.exact import Consistency

CAN = Satisfiable(800, 40, 12, 0.875, 0.9375, Consistency.INCONSISTENT)
FLIPS = np.array([[0.0], [0.01], [0.125], [0.5], [0.625]])


class Outline(HTMLParser):
    """Checks that elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def text(page: str) -> str:
    outline = Outline(page)
    assert outline.open == []
    return re.sub(r"\s+", " ", outline.text.replace("\xa0", " "))
