"""`conqur diagnose`: a tiny network end to end, and what it refuses."""

import json
import shutil
from dataclasses import replace

import pytest
from tiny_runs import digests, sentence

from conqur import cli
from conqur.runs.record import Record

TINY = (
    *("--levels", 3, "--transitions", 60, "--updates", 20, "--target-every", 1),
    *("--episodes", 4, "--num-envs", 4, "--learning-rate", 0.01, "--seeds", 2),
)


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def test_a_network_end_to_end(conqur, cartpole, page):
    arguments = ("diagnose", cartpole, *TINY, "--output", page, "--json")
    status, out, err = conqur(*arguments)
    assert status == 0, err
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["environment"] == "CartPole-v1"
    assert found["network"]["penalty_weight"] == 0.0
    assert found["settings"]["levels"] == 3
    assert "level 3 of 3" in err
    for name in ("plain", "penalised"):
        assert found[name]["choices"] == sum(
            each["breaks"]["choices"] for each in found[name]["repetitions"]
        )
        shares = [each["breaks"]["share"] for each in found[name]["repetitions"]]
        assert found[name]["broken"]["mean"] == pytest.approx(sum(shares) / 2)
        assert found[name]["balance"]["episodes"] == 8
        copy, other = found[name]["repetitions"]
        assert copy["worth"]["scores"] != other["worth"]["scores"]  # of other starts
        choices = copy["breaks"]["choices"]
        assert 100 < choices < 180
        assert copy["breaks"]["share"] == copy["breaks"]["after_levels"][-1]
        can = copy["satisfiable"]
        assert 1 - copy["breaks"]["share"] <= can["found"] <= can["any_policy"] <= 1
        assert can["found"] * choices == pytest.approx(round(can["found"] * choices))
        assert can["union"] in ("consistent", "inconsistent", "undecided")
        assert len(copy["labels"]) == len(copy["churn"]["between"]) == 3
        assert copy["churn"]["since_start"][0] == copy["churn"]["between"][0]
        assert len(copy["worth"]["scores"]) == 4
    assert found["checkpoint"]["gaps"]["quantiles"]["0.5"] > 0
    text = page.read_text()
    assert f"Of {found['plain']['choices']} choices" in found["summary"]
    assert found["summary"].partition(" (")[0].replace(" %", "&nbsp;%") in text
    assert str(cartpole) in text  # the command that made it
    assert conqur(*arguments)[1] == out


def test_words_for_people(conqur, cartpole, page):
    status, out, err = conqur("diagnose", cartpole, *TINY, "--output", page, "--units", "gap")
    assert status == 0, err
    first, empty, paragraph, *_, last = out.splitlines()
    assert "choices behind its labels" in first
    assert empty == ""
    assert paragraph.startswith("Of ")
    assert last.endswith(f"Page: {page}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--levels", 1), "--levels must be more than --target-every, 1, got 1"),
        (("--penalty-weight", 0), "--penalty-weight must be a number above 0 and of at most"),
        (("--learning-rate", "nan"), "--learning-rate must be a number above 0"),
        (("--units", "volts"), "--units"),
        (("--env", "Acrobot-v1"), "actions"),
        (("--env", "NoSuch-v0"), "NoSuch"),
        (("--transitions", 1.5), "--transitions must be a whole number"),
        (("--output", "/nowhere/page.html"), "there is no folder /nowhere"),
    ],
)
def test_wrong_use_is_told_in_one_sentence(conqur, cartpole, page, options, words):
    status, out, err = conqur("diagnose", cartpole, *TINY, "--output", page, *options)
    assert status in (1, 2)
    assert out == ""
    sentence(words, err)
    assert not page.exists()


def test_a_folder_of_several_networks(conqur, cartpole, tmp_path, page):
    (network,) = (cartpole / "networks").iterdir()
    for name in "ab":
        shutil.copy(network, tmp_path / f"{name}.safetensors")
    status, _, err = conqur("diagnose", tmp_path, *TINY, "--output", page)
    assert status == 2
    sentence("holds 2 networks; name one of them", err)


def test_no_network(conqur, tmp_path, page):
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    for name in ("x.safetensors", "missing"):
        status, _, err = conqur("diagnose", tmp_path / name, "--output", page)
        assert status == 1
        sentence(name, err)


TUNE = (
    *("--preset", "paper-8", "--levels", "3", "--transitions", "40", "--updates", "6"),
    *("--nodes", "4", "--pool", "6", "--splitting-factor", "2", "--expanded", "2"),
    *("--num-envs", "2", "--evaluation-episodes", "0", "--final-episodes", "2", "--json"),
)


@pytest.fixture(scope="module")
def tuned(cartpole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune") / "run"
    assert cli.run(["tune", str(cartpole), *TUNE, "--run-dir", str(folder)]) == 0
    return folder


def test_the_history_of_a_tuning_run(conqur, tuned, page):
    before = digests(tuned)
    arguments = ("diagnose", tuned, "--episodes", 2, "--output", page)
    status, out, err = conqur(*arguments, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["level"] == len(found["churn"]) == 3
    assert found["settings"]["penalty_weight"] == 10
    assert found["best"]["choices"] <= 3 * 40
    assert len(found["frontier"]) == 4
    assert found["balance"]["episodes"] == 2
    assert found["summary"].startswith(f"Of {found['best']['choices']} choices behind the labels")
    assert "Diagnosis of a search: CartPole-v1" in page.read_text()
    assert digests(tuned) == before
    status, out, err = conqur(*arguments)
    assert "choices behind the labels of the node with the best score" in out.splitlines()[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--levels", 5), "leave out --levels"),
        (("--penalty-weight", 2), "leave out --penalty-weight"),
        (("--seeds", 1), "leave out --seeds"),
        (("--episodes", 0), "--episodes must be"),
        (("--env", "Acrobot-v1"), "actions"),
    ],
)
def test_wrong_use_with_a_tuning_run(conqur, tuned, page, options, words):
    status, out, err = conqur("diagnose", tuned, "--output", page, *options)
    assert status in (1, 2)
    assert out == ""
    sentence(words, err)


def test_a_tuning_run_that_was_hardly_begun(conqur, tuned, tmp_path, page):
    folder = shutil.copytree(tuned, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    status, _, err = conqur("diagnose", folder, "--output", page)
    assert status == 1
    sentence("it has no checkpoint (yet)", err)
    assert not (folder / "checkpoints").exists()


def test_code_that_a_tuning_run_names_is_not_loaded_unasked(conqur, tuned, tmp_path, page):
    folder = shutil.copytree(tuned, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text()) | {"environment": "evil:Own-v0"}
    (folder / "config.json").write_text(json.dumps(config))
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        record = Record.from_json(json.loads(path.read_text()))
        path.write_bytes(replace(record, config=config).to_json())
    status, _, err = conqur("diagnose", folder, "--output", page)
    assert status == 2
    sentence("which is code to be loaded: if you trust it, name it with --env", err)
