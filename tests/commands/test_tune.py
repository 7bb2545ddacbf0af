"""Tuning runs end to end: what they leave behind, and that they survive."""

import io
import json
import os
import re
import shlex
import shutil
import signal
from dataclasses import replace

import jax
import numpy as np
import pytest
from rich.console import Console
from tiny_runs import sentence

from conqur import tuning_run
from conqur.commands.tune import Tune, _finished, _header
from conqur.pretrained import load, to_bytes
from conqur.runs import RunDirectory
from conqur.search.config import PRESETS
from conqur.search.display import Lines, Shown
from conqur.search.growing import Grower
from conqur.search.node import Kind, Node, Tree
from conqur.search.rollouts import Rollouts
from conqur.suite import collecting
from conqur.tuning import Tuning, settings_of

TINY = (
    *("--preset", "paper-8"),
    *("--transitions", "40", "--updates", "6", "--levels", "5", "--nodes", "4", "--pool", "6"),
    *("--splitting-factor", "2", "--expanded", "2", "--dive-levels", "1", "--num-envs", "2"),
    *("--evaluation-episodes", "2", "--evaluate-every", "2", "--final-episodes", "4"),
)
SAME = ("log.jsonl", "tree.jsonl", "evaluations.jsonl", "networks/best.safetensors")


@pytest.fixture(scope="module")
def network(cartpole):
    return next((cartpole / "networks").iterdir())


@pytest.fixture(scope="module")
def tuned(network, tmp_path_factory):
    from conqur import cli

    folder = tmp_path_factory.mktemp("tune") / "run"
    assert cli.run(["tune", str(network), *TINY, "--run-dir", str(folder), "--json"]) == 0
    return folder


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_tree_has_a_line_for_every_node(tuned):
    rows = lines(tuned / "tree.jsonl")
    assert [row["id"] for row in rows] == list(range(1 + 2 + 4 + 4 + 4 + 4))
    assert rows[0]["kind"] == "root"
    assert rows[0]["parent"] is None
    names = "id parent level kind score calibrated assigned_how status penalty bellman"
    assert all(set(row) == set(names.split()) for row in rows)
    by_id = {row["id"]: row for row in rows}
    for row in rows[1:]:
        assert by_id[row["parent"]]["level"] < row["level"]
        assert row["kind"] == ("dive" if row["level"] == 4 else "expansion")
        assert row["score"] == pytest.approx(row["bellman"] + 10 * row["penalty"], rel=1e-4)
    statuses = [row["status"] for row in rows]
    assert statuses.count("frontier") == 4
    assert statuses.count("pool") == 2
    parents = {row["parent"] for row in rows}
    assert all((row["status"] == "expanded") == (row["id"] in parents) for row in rows)


