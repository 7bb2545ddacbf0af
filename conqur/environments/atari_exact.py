"""Atari games in Python, for what ale-py's vector environment does not do.

Frames, rewards and ends of episodes are, bit for bit, those of the code bases that the presets are
named after, down to the frames that nobody sees: what their wrappers play at the start of an
episode. The emulator keeps Python's lock, so threads would not make it faster.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import ale_py
import numpy as np
from ale_py import roms
from jaxtyping import Int, UInt8

from conqur import _checks
from conqur.environments.atari import LifeLoss, Picture, Preprocessing, seed_array, spec_of
from conqur.environments.interface import Step, VectorEnvironment

Screen = UInt8[np.ndarray, "..."]
Frame = UInt8[np.ndarray, "size size"]


class ExactAtari(VectorEnvironment):
    """Atari games played one after the other.

    Where a lost life begins a new episode, its first step carries the rewards of the frames that
    were played unseen since, so that the rewards add up to the game's score; and if the game ended
    in these frames, that step has `game_over` set, too.

    Args:
        name: for the spec.
        game: as `atari_game` gives it.
        num_envs: N.
        preprocessing: any.
    """

    def __init__(
        self, name: str, game: str, num_envs: int, *, preprocessing: Preprocessing
    ) -> None:
        # It would print a banner for every game.
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._games = [Game(game, preprocessing) for _ in range(num_envs)]
        self._actions = np.zeros(num_envs, np.int64)
        self.num_envs = num_envs
        self.spec = spec_of(name, preprocessing, self._games[0].actions)

    def reset(self, seeds: Sequence[int]) -> UInt8[np.ndarray, "N H W"]:
        """Begin new games everywhere; every seed loads the game anew, which takes 0.1 s."""
        checked = seed_array(seeds, self.num_envs).tolist()
        return np.stack([game.reset(seed) for game, seed in zip(self._games, checked, strict=True)])

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Note the actions; they are taken in `receive`."""
        self._actions = _checks.action_array(
            "actions", actions, length=self.num_envs, num_actions=len(self.spec.actions)
        )

    def receive(self) -> Step:
        """Take the step that was sent."""
        actions = self._actions.tolist()
        steps = [game.step(action) for game, action in zip(self._games, actions, strict=True)]
        frame, reward, terminal, game_over, reset = zip(*steps, strict=True)
        return Step(
            frame=np.stack(frame),
            reward=np.array(reward, np.float32),
            terminal=np.array(terminal),
            game_over=np.array(game_over),
            reset=np.array(reset),
        )

    def render(self) -> UInt8[np.ndarray, "H W 3"]:
        """The first game's screen."""
        return self._games[0].screen()


class Game:
    """One game on an emulator of its own.

    Args:
        name: as `atari_game` gives it.
        preprocessing: what to make of it.

    Attributes:
        actions: the emulator's actions.
    """

    def __init__(self, name: str, preprocessing: Preprocessing) -> None:
        self._rom = cast(Path, roms.get_rom_path(name))
        self._preprocessing = preprocessing
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", preprocessing.sticky)
        self._ale.loadROM(self._rom)
        every = preprocessing.full_action_space
        self.actions = self._ale.getLegalActionSet() if every else self._ale.getMinimalActionSet()
        self._opening: list[Any] = []
        if preprocessing.fire_reset and ale_py.Action.FIRE in self.actions:
            self._opening = [ale_py.Action.FIRE, self.actions[2]]
        self._camera = Camera(self._ale, preprocessing.picture, preprocessing.size)
        self._over = True  # no game is under way
        self._alive = False  # no episode is under way
        self._lives = 0
        self._uncounted = 0
        self._unseen = 0.0

    def reset(self, seed: int) -> Frame:
        """A new game's first frame."""
        self._ale.setInt("random_seed", seed)
        self._ale.loadROM(self._rom)
        self._random = np.random.default_rng(seed)
        self._over = True
        return self._begin_episode().frame

    def step(self, action: int) -> Step:
        """Take an action or, if the episode is over, begin the next one."""
        if not self._alive:
            return self._begin_episode()
        reward, terminal = self._advance(self.actions[action])
        return Step(
            frame=self._camera.frame(),
            reward=reward,
            terminal=terminal,
            game_over=self._over,
            reset=False,
        )

    def screen(self) -> UInt8[np.ndarray, "H W 3"]:
        """The screen for people."""
        return self._ale.getScreenRGB()

    def _begin_episode(self) -> Step:
        in_game = not self._over
        self._unseen = 0.0
        frame, new_game = self._come_alive()
        for action in self._opening:
            reward, _ = self._advance(action)
            self._unseen += reward
            frame = self._camera.frame()
            # The wrappers go on here, but show the frame from before.
            if not self._alive:
                new_game = self._come_alive()[1] or new_game
        return Step(
            frame=frame,
            reward=self._unseen,
            terminal=False,
            game_over=in_game and new_game,
            reset=True,
        )

    def _come_alive(self) -> tuple[Frame, bool]:
        """Go on after a lost life, or begin a new game: the frame, and whether the game is new."""
        if not self._over:
            reward, _ = self._advance(ale_py.Action.NOOP)
            self._unseen += reward
        new_game = self._over
        frame = self._new_game() if new_game else self._camera.frame()
        self._lives = self._ale.lives()
        self._alive = True
        return frame, new_game

    def _new_game(self) -> Frame:
        least, most = self._preprocessing.no_ops
        self._uncounted = 0
        self._ale.reset_game()
        for _ in range(self._random.integers(least, most + 1)):
            self._ale.act(ale_py.Action.NOOP)
            if self._is_over():
                self._ale.reset_game()
        # Where the vector environment counts a game's frames, the no-ops do not count.
        if self._preprocessing.picture is Picture.GREY_MAX_AREA:
            self._uncounted = self._ale.getEpisodeFrameNumber()
        self._over = False
        return self._camera.first()

    def _advance(self, action: Any) -> tuple[float, bool]:
        """Hold an action for `frame_skip` frames: the reward, and whether that was terminal."""
        reward = 0.0
        for left in reversed(range(self._preprocessing.frame_skip)):
            reward += self._ale.act(action)
            self._over = self._is_over()
            self._camera.see(left, over=self._over)
            if self._over:
                break
        life_loss, lives, before = self._preprocessing.life_loss, self._ale.lives(), self._lives
        ends = life_loss is LifeLoss.NEW_EPISODE and 0 < lives < before
        lost = life_loss is LifeLoss.TERMINAL and lives < before
        self._lives = lives
        self._alive = not (self._over or ends)
        return reward, self._ale.game_over() or ends or lost

    def _is_over(self) -> bool:
        played = self._ale.getEpisodeFrameNumber() - self._uncounted
        return self._ale.game_over() or played >= self._preprocessing.max_frames


