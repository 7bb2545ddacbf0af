"""What the documents say about the package is true."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import conqur
from conqur.statistics import paired_difference

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
    """Rounded as they are there."""
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    cpu, gpu = (
        {case["case"]: case for case in json.loads((ROOT / path).read_text())["results"]}
        for path in ("results/exact/head_cpu.json", "results/exact/head_gpu.json")
    )
    for case in (cpu["teacher"], cpu["random labels"], cpu["random labels, rank 256"]):
        times = case["cold_seconds"], case["warm_seconds"], case["highs_seconds"]
        assert "| {:.1f} s | {:.2f} s | {:.1f} s |".format(*times) in text
        assert case["agree"]
    for case in (gpu["random labels"], gpu["teacher"], gpu["rare exceptions on ReLU"]):
        assert f"| {case['cold_seconds']:.1f} s | {case['warm_seconds']:.1f} s | not" in text
        assert case["outcome"] != "UNDECIDED"
    demo = json.loads((ROOT / "results/exact/demo.json").read_text())
    starts, grid = demo["random_starts"], demo["grid_world"]
    assert f"From {starts['starts']} random starts" in text
    assert f"best realizable policy {starts['penalised']} times, but {starts['begun']} of" in text
    assert starts["plain"] == 0
    assert f"({grid['regression']:.2f} without it, {grid['penalised']:.2f} with it)" in text
    assert f"better than both ({grid['q_learning']:.2f})" in text
    assert f"best realizable value ({grid['best_realizable']:.2f})" in text


def test_scores_in_the_readme_are_those_of_the_results():
    """Rounded as they are there."""
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())

    def scores(name, weight, played=""):
        results = json.loads((ROOT / "results/training" / name / "results.json").read_text())
        found = {
            score["seed"]: score["mean"]
            for score in results["scores"]
            if score["penalty_weight"] == weight
            and score["played"].startswith("Evaluation")
            and score["played"].endswith(played)
        }
        return np.array([found[seed] for seed in sorted(found)])

    for name, row in (("minatar_breakout", "Breakout"), ("minatar_asterix", "Asterix")):
        plain, penalised = scores(name, 0.0), scores(name, 0.5)
        difference = paired_difference(penalised, plain)
        low, high = difference.interval
        assert len(plain) == 10
        assert (
            f"| MinAtar {row}, 10 seeds | 5M | {plain.mean():.1f} | {penalised.mean():.1f} "
            f"| +{difference.mean:.1f} ({low:.1f} to {high:.1f}) |"
        ) in text
    assert f"| CartPole, 5 seeds | 0.5M | {scores('cartpole', 0.0).mean():.1f} |" in text
    assert f"| Pong, one seed | 2.7M | {scores('pong', 0.0, 'actions 0').mean():.1f} |" in text
    assert f"the same network scores {scores('pong', 0.0, 'actions 0.25').mean():.1f}" in text


def test_the_readme_s_warning_about_small_weights_is_true():
    problem = conqur.tabular.four_state()
    batches = [conqur.tabular.sample_batch(problem.mdp, k, 1000) for k in range(5)]

    def value(**settings):
        found = conqur.tabular.fitted_q_iteration(
            batches, problem.features, discount=1.0, theta=[-2.0, 0.5], **settings
        )
        return problem.mdp.value(found.policy)

    assert value(penalty_weight=1.0) == 0.3
    assert value(penalty_weight=10.0, margin=0.01) == 0.5
