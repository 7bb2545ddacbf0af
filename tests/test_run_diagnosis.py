"""A tuning run's history: read as it was made, without touching it, and not believed."""

import json
import math
import shutil

import numpy as np
import pytest
import safetensors.numpy
from tiny_runs import digests

from conqur.diagnosis import diagnose_run, is_tune_run, read_run
from conqur.diagnosis import history as diagnosis_history
from conqur.pretrained import to_bytes
from conqur.runs import RunDirectory, RunError, rows
from conqur.runs.checkpoint import Checkpoints
from conqur.search.config import tune_config
from conqur.search.node import top
from conqur.search.saving import digest
from conqur.tuning import Tuning, fresh_network
from conqur.tuning_run import run_tuning

LEVELS, TRANSITIONS = 4, 50
CHANGES = {
    "levels": LEVELS,
    "transitions": TRANSITIONS,
    "updates": 8,
    "nodes": 4,
    "pool": 6,
    "splitting_factor": 2,
    "expanded": 2,
    "dive_levels": 1,
    "num_envs": 2,
    "evaluation_episodes": 0,
    "final_episodes": 2,
    "learning_rate": 0.01,
    "clip_rewards": False,
}


def tuned(folder, **changes):
    """A run, with the batches it collected and the tree it ended with."""
    network = fresh_network("CartPole-v1", 0)
    basis = {
        "environment": "CartPole-v1",
        "preprocessing": "",
        "checkpoint": digest(network.regressor),
    }
    config = tune_config("paper-8", **basis | CHANGES | changes)
    tuning, batches, trees = Tuning(config, network), [], []
    collect = tuning.grower.collect

    def watched(node, level):
        batches.append(collect(node, level))
        return batches[-1]

    tuning.grower.collect = watched
    with RunDirectory.create(folder, config.to_json(), warn=print) as run:
        run.write_network("checkpoint.safetensors", to_bytes(network))
        run_tuning(tuning, run, None, warn=print, show=lambda tree, _: trees.append(tree))
    tuning.close()
    return folder, batches, trees[-1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tuned(tmp_path_factory.mktemp("tuned") / "run")


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "copy")


def test_choices_are_those_that_the_search_made(finished):
    folder, batches, tree = finished
    run = read_run(folder)
    assert sorted(run.successors) == list(range(LEVELS))
    assert [node.id for node in run.tree.pool] == [node.id for node in tree.pool]
    for read, made in zip(run.tree.pool, tree.pool, strict=True):
        for level, batch in enumerate(batches):
            features, assigned = run.choices(read, level)
            actions = made.history[level] if level < len(made.history) else None
            if actions is None:
                assert len(features) == len(assigned) == 0
                continue
            alive = ~np.asarray(batch.transitions.terminal)
            expected = np.asarray(batch.transitions.successors)[alive].astype(np.float16)
            assert (features == expected).all()
            assert (assigned == actions[alive]).all()


def test_broken_choices_are_counted_for_every_node(finished):
    folder, batches, tree = finished
    found = diagnose_run(read_run(folder), episodes=2)
    assert [node.id for node in found.frontier] == [node.id for node in tree.frontier]
    assert found.best.id == top(tree.pool, 1)[0].id
    by_id = {node.id: node for node in tree.pool}
    for counted in (found.best, *found.frontier):
        node, broken, choices = by_id[counted.id], 0, 0
        for assigned, batch in zip(node.history, batches, strict=False):
            if assigned is None:
                continue
            alive = ~np.asarray(batch.transitions.terminal)
            states = np.asarray(batch.transitions.successors).astype(np.float16).astype(np.float32)
            q_values = states @ node.weights.theta.weight + node.weights.theta.bias
            broken += np.sum((q_values.argmax(axis=1) != assigned)[alive])
            choices += alive.sum()
        assert counted.choices == choices
        assert counted.share == pytest.approx(broken / choices)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert found.churn == tuple(row["churn"] for row in log)
    assert found.satisfiable.found >= 1 - found.best.share
    assert (found.drawn, found.level) == (found.best.choices, LEVELS)
    assert found.balance.episodes == found.checkpoint_balance.episodes == 2
    assert json.loads(json.dumps(found.to_json()))["best"]["id"] == found.best.id


