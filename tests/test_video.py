import re
import subprocess
import sys

import imageio_ffmpeg
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conqur import _panel, video
from conqur._panel import Moment, Panel, Scale
from conqur.environments import Spec, Step, VectorEnvironment, make
from conqur.evaluation import evaluate
from conqur.video import record

BLUE, VERMILLION, COLUMN, TRACK = (
    np.array(Image.new("RGB", (1, 1), colour).getpixel((0, 0)))
    for colour in (_panel.BLUE, _panel.VERMILLION, _panel.COLUMN, _panel.TRACK)
)


class Countdown(VectorEnvironment):
    """Seven steps, a point for each; the picture is 3 × 4 and its red says which step it is."""

    spec = Spec("Countdown", (1,), "float32", ("wait", "hurry"))

    def __init__(self, num_envs=1, *, breaks_at=None):
        self.num_envs, self.breaks_at, self.resets = num_envs, breaks_at, 0

    def reset(self, seeds):
        self.clock, self.resets = 0, self.resets + 1
        return np.zeros((1, 1), np.float32)

    def send(self, actions):
        self.clock += 1
        if self.clock == self.breaks_at:
            raise RuntimeError("the emulator died")

    def receive(self):
        over = np.array([self.clock == 7])
        return Step(np.full((1, 1), self.clock, np.float32), np.ones(1), over, over, ~over & False)

    def render(self):
        picture = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
        picture[..., 0] = 30 * self.clock
        return picture


def hurry(observations):
    return jnp.stack([0 * observations[..., 0], 1 + observations[..., 0]], axis=-1)


def lean(observations):
    push = observations @ jnp.array([0.1, 0.3, 1.0, 1.0])
    return jnp.stack([-push, push], axis=-1)