def test_the_log_shows_gap_churn_and_entropy_of_every_level(tuned):
    rows = lines(tuned / "log.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert row["gap"] > 0
        assert 0 <= row["churn"] <= 1
        assert (row["entropy"] > 0) == (row["kind"] == "expansion" or row["step"] == 1)
        assert (row["greedy"] == 1) == (row["kind"] == "dive")


def test_evaluations_are_paired_with_the_checkpoint(tuned):
    rows = lines(tuned / "evaluations.jsonl")
    assert [row["level"] for row in rows] == [0, *[2] * 4, *[4] * 4, *[5] * 4]
    assert rows[0]["gain"] == 0  # the root is the checkpoint
    for row in rows:
        assert row["gain"] == pytest.approx(row["mean"] - row["checkpoint"])


def test_the_summary_says_what_was_found(tuned):
    summary = json.loads((tuned / "summary.json").read_text())
    chosen = summary["chosen"]
    assert chosen["episodes"] == summary["chosen_by_score"]["episodes"] == 4
    assert chosen["gain"] == pytest.approx(chosen["mean"] - summary["checkpoint"]["mean"])
    assert summary["best_of_evaluations"]["gain"] == max(
        row["gain"] for row in lines(tuned / "evaluations.jsonl")
    )
    better = chosen["gain_interval"][0] is not None and chosen["gain_interval"][0] > 0
    assert summary["handed_back"] == (f"node {chosen['node']}" if better else "checkpoint")
    again = summary["played_again"]
    assert len({row["node"] for row in again}) == len(again) == summary["candidates"]
    longest = [row for row in again if row["episodes"] == max(r["episodes"] for r in again)]
    assert max(longest, key=lambda row: row["mean"])["node"] == chosen["node"]
    made = {node["id"]: node["level"] for node in lines(tuned / "tree.jsonl")}
    assert chosen["level"] == made[chosen["node"]]
    assert summary["frames"] >= 5 * 40
    assert summary["played_frames"] > 0
    assert summary["seconds"] > 0


def test_the_frontier_and_the_best_network_can_be_loaded(tuned, network):
    names = sorted(path.name for path in (tuned / "networks").iterdir())
    frontier = [r["id"] for r in lines(tuned / "tree.jsonl") if r["status"] == "frontier"]
    assert names == sorted(
        ["best.safetensors", "checkpoint.safetensors", *(f"node-{i}.safetensors" for i in frontier)]
    )
    checkpoint, node = load(network), load(tuned / "networks" / f"node-{frontier[0]}.safetensors")
    same = jax.tree.map(np.array_equal, node.regressor.body, checkpoint.regressor.body)
    assert all(jax.tree.leaves(same))
    assert not np.array_equal(node.regressor.head.weight, checkpoint.regressor.head.weight)


def test_copies_of_the_checkpoint_are_one_candidate(network, tmp_path, conqur, monkeypatch):
    """Independent heads begin as copies of it, and here none of them learns."""
    folder = tmp_path / "run"
    options = ("--search", "independent", "--penalty-weight", "0", "--updates", "0")
    seen = []
    monkeypatch.setattr(Tuning, "watch", lambda self, announce, words: seen.append(words))
    assert conqur("tune", network, *TINY, *options, "--run-dir", folder)[0] == 0
    playing = [words for words in seen if "playing" in words]
    assert playing == [f"level {level}/5: playing with nodes" for level in range(1, 6)]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["candidates"] == 1
    assert summary["handed_back"] == "checkpoint"


@pytest.mark.parametrize("evaluated", [True, False])
def test_what_was_evaluated_before_all_diverged_may_still_be_handed_back(
    evaluated, network, tmp_path, conqur, monkeypatch
):
    finish = tuning_run.finish

    def with_nothing_whole(tuning, run, tree, records, *others):
        gone = [
            replace(node, weights=jax.tree.map(lambda leaf: leaf * np.nan, node.weights))
            for node in tree.pool
        ]
        tree = replace(tree, pool=tuple(gone), frontier=())
        if not evaluated:
            records.champions = [found for found in records.champions if not found[1]["level"]]
        return finish(tuning, run, tree, records, *others)

    monkeypatch.setattr(tuning_run, "finish", with_nothing_whole)
    status, out, err = conqur("tune", network, *TINY, "--run-dir", tmp_path / "run", "--json")
    assert status == 0
    assert "all nodes diverged: lower the learning rate" in err
    summary = json.loads(out)
    page = (tmp_path / "run" / "report.html").read_text()
    rows = collecting.tuned_rows(tmp_path / "run", {"network": "n", "algorithm": "", "preset": ""})
    assert rows[0].diverged == (not evaluated)
    if evaluated:
        assert summary["chosen"]["node"] > 0
        assert summary["chosen_by_score"] is rows[0].score_by_score is None
        assert f"played again node {summary['chosen']['node']} was best" in page
    else:
        assert (summary["candidates"], summary["handed_back"]) == (0, "checkpoint")
        assert "All nodes diverged" in page


def killed_after(level, monkeypatch, conqur, *arguments):
    """Run until the level is saved and end as if killed there; then go on."""
    save = tuning_run._save

    def last(kept, run, tree, records):
        save(kept, run, tree, records)
        if tree.level == level:
            raise RuntimeError("killed")

    monkeypatch.setattr(tuning_run, "_save", last)
    folder = arguments[arguments.index("--run-dir") + 1]
    assert conqur("tune", *arguments, "--json", "--save-every", "1e-9")[0] == 1
    monkeypatch.setattr(tuning_run, "_save", save)
    assert conqur("tune", "--resume", "--run-dir", folder, "--json")[0] == 0


def same_runs(one, other):
    nodes = {f"networks/{path.name}" for path in (other / "networks").glob("node-*")}
    assert nodes
    for name in (*SAME, *sorted(nodes)):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    mine, others = (json.loads((f / "summary.json").read_text()) for f in (one, other))
    assert mine.pop("seconds") > 0
    others.pop("seconds")
    assert mine == others


@pytest.mark.parametrize("level", [1, 3, 5])
def test_killed_after_any_level_it_goes_on_as_if_it_had_not_been(
    network, tuned, tmp_path, monkeypatch, conqur, level
):
    folder = tmp_path / "run"
    killed_after(level, monkeypatch, conqur, network, *TINY, "--run-dir", folder)
    same_runs(folder, tuned)


def test_a_finished_run_has_nothing_left_to_do(tuned, conqur, monkeypatch):
    monkeypatch.setattr(tuning_run, "run_tuning", None)  # which would be called
    before = json.loads((tuned / "summary.json").read_text())
    status, out, err = conqur("tune", "--resume", "--run-dir", tuned, "--json")
    assert status == 0
    assert "The run is finished: there is nothing left to do." in err
    assert json.loads(out).items() >= before.items()
    again = ("tune", "--resume", "--run-dir", tuned, "--env")
    assert "nothing left to do" in conqur(*again, "CartPole-v1")[2]  # code has to be named again
    status, _, err = conqur(*again, "Acrobot-v1")
    assert status != 0
    assert "nothing left to do" not in err
    assert "CartPole-v1" in err


def test_a_finished_run_of_another_version_is_told_apart(tuned, tmp_path, conqur):
    """Before anything is printed of it."""
    copy = shutil.copytree(tuned, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    del config["minibatches"]
    (copy / "config.json").write_text(json.dumps(config))
    status, out, err = conqur("tune", "--resume", "--run-dir", copy, "--json")
    assert (status, out) == (1, "")
    sentence("another version of conqur (they differ in minibatches): read the run with", err)


@pytest.mark.parametrize("left", [None, b""])
def test_a_finished_run_without_its_network_goes_on(tuned, tmp_path, conqur, left):
    copy = shutil.copytree(tuned, tmp_path / "copy")
    (copy / "networks" / "best.safetensors").unlink()
    if left is not None:
        (copy / "networks" / "best.safetensors").write_bytes(left)
    status, _, err = conqur("tune", "--resume", "--run-dir", copy, "--json")
    assert status == 0
    assert "nothing left" not in err
    same_runs(copy, tuned)


@pytest.mark.parametrize(
    "changes",
    [{"written_back": ""}, {"written_back": "../x"}, {"environment": "x" * 5000}, {"levels": 99}],
)
def test_a_run_is_finished_if_its_summary_can_be_its_own(tuned, tmp_path, changes):
    assert _finished(tuned) is not None
    copy = shutil.copytree(tuned, tmp_path / "copy")
    found = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(found | changes))
    assert _finished(copy) is None


def test_ctrl_c_in_the_last_level_stops_before_the_choice(
    network, tuned, tmp_path, conqur, monkeypatch
):
    log = RunDirectory.log

    def last(self, step, row, **options):
        log(self, step, row, **options)
        if step == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunDirectory, "log", last)
    folder = tmp_path / "run"
    status, _, _ = conqur("tune", network, *TINY, "--run-dir", folder, "--json")
    assert status == 130
    assert not (folder / "summary.json").exists()
    monkeypatch.undo()
    assert conqur("tune", "--resume", "--run-dir", folder, "--json")[0] == 0
    same_runs(folder, tuned)


