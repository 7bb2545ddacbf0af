"""The scripts behind results/, as small as can be."""

import importlib.util
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
