"""Runs of a study in real processes: made, skipped, stopped, resumed, given up."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import results, trained

from conqur import cli
from conqur.commands.suite import Suite, _short
from conqur.runs import RunError, StopRequest
from conqur.runs.lock import Lock
from conqur.suite import Job, State, run_locally, state
from conqur.suite.algorithms import ALGORITHMS
from conqur.suite.making import Outcome, prepare
from conqur.suite.planning import Probe, make_plan
from conqur.suite.study import read_study
from conqur.suite.worker import Worker, _printing

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


def typed(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "conqur", *arguments], capture_output=True, text=True, **options
    )


def test_a_study_from_the_command_line(tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    made = typed("suite", "run", "small.toml", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "1 of 1 runs are done" in made.stdout
    folder = tmp_path / "studies" / "small"
    run = folder / "runs" / "CartPole-v1-dqn-weight-0-seed-0"
    before = (run / "evaluation.json").stat().st_mtime_ns
    again = typed("suite", "run", "small.toml", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["states"] == {"done": 1}
    assert (run / "evaluation.json").stat().st_mtime_ns == before  # it was not made again
    (folder / "nodes.csv").write_text("of an earlier time")
    collected = typed("suite", "collect", "small.toml", cwd=tmp_path)
    assert collected.returncode == 0, collected.stderr
    assert not (folder / "nodes.csv").exists()  # nothing was tuned
    told = json.loads(typed("suite", "collect", "small.toml", "--json", cwd=tmp_path).stdout)
    assert (told["folder"], len(told["networks"])) == ("studies/small", 1)
    (row,) = csv.DictReader((folder / "results.csv").read_text().splitlines())
    found = json.loads((run / "evaluation.json").read_text())
    assert float(row["score"]) == pytest.approx(found["mean"])
    assert (row["game"], row["algorithm"], row["seed"]) == ("CartPole-v1", "dqn", "0")
    nothing = typed("suite", "collect", "small.toml", "--dir", "not yet", cwd=tmp_path)
    assert "done yet: conqur suite status small.toml --dir 'not yet'" in nothing.stderr
    (tmp_path / "small.toml").write_text(STUDY.replace("300", "400"))
    other = typed("suite", "run", "small.toml", cwd=tmp_path)
    assert other.returncode == 2
    assert "a study that was different" in other.stderr


LONG = ("--steps", "6000", "--learning-starts", "100", "--log-every", "200")


def test_what_is_killed_and_stopped_ends_as_if_nothing_had_been(tmp_path, capfd):
    job = Job("one", ("train", "CartPole-v1", *LONG), {"game": "CartPole-v1"}, 3)
    undisturbed = trained(tmp_path / "alone", ("CartPole-v1", *LONG))
    rows_at_signals = []

    def rows():
        log = job.folder(tmp_path) / "log.jsonl"
        return log.read_text().count("\n") if log.exists() else 0

    def disturb(busy, waiting):
        workers = _children("conqur.suite.worker")
        if not rows_at_signals and rows() > 2:
            os.kill(*workers, signal.SIGKILL)
            rows_at_signals.append(rows())
        elif len(rows_at_signals) == 1 and rows() > rows_at_signals[0] and workers:
            # What is logged now is the second worker's: it has begun to train.
            os.kill(os.getpid(), signal.SIGTERM)
            rows_at_signals.append(rows())

    outcome = run_locally([job], tmp_path, workers=1, retries=1, show=disturb)
    assert (outcome.failed, outcome.stopped_by) == ((), signal.SIGTERM)
    assert "runs have a minute" in capfd.readouterr().err
    assert state(job, tmp_path) is State.BEGUN
    assert "all is saved" in job.log(tmp_path).read_text()
    assert job.start(tmp_path) == ["train", "--resume", "--run-dir", str(job.folder(tmp_path))]
    outcome = run_locally([job], tmp_path, workers=1, retries=0)
    assert (outcome.failed, outcome.stopped_by) == ((), None)
    assert state(job, tmp_path) is State.DONE
    assert results(job.folder(tmp_path)) == results(undisturbed)
    assert len(json.loads(job.result(tmp_path).read_text())["episodes"]) == 3
    assert _children("conqur.suite.worker") == []


def _children(words):
    """Processes of this one that were started with these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"PPid:\s+(\d+)", (path / "status").read_text())[1]
            if int(parent) == os.getpid() and words in (path / "cmdline").read_text():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_what_fails_is_given_up_and_what_is_made_elsewhere_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("conqur.suite.making.PATIENCE", 0.5)
    bad = Job("bad", ("train", "CartPole-v1", "--steps", "none"), {}, None)
    taken = Job("taken", ("train", "CartPole-v1", *LONG), {}, None)
    taken.folder(tmp_path).mkdir(parents=True)
    lock = Lock(taken.folder(tmp_path), print)
    outcome = run_locally([bad, taken], tmp_path, workers=1, retries=1)
    lock.release()
    assert [job.name for job in outcome.failed] == ["bad"]
    assert state(bad, tmp_path) is State.FAILED
    assert bad.log(tmp_path).read_text().count("--steps must be a whole number") == 2  # tried twice
    assert "--steps must be" in bad.failure(tmp_path).read_text()
    assert state(taken, tmp_path) is State.WAITING


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_logs_that_lie_elsewhere_are_neither_read_nor_written(tmp_path, capsys, kind):
    """A study's folder may come from anybody."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "small.toml").write_text(STUDY)
    (job,) = read_study(tmp_path / "small.toml").jobs()
    log = job.log(tmp_path / "d")
    log.parent.mkdir(parents=True)
    {"link": lambda: log.symlink_to(outside), "pipe": lambda: os.mkfifo(log)}[kind]()
    where = (str(tmp_path / "small.toml"), "--dir", str(tmp_path / "d"))
    assert cli.run(["suite", "status", *where, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["state"], row["said"]) == ("waiting", "")
    refused = pytest.raises(RunError, match="is no regular file: remove it")
    with refused:
        prepare([job], tmp_path / "d")  # before anything is made
    worker = Worker(os.environ)
    with refused, contextlib.closing(worker):  # it may have come since
        next(worker.obey(["inspect"], log=log, out=None, stop=StopRequest()))
    with refused, _printing(str(log), str(tmp_path / "log")):
        pass
    assert outside.read_text() == "mine"


def test_options_of_other_actions_are_refused(tmp_path, capsys):
    (tmp_path / "small.toml").write_text(STUDY)
    study = str(tmp_path / "small.toml")
    for action, option, words in (
        ("status", ["--shard", "1/2"], "--shard is for plan, run"),
        ("collect", ["--workers", "2"], "--workers is for plan, run"),
        ("plan", ["--engine", "ray"], "--engine is for run"),
        ("run", ["--price", "2"], "--price is for plan"),
    ):
        assert cli.run(["suite", action, study, *option]) == 2
        assert words in capsys.readouterr().err
    assert cli.run(["suite", "plan", study, "--shard", "2/2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"] == 0
    assert "shard 2/2 has no runs: the study has 1" in err


def test_a_worker_makes_one_run_after_another(tmp_path, cartpole):
    """In one process: what the first has compiled, the second finds ready; nothing else is left."""
    network = str(cartpole / "networks" / "weight-0-seed-0.safetensors")
    small = ("--preset", "paper-8", "--levels", "2", "--transitions", "60", "--updates", "2")
    small += ("--nodes", "4", "--pool", "4", "--evaluation-episodes", "0", "--final-episodes", "2")
    jobs = [
        Job(arm, ("tune", network, *ALGORITHMS[arm].options, *options), {}, None)
        for arm, options in {
            "conqur": small,
            "multi-dqn": small,
            "refit": (*small[:8], *small[-4:]),
        }.items()
    ]
    again = Job("again", jobs[0].arguments, {}, None)
    outcome = run_locally([*jobs, again], tmp_path, workers=1, retries=0)
    assert outcome.failed == ()
    same = ("tree.jsonl", "log.jsonl", "networks/best.safetensors")
    for name in same:
        one, other = (job.folder(tmp_path) / name for job in (jobs[0], again))
        assert one.read_bytes() == other.read_bytes()
    started = [json.loads((job.folder(tmp_path) / "config.json").read_text()) for job in jobs]
    searches = [config["search"] for config in started]
    assert searches == ["beam", "independent", "independent"]
    assert started[2]["refit"] == "lbfgs"


def test_a_plan_is_made_from_what_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("conqur.suite.planning.SECONDS", 1.0)
    job = Job("one", ("train", "CartPole-v1", "--steps", "1000000"), {"algorithm": "dqn"}, 3)
    plan = make_plan([job] * 6)
    (probe,) = plan.probes
    assert (probe.runs, probe.unit, probe.total, plan.runs) == (6, "step", 1_000_000, 6)
    assert 10 < probe.rate < 1e6
    assert probe.seconds == pytest.approx(probe.start + 1e6 / probe.rate)
    assert plan.worker_seconds == pytest.approx(6 * probe.seconds)
    assert plan.seconds(2) == pytest.approx(3 * probe.seconds)
    assert plan.seconds(100) == pytest.approx(probe.seconds)  # no run is made by two
    assert 1e8 < plan.memory < 1e11
    short = Job("short", ("train", "CartPole-v1", "--steps", "600"), {"algorithm": "dqn"}, 3)
    assert make_plan([short]).probes[0].once > 0  # what it compiled, it found again
    bad = Job("bad", ("train", "CartPole-v1", "--steps", "none"), {}, 3)
    with pytest.raises(ValueError, match="bad failed: conqur: --steps must be"):
        make_plan([bad])


def test_one_game_of_a_family_is_measured_for_all(monkeypatch):
    """Also where nothing but a network's file says what it plays."""
    measured = []

    def noted(job, runs):
        measured.append((job.name.partition("-paper")[0], runs))
        return Probe(job, runs, "level", 100, 1.0, 0.0, 0.0, None)

    monkeypatch.setattr("conqur.suite.planning._probe", noted)
    make_plan(read_study(Path("atari-search-16")).jobs())
    arms = ("conqur", "multi-dqn", "no-penalty")
    assert measured == [(f"Breakout-{arm}", 6 * 3) for arm in arms]  # games, seeds


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
        ("steps =", "batch_size = -3\nsteps =", "--batch-size must be"),
    ):
        (tmp_path / "wrong.toml").write_text(STUDY.replace(old, new, 1))
        made = typed("suite", "run", "wrong.toml", cwd=tmp_path)
        assert made.returncode in (1, 2)
        assert words in made.stderr
        assert len(made.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "studies").exists()


