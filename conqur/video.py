"""Videos of a policy at play: the game, and beside it what the network thinks of its actions."""

import contextlib
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

from conqur import _checks
from conqur._files import replacing
from conqur._panel import Moment, Panel, Picture, with_palette
from conqur.environments.interface import VectorEnvironment
from conqur.evaluation.acting import act, checked_actions, episode_seeds

GIF_FRAMES = 600
"""The most frames of a GIF; of a longer game every second, fourth, … is taken."""
GIF_SLOWEST = 100
"""The longest that a frame of a GIF stands, in ms: a longer game runs faster instead."""
LAST_STANDS = 1500
"""How long the end of the game is shown, in ms."""


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        path: of the video.
        score: what the policy scored.
        steps: how many steps it played.
        finished: whether the game came to its end, or was cut.
    """

    path: Path
    score: float
    steps: int
    finished: bool


def record(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    *,
    path: str | os.PathLike[str],
    max_steps: int = 3000,
    epsilon: float = 0.001,
    fps: int = 30,
    seed: int = 0,
) -> Recording:
    """Play one game and write it as a video; the same game as episode 0 of `evaluate`.

    Args:
        q: from observations [1, 1, *observation_shape] to Q-values [1, 1, A], in JAX.
        environment: a single copy, made with `render=True`.
        path: the file; `.mp4` (H.264, as browsers play it) or `.gif`. A GIF holds at most
            `GIF_FRAMES` frames: of longer games every second, fourth, … step is shown.
        max_steps: the game is cut after so many.
        epsilon: the probability of a random action.
        fps: steps shown in a second.
        seed: of the game.
    """
    _checks.count("max_steps", max_steps)
    _checks.count("fps", fps)
    _checks.count("seed", seed, at_least=0)
    _checks.number("epsilon", epsilon, at_least=0, at_most=1)
    if environment.num_envs != 1:
        raise ValueError(
            f"environment must be a single copy to be recorded, got {environment.num_envs}"
        )
    target = Path(path)
    if target.suffix.lower() not in _FILMS:
        raise ValueError(f"path must end in .gif or .mp4, got {str(path)!r}")
    panel = Panel(environment.spec.name, environment.spec.actions)
    newest: deque[Moment] = deque(maxlen=1)

    def pictures() -> Iterator[Picture]:
        for moment in play(q, environment, max_steps=max_steps, epsilon=epsilon, seed=seed):
            newest.append(moment)
            yield panel.draw(moment)

    with _film(target) as partial:
        _FILMS[target.suffix.lower()](partial, pictures(), fps)
    (end,) = newest
    return Recording(target, end.score, end.step, end.end == _OVER)


_OVER, _CUT = "game over", "cut here"


def play(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    *,
    max_steps: int,
    epsilon: float,
    seed: int,
) -> Iterator[Moment]:
    """Play one game in the only copy of `environment`; see `record`. At last comes the end."""
    spec = environment.spec
    seeds, keys = episode_seeds(seed, [0])
    frames, reset, score, over = environment.reset(seeds), np.ones(1, bool), 0.0, False
    observations = jnp.zeros((1, 1, *spec.observation_shape), spec.frame_dtype)
    time = 0
    while not over and time < max_steps:
        observations, chosen, found = act(
            q, spec, observations, frames, reset, keys[None], np.int32(time), np.float32(epsilon)
        )
        actions, q_values = checked_actions(chosen), np.asarray(found, np.float64)[0, 0]
        yield Moment(environment.render(), time, score, q_values, int(actions[0]))
        step = environment.step(actions)
        frames, reset = step.frame, step.reset
        score, over = score + float(step.reward[0]), bool(step.game_over[0])
        time += 1
    end = _OVER if over else _CUT
    yield Moment(environment.render(), time, score, q_values, int(actions[0]), end)


class _Thinned:
    """Evenly spaced ones of the pictures added, at most `GIF_FRAMES`, and the last one."""

    def __init__(self) -> None:
        self.stride = 1
        self._kept: list[Picture] = []
        self._count = 0

    def add(self, picture: Picture) -> None:
        if self._count % self.stride == 0:
            if len(self._kept) == GIF_FRAMES:  # an even number: the next one keeps its place
                self._kept = self._kept[::2]
                self.stride *= 2
            # Colours are reduced here, where it saves two thirds of the memory.
            self._kept.append(with_palette(picture))
        self._last = picture
        self._count += 1

    def pictures(self) -> list[Picture]:
        at_last = (self._count - 1) % self.stride
        return [*self._kept, with_palette(self._last)] if at_last else self._kept


def _write_gif(path: Path, pictures: Iterator[Picture], fps: int) -> None:
    clip = _Thinned()
    for picture in pictures:
        clip.add(picture)
    first, *rest = clip.pictures()
    # In GIFs time goes by hundredths of a second, and below two of them browsers take ten.
    delay = min(GIF_SLOWEST, max(20, 10 * round(100 * clip.stride / fps)))
    durations = [delay] * len(rest) + [LAST_STANDS]
    first.save(path, "GIF", save_all=True, append_images=rest, duration=durations, loop=0)


def _write_mp4(path: Path, pictures: Iterator[Picture], fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError:
        raise ImportError("MP4 needs imageio-ffmpeg: pip install 'conqur[video]'") from None
    picture = next(pictures)
    width, height = picture.size
    options = f"""
        -y -loglevel error -f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -
        -an -c:v libx264 -crf 20 -pix_fmt yuv420p -movflags +faststart -f mp4
    """  # yuv420p: all browsers play that
    command = [imageio_ffmpeg.get_ffmpeg_exe(), *options.split(), str(path)]
    with tempfile.TemporaryFile() as said, _encoder(command, said) as encode:
        encode(picture.tobytes())
        for picture in pictures:
            encode(picture.tobytes())
        for _ in range(fps * LAST_STANDS // 1000):
            encode(picture.tobytes())


@contextlib.contextmanager
def _encoder(command: Sequence[str], said: IO[bytes]) -> Iterator[Callable[[bytes], Any]]:
    """Run ffmpeg, without a fork of this process, which JAX's threads could not stand."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said, process_group=0)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            yield process.stdin.write
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    if process.returncode:
        said.seek(0)
        words = " ".join(said.read().decode(errors="replace").split())
        raise OSError(f"the video could not be encoded: {words or process.returncode}")


_FILMS = {".gif": _write_gif, ".mp4": _write_mp4}


@contextlib.contextmanager
def _film(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of `path` in the end, or leaves no trace."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(replacing(path))
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"path {str(path)!r} cannot be written: {reason}") from None
        yield Path(file.name)
