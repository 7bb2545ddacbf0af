"""Studies: what a file stands for, what is refused, and how runs are named."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from conqur.cli import parse
from conqur.environments.atari import atari_game
from conqur.report.paper_tables import PENALTY, SCORING, SEARCH_16, paper_name, paper_table
from conqur.report.study_page import study_exhibits
from conqur.runs import RunError
from conqur.search.config import tune_config
from conqur.suite import collect, collect_curves, collect_nodes, read_study
from conqur.suite.algorithms import ALGORITHMS
from conqur.suite.local import next_job
from conqur.suite.results import manifest, read_runs
from conqur.suite.study import Network, ready_studies
from conqur.suite.tables import Tuned, TunedPoint, as_csv, as_parquet, read_csv

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


def test_baselines_without_a_penalty_are_tuned_once(tmp_path):
    jobs = study(tmp_path, TUNE).jobs()
    assert len(jobs) == 2 * 2 * (2 + 1)
    assert len({job.name for job in jobs}) == len(jobs)
    (one,) = (j for j in jobs if j.name == "MinAtar-Asterix-1-conqur-paper-16-weight-10-seed-1")
    assert " ".join(one.arguments) == (
        "tune bundled:MinAtar-Asterix-1 --seed 1 --preset paper-16 --penalty-weight 10"
    )
    (other,) = (j for j in jobs if j.name == "MinAtar-Asterix-0-multi-dqn-paper-16-weight-0-seed-0")
    assert set(ALGORITHMS["multi-dqn"].options) <= set(other.arguments)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_are_settings_that_a_search_takes(tmp_path, algorithm):
    from conqur.commands.tune import SETTINGS
    from conqur.search.config import tune_config

    text = TUNE.replace('["conqur", "multi-dqn"]', f'["{algorithm}"]')
    command = parse(study(tmp_path, text).jobs()[0].arguments)
    given = {name: getattr(command, name) for name in SETTINGS}
    basis = {"environment": "MinAtar/Asterix", "checkpoint": "", "preprocessing": ""}
    assert tune_config("paper-16", **basis | given).levels == 100


def test_settings_do_not_undo_what_an_algorithm_is(tmp_path):
    """Whatever the settings say, the control has no updates and no penalty."""
    text = TUNE.replace('["conqur", "multi-dqn"]', '["random", "refit"]')
    text += "[settings]\nupdates = 50\nnodes = 4\n"
    for job in study(tmp_path, text).jobs():
        command = parse(job.arguments)
        assert command.penalty_weight == 0
        if job.about["algorithm"] == "random":
            assert (command.updates, command.nodes) == (0, 4)
        else:
            assert (command.updates, command.nodes) == (50, 1)


def test_weights_keep_their_digits_and_names_differ(tmp_path):
    text = TRAIN.replace("[0, 0.5]", "[0.1234567, 0.1234568]")
    names = [job.name for job in study(tmp_path, text).jobs()]
    assert "CartPole-v1-dqn-weight-0.1234567-seed-0" in names
    with pytest.raises(ValueError, match="two runs would be called"):
        study(tmp_path, TRAIN.replace('"CartPole-v1"', '"a/b", "a-b"'))


def test_games_that_are_code_are_named_again(tmp_path):
    job = study(tmp_path, TRAIN.replace("CartPole-v1", "jax:package:Game")).jobs()[0]
    assert job.evaluation(tmp_path)[2:4] == ["--env", "jax:package:Game"]
    job.folder(tmp_path).mkdir(parents=True)
    (job.folder(tmp_path) / "config.json").write_text("{}")
    assert job.start(tmp_path)[:3] == ["train", "jax:package:Game", "--resume"]


def test_networks_of_games_that_are_code_are_tuned_on_in_them(tmp_path):
    text = """
        command = "tune"
        networks = [{ file = "a.zip", env = "jax:package:Game" }, "bundled:MinAtar-Asterix-0"]
    """
    named = [["--env", "jax:package:Game"], []]
    for job, env in zip(study(tmp_path, text).jobs(), named, strict=True):
        job.folder(tmp_path).mkdir(parents=True)
        (job.folder(tmp_path) / "config.json").write_text("{}")
        assert job.start(tmp_path)[:-2] == ["tune", *env, "--resume"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("steps = 600", "seed = 3", "settings must not have seed"),
        ("steps = 600", 'scoring = "rollouts"', "settings must not have scoring"),
        ("steps = 600", 'steps = [600, "--seed", "3"]', "settings must have values, and '--seed'"),
        ("steps = 600", 'steps = "--seed=3"', "settings must have values, and '--seed=3'"),
        ("seeds = 3", "seeds = " + 10_000 * "[", "is no TOML"),
        ("seeds = 3", "seeds = 2_000_000_000", "at most 100,000 runs"),
        ('command = "train"', "", "command is missing"),
        ('command = "train"', 'command = "walk"', "must be train or tune"),
        ('command = "train"', 'command = "trian"', "got 'trian'; did you mean train"),
        ('"CartPole-v1"', '"--help"', "'--help' is an option"),
        ("games", "gamess", "there is no key 'gamess'; did you mean games"),
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
        ("[settings]", "networks = [3]\n[settings]", "networks must be"),
        ("[settings]", 'networks = [{ file = "x" }]\n[settings]', "networks must be"),
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


def test_networks_that_do_not_name_their_game_are_named_with_it(tmp_path):
    files = [
        '{ file = "a/ckpt.index", env = "ALE/Pong-v5" }',
        '{ file = "b/ckpt.index", env = "ALE/Krull-v5" }',
    ]
    start, end = TUNE.index("["), TUNE.index("]")
    found = study(tmp_path, TUNE[:start] + "[" + ", ".join(files) + TUNE[end:])
    assert found.networks[1] == Network("b/ckpt.index", "ALE/Krull-v5")
    job = next(job for job in found.jobs() if job.about["network"] == "b/ckpt.index")
    assert job.name.startswith("Krull-v5-conqur-paper-16-")
    assert " --env ALE/Krull-v5 " in " ".join(job.arguments)


@pytest.mark.parametrize("name", ready_studies())
def test_studies_that_come_with_conqur_can_be_typed(name):
    found = read_study(Path(name))
    assert found.name == name
    for job in found.jobs():
        parse(job.arguments)


def test_studies_of_the_paper_have_its_games():
    def games(name):
        found = read_study(Path(name))
        return {paper_name(game) for game in found.games or [n.env for n in found.networks]}

    assert games("penalty-19-games") == set(paper_table(PENALTY))
    assert games("conqur-59-games-16") == games("conqur-59-games-8") == set(paper_table(SEARCH_16))
    assert games("scoring-9-games") == set(paper_table(SCORING))
    assert len(games("conqur-59-games-16")) == 59
    assert all(atari_game(f"ALE/{game}-v5") for game in paper_table(SEARCH_16))


def test_a_worker_goes_on_with_what_it_has_compiled(tmp_path):
    jobs = list(study(tmp_path, TRAIN.replace("[0, 0.5]", "[0]")).jobs())
    cartpole = [job for job in jobs if job.like == "CartPole-v1"]
    breakout = [job for job in jobs if job.like == "MinAtar/Breakout"]
    assert next_job(jobs, None, []) == jobs[0]
    # Like nobody's, if there is none like its last one.
    assert next_job(jobs, None, [cartpole[0]]) == breakout[0]
    # Of the same game, the same algorithm first.
    last = next(job for job in cartpole if job.about["algorithm"] == "ddqn")
    chosen = next_job(jobs, last, [last, *breakout])
    assert (chosen.like, chosen.about["algorithm"]) == (last.like, "ddqn")


SUMMARY = {
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


def write_tuned(job, folder):
    run = job.folder(folder)
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps(SUMMARY))
    own = {"environment": "MinAtar/Asterix", "checkpoint": job.name, "preprocessing": ""}
    own |= {"seed": job.about["seed"], "penalty_weight": job.about["penalty_weight"]}
    own |= {"search": "independent"} if job.about["algorithm"] == "multi-dqn" else {}
    config = tune_config(job.about["preset"], **own)
    (run / "config.json").write_text(json.dumps(config.to_json()))
    row = {"node": 1, "level": 10, "gain": 0, "gain_interval": [0, 0], "interval": [0, 9]}
    rows = [row | {"mean": mean, "checkpoint": 3.0, "episodes": 8} for mean in (2.0, 8.0)]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


def test_a_study_of_searches_learns_unless_it_says_otherwise(tmp_path):
    text = """