def test_settings_are_checked_in_every_game(tmp_path):
    from conqur.commands.suite import _check

    games = '["MinAtar/Breakout", "CartPole-v1"]'  # the second remembers fewer transitions
    text = STUDY.replace('["CartPole-v1"]', games).replace("starts = 100", "starts = 80_000")
    (tmp_path / "two.toml").write_text(text.replace("steps = 300", "steps = 200_000"))
    with pytest.raises(Exception, match=r"--learning-starts .* must be at most --replay-size"):
        _check(read_study(tmp_path / "two.toml"))


def test_what_somebody_else_makes_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.toml").write_text(STUDY)
    nothing = Outcome((), None)
    monkeypatch.setattr(Suite, "_engine", lambda self: lambda *given, **options: nothing)
    with pytest.raises(SystemExit, match="1"):
        Suite("run", tmp_path / "small.toml", dir=tmp_path / "study").run("")
    assert "Somebody else is making CartPole-v1-dqn-weight-0-seed-0:" in capsys.readouterr().out


def test_the_time_that_is_left_is_told_from_the_runs_of_this_call(tmp_path, monkeypatch):
    import conqur.commands.suite as command

    now, said = [100.0], []
    monkeypatch.setattr(command.clock, "monotonic", lambda: now[0])
    shown = command._Shown(10, tmp_path, said.append, quiet=False)
    job = Job("one", (), {}, None)
    shown.update([job], 5)  # four are of an earlier call
    now[0] += 60
    shown.update([job], 5)  # nothing new
    shown.update([job], 3)
    now[0] += 30
    shown.update([job], 3)
    assert said == [
        "4 of 10 runs are over; now one (starting)",
        "6 of 10 runs are over, about 2.0 minutes left; now one (starting)",
    ]


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("step 1,200 of 5,000: 80 steps/s", "step 1,200 of 5,000"),
        ("level 3 of 100: 16 nodes, best loss", "level 3 of 100"),
        ("level 3/6: playing with nodes, 45%", "level 3/6: playing with nodes, 45%"),
        ("choosing among 46 nodes, 8%", "choosing among 46 nodes, 8%"),
        ("starting: programs are compiled", "at work"),
        ("", "starting"),
    ],
)
def test_how_far_a_run_is_in_short(said, short):
    assert _short(said) == short
