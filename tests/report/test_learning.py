"""Reports of training runs: means, intervals and coordinates by hand, and files that do not fit."""

import json
import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from conqur import statistics
from conqur.report import learning, learning_curves, trained_runs
from conqur.report.trained_runs import Curve, Kind

DQN, PENALISED = Kind("dqn", 0.0), Kind("dqn", 0.5)
PLAYED = {
    "environment": "CartPole-v1",
    "epsilon": 0.001,
    "sticky": None,
    "preprocessing": None,
    "seed": 0,
}


def curve(steps, returns, episodes=None, kind=DQN, seed=0):
    episodes = np.ones(len(steps)) if episodes is None else np.array(episodes, float)
    return Curve(kind, seed, np.array(steps, float), np.array(returns, float), episodes)


def write_run(path, members, *, environment="CartPole-v1", algorithm="dqn", steps=(100, 200)):
    """A run; `members` says what (λ, seed) returned at each step."""
    path.mkdir()
    (path / "config.json").write_text(
        json.dumps({"environment": environment, "algorithm": algorithm})
    )
    (path / "manifest.json").write_text(json.dumps({"jax": "0.10"}))
    rows = [
        {
            "step": step,
            "penalty_weight": weight,
            "seed": seed,
            "return": returns[i],
            "episodes": int(returns[i] is not None),
        }
        for i, step in enumerate(steps)
        for (weight, seed), returns in members.items()
    ]
    (path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_evaluation(path, means, *, step=200, episodes=3, finished=True, **played):
    """What `conqur evaluate --json` prints; `means` by (λ, seed)."""
    networks = [
        {
            "network": {"algorithm": "dqn", "penalty_weight": weight, "seed": seed, "step": step},
            "mean": mean,
            "episodes": [mean] * episodes,
            "finished": finished,
        }
        for (weight, seed), mean in means.items()
    ]
    body = networks[0] if len(networks) == 1 else {"networks": networks}
    path.write_text(json.dumps(PLAYED | played | body))
    return path


@pytest.fixture
def run(tmp_path):
    members = {(0.0, 0): (1, 3), (0.0, 1): (2, 7), (0.5, 0): (1, 6), (0.5, 1): (3, 9)}
    return write_run(tmp_path / "run", members)


def test_few_rows_are_shown_as_they_are_and_many_are_averaged_by_episodes():
    few = curve([10, 20, 30], [1, 2, 3])
    np.testing.assert_array_equal(trained_runs.grid_of([few]), [10, 20, 30])
    # 400 rows: pairs of them, of which the second has three times the episodes.
    steps = np.arange(1, 401) * 10
    many = curve(steps, np.arange(400), np.tile([1, 3], 200))
    grid = trained_runs.grid_of([many])
    np.testing.assert_allclose(grid, np.arange(1, 201) * 20)
    values = trained_runs.on_grid(many, grid)
    np.testing.assert_allclose(values[:2], [(0 * 1 + 1 * 3) / 4, (2 * 1 + 3 * 3) / 4])


def test_where_no_episode_ended_the_last_return_counts():
    gaps = curve([1, 2, 3, 4], [np.nan, 5, np.nan, 7], [0, 1, 0, 2])
    np.testing.assert_array_equal(trained_runs.on_grid(gaps, gaps.steps), [np.nan, 5, 5, 7])


def test_lines_are_means_over_seeds_as_far_as_all_of_them_go():
    first = curve([1, 2, 3, 4], [np.nan, 2, 4, 100], [0, 1, 1, 1])
    second = curve([1, 2, 3], [1, 6, 8], seed=1)
    other = curve([5], [9], kind=PENALISED)
    line, alone = learning.lines([first, other, second])
    assert (line.name, alone.name) == ("DQN, λ = 0", "DQN, λ = 0.5")
    np.testing.assert_array_equal(line.steps, [2, 3])
    np.testing.assert_array_equal(line.mean, [4, 6])
    np.testing.assert_array_equal(line.seeds, [[2, 4], [6, 8]])
    assert (line.low[0], line.high[0]) == statistics.student_interval([2, 6])
    assert np.isnan(alone.low).all()


def test_last_returns_are_means_over_the_last_tenth():
    steps = np.arange(1, 21) * 5  # 5, …, 100: those above 90 are 95 and 100
    returns = np.arange(20.0)
    episodes = np.ones(20)
    episodes[-1] = 3
    assert learning.last_returns([curve(steps, returns, episodes)]) == {
        DQN: {0: (18 * 1 + 19 * 3) / 4}
    }


def test_table_by_hand(run, tmp_path):
    means = {(0.0, 0): 10, (0.0, 1): 20, (0.5, 0): 13, (0.5, 1): 27}
    file = write_evaluation(tmp_path / "evaluation.json", means)
    written = learning.table(trained_runs.read_trained([run], [file]))
    assert "# CartPole-v1, 200 steps" in written
    assert "## Evaluation: 3 episodes of each network, ε = 0.001\n" in written
    # Standard errors 5 and 7, and 12.706 is the table's t for one degree of freedom.
    assert "| DQN, λ = 0 | 2 | 15 | −48.53 to 78.53 | 0: 10, 1: 20 |" in written
    assert "| DQN, λ = 0.5 | 2 | 20 | −68.94 to 109 | 0: 13, 1: 27 |" in written
    # Welch's degrees of freedom: (25 + 49)² / (25² + 49²) = 1.8096, for which t is 4.7668.
    assert "| DQN, λ = 0.5 | +5 | −36.01 to 46.01 |" in written
    # And while training: 3 and 7 against 6 and 9.
    assert "| DQN, λ = 0.5 | +2.5 | " in written


def test_kinds_are_compared_whatever_their_seeds(tmp_path):
    run = write_run(tmp_path / "run", {(0.0, 0): (0, 1), (0.0, 1): (0, 50), (0.5, 7): (0, 4)})
    written = learning.table(trained_runs.read_trained([run]))
    assert "| DQN, λ = 0.5 | −21.5 | – |" in written


def test_runs_and_evaluations_come_in_parts(run, tmp_path):
    """Seeds in runs of their own, one file for each way of playing or for a single network."""
    more = write_run(tmp_path / "more", {(0.0, 2): (0, 2)})
    double = write_run(tmp_path / "double", {(0.0, 0): (0, 8)}, algorithm="ddqn", steps=(100, 150))
    files = [
        write_evaluation(tmp_path / "a.json", {(0.0, 0): 1, (0.0, 1): 2}, sticky=0.0),
        write_evaluation(tmp_path / "b.json", {(0.0, 2): 6}, sticky=0.0, episodes=5),
        write_evaluation(tmp_path / "c.json", {(0.0, 2): 7}, sticky=0.25),
    ]
    read = trained_runs.read_trained([run, more, double], files)
    assert read.evaluations == (
        (
            "Evaluation: 3 to 5 episodes of each network, ε = 0.001, sticky actions 0",
            {DQN: {0: 1, 1: 2, 2: 6}},
        ),
        (
            "Evaluation: 3 episodes of each network, ε = 0.001, sticky actions 0.25",
            {DQN: {2: 7}},
        ),
    )
    assert [line.name for line in learning.lines(read.curves)] == [
        *("DQN, λ = 0", "DQN, λ = 0.5", "DDQN, λ = 0")
    ]
    assert "# CartPole-v1, 150 to 200 steps" in learning.table(read)


def test_scores_of_another_manner_are_never_put_together(run, tmp_path):
    manners = {
        "ε = 0.001": {},
        "ε = 0.05": {"epsilon": 0.05},
        "ε = 0.001, sticky actions 0.25": {"sticky": 0.25},
        "ε = 0.001, preprocessing sb3": {"preprocessing": "sb3"},
        "ε = 0.001, seed 5": {"seed": 5},
        "some broken off, ε = 0.5": {"epsilon": 0.5, "finished": False},
    }
    files = [
        write_evaluation(tmp_path / f"{i}.json", {(0.0, 0): i}, **manner)
        for i, manner in enumerate(manners.values())
    ]
    assert trained_runs.read_trained([run], files).evaluations == tuple(
        (f"Evaluation: 3 episodes of each network, {words}", {DQN: {0: i}})
        for i, words in enumerate(manners)
    )


def test_what_learned_from_data_may_be_played_anywhere(tmp_path):
    run = write_run(tmp_path / "run", {(0.0, 0): (None, None)}, environment="played.npz")
    file = write_evaluation(tmp_path / "a.json", {(0.0, 0): 4})
    ((heading, scores),) = trained_runs.read_trained([run], [file]).evaluations
    assert heading == "Evaluation in CartPole-v1: 3 episodes of each network, ε = 0.001"
    assert scores == {DQN: {0: 4}}


def test_command_writes_data_figure_and_table(run, tmp_path, capsys):
    file = write_evaluation(tmp_path / "evaluation.json", {(0.5, 1): 4})
    folder = tmp_path / "results" / "cartpole"
    learning.main([str(run), "--evaluation", str(file), "--output", str(folder)])
    assert (folder / "table.md").read_text() + "\n" == capsys.readouterr().out
    ElementTree.parse(folder / "curves.svg")
    written = json.loads((folder / "results.json").read_text())
    assert written["runs"][0]["manifest"] == {"jax": "0.10"}
    assert written["curves"][1] == {
        "algorithm": "dqn",
        "penalty_weight": 0.5,
        "steps": [100, 200],
        "returns": {"0": [1, 6], "1": [3, 9]},
    }
    assert [score["mean"] for score in written["scores"]] == [4]
    assert str(tmp_path) not in (folder / "results.json").read_text()


def test_results_that_cannot_be_written_leave_the_old_ones(run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "results"
    learning.main([str(run), "--output", str(folder)])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    more = write_run(tmp_path / "more", {(0.0, 2): (0, 2)})
    with pytest.raises(SystemExit):
        learning.main([str(run), str(more), "--output", str(folder)])
    assert "disk full" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_files_that_do_not_fit_are_refused_in_one_sentence(run, tmp_path, capsys):
    other = write_run(tmp_path / "other", {(0.0, 0): (0, 1)}, environment="Acrobot-v1")
    twin = write_run(tmp_path / "twin", {(0.0, 1): (0, 1)})
    early = write_evaluation(tmp_path / "early.json", {(0.0, 0): 1}, step=100)
    stranger = write_evaluation(tmp_path / "stranger.json", {(0.0, 7): 1})
    elsewhere = write_evaluation(tmp_path / "b.json", {(0.0, 0): 1}, environment="Acrobot-v1")
    once = write_evaluation(tmp_path / "once.json", {(0.0, 0): 1})
    (tmp_path / "words.json").write_text("none")
    (tmp_path / "empty").mkdir()
    silent = write_run(tmp_path / "silent", {})
    for runs, files, message in (
        ([run, other], [], "the runs are on Acrobot-v1, CartPole-v1"),
        ([run, twin], [], "DQN, λ = 0, seed 1 is in more than one of the runs"),
        ([tmp_path / "empty"], [], "empty: config.json is missing"),
        ([silent], [], "silent has no log yet"),
        ([run], [early], "at step 100, but its run has come further"),
        ([run], [stranger], "seed 7, which is in none of the runs"),
        ([run], [elsewhere], "scores in Acrobot-v1, but the runs are on CartPole-v1"),
        ([run], [once, once], "seed 0, which another has too"),
        ([run], [tmp_path / "words.json"], "words.json is not JSON"),
        ([run], [run / "config.json"], "is not what `conqur evaluate --json` prints"),
    ):
        chosen = ["--evaluation", *map(str, files)] if files else []
        with pytest.raises(SystemExit):
            learning.main([*map(str, runs), *chosen, "--output", str(tmp_path / "out")])
        assert re.search(message, capsys.readouterr().err.replace("\n", " "))
    assert not (tmp_path / "out").exists()


def points(svg, css):
    found = re.findall(rf'<polyline{css} points="([^"]*)"', svg)
    return [[tuple(map(float, point.split(","))) for point in path.split()] for path in found]


def test_figure_puts_points_where_they_belong():
    # The plot is 52 to 570 wide and 348 (bottom) to 56 (top) high, for 0 to 20 and 0 to 4.
    line = learning_curves.Line(
        "a & b",
        steps=np.array([10.0, 20.0]),
        mean=np.array([1.0, 2.0]),
        low=np.array([0.0, 1.0]),
        high=np.array([2.0, 4.0]),
        seeds=np.array([[0.0, 1.0], [2.0, 3.0]]),
    )
    svg = learning_curves.figure([line], title="<t>", subtitle="s", y_label="return")
    ElementTree.fromstring(svg)
    assert points(svg, "") == [[(311, 275), (570, 202)]]
    assert points(svg, ' class="seed"') == [
        [(311, 348), (570, 275)],
        [(311, 202), (570, 129)],
    ]
    assert 'points="311.0,202.0 570.0,56.0 570.0,275.0 311.0,348.0"' in svg
    assert ">a &amp; b</text>" in svg


@pytest.mark.parametrize(("seeds", "thin"), [(1, 0), (5, 5), (6, 0)])
def test_each_seed_is_drawn_if_they_are_few(seeds, thin):
    none = np.full(2, np.nan)
    line = learning_curves.Line(
        "x", np.array([1.0, 2.0]), np.zeros(2), none, none, np.zeros((seeds, 2))
    )
    svg = learning_curves.figure([line], title="t", subtitle="s", y_label="y")
    assert len(points(svg, ' class="seed"')) == thin
    assert "band" not in svg.partition("</style>")[2]


def test_figure_of_nothing_and_of_too_much():
    empty = learning_curves.Line("x", *[np.zeros(0)] * 4, np.zeros((1, 0)))
    svg = learning_curves.figure([empty], title="t", subtitle="s", y_label="y")
    assert points(svg, "") == []
    line = learning_curves.Line("x", *[np.ones(1)] * 4, np.ones((1, 1)))
    with pytest.raises(ValueError, match="lines must be 6 at most, got 7"):
        learning_curves.figure([line] * 7, title="t", subtitle="s", y_label="y")


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([0, 100], [0, 100]),
        ([50, 50], [45, 55]),
        ([50, 44, 200], [52, 42, 200]),
        # The upper two part, which makes them meet the third: all three around their middle.
        ([0, 2, 14], [-14 / 3, 16 / 3, 46 / 3]),
    ],
)
def test_names_are_moved_apart_by_as_little_as_it_takes(places, expected):
    np.testing.assert_allclose(learning_curves.spread(places, 10), expected)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, "0"), (500, "500"), (20_000, "20k"), (1_500_000, "1.5M")]
)
def test_steps_are_written_in_few_letters(step, expected):
    assert learning_curves.compact(step) == expected


def test_colours_are_those_of_the_style_sheet():
    from conqur import report

    light = re.findall(r"--(\w+): (#\w+);", report.style().partition("@media")[0])
    assert set(re.findall(r"--(\w+): (#\w+);", learning_curves.STYLE.partition("@media")[0])) <= {
        *light
    }