def reds(frames):
    """Which steps are shown, from a pixel in the middle of the game's picture."""
    return [round(frame[frame.shape[0] // 2, 200, 0] / 30) for frame in frames]


def gif_frames(path):
    with Image.open(path) as image:
        frames, durations = [], []
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")).astype(int))
            durations.append(image.info["duration"])
        return frames, durations


def mp4_frames(path):
    """The frames, and what ffmpeg says about the stream."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo"]
    command += ["-pix_fmt", "rgb24", "-fps_mode", "passthrough", "-"]
    told = subprocess.run(command, capture_output=True, check=True)
    about = re.search("Stream.*Video: (.*)", told.stderr.decode())[1]
    width, height = map(int, re.search(r"(\d{3,})x(\d{3,})", about).groups())
    return np.frombuffer(told.stdout, np.uint8).reshape(-1, height, width, 3).astype(int), about


def test_gif_shows_each_step_and_rests_at_the_end(tmp_path):
    recording = record(hurry, Countdown(), path=tmp_path / "a.gif", epsilon=0)
    assert recording == video.Recording(tmp_path / "a.gif", 7.0, 7, True)
    frames, durations = gif_frames(tmp_path / "a.gif")
    assert reds(frames) == list(range(8))
    assert durations == [30] * 7 + [video.LAST_STANDS]
    assert list(tmp_path.iterdir()) == [tmp_path / "a.gif"]


def test_mp4_is_what_browsers_play(tmp_path):
    record(hurry, Countdown(), path=str(tmp_path / "A.MP4"), epsilon=0, fps=20)
    frames, about = mp4_frames(tmp_path / "A.MP4")
    assert "h264" in about
    assert "yuv420p" in about
    assert "20 fps" in about
    assert reds(frames) == [*range(8), *[7] * 30]
    assert list(tmp_path.iterdir()) == [tmp_path / "A.MP4"]


def test_the_game_is_the_first_one_of_an_evaluation(tmp_path):
    (result,) = evaluate(lean, make("CartPole-v1", 2), episodes=2, epsilon=0.3, seed=4)
    environment = make("CartPole-v1", render=True)
    recording = record(lean, environment, path=tmp_path / "a.gif", epsilon=0.3, seed=4)
    assert (recording.score, recording.steps) == (result.scores[0], result.lengths[0])
    frames, _ = gif_frames(tmp_path / "a.gif")
    shown = frames[-1][_panel.MARGIN :, _panel.MARGIN :][:400, :600]
    differs = np.abs(shown - environment.render()).max(axis=-1) > 8
    assert differs.mean() < 0.002  # but for colours of single pixels


def test_a_long_game_is_cut(tmp_path):
    recording = record(hurry, Countdown(), path=tmp_path / "a.gif", max_steps=4)
    assert (recording.score, recording.steps, recording.finished) == (4.0, 4, False)
    assert reds(gif_frames(tmp_path / "a.gif")[0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("most", "fps", "shown", "delay"),
    [
        (600, 5, list(range(8)), 100),  # slower than allowed
        (600, 100, list(range(8)), 20),  # faster than browsers are
        (6, 30, [0, 2, 4, 6, 7], 70),  # every second one, and the last
        (4, 30, [0, 2, 4, 6, 7], 70),
        (2, 30, [0, 4, 7], 100),  # every fourth
    ],
)
def test_gifs_are_thinned_out(tmp_path, monkeypatch, most, fps, shown, delay):
    monkeypatch.setattr(video, "GIF_FRAMES", most)
    record(hurry, Countdown(), path=tmp_path / "a.gif", fps=fps)
    frames, durations = gif_frames(tmp_path / "a.gif")
    assert reds(frames) == shown
    assert durations[:-1] == [delay] * (len(shown) - 1)


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_game_that_breaks_leaves_the_old_video(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    path.write_text("the old one")
    with pytest.raises(RuntimeError, match="the emulator died"):
        record(hurry, Countdown(breaks_at=3), path=path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.avi", "must end in .gif or .mp4"),
        ("a", "must end in .gif or .mp4"),
        ("missing/a.gif", "No such file or directory"),
        ("file/a.mp4", "Not a directory"),
        ("folder.gif", "no regular file"),
        ("x" * 300 + ".gif", "File name too long"),
        ("null\0.gif", "null"),
    ],
)
def test_paths_are_refused_before_the_game(tmp_path, name, message):
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file").touch()
    environment = Countdown()
    with pytest.raises(ValueError, match=rf"path .*{message}") as refusal:
        record(hurry, environment, path=f"{tmp_path}/{name}")
    assert "\n" not in str(refusal.value)
    assert environment.resets == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"fps": 0}, "fps"),
        ({"epsilon": -1}, "epsilon"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input_is_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        record(hurry, Countdown(), path=tmp_path / "a.gif", **options)


def test_one_copy_that_draws_and_a_network_that_fits(tmp_path):
    with pytest.raises(ValueError, match="environment must be a single copy"):
        record(hurry, Countdown(2), path=tmp_path / "a.gif")
    with pytest.raises(NotImplementedError, match="render=True"):
        record(lean, make("CartPole-v1"), path=tmp_path / "a.gif")
    with pytest.raises(ValueError, match="2 actions of Countdown"):
        record(lambda x: jnp.zeros((1, 1, 3)), Countdown(), path=tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    environment = Countdown()
    with pytest.raises(ImportError, match=re.escape("pip install 'conqur[video]'")):
        record(hurry, environment, path=tmp_path / "a.mp4")
    assert environment.resets == 0
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "conqur._panel")
    with pytest.raises(ImportError, match=re.escape("pillow: pip install 'conqur[video]'")):
        __import__("conqur._panel")


def test_an_encoder_that_fails_says_so(tmp_path, monkeypatch):
    encoder = tmp_path / "encoder"
    encoder.write_text("#!/bin/sh\necho no space >&2\nexit 3\n")
    encoder.chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(encoder))
    with pytest.raises(OSError, match="could not be encoded: no space"):
        record(hurry, Countdown(), path=tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == [encoder]


def row_of(image, action):
    """The pixels of the panel across the middle of an action's bar."""
    y = _panel.HEAD + _panel.ROW * action + _panel.ROW // 2
    return np.asarray(image).astype(int)[y, -_panel.WIDTH + _panel.MARGIN + 7 :]


def length(image, action, colour):
    return (np.abs(row_of(image, action) - colour).sum(axis=-1) < 6).sum()


def moment(q_values, action, **others):
    return Moment(np.zeros((20, 30, 3), np.uint8), 0, 0.0, np.array(q_values), action, **others)


def test_bars_are_as_long_as_their_values():
    image = Panel("Game", ("a", "b", "c", "d")).draw(moment([0.0, 1.0, 2.0, 4.0], 3))
    longest = length(image, 3, BLUE)
    assert longest > 100
    np.testing.assert_allclose(
        [length(image, i, COLUMN) for i in range(3)], np.array([0, 0.25, 0.5]) * longest, atol=2
    )
    np.testing.assert_allclose(length(image, 1, TRACK), 0.75 * longest, atol=2)


def test_bars_below_zero_grow_to_the_left():
    image = Panel("Game", ("a", "b")).draw(moment([-1.0, 3.0], 1))
    below = np.flatnonzero(np.abs(row_of(image, 0) - COLUMN).sum(axis=-1) < 6)
    above = np.flatnonzero(np.abs(row_of(image, 1) - BLUE).sum(axis=-1) < 6)
    np.testing.assert_allclose(3 * len(below), len(above), atol=4)
    assert abs(below.max() - above.min()) <= 1


def test_a_random_action_has_another_colour():
    image = Panel("Game", ("a", "b")).draw(moment([1.0, 3.0], 0, end=""))
    assert length(image, 0, BLUE) == length(image, 1, BLUE) == 0
    assert length(image, 1, COLUMN) > 100
    panel = Panel("Game", ("a", "b"))
    panel.draw(moment([0.0, 3.0], 1))
    assert length(panel.draw(moment([1.0, 3.0], 0)), 0, VERMILLION) > 20


def test_pictures_are_enlarged_pixel_by_pixel():
    picture = np.random.default_rng(0).integers(0, 255, (3, 4, 3), np.uint8)
    image = np.asarray(_panel._fitted(picture))
    assert image.shape == (420, 560, 3)
    np.testing.assert_array_equal(image, picture.repeat(140, axis=0).repeat(140, axis=1))
    assert _panel._fitted(np.zeros((1080, 1921, 3), np.uint8)).size == (641, 360)


def test_one_value_only_is_drawn_too():
    Panel("Game", ("a", "b")).draw(moment([2.0, 2.0], 0))


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3), min_size=1, max_size=30))
def test_scales_hold_all_values(steps):
    scale = Scale()
    for values in steps:
        scale.include(values)
        assert scale.low <= min(values)
        assert max(values) <= scale.high


