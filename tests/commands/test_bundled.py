"""The networks that come with conqur, on the command line."""

import json

from conqur.pretrained import DEFAULT, bundled_names, card

NAMES = bundled_names()


def test_the_card_says_what_the_network_scores(conqur):
    """A part of the card's episodes, played again."""
    status, out, err = conqur("evaluate", DEFAULT, "--episodes", "16", "--json")
    assert status == 0, err
    assert json.loads(out)["episodes"] == card(DEFAULT)["score"]["episodes"][:16]


def test_they_are_listed_and_shown(conqur):
    status, out, _ = conqur("inspect")
    assert status == 0
    lines = out.splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in NAMES)
    status, out, _ = conqur("inspect", "bundled:Pong")
    assert status == 0
    about = card("bundled:Pong")
    assert about["command"] in out
    assert f"{about['frames']:,}" in out
    status, out, _ = conqur("inspect", "bundled:Pong", "--json")
    assert json.loads(out)["card"] == about
    assert set(json.loads(conqur("inspect", "--json")[1])) == set(NAMES)


def test_their_names_are_not_for_files(tmp_path, conqur, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = conqur("import", DEFAULT, "--output", "bundled:Mine")
    assert status == 2
    assert "names are those of networks in conqur" in err
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_not_there_is_refused(conqur):
    for words in (("inspect",), ("tune",), ("evaluate",)):
        status, _, err = conqur(*words, "bundled:Pongo")
        assert status == 1
        assert "there is no network bundled:Pongo" in err
