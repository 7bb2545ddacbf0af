"""The networks that come with conqur: files, cards, and what the commands make of them."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors

from conqur.environments.making import MINATAR
from conqur.pretrained import (
    DEFAULT,
    bundled_names,
    card,
    find_networks,
    load,
    local_file,
    to_bytes,
    write_like,
)

ATARI = ["Breakout", "CrazyClimber", "Krull", "Pong", "Seaquest", "UpNDown"]
NAMES = bundled_names()


def test_they_are_six_atari_games_and_all_of_minatar_with_three_seeds():
    games = [name.replace("/", "-") for name in MINATAR]
    wanted = ATARI + [f"{game}-{seed}" for game in games for seed in range(3)]
    assert sorted(NAMES) == sorted(f"bundled:{name}" for name in wanted)
    assert DEFAULT in NAMES


def test_they_take_25_megabytes_at_most():
    folder = local_file(DEFAULT).parent
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 25e6


@pytest.mark.parametrize("name", NAMES)
def test_file_and_card_are_of_the_same_network(name):
    network, about = load(name), card(name)
    assert find_networks(name) == [Path(name)]
    assert f"bundled:{about['name']}" == name
    assert about["environment"] == network.environment
    assert about["preprocessing"] == network.preprocessing
    assert (about["steps"], about["seed"]) == (network.origin["step"], network.origin["seed"])
    assert about["frames"] == about["steps"] * (4 if "ALE/" in network.environment else 1)
    assert about["command"].startswith(f"conqur train {network.environment} ")
    assert about["curve"][-1][0] == pytest.approx(about["steps"], rel=0.05)
    score = about["score"]
    assert score["mean"] == pytest.approx(np.mean(score["episodes"]))
    assert score["interval"][0] < score["mean"] < score["interval"][1]
    assert score["command"].split()[:3] == ["conqur", "evaluate", name]
    with safetensors.safe_open(local_file(name), framework="np") as file:
        kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
    assert kinds == {"F16"}


def test_a_name_is_no_way_to_other_files():
    with pytest.raises(ValueError, match="there is no network"):
        load("bundled:../bundled/Pong")


def test_unchanged_they_are_written_back_as_they_are():
    for name in (DEFAULT, "bundled:Pong"):
        assert write_like(load(name), name) == local_file(name).read_bytes()


def test_a_name_nearby_is_suggested():
    with pytest.raises(ValueError, match=r"did you mean bundled:Pong\?"):
        load("bundled:pong")
    with pytest.raises(ValueError, match=r"did you mean bundled:MinAtar-Breakout-\d\?"):
        load("bundled:MinAtar-Breakout")


def test_one_can_be_written_like_another():
    one, other = load("bundled:MinAtar-Asterix-0"), load("bundled:MinAtar-Asterix-1")
    written = write_like(other, "bundled:MinAtar-Asterix-0")
    assert written == to_bytes(replace(one, regressor=other.regressor), half=True)
    changed = replace(one, regressor=jax.tree.map(lambda x: x / 3, one.regressor))
    assert write_like(changed, "bundled:MinAtar-Asterix-0") == to_bytes(changed)
