"""Runs of a study in real processes: made, skipped, stopped, resumed, given up."""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest

from conqur.suite import Job, State, run_locally, state

STUDY = """
command = "train"
games = ["CartPole-v1"]
penalty_weights = [0]
seeds = 1
episodes = 3
[settings]
steps = 300
learning_starts = 100
log_every = 100
"""


def conqur(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "conqur", *arguments], capture_output=True, text=True, **options
    )


def test_a_study_from_the_command_line(tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    made = conqur("suite", "run", "small.toml", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "1 of 1 runs are done" in made.stdout
    folder = tmp_path / "studies" / "small"
    run = folder / "runs" / "CartPole-v1-dqn-weight-0-seed-0"
    before = (run / "evaluation.json").stat().st_mtime_ns
    again = conqur("suite", "run", "small.toml", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["states"] == {"done": 1}
    assert (run / "evaluation.json").stat().st_mtime_ns == before  # it was not made again
    collected = conqur("suite", "collect", "small.toml", cwd=tmp_path)
    assert collected.returncode == 0, collected.stderr
    (row,) = csv.DictReader((folder / "results.csv").read_text().splitlines())
    found = json.loads((run / "evaluation.json").read_text())
    assert float(row["score"]) == pytest.approx(found["mean"])
    assert (row["game"], row["algorithm"], row["seed"]) == ("CartPole-v1", "dqn", "0")
    (tmp_path / "small.toml").write_text(STUDY.replace("300", "400"))
    other = conqur("suite", "run", "small.toml", cwd=tmp_path)
    assert other.returncode == 2
    assert "a study that was different" in other.stderr


def test_what_is_stopped_is_saved_and_what_fails_is_given_up(tmp_path):
    long = ("--steps", "100000", "--learning-starts", "100", "--log-every", "1000")
    good = Job("good", ("train", "CartPole-v1", *long), {}, None)
    bad = Job("bad", ("train", "CartPole-v1", "--steps", "none"), {}, None)

    asked = []

    def stop(busy, waiting):
        log = good.folder(tmp_path) / "log.jsonl"
        if not asked and log.exists() and log.stat().st_size:
            asked.append(os.kill(os.getpid(), signal.SIGTERM))

    outcome = run_locally([good], tmp_path, workers=1, retries=1, show=stop)
    assert outcome.failed == ()
    assert outcome.stopped_by == signal.SIGTERM
    assert state(good, tmp_path) is State.BEGUN
    words = good.log(tmp_path).read_text()
    assert "all is saved" in words
    assert good.start(tmp_path) == ["train", "--resume", "--run-dir", str(good.folder(tmp_path))]
    outcome = run_locally([bad], tmp_path, workers=1, retries=1)
    assert [job.name for job in outcome.failed] == ["bad"]
    assert state(bad, tmp_path) is State.FAILED
    assert bad.log(tmp_path).read_text().count("--steps must be a whole number") >= 2  # tried twice
    assert "--steps must be" in bad.failure(tmp_path).read_text()


def test_shards_share_the_runs_out():
    from conqur.commands.suite import _shard

    jobs = [Job(str(i), (), {}, None) for i in range(7)]
    parts = [[job.name for job in _shard(jobs, f"{i}/3")] for i in (1, 2, 3)]
    assert parts == [["0", "3", "6"], ["1", "4"], ["2", "5"]]
    for wrong in ("0/3", "4/3", "x", "1/0"):
        with pytest.raises(Exception, match="--shard"):
            _shard(jobs, wrong)


def test_typos_in_settings_and_games_are_refused_before_anything_runs(tmp_path):
    for old, new, words in (
        ("steps =", "stepz =", "stepz"),
        ("CartPole-v1", "CartPool-v1", "CartPool"),
    ):
        (tmp_path / "wrong.toml").write_text(STUDY.replace(old, new, 1))
        made = conqur("suite", "run", "wrong.toml", cwd=tmp_path)
        assert made.returncode in (1, 2)
        assert words in made.stderr
        assert len(made.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "studies").exists()
