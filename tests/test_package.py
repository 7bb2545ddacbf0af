"""What the documents say about the package is true."""

import fnmatch
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_by_hand import random_arrays, sb3_zip, state_dict

import conqur
from conqur.dqn import Diagnostics

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there_and_documented():
    for module in (conqur, conqur.exact, conqur.tabular):
        for name in module.__all__:
            assert getattr(module, name).__doc__


def test_names_are_imported_when_they_are_asked_for():
    code = "import sys, conqur; assert not {'jax', 'numpy'} & set(sys.modules); "
    code += "from conqur import *; assert penalty is conqur.penalty; assert exact.__all__"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(conqur.__all__) < set(dir(conqur))
    with pytest.raises(AttributeError, match="module 'conqur' has no attribute 'importance'"):
        conqur.importance  # noqa: B018


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


@pytest.mark.parametrize("folder", [".", "docs", "results"])
def test_links_in_the_documents_lead_somewhere(folder):
    documents = sorted((ROOT / folder).glob("*.md"))
    assert documents
    for document in documents:
        check_links(document)


def check_links(path):
    text = path.read_text()
    named = set(re.findall(r"\]\[(\w+)\]", text))
    assert named == set(re.findall(r"^\[(\w+)\]: \S+$", text, re.MULTILINE))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        document = path.parent / file if file else path
        assert document.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert heading in anchors, target


@pytest.mark.parametrize("document", ["README.md"])
def test_python_in_the_documents_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    networks = ("q_net", "q_net_target")
    shapes = {f"{n}.q_net.{i}": s for n in networks for i, s in ((0, (8, 4)), (2, (2, 8)))}
    Path("agent.zip").write_bytes(sb3_zip(state_dict(random_arrays(shapes))))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, document, "exec"), {})


def test_it_is_said_how_to_get_the_command():
    steps = ["make", "--dry-run", "--always-make", "setup"]
    said = subprocess.run(steps, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    first, last = re.findall(r"^echo .*$", said, re.MULTILINE)
    assert "takes a minute" in first
    assert ". .venv/bin/activate" in last
    assert "\n. .venv/bin/activate " in (ROOT / "README.md").read_text()


def test_what_the_commands_write_by_default_is_not_for_git():
    patterns = (ROOT / ".gitignore").read_text().split()
    for path in ("/conqur-demo.html", "/conqur-play.mp4", "/breakout.mp4", "/breakout.gif"):
        assert any(fnmatch.fnmatch(path, pattern) for pattern in patterns), path
    assert "/runs/" in patterns


def test_the_readme_explains_columns_that_are_in_the_log():
    explained = re.search(r"Beside returns.*?\n\n", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names = set(re.findall(r"`(\w+)`", explained))
    assert names == {"action_gap", "churn", "inconsistent", "penalty"}
    assert names < set(Diagnostics._fields)