def test_of_many_choices_some_are_drawn(finished, monkeypatch):
    run = read_run(finished[0])
    best = top(run.tree.pool, 1)[0]
    features, assigned = diagnosis_history._drawn(run, best, 0)
    everything = {(*row.tolist(), a) for row, a in zip(features, assigned, strict=True)}
    monkeypatch.setattr(diagnosis_history, "MOST_CHOICES", 30)
    features, assigned = diagnosis_history._drawn(run, best, 0)
    drawn = {(*row.tolist(), a) for row, a in zip(features, assigned, strict=True)}
    assert len(features) == len(assigned) == 30
    assert drawn <= everything


@pytest.mark.parametrize("data", ["newest", "replay"])
def test_only_newest_states_are_kept_by_a_window(tmp_path, data):
    """With replay a checkpoint has room for all levels, but the buffer for one only."""
    folder, batches, _ = tuned(tmp_path / "run", buffer="window:1", data=data)
    run = read_run(folder)
    assert LEVELS - 1 in run.successors
    best = top(run.tree.pool, 1)[0]
    for level in run.successors:
        features, assigned = run.choices(best, level)
        alive = ~np.asarray(batches[level].transitions.terminal)
        expected = np.asarray(batches[level].transitions.successors)[alive].astype(np.float16)
        assert len(assigned) == (len(expected) if level == LEVELS - 1 else 0)
        assert len(assigned) == 0 or (features == expected).all()
    found = diagnose_run(run, episodes=2)
    missing = range(LEVELS - 1)
    assert all(math.isnan(found.best.of_levels[level]) for level in missing)


def test_reading_leaves_everything_as_it_is(folder):
    (folder / "lock").unlink()
    (folder / "networks" / "half.safetensors.partial").write_bytes(b"x")
    before = digests(folder)
    diagnose_run(read_run(folder), episodes=1)
    assert digests(folder) == before
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert is_tune_run(folder)
    read_run(folder)


def test_a_run_under_way_may_be_read(folder):
    with RunDirectory.open(folder, warn=print):  # which locks it
        assert read_run(folder).tree.level == LEVELS


def edited(folder, change):
    """The newest checkpoint with other arrays, as an expert would fake it."""
    checkpoints = Checkpoints(folder / "checkpoints")
    record = checkpoints.newest()
    arrays = dict(safetensors.numpy.load(record.state.read(folder / "checkpoints")))
    change(arrays)
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        path.unlink()
    segments = {file.first: folder / "checkpoints" / file.name for file in record.segments}
    decoded = [rows.decode(path) for _, path in sorted(segments.items())]
    successors = np.concatenate([part["successors"] for part in decoded])
    Checkpoints(folder / "checkpoints").save(
        record.step,
        arrays,
        appended={"successors": arrays.pop("states", successors)},
        total_rows=record.total_rows,
        keep_rows=LEVELS,
        log=record.log,
        config=record.config,
    )


def with_tree(change):
    def edit(arrays):
        tree = json.loads(arrays["tree"].tobytes())
        change(tree)
        arrays["tree"] = np.frombuffer(json.dumps(tree).encode(), np.uint8)

    return edit


def shape(arrays):
    """Of states."""
    return LEVELS, TRANSITIONS, arrays["weights/theta/weight"].shape[1]