command = "tune"
networks = ["bundled:MinAtar-Asterix-0"]
algorithms = ["conqur", "multi-dqn"]
"""
    jobs = study(tmp_path, text).jobs()
    assert [job.arguments[job.arguments.index("--preset") + 1] for job in jobs] == ["paper-16"] * 2
    for preset in ("", "quick", "tuned"):
        with pytest.raises(ValueError, match=r"algorithm conqur learns, and preset (quick|tuned) "):
            study(tmp_path, text + f'presets = ["{preset}"]')
    alone = text.replace('["conqur", "multi-dqn"]', '["random-rollouts"]')
    assert len(study(tmp_path, alone + 'presets = ["tuned"]').jobs()) == 1


def test_tables_hold_what_runs_found(tmp_path):
    import pyarrow
    import pyarrow.parquet

    jobs = study(tmp_path, TUNE).jobs()
    write_tuned(jobs[3], tmp_path)
    jobs[4].folder(tmp_path).mkdir()
    jobs[4].result(tmp_path).write_text("{")  # half-written: not done
    (row,) = collect(jobs, tmp_path)
    assert (row.run, row.game, row.nodes) == (jobs[3].name, "MinAtar/Asterix", 16)
    assert (row.checkpoint, row.score, row.gain, row.gain_low) == (20.0, 22.0, 2.0, -1.0)
    assert (row.handed_back_gain, row.gain_by_score, row.diverged) == (0.0, -1, 0)
    assert (row.best_evaluation, row.best_evaluation_checkpoint) == (8.0, 3.0)
    assert row.frames == 12
    (point,) = collect_curves(jobs, tmp_path)
    assert (point.level, point.best, point.mean, point.checkpoint) == (10, 8.0, 5.0, 3.0)
    # The paper's number is the checkpoint's own, if its evaluation at the start was the best.
    file = jobs[3].folder(tmp_path) / "evaluations.jsonl"
    first = json.loads(file.read_text().splitlines()[0]) | {"node": 0, "level": 0, "mean": 9.0}
    told = file.read_text()
    file.write_text(json.dumps(first) + "\n" + told)
    (row,) = collect(jobs, tmp_path)
    assert (row.best_evaluation, row.best_evaluation_checkpoint) == (9.0, 3.0)
    file.write_text(told)
    nodes = collect_nodes(jobs, tmp_path)
    assert [(node.rank, node.score, node.checkpoint) for node in nodes] == [(1, 8, 3), (2, 2, 3)]
    file = tmp_path / "results.csv"
    file.write_text(as_csv(Tuned, [row]))
    assert read_csv((TunedPoint, Tuned), file) == (Tuned, [row])
    table = pyarrow.parquet.read_table(pyarrow.BufferReader(as_parquet(Tuned, [row])))
    assert table.to_pylist() == [row._asdict()]


def test_runs_of_one_checkpoint_are_of_one_network(tmp_path):
    """Wherever they are: so the arms are compared on the same networks."""
    folders = []
    for job, search in zip(study(tmp_path, TUNE).jobs(), ("beam", "independent"), strict=False):
        write_tuned(job, tmp_path)
        folders.append(job.folder(tmp_path))
        config = json.loads((folders[-1] / "config.json").read_text())
        config |= {"checkpoint": "abc", "search": search}
        config |= {"penalty_weight": 10.0 if search == "beam" else 0.0}
        (folders[-1] / "config.json").write_text(json.dumps(config))
    results = read_runs(folders)
    assert [(row.network, row.algorithm) for row in results.rows] == [
        ("abc", "conqur"),
        ("abc", "multi-dqn"),
    ]
    shown = {exhibit.key: exhibit for exhibit in study_exhibits(results)}["algorithms"]
    assert shown.rows[0][shown.head.index("lead on multi-DQN")].value == 0.0
    (folders[-1] / "config.json").write_text(json.dumps(config | {"penalty_weight": 1.0}))
    assert [row.algorithm for row in read_runs(folders).rows] == ["conqur", "no-search"]


def change(file, keys, value):
    whole = told = json.loads(file.read_text())
    for key in keys[:-1]:
        told = told[key]
    told[keys[-1]] = value
    file.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("file", "keys", "value", "words"),
    [
        ("config.json", ["colour"], "red", "another version of conqur .they differ in colour"),
        ("config.json", ["environment"], 5, "environment"),
        ("config.json", ["backtracking"], math.nan, "backtracking"),
        ("config.json", ["seed"], [1, 2], "seed"),
        ("config.json", ["nodes"], 10**400, "nodes must be"),
        ("summary.json", ["chosen", "mean"], "x", "'x' is no number"),
        ("summary.json", ["chosen", "mean"], math.nan, "'nan' is no number"),
        ("summary.json", ["chosen", "gain_interval"], [1, "x"], "'x' is no number"),
        ("summary.json", ["frames"], -1, "'-1' is no whole number"),
    ],
)
def test_a_run_that_is_damaged_is_named(tmp_path, file, keys, value, words):
    jobs = study(tmp_path, TUNE).jobs()
    write_tuned(jobs[0], tmp_path)
    change(jobs[0].folder(tmp_path) / file, keys, value)
    with pytest.raises(RunError, match=f"(?s){jobs[0].name} is damaged.*{words}"):
        collect(jobs, tmp_path)


def test_settings_of_wrong_types_are_told_without_a_type_checker():
    """In a process of its own: in this one calls are checked."""
    code = """
