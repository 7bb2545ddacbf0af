"""What the documents say about the package is true."""

import importlib
import json
import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("document", ["README.md"])
def test_python_in_the_documents_runs(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, document, "exec"), {})


def test_figures_in_the_readme_are_those_of_the_results():
    """Every time in the table of heads, rounded as it is there."""
    text = (ROOT / "README.md").read_text()
    cpu, gpu = (
        {case["case"]: case for case in json.loads((ROOT / path).read_text())["results"]}
        for path in ("results/exact/head_cpu.json", "results/exact/head_gpu.json")
    )
    for case in ("random labels", "random labels, rank 256"):
        row = f"| {cpu[case]['warm_seconds']:.2f} s | {cpu[case]['highs_seconds']:.1f} s |"
        assert row in text
        assert cpu[case]["agree"]
    for case in ("random labels", "teacher", "rare exceptions on ReLU"):
        assert f"| {gpu[case]['warm_seconds']:.1f} s |" in text
    demo = json.loads((ROOT / "results/exact/demo.json").read_text())["grid_world"]
    words = (
        f"({demo['penalised']:.2f} against {demo['q_learning']:.2f}; the\n  best realizable value"
    )
    assert f"{words} is {demo['best_realizable']:.2f})" in text