class Camera:
    """Makes frames of the last two screens.

    A game can end before both are there. Such a frame is worth nothing, but it is made as the
    others make it (dqn_zoo alone makes it differently).

    Args:
        ale: the emulator.
        picture: how a frame is made.
        size: its height and width.
    """

    def __init__(self, ale: Any, picture: Picture, size: int) -> None:
        grey = picture is Picture.GREY_MAX_AREA
        height, width = ale.getScreenDims()
        self._screens = np.zeros((2, height, width) if grey else (2, height, width, 3), np.uint8)
        self._read = ale.getScreenGrayscale if grey else ale.getScreenRGB
        self._develop = _developer(picture, size)
        # The vector environment writes the maximum over the newer screen, and does not look at
        # the last one of a game.
        self._maximum = self._screens[1] if grey else np.empty_like(self._screens[1])
        self._sees_the_end = not grey

    def first(self) -> Frame:
        """The frame of the screen as it is."""
        self._screens[0] = 0
        self._read(self._screens[1])
        return self.frame()

    def see(self, left: int, *, over: bool) -> None:
        """Look at the screen if only `left` ≤ 1 others follow in this step."""
        if left <= 1 and (self._sees_the_end or not over):
            self._read(self._screens[1 - left])

    def frame(self) -> Frame:
        """The frame of the screens seen."""
        return self._develop(np.maximum(self._screens[0], self._screens[1], out=self._maximum))


def _developer(picture: Picture, size: int) -> Callable[[Screen], Frame]:
    """What makes a screen grey and small."""
    if picture is Picture.MAX_GREY_BILINEAR:
        return _bilinear(size)
    try:
        import cv2
    except ModuleNotFoundError:
        raise ValueError("Atari frames need OpenCV: pip install 'conqur[atari]'") from None

    def small(screen: Screen) -> Screen:
        return cv2.resize(screen, (size, size), interpolation=cv2.INTER_AREA)

    def grey(screen: Screen) -> Screen:
        return cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY)

    if picture is Picture.MAX_GREY_AREA:
        return lambda screen: small(grey(screen))
    if picture is Picture.MAX_AREA_GREY:
        return lambda screen: grey(small(screen))
    return small


def _bilinear(size: int) -> Callable[[Screen], Frame]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ValueError("dqn_zoo's frames need Pillow: pip install 'conqur[atari]'") from None

    luminance = np.array([0.299, 0.587, 1 - (0.299 + 0.587)])

    def develop(screen: Screen) -> Frame:
        grey = np.tensordot(screen, luminance, 1).astype(np.uint8)  # cut off, not rounded
        return np.asarray(Image.fromarray(grey).resize((size, size), Image.Resampling.BILINEAR))

    return develop
