"""Studies: what a file stands for, what is refused, and how runs are named."""

import pytest

from conqur.suite import read_study
from conqur.suite.collecting import as_csv, as_parquet, collect
from conqur.suite.study import ARMS

TRAIN = """
command = "train"
games = ["CartPole-v1", "MinAtar/Breakout"]
algorithms = ["dqn", "ddqn"]
penalty_weights = [0, 0.5]
seeds = 3
[settings]
steps = 600
"""
TUNE = """
command = "tune"
networks = ["bundled:MinAtar-Asterix-0", "bundled:MinAtar-Asterix-1"]
algorithms = ["conqur", "multi-dqn"]
penalty_weights = [1, 10]
presets = ["paper-16"]
seeds = 2
"""


def study(tmp_path, text):
    file = tmp_path / "small.toml"
    file.write_text(text)
    return read_study(file)


def test_every_combination_is_trained(tmp_path):
    found = study(tmp_path, TRAIN)
    jobs = {job.name: job for job in found.jobs()}
    apart = {
        f"CartPole-v1-{algorithm}-weight-{weight}-seed-{seed}"
        for algorithm in ("dqn", "ddqn")
        for weight in ("0", "0.5")
        for seed in range(3)
    }
    together = {f"MinAtar-Breakout-{algorithm}" for algorithm in ("dqn", "ddqn")}
    assert set(jobs) == apart | together
    assert len(found.jobs()) == len(jobs)
    line = " ".join(jobs["CartPole-v1-ddqn-weight-0.5-seed-2"].arguments)
    assert line == ("train CartPole-v1 --algorithm ddqn --steps 600 --penalty-weight 0.5 --seed 2")
    line = " ".join(jobs["MinAtar-Breakout-dqn"].arguments)
    assert line == (
        "train MinAtar/Breakout --algorithm dqn --steps 600 --penalty-weight 0 0.5 --seeds 3 "
        "--seed 0"
    )
    # One of each kind comes before second seeds.
    first = [job.name for job in found.jobs() if "CartPole-v1-dqn" in job.name][:2]
    assert first == ["CartPole-v1-dqn-weight-0-seed-0", "CartPole-v1-dqn-weight-0.5-seed-0"]


def test_baselines_without_a_penalty_are_tuned_once(tmp_path):
    jobs = study(tmp_path, TUNE).jobs()
    assert len(jobs) == 2 * 2 * (2 + 1)
    assert len({job.name for job in jobs}) == len(jobs)
    (one,) = (j for j in jobs if j.name == "MinAtar-Asterix-1-conqur-paper-16-weight-10-seed-1")
    assert " ".join(one.arguments) == (
        "tune bundled:MinAtar-Asterix-1 --seed 1 --preset paper-16 --penalty-weight 10"
    )
    (other,) = (j for j in jobs if j.name == "MinAtar-Asterix-0-multi-dqn-paper-16-weight-0-seed-0")
    assert other.arguments[2:6] == ARMS["multi-dqn"]


@pytest.mark.parametrize("arm", ARMS)
def test_arms_are_settings_that_a_search_takes(tmp_path, arm):
    from conqur.cli import parse
    from conqur.commands.tune import SETTINGS
    from conqur.search.config import tune_config

    text = TUNE.replace('["conqur", "multi-dqn"]', f'["{arm}"]')
    command = parse(study(tmp_path, text).jobs()[0].arguments)
    given = {name: getattr(command, name) for name in SETTINGS}
    basis = {"environment": "MinAtar/Asterix", "checkpoint": "", "preprocessing": ""}
    assert tune_config("paper-16", **basis | given).levels == 100


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('command = "train"', "", "command is missing"),
        ('command = "train"', 'command = "walk"', "must be train or tune"),
        ("games", "gamess", "there is no key 'gamess'; is 'games' meant"),
        ("seeds = 3", 'seeds = "many"', "seeds must be a whole number"),
        ("seeds = 3", "seeds = 0", "seeds must be a whole number of at least 1"),
        ("[0, 0.5]", "[0, -1]", "penalty_weights"),
        ("[0, 0.5]", '["a"]', "penalty_weights must be a list of float"),
        ("[0, 0.5]", "[0, 0]", "must not repeat"),
        ('"ddqn"]', '"sarsa"]', "algorithms must be of dqn, ddqn"),
        ("[settings]", 'networks = ["x"]\n[settings]', "leave them out"),
        ("[settings]\nsteps = 600", "settings = 3", "settings must be a table"),
        ('games = ["CartPole-v1", "MinAtar/Breakout"]', "games = []", "at least one"),
        ("seeds = 3", "seeds = ", "is no TOML"),
        ("seeds = 3", "together = 1", "together must be true or false"),
    ],
)
def test_mistakes_are_said_in_one_sentence(tmp_path, old, new, words):
    assert old in TRAIN
    with pytest.raises(ValueError, match=words) as error:
        study(tmp_path, TRAIN.replace(old, new))
    assert "small.toml" in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no study"):
        read_study(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="cannot be read"):
        read_study(tmp_path)


def test_tables_hold_what_runs_found(tmp_path):
    import json

    import pyarrow
    import pyarrow.parquet

    jobs = study(tmp_path, TUNE).jobs()
    summary = {
        "environment": "MinAtar/Asterix",
        "frames": 5,
        "played_frames": 7,
        "seconds": 1.5,
        "checkpoint": {"mean": 20.0},
        "chosen": {"mean": 22.0, "gain": 2.0, "gain_interval": [-1.0, 5.0], "episodes": 64},
        "chosen_by_score": {"mean": 19.0, "gain": -1.0},
        "best_of_evaluations": None,
        "handed_back": "checkpoint",
    }
    result = jobs[3].result(tmp_path)
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps(summary))
    jobs[4].folder(tmp_path).mkdir()
    jobs[4].result(tmp_path).write_text("{")  # half-written: not done
    (row,) = collect(jobs, tmp_path)
    assert row["run"] == jobs[3].name
    assert (row["checkpoint"], row["score"], row["gain"]) == (20.0, 22.0, 2.0)
    assert (row["handed_back_gain"], row["gain_by_score"], row["best_evaluation"]) == (
        0.0,
        -1,
        None,
    )
    assert row["frames"] == 12
    head, line = as_csv([row]).splitlines()
    assert dict(zip(head.split(","), line.split(","), strict=True))["gain_low"] == "-1.0"
    table = pyarrow.parquet.read_table(pyarrow.BufferReader(as_parquet([row])))
    assert table.to_pylist() == [row]