@pytest.mark.parametrize("left", ["as it was", "{", '{"among": 1}', "[" * 99_999])
def test_killed_while_it_chooses_it_goes_on_with_the_next_round(
    left, network, tuned, tmp_path, conqur, monkeypatch
):
    folder = shutil.copytree(tuned, tmp_path / "run")
    for name in ("summary.json", "networks/best.safetensors"):
        (folder / name).unlink()
    play, calls = Rollouts.play, []

    def counted(self, thetas, *, episodes, seed):
        calls.append((len(thetas), episodes))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return play(self, thetas, episodes=episodes, seed=seed)

    monkeypatch.setattr(Rollouts, "play", counted)
    monkeypatch.setattr(Grower, "restore", None)  # no games of the search are played again
    assert conqur("tune", "--resume", "--run-dir", folder, "--json")[0] == 130
    kept = folder / "choosing.json"
    found = json.loads(kept.read_text())
    kept.write_text(json.dumps(found | {"seconds": 5000.0}) if left == "as it was" else left)
    assert conqur("tune", "--resume", "--run-dir", folder, "--json")[0] == 0
    first, second, *others = calls
    assert others[0] == (second if left == "as it was" else first)
    assert not kept.exists()
    seconds = json.loads((folder / "summary.json").read_text())["seconds"]
    assert (seconds > 5000) == (left == "as it was")  # what was spent on it before counts
    same_runs(folder, tuned)


