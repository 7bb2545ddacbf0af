"""The scripts behind results/, as small as can be."""

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "experiments"


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_penalised_fits_are_between_the_plain_and_the_constrained_one(monkeypatch):
    exactness = script("exactness")
    for name, value in {"TRANSITIONS": 500, "CHOICES": 20, "LIMIT": (0.001, 100.0)}.items():
        monkeypatch.setattr(exactness, name, value)
    plain, weak, strong, constrained = exactness.limit("Breakout")
    assert plain.error < weak.error < constrained.error
    assert plain.penalty > weak.penalty > 0
    assert constrained.broken == constrained.apart == 0
    # The hinge makes a large weight exact.
    assert strong.error == pytest.approx(constrained.error, rel=1e-3)
    assert strong.broken == 0
    assert strong.apart < 1e-3 < weak.apart < plain.apart


def test_heads_are_held_near_the_checkpoint_s(monkeypatch, tmp_path, capsys):
    holding = script("holding")
    settings = holding.tune_config

    def small(*given, **changes):
        few = {"transitions": 320, "updates": 60, "nodes": 2, "expanded": 1}
        return settings(*given, **{"levels": 2} | changes | few)

    monkeypatch.setattr(holding, "tune_config", small)
    runs = [(10, "Breakout", ("ρ", weight)) for weight in (0.0, 100.0)]
    few = {"EPISODES": 2, "STATES": 640, "RUNS": runs, "GAMES": ("Breakout",), "OTHERS": ()}
    for name, value in few.items():
        monkeypatch.setattr(holding, name, value)
    monkeypatch.setattr("sys.argv", ["holding.py", "--output", str(tmp_path)])
    holding.main()
    free, held = found = holding.read(tmp_path / "runs.csv")
    assert 0 < held.distance < free.distance
    assert free.checkpoint == held.checkpoint
    assert all(0 <= run.changed <= 1 for run in found)
    _, warm, cold = (tmp_path / "sampled.csv").read_text().split()
    assert float(warm.split(",")[-1]) < 0.6 < 0.8 < float(cold.split(",")[-1])
    assert json.loads((tmp_path / "made_with.json").read_text())["commit"] == free.commit
    drawn = (tmp_path / "distances.svg").read_text()
    assert drawn.count("<title>Breakout-10, ") == 2
    capsys.readouterr()
    holding.main()  # all is there
    assert capsys.readouterr().out.count("| Breakout | ρ = ") == 2