HOSTILE = [
    lambda arrays: arrays.pop("tree"),
    lambda arrays: arrays.update(tree=np.frombuffer(b"[" * 100_000, np.uint8)),
    lambda arrays: arrays.update(tree=np.frombuffer(b"[]", np.uint8)),
    lambda arrays: arrays.update(history=arrays["history"].astype(np.float32)),
    lambda arrays: arrays.update(history=np.full_like(arrays["history"], 200)),
    lambda arrays: arrays.update(history=arrays["history"][:, :3]),
    lambda arrays: arrays.update({"world/places": arrays["world/places"][:2]}),
    lambda arrays: arrays.pop("world/places"),
    lambda arrays: arrays.pop(next(name for name in arrays if name.startswith("weights/"))),
    lambda arrays: arrays.update(states=np.zeros((LEVELS, TRANSITIONS, 3), np.float16)),
    lambda arrays: arrays.update(states=np.full(shape(arrays), np.nan, np.float16)),
    lambda arrays: arrays.update(states=np.zeros(shape(arrays), np.int8)),
    with_tree(lambda tree: tree.update(level=99)),
    with_tree(lambda tree: tree.update(frontier=[12345])),
    with_tree(lambda tree: tree["nodes"].extend(tree["nodes"] * 1000)),
    with_tree(lambda tree: tree["nodes"][0].update(id="<script>")),
    with_tree(lambda tree: tree["nodes"][0].update(score="much")),
    with_tree(lambda tree: tree["nodes"][0].update(kind="friendly")),
    with_tree(lambda tree: tree["nodes"][0].update(history=[999])),
    with_tree(lambda tree: tree["nodes"][0].update(history=[0] * 50)),
]


@pytest.mark.parametrize("change", HOSTILE)
def test_other_people_s_arrays_are_refused(folder, change):
    edited(folder, change)
    with pytest.raises(RunError) as refused:
        read_run(folder)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_edited_checkpoint_without_a_change_is_read(folder):
    edited(folder, lambda arrays: None)
    assert read_run(folder).tree.level == LEVELS


def remove_checkpoints(folder):
    shutil.rmtree(folder / "checkpoints")


def damage_state(folder):
    path = next((folder / "checkpoints").glob("state-*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def damage_rows(folder):
    next((folder / "checkpoints").glob("rows-*")).unlink()


def damage_records(folder):
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        path.write_text("{}")


def change_config(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"seed": 7}))


def add_setting(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"colour": "blue"}))


def nonsense_setting(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"environment": 5}))


def shorten_log(folder):
    (folder / "log.jsonl").write_text("")


def change_log(folder):
    text = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(text.replace("churn", "chern"))


def exchange_network(folder):
    other = to_bytes(fresh_network("CartPole-v1", 3))
    (folder / "networks" / "checkpoint.safetensors").write_bytes(other)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_checkpoints, "it has no checkpoint (yet)"),
        (damage_state, "is damaged"),
        (damage_rows, "is missing"),
        (damage_records, "damaged or of another version"),
        (change_config, "config.json was changed since its last checkpoint"),
        (add_setting, "settings of another version of conqur (they differ in colour)"),
        (nonsense_setting, "cannot be read"),
        (shorten_log, "log.jsonl has become shorter"),
        (change_log, "log.jsonl was changed"),
        (exchange_network, "is not the run's own"),
    ],
)
def test_runs_that_cannot_be_read_are_told_in_one_sentence(folder, damage, words):
    damage(folder)
    with pytest.raises(RunError) as refused:
        read_run(folder)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_a_tuning_run(folder, tmp_path):
    assert is_tune_run(folder)
    assert not is_tune_run(tmp_path)
    assert not is_tune_run(tmp_path / "missing")
    (folder / "config.json").write_text('{"steps": 5}')
    assert not is_tune_run(folder)
    (folder / "config.json").write_text("nonsense")
    with pytest.raises(RunError, match=r"config\.json is not JSON"):
        is_tune_run(folder)


def test_whole_networks_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"approximator": "network"}))
    with pytest.raises(RunError, match="searched whole networks"):
        read_run(folder)