def test_a_network_is_not_named_again_on_resume(network, tuned, conqur):
    status, _, err = conqur("tune", network, "--resume", "--run-dir", tuned)
    assert status == 2
    assert "leave out CHECKPOINT with --resume" in err


def test_the_first_ctrl_c_is_answered_at_once_and_the_second_says_how_to_go_on(
    network, tmp_path, monkeypatch, capfd
):
    """Whatever the scoring: here nothing is played in a level."""
    from conqur import cli

    search = Tuning.search

    def interrupted(self, begun):
        for tree in search(self, begun):
            if tree.level == 3:
                for _ in range(2):
                    os.kill(os.getpid(), signal.SIGINT)
                    answers.append(capfd.readouterr().err)
            yield tree

    answers = []
    monkeypatch.setattr(Tuning, "search", interrupted)
    folder = tmp_path / "run"
    typed = ["tune", str(network), *TINY, "--save-every", "1e-9", "--run-dir", str(folder)]
    assert cli.run(typed) == 130
    assert tuning_run.STOPPING in answers[0]
    resume = f"conqur tune --resume --run-dir {folder}"
    assert f"Level 2 was saved last. Go on with: {resume}" in " ".join(
        capfd.readouterr().err.split()
    )
    monkeypatch.undo()
    assert cli.run([*shlex.split(resume)[1:], "--json"]) == 0


def test_what_is_no_better_than_the_checkpoint_is_not_handed_back(network, tmp_path, conqur):
    folder = tmp_path / "run"
    status, out, _ = conqur("tune", network, *TINY, "--updates", "0", "--run-dir", folder)
    assert status == 0
    assert "That is no gain: the checkpoint itself is handed back" in out
    best, checkpoint = load(folder / "networks" / "best.safetensors"), load(network)
    np.testing.assert_array_equal(best.regressor.head.weight, checkpoint.regressor.head.weight)
    assert best.origin["tuned"] == "checkpoint"


