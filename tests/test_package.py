"""What the documents say about the package is true."""

import importlib
import re
from pathlib import Path

import conqur

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there_and_documented():
    for module in (conqur, conqur.exact, conqur.tabular):
        for name in module.__all__:
            assert getattr(module, name).__doc__


def test_the_paper_map_names_only_what_exists():
    text = (ROOT / "docs" / "paper_map.md").read_text()
    targets = re.findall(r"`(conqur/[\w/]+\.py)`(?: `([\w.]+)`)?", text)
    assert len(targets) > 15
    for path, name in targets:
        assert (ROOT / path).is_file(), path
        value = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for part in name.split(".") if name else ():
            value = getattr(value, part)


def test_constraints_pin_everything_with_hashes_and_hold_no_addresses():
    text = (ROOT / "constraints.txt").read_text()
    pins = re.findall(r"^[\w.\-]+==\S+ \\$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith("    --hash=sha256:")]
    assert lines == pins
    assert "://" not in text