from conqur.search.config import TuneConfig, tune_config
good = tune_config("quick", environment="x", checkpoint="", preprocessing="").to_json()
for name, value in (("environment", 5), ("backtracking", float("nan")), ("checkpoint", None)):
    try:
        TuneConfig.from_json(good | {name: value})
    except ValueError as error:
        print(error)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.splitlines() == [
        "environment must be a str, got 5",
        "backtracking must be a bool, got nan",
        "checkpoint must be a str, got None",
    ]


def test_searches_of_one_arm_with_other_settings_are_not_put_into_one_table(tmp_path):
    """Such as those of an earlier version, whose preset was another one."""
    jobs = study(tmp_path, TUNE).jobs()
    alike = [job for job in jobs if job.about["penalty_weight"] == 10]
    for job in jobs:
        write_tuned(job, tmp_path)
    assert len(collect(jobs, tmp_path)) == len(jobs)
    change(alike[1].folder(tmp_path) / "config.json", ["minibatches"], "shared")
    with pytest.raises(RunError, match=f"{alike[1].name} and .* differ in minibatches: .*; remove"):
        collect(jobs, tmp_path)
    for folders in (alike[:2], alike[1::-1]):
        with pytest.raises(RunError, match="differ in minibatches: report on them apart"):
            read_runs([job.folder(tmp_path) for job in folders])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no table of a study"),
        ("a,b\n1,2\n", "is no table of a study"),
        ("HEAD\n1,2\n", "has 2 cells in line 2"),
        ("HEAD\nnet,game,conqur,,x,1,0" + "," * 15 + "\n", "no number in line 2"),
        ("HEAD\nnet,game,conqur,,16,nan,0" + "," * 15 + "\n", "no number in line 2"),
        ('HEAD\n"net', "is no table"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path, text, words):
    file = tmp_path / "results.csv"
    file.write_text(text.replace("HEAD", ",".join(Tuned._fields)))
    with pytest.raises(ValueError, match=words):
        read_csv((Tuned,), file)


def test_a_table_says_on_what_its_runs_were_made(tmp_path):
    def made(name, kind, commit):
        device = {"kind": kind, "processor": "Abacus"}
        about = {"device": device, "packages": {"jax": "1.2"}, "python": "3.11", "commit": commit}
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(about))
        return tmp_path / name

    runs = [made("a", "cpu", "c0"), made("b", "cpu", "c0"), made("c", "H200", "c0")]
    assert "runs_made_on" not in manifest(runs[:2])
    assert manifest(runs)["device"]["kind"] == "cpu"
    assert manifest(runs)["runs_made_on"] == {
        "Abacus; Python 3.11; jax 1.2; commit c0": "2 runs",
        "H200, Abacus; Python 3.11; jax 1.2; commit c0": "1 runs",
    }
    (tmp_path / "a" / "manifest.json").write_text('{"device": 3, "packages": []}')  # whatever it is
    assert len(manifest(runs)["runs_made_on"]) == 3
