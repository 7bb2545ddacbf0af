"""Atari games: how their screens become frames, and the fast way to play many of them.

Code bases differ in how they make a frame and in what begins and ends an episode, and a network
plays well only on what it was trained on: `Preprocessing` says all of it and `PREPROCESSING` names
what people use. What ale-py's vector environment does itself runs there (`NativeAtari`), all else
in Python (`conqur.environments.atari_exact`), more slowly.
"""

import difflib
import enum
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from conqur import _checks
from conqur.environments.atari_scores import SCORES
from conqur.environments.interface import Spec, Step, VectorEnvironment

# They can only be played by two, and the emulator ends the whole process if asked for one player.
_FOR_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})
_NAME = re.compile(r"(ALE/)?(\w+?)(NoFrameskip|Deterministic)?(-v[045])?")
_SEED_LIMIT = 2**31


class Picture(enum.StrEnum):
    """How the last two screens become a frame: what is done to them, in order.

    "Max" is the maximum of the two screens, pixel by pixel, which ends the flicker of sprites that
    are drawn in every other frame; "grey" the luminance, by the emulator itself where it comes
    first; "area" and "bilinear" the way of making it small.
    """

    GREY_MAX_AREA = "grey-max-area"
    MAX_GREY_AREA = "max-grey-area"
    MAX_AREA_GREY = "max-area-grey"
    MAX_GREY_BILINEAR = "max-grey-bilinear"


class LifeLoss(enum.StrEnum):
    """What losing a life means, if the game goes on.

    IGNORED: nothing. TERMINAL: the step is terminal, and the next one goes on as if nothing had
    happened. NEW_EPISODE: the step is terminal, and the next one begins a new episode (`reset`)
    within the same game; this does not happen if the game shows no more lives.
    """

    IGNORED = "ignored"
    TERMINAL = "terminal"
    NEW_EPISODE = "new-episode"


@dataclass(frozen=True)
class Preprocessing:
    """Everything between the emulator and a network's input; the defaults are the paper's.

    Attributes:
        picture: how a frame is made.
        size: a frame's height and width.
        frame_skip: for how many of the emulator's frames an action is held.
        stack: how many frames make an observation.
        pad_with_first: see `Spec`.
        no_ops: a game begins with a random number of no-ops, at least and at most so many.
        fire_reset: every episode begins with FIRE and the third action, where there is FIRE.
        life_loss: what losing a life means.
        sticky: the probability that the emulator ignores the action and repeats the one before.
        max_frames: of the emulator; a game that lasts longer is cut short.
        full_action_space: all 18 actions instead of those that have an effect in the game.
    """

    picture: Picture = Picture.GREY_MAX_AREA
    size: int = 84
    frame_skip: int = 4
    stack: int = 4
    pad_with_first: bool = False
    no_ops: tuple[int, int] = (0, 30)
    fire_reset: bool = False
    life_loss: LifeLoss = LifeLoss.IGNORED
    sticky: float = 0.0
    max_frames: int = 108_000
    full_action_space: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "frame_skip", "stack", "max_frames"):
            _checks.count(name, getattr(self, name))
        _checks.number("sticky", self.sticky, at_least=0, below=1)
        least, most = self.no_ops
        if not 0 <= least <= most:
            raise ValueError(
                f"no_ops must be (least, most) with 0 ≤ least ≤ most, got {self.no_ops}"
            )

    @property
    def native(self) -> bool:
        """Whether ale-py's vector environment does exactly this."""
        return (
            self.picture is Picture.GREY_MAX_AREA
            and self.life_loss is not LifeLoss.NEW_EPISODE
            and not self.fire_reset
            and self.no_ops[0] == 0
        )


_PAPER = Preprocessing()
_SB3 = Preprocessing(
    picture=Picture.MAX_GREY_AREA,
    no_ops=(1, 30),
    fire_reset=True,
    life_loss=LifeLoss.NEW_EPISODE,
)

PREPROCESSING = {
    # The paper's evaluation.
    "conqur": _PAPER,
    # Also that of TF-Agents, but for its padding with the first frame.
    "dopamine": Preprocessing(sticky=0.25, no_ops=(0, 0)),
    # The Nature paper's rules, with pictures that are made faster than its own.
    "nature": Preprocessing(life_loss=LifeLoss.TERMINAL),
    "sb3": _SB3,
    "cleanrl": replace(_SB3, picture=Picture.MAX_AREA_GREY, pad_with_first=True),
    # That of the Nature paper, pictures included. dqn_zoo itself puts the missing frames of a new
    # episode last instead of first.
    "dqn_zoo": Preprocessing(
        picture=Picture.MAX_GREY_BILINEAR, no_ops=(1, 30), life_loss=LifeLoss.TERMINAL
    ),
}
"""What people train with, by the name of their code base."""


def preprocessing_named(name: str) -> Preprocessing:
    """One of `PREPROCESSING`."""
    if name not in PREPROCESSING:
        known = ", ".join(PREPROCESSING)
        raise ValueError(f"there is no preprocessing {name!r} (there is: {known})")
    return PREPROCESSING[name]