def test_scales_forget_and_write():
    scale = Scale()
    scale.include([-1000.0, 5000.0])
    assert scale.write(-12.34) == "-12"
    for _ in range(_panel.MEMORY):
        scale.include([1.0, 1.5])
    assert 4000 < scale.high < 5000  # 5,000 is forgotten, but not at once
    for _ in range(300):
        scale.include([1.0, 1.5])
    assert (scale.low, scale.high) == pytest.approx((1.0, 1.5), abs=0.01)
    assert scale.write(1.23456) == "1.2346"


def test_large_areas_keep_their_colours_in_a_gif():
    stripes = Image.fromarray(
        np.arange(0, 240, 1, np.uint8)[:, None, None].repeat(9, 1).repeat(3, 2)
    )
    image = Image.new("RGB", (240, 240), "#fdfdfc")
    image.paste("#f3f4f5", (0, 0, 120, 240))
    image.paste(stripes, (0, 0))
    reduced = _panel.with_palette(image).convert("RGB")
    assert reduced.getpixel((100, 100)) == (0xF3, 0xF4, 0xF5)
    assert reduced.getpixel((200, 100)) == (0xFD, 0xFD, 0xFC)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (99, 99, 3), np.uint8))
    assert len(_panel.with_palette(noise).getcolors()) <= 256