@pytest.mark.parametrize(
    "options",
    [
        ("--search", "local"),
        ("--search", "independent", "--penalty-weight", "0"),
        ("--children", "strict", "--transitions", "12"),
        ("--whole-network", "--data", "replay"),
        ("--refit", "lbfgs", "--units", "gap", "--scoring", "initial-label"),
    ],
)
def test_every_kind_of_search_runs(network, tmp_path, conqur, options):
    arguments = (*TINY, "--levels", "3", "--evaluation-episodes", "0", *options)
    status, out, err = conqur("tune", network, *arguments, "--run-dir", tmp_path / "r", "--json")
    assert status == 0, err
    assert json.loads(out)["levels"] == 3
    nodes = lines(tmp_path / "r" / "tree.jsonl")[1:]
    assert ("boltzmann" in {node["assigned_how"] for node in nodes}) == (
        not {"independent", "strict"} & set(options)
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--children", "random", "--scoring", "rollouts", "--rollout-episodes", "2"),
        ("--search", "best-first", "--data", "replay", "--buffer", "window:2"),
        ("--env", "data.npz", "--search", "depth-first"),
    ],
)
def test_other_searches_go_on_as_if_they_had_not_been_killed(
    network, tmp_path, monkeypatch, conqur, options
):
    monkeypatch.chdir(tmp_path)
    write_data("data.npz")
    arguments = (network, *TINY, "--levels", "3", *options, "--run-dir")
    assert conqur("tune", *arguments, tmp_path / "whole", "--json")[0] == 0
    killed_after(2, monkeypatch, conqur, *arguments, tmp_path / "killed")
    same_runs(tmp_path / "killed", tmp_path / "whole")


def write_data(name, scale=1.0):
    rng = np.random.default_rng(0)
    np.savez(
        name,
        observations=(scale * rng.normal(size=(60, 4))).astype(np.float32),
        actions=rng.integers(2, size=60),
        rewards=rng.normal(size=60),
        next_observations=rng.normal(size=(60, 4)).astype(np.float32),
        terminals=rng.random(60) < 0.1,
    )


def test_a_network_that_learned_from_data_plays_where_it_is_told_to(
    network, tmp_path, monkeypatch, conqur
):
    monkeypatch.chdir(tmp_path)
    write_data("data.npz")
    learned = replace(load(network), environment="data.npz")
    (tmp_path / "n.safetensors").write_bytes(to_bytes(learned))
    status, _, err = conqur("tune", "n.safetensors", "--run-dir", "run")
    assert status != 0
    sentence(
        "--scoring rollouts needs an environment to play in, and there is only a data set", err
    )
    assert not (tmp_path / "run").exists()
    short = (*TINY, "--levels", "1", "--json", "--run-dir")
    status, out, _ = conqur("tune", "n.safetensors", *short, "data")
    assert status == 0
    assert "checkpoint" not in json.loads(out)  # nobody played
    status, out, _ = conqur("tune", "n.safetensors", "--env", "CartPole-v1", *short, "play")
    assert status == 0
    assert json.loads(out)["checkpoint"]["mean"] > 0


def test_rewards_of_data_are_clipped_where_the_network_has_learned_so(network):
    atari = replace(load(network), environment="ALE/Pong-v5")
    assert settings_of(atari, "data.npz")["clip_rewards"]
    assert not settings_of(load(network), "data.npz")["clip_rewards"]


def test_a_network_without_finite_features_of_the_data_is_refused(
    network, tmp_path, monkeypatch, conqur
):
    monkeypatch.chdir(tmp_path)
    write_data("data.npz", scale=1e30)
    large = load(network)
    body = jax.tree.map(lambda leaf: 1e15 * leaf, large.regressor.body)
    large = replace(large, regressor=replace(large.regressor, body=body))
    (tmp_path / "n.safetensors").write_bytes(to_bytes(large))
    options = ("--env", "data.npz", "--run-dir", "run")
    status, _, err = conqur("tune", "n.safetensors", *TINY, *options)
    assert status != 0
    sentence("the network's features hold NaN or infinity: it cannot be tuned", err)


def test_a_log_without_a_terminal_tells_levels_though_nodes_play_in_between(monkeypatch):
    """One for each level that took long enough, and not only how far playing is."""
    times = iter(np.arange(100) * 2.0)
    monkeypatch.setattr("conqur.search.display.time.monotonic", lambda: next(times))
    told = io.StringIO()
    seen = Lines(Console(file=told, width=200), Shown(6, 0, by_rollouts=True, learns=False))
    for level in range(1, 7):
        for done in (10, 40, 70, 90):
            seen.announce(f"level {level}/6: playing with nodes, {done}%")
        node = Node(1, 0, level - 1, Kind.DIVE, "max", -1.0, -1.0, -1.0, 0.0, 0.0, None, ())
        seen.level(Tree(level, (node,), (node,), 2), {"churn": 0.1})
    found = told.getvalue().splitlines()
    assert [line[:12] for line in found if " of 6: " in line] == [
        f"level {number} of 6" for number in range(1, 7)
    ]
    assert any("playing" in line for line in found)


