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


def test_leaves_that_waited_are_counted(tmp_path):
    """Node 4 waits from level 2 on, collects level 4's batch and is best in the end, uncalibrated.

    Node 7 would be first: what 7 and 8 lost since node 5 and 6 were born of node 3, with 0.5, is
    0.4 and 0.45, and 2.5 times the mean of that would be added to node 4's 0.6.
    """
    waiting = script("waiting")
    settings = {"nodes": 2, "splitting_factor": 2, "expanded": 1, "pool": 3, "dive_levels": 1}
    more = {"levels": 4, "calibration": 2.5, "backtracking": True}
    (tmp_path / "config.json").write_text(json.dumps(settings | more))
    born = [  # id, parent, level, score
        *((0, None, 0, None), (1, 0, 1, 0.1), (2, 0, 1, 0.2), (3, 1, 2, 0.5), (4, 2, 2, 0.6)),
        *((5, 3, 3, 0.7), (6, 3, 3, 0.8), (7, 5, 4, 0.9), (8, 6, 4, 0.95)),
    ]
    kinds = ("root", "expansion", "dive", "expansion", "dive")
    names = ("id", "parent", "level", "score")
    rows = [
        dict(zip(names, node, strict=True)) | {"kind": kinds[node[2]], "assigned_how": ""}
        for node in born
    ]
    (tmp_path / "tree.jsonl").write_text("\n".join(map(json.dumps, rows)))
    waiting.main([tmp_path], tmp_path / "waiting.csv")
    head, row = (tmp_path / "waiting.csv").read_text().splitlines()
    found = dict(zip(head.split(","), row.split(","), strict=True))
    assert found.pop("run") == tmp_path.name
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {"levels": 3, "collected": 1, "longest": 1, "chosen": 4, "waits": 2, "calibrated": 7}
        | {"within": 0.05, "between": 0.2, "credited": 0, "trained": 4}
        | {"selections": 0, "returns": 0}  # none waited when there was one
    )

    def changed(**last):
        lines = map(json.dumps, [*rows[:-1], rows[-1] | last])
        (tmp_path / "tree.jsonl").write_text("\n".join(lines))

    changed(score=None)  # it diverged
    assert waiting.waiting(tmp_path).between == pytest.approx(0.2)
    changed(parent=5)
    with pytest.raises(ValueError, match="level 4 has other nodes"):
        waiting.waiting(tmp_path)
