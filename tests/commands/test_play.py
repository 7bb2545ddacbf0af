"""`conqur play`: videos that people can watch."""

import json
import re
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence
from tiny_runs import sentence

from conqur.commands.starting import free_file


def frames_of(path):
    """The pictures of a video, decoded by others: Pillow and ffmpeg."""
    if path.suffix == ".gif":
        with Image.open(path) as image:
            return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo"]
    command += ["-pix_fmt", "rgb24", "-fps_mode", "passthrough", "-"]
    told = subprocess.run(command, capture_output=True, check=True)
    width, height = map(int, re.search(rb"Video: .*?(\d{3,})x(\d{3,})", told.stderr).groups())
    return list(np.frombuffer(told.stdout, np.uint8).reshape(-1, height, width, 3))


@pytest.mark.parametrize("run", ["cartpole", "minatar"])
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_game_becomes_a_video(conqur, request, tmp_path, run, suffix):
    video = tmp_path / f"game{suffix}"
    folder = request.getfixturevalue(run)
    status, out, err = conqur("play", folder, "--output", video, "--steps", 30, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["video"], out.count("\n")) == (str(video), 1)
    assert 1 <= found["steps"] <= 30
    assert found["finished"] or found["steps"] == 30
    frames = frames_of(video)
    assert len(frames) >= found["steps"]
    assert all(frame.std() > 5 for frame in frames)  # there is something to see
    assert np.abs(frames[0].astype(int) - frames[found["steps"] // 2]).max() > 50  # and it moves
    assert [path.name for path in tmp_path.iterdir()] == [video.name]


def test_it_says_what_it_did(conqur, cartpole, tmp_path):
    status, out, _ = conqur("play", cartpole, "--output", tmp_path / "g.gif", "--steps", 3)
    assert status == 0
    assert out == f"Score 3 in 3 steps (cut), in this one episode. Video: {tmp_path / 'g.gif'}\n"


def test_of_several_networks_it_names_the_one_it_films(conqur, minatar, tmp_path):
    video = ("--output", tmp_path / "g.gif", "--steps", 3, "--json")
    status, out, err = conqur("play", minatar, *video)
    assert (status, json.loads(out)["network"]["seed"]) == (0, 0)
    another = minatar / "networks" / "weight-0.5-seed-1.safetensors"
    assert err.splitlines()[0] == (
        "Filming λ 0, seed 0, the first of 4 networks; for another, name its file, such as "
        f"{another}"
    )
    status, out, err = conqur("play", another, *video)
    assert (status, "Filming" in err) == (0, False)
    network = json.loads(out)["network"]
    assert (network["penalty_weight"], network["seed"]) == (0.5, 1)


WRONG = [
    ("--output game.avi", "--output must end in .mp4 or .gif, got game.avi"),
    ("--output /nowhere/game.gif", "--output /nowhere/game.gif: there is no folder /nowhere"),
    ("--steps 0", "--steps must be a whole number of at least 1, got 0"),
    ("--fps 0", "--fps must be a whole number of at least 1, got 0"),
    ("--epsilon -1", "--epsilon must be a number of at least 0 and of at most 1, got -1.0"),
    ("--seed -1", "--seed must be a whole number of at least 0, got -1"),
    ("--env Acrobot-v1", "the network chooses among 2 actions, but Acrobot-v1 has 3"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_use_is_one_sentence_and_writes_nothing(
    conqur, cartpole, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    status, out, err = conqur("play", cartpole, *arguments.split())
    assert status in (1, 2)
    assert out == ""
    assert err.splitlines()[-1].startswith("conqur: ")
    sentence(words, err.splitlines()[-1] + "\n")
    assert list(tmp_path.iterdir()) == []


def test_no_video_takes_the_place_of_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("film.mp4", "film-2.mp4", "film-3.mp4"):
        assert free_file("film.mp4").name == name
        (tmp_path / name).symlink_to("nowhere")  # which a file would be written through