def test_independent_nodes_have_greedy_labels_whatever_children_are_asked_for(
    network, tmp_path, conqur
):
    both = (*TINY, "--search", "independent", "--levels", "2", "--json", "--run-dir")
    for name, options in (("greedy", ()), ("strict", ("--children", "strict"))):
        assert conqur("tune", network, *both, tmp_path / name, *options)[0] == 0
    same_runs(tmp_path / "strict", tmp_path / "greedy")


@pytest.mark.parametrize(
    ("rows", "features", "action", "words"),
    [
        (60, 4, 7, "data.npz has 8 actions, but the network chooses among 2"),
        (60, 5, 1, "data.npz holds observations of shape [5], but the network takes [4]"),
        (10, 4, 1, "--transitions must be at most 10, which is what data.npz holds, got 40"),
    ],
)
def test_data_that_does_not_fit_the_network_is_refused(
    network, tmp_path, monkeypatch, conqur, rows, features, action, words
):
    monkeypatch.chdir(tmp_path)
    seen = np.zeros((rows, features), np.float32)
    actions, rewards = np.full(rows, action), np.zeros(rows)
    np.savez(
        "data.npz",
        observations=seen,
        actions=actions,
        rewards=rewards,
        next_observations=seen,
        terminals=np.zeros(rows, bool),
    )
    status, _, err = conqur("tune", network, *TINY, "--env", "data.npz", "--run-dir", "run")
    assert status != 0
    sentence(words, err)
    assert not (tmp_path / "run").exists()


def test_a_discount_is_that_of_the_network_s_training(network, tmp_path, conqur):
    other = load(network)
    other.origin["discount"] = 0.9
    (tmp_path / "n.safetensors").write_bytes(to_bytes(other))
    arguments = ("tune", tmp_path / "n.safetensors", *TINY, "--levels", "1", "--json", "--run-dir")
    for given, expected in (((), 0.9), (("--discount", "0.5"), 0.5)):
        assert conqur(*arguments, tmp_path / f"{expected}", *given)[0] == 0
        found = json.loads((tmp_path / f"{expected}" / "config.json").read_text())
        assert found["discount"] == expected


def test_rewards_are_clipped_as_in_training(tuned):
    assert json.loads((tuned / "config.json").read_text())["clip_rewards"] is False