def atari_game(name: str) -> str | None:
    """The emulator's name of the game, such as "space_invaders"; None if this is no Atari name.

    Args:
        name: "ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4", "SpaceInvaders-v4",
            "SpaceInvaders" or "space_invaders".

    Raises:
        ValueError: if it has the form of an Atari name, but there is no such game, or ale-py is
            not installed.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    asked = _squashed(match[2])
    certain = bool(match[1] or match[3])
    games = _games()
    if asked in games:
        return games[asked]
    if not games and (certain or asked in map(_squashed, SCORES)):
        raise ValueError(f"{name} needs ale-py: pip install 'conqur[atari]'")
    if not certain:
        return None
    nearest = difflib.get_close_matches(asked, games, n=3, cutoff=0.5) or ["pong"]
    hint = ", ".join(_title(games[game]) for game in nearest)
    raise ValueError(f"there is no Atari game {name!r} for one player; near it: {hint}")


def is_atari(environment: str) -> bool:
    """Whether the name of an environment, or of anything else, is that of an Atari game."""
    return ":" not in environment and atari_game(environment) is not None


def full_name(name: str) -> str:
    """`name`, or ALE/Game-v5 if it is that of an Atari game without a version."""
    match = _NAME.fullmatch(name)
    if match is None or match[4]:
        return name
    game = atari_game(name)
    return name if game is None else _title(game)


def _title(game: str) -> str:
    return f"ALE/{game.title().replace('_', '')}-v5"


def make_atari(
    name: str,
    num_envs: int,
    *,
    preprocessing: Preprocessing = _PAPER,
    render: bool = False,
    threads: int = 0,
) -> VectorEnvironment:
    """`num_envs` copies of an Atari game.

    Args:
        name: in any form that `atari_game` knows. Whether actions are sticky and frames skipped is
            said by the preprocessing alone, never by the name.
        num_envs: N.
        preprocessing: one of `PREPROCESSING` or your own.
        render: make `render` give the first copy's screen. Slower.
        threads: for how many copies to play at the same time, 0: as many as there are cores.
    """
    game = atari_game(name)
    if game is None:
        raise ValueError(f"{name!r} is no Atari game; one is ALE/Pong-v5")
    _checks.count("num_envs", num_envs)
    _checks.count("threads", threads, at_least=0)
    if preprocessing.native and not render:
        return NativeAtari(name, game, num_envs, preprocessing=preprocessing, threads=threads)
    from conqur.environments.atari_exact import ExactAtari

    return ExactAtari(name, game, num_envs, preprocessing=preprocessing)


class NativeAtari(VectorEnvironment):
    """Atari games played by ale-py's vector environment, on threads of its own.

    Args:
        name: for the spec.
        game: as `atari_game` gives it.
        num_envs: N.
        preprocessing: one that is `native`.
        threads: how many, 0: as many as there are cores.
    """

    def __init__(
        self, name: str, game: str, num_envs: int, *, preprocessing: Preprocessing, threads: int
    ) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self._envs: Any = AtariVectorEnv(
            game,
            num_envs,
            num_threads=threads,
            max_num_frames_per_episode=preprocessing.max_frames,
            repeat_action_probability=preprocessing.sticky,
            full_action_space=preprocessing.full_action_space,
            img_height=preprocessing.size,
            img_width=preprocessing.size,
            stack_num=1,
            frameskip=preprocessing.frame_skip,
            noop_max=preprocessing.no_ops[1] + 1,  # it stays below this number
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.num_envs = num_envs
        self.spec = spec_of(name, preprocessing, self._envs.ale.get_action_set())
        self._life_loss = preprocessing.life_loss
        self._lives = np.zeros(num_envs, np.int32)
        self._over = np.zeros(num_envs, bool)

    def reset(self, seeds: Sequence[int]) -> UInt8[np.ndarray, "N H W"]:
        """Begin new games everywhere; every seed loads the game anew, which takes 0.1 s."""
        frames, info = self._envs.reset(seed=seed_array(seeds, self.num_envs))
        self._lives = info["lives"]
        self._over = np.zeros(self.num_envs, bool)
        return frames[:, 0]

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step."""
        # An action that is not there would stop the emulator's thread, and `receive` wait forever.
        self._envs.send(
            _checks.action_array(
                "actions", actions, length=self.num_envs, num_actions=len(self.spec.actions)
            )
        )

    def receive(self) -> Step:
        """Wait for the step that was sent."""
        frames, rewards, terminated, truncated, info = self._envs.recv()
        lives, began = info["lives"], self._over
        terminal = terminated
        if self._life_loss is LifeLoss.TERMINAL:
            terminal = terminated | ((lives < self._lives) & ~began)
        self._lives, self._over = lives, terminated | truncated
        return Step(
            frame=frames[:, 0],
            reward=rewards.astype(np.float32),
            terminal=terminal,
            game_over=self._over,
            reset=began,
        )

    def close(self) -> None:
        """Let go of the emulators: ale-py ends their threads with them, and has no other way."""
        self._envs = None


def spec_of(name: str, preprocessing: Preprocessing, actions: Sequence[Any]) -> Spec:
    """The spec of a game with these actions of the emulator."""
    return Spec(
        name=name,
        frame_shape=(preprocessing.size, preprocessing.size),
        frame_dtype="uint8",
        actions=tuple(action.name for action in actions),
        stack=preprocessing.stack,
        pad_with_first=preprocessing.pad_with_first,
    )


def seed_array(seeds: Sequence[int], num_envs: int) -> Int[np.ndarray, " N"]:
    """Return the seeds as an array, refusing what the emulator has no room for."""
    array = _checks.index_array("seeds", seeds, num_envs)
    if (array >= _SEED_LIMIT).any():
        raise ValueError(f"seeds must be below 2³¹ in Atari games, got {array.max()}")
    return array


@functools.cache
def _games() -> dict[str, str]:
    """The games of ale-py for one player, by their names without underscores; none without it."""
    try:
        from ale_py import roms
    except ModuleNotFoundError:
        return {}
    return {_squashed(rom): rom for rom in roms.get_all_rom_ids() if rom not in _FOR_TWO}


def _squashed(name: str) -> str:
    return name.replace("_", "").lower()