def test_from_scratch(tmp_path, conqur):
    arguments = (*TINY, "--levels", "2", "--env", "CartPole-v1", "--whole-network")
    status, out, err = conqur("tune", *arguments, "--run-dir", tmp_path / "r", "--json")
    assert status == 0, err
    assert json.loads(out)["finished"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--splitting-factor", "0"), "--splitting-factor must be a whole number of at least 1"),
        (("--expanded", "7"), "--expanded (7) must be at most pool (6)"),
        (("--nodes", "9"), "--nodes (9) must be at most pool (6)"),
        (("--penalty-weight", "-1"), "--penalty-weight must be a number of at least 0"),
        (("--buffer", "window:0"), "--buffer 'window:0' is not possible"),
        (("--buffer", "some"), "--buffer must be all, window:LEVELS"),
        (("--scoring", "luck"), "--scoring must be one of loss"),
        (("--env", "LunarLander-v3"), "chooses among 2 actions, but LunarLander-v3 has 4"),
        (("--env", "Acrobot-v1"), "chooses among 2 actions, but Acrobot-v1 has 3"),
        (("--children", "strict", "--transitions", "5000"), "at most 5000 states"),
        (("--expanded", "4"), "--nodes (4) must be at least"),
        (("--whole-network", "--units", "gap"), "--units gap is for a linear head"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(network, tmp_path, conqur, options, words):
    folder = tmp_path / "run"
    status, out, err = conqur("tune", network, *TINY, *options, "--run-dir", folder)
    assert status != 0
    assert out == ""
    sentence(words, err)
    assert not folder.exists()


def test_a_network_has_to_be_named(conqur):
    status, _, err = conqur("tune", "--env", "CartPole-v1")
    assert status == 2
    sentence("name a CHECKPOINT", err)


def test_without_arguments_it_tunes_a_network_that_comes_with_conqur(tmp_path, conqur, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = conqur("tune", *TINY, "--levels", "1", "--json")
    assert status == 0, err
    assert "bundled:MinAtar-Asterix-0" in err
    found = json.loads(out)
    assert found["environment"] == "MinAtar/Asterix"
    assert found["run_dir"] == "runs/tune-MinAtar-Asterix"
    assert load("runs/tune-MinAtar-Asterix/networks/best.safetensors").architecture.actions == 5


def test_the_help_has_the_presets_values():
    table = re.search(r"^ *(Presets .*?)\n\n", Tune.__doc__, re.DOTALL | re.MULTILINE)[1]
    head, *rows = (line.split() for line in table.splitlines())
    assert head[1:] == list(PRESETS)
    assert len(rows) == 23
    for name, *cells in rows:
        for preset, cell in zip(PRESETS, cells, strict=True):
            value = PRESETS[preset][name.replace("-", "_")]
            assert (cell if isinstance(value, str) else float(cell)) == value, (preset, name)


def test_what_has_no_effect_without_learning_is_said(network, capsys):
    for given, words in (
        (
            {"penalty_weight": 10.0},
            "steps: --penalty-weight will change nothing (--preset paper-16",
        ),
        (
            {"learning_rate": 0.1, "penalty_weight": 1.0},
            "--penalty-weight and --learning-rate will",
        ),
        ({"search": "independent"}, "independent nodes stay copies of the checkpoint"),
        ({"minibatches": "own", "refit": "lbfgs"}, "--minibatches and --refit will"),
        ({"preset": "paper-8", "refit": "lbfgs", "pairs": 3}, "whole batches: --pairs will"),
        ({"preset": "paper-8", "refit": "lbfgs", "proximal": 3.0}, ""),
        ({"preset": "paper-8", "updates": 0}, ""),
        ({"preset": "paper-8", "search": "independent"}, ""),
        ({"preset": "paper-8", "search": "independent", "children": "strict"}, "--children will"),
        ({"preset": "paper-8", "search": "independent", "minibatches": "own"}, "--minibatches w"),
        ({"boltzmann_every": 2}, "--boltzmann-every will change nothing"),
        ({"preset": "paper-8", "children": "strict", "boltzmann_every": 2}, "--boltzmann-every w"),
        ({"preset": "paper-8", "boltzmann_every": 2}, ""),
        ({"penalty_weight": 10.0, "updates": 5}, ""),
        ({"penalty_weight": 10.0, "scoring": "loss"}, ""),
        ({"splitting_factor": 1}, "with one child each nothing is perturbed"),
        (
            {"preset": "paper-8", "children": "random", "splitting_factor": 1}
            | {"search": "best-first"},
            "with one child each nothing is perturbed",
        ),
        ({"preset": "paper-8"}, ""),
        ({}, ""),
    ):
        command = Tune(network, **given)
        config = command._config(load(network))
        command._warn_of_what_has_no_effect(config)
        err = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert words in err
        assert bool(words) == bool(err)
    header = _header(config, "preset quick", network)
    assert header.startswith("random perturbations, kept by rollouts, on CartPole-v1: 16 nodes")


def test_settings_do_not_change_on_resume(tuned, conqur):
    status, _, err = conqur("tune", "--resume", "--run-dir", tuned, "--penalty-weight", "3")
    assert status == 1
    assert "--penalty-weight" in err
