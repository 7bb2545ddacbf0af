"""Where trained networks play: the environment they fit, as they were trained to see it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from conqur.environments import VectorEnvironment, make
from conqur.environments.data import is_data
from conqur.environments.separate import Separate
from conqur.pretrained.network import Pretrained

if TYPE_CHECKING:
    from conqur.environments.atari import Preprocessing


@dataclass(frozen=True)
class Arena:
    """An environment that networks are evaluated in.

    Attributes:
        name: of the environment.
        networks: those that play.
        preprocessing: of an Atari game; None for other environments.
        preprocessing_name: what its pictures and rules are called; None for other environments.
    """

    name: str
    networks: tuple[Pretrained, ...]
    preprocessing: "Preprocessing | None" = None
    preprocessing_name: str | None = None

    @property
    def is_atari(self) -> bool:
        """Whether it is an Atari game."""
        return self.preprocessing is not None

    @property
    def frame_skip(self) -> int:
        """Frames of the game in a step."""
        return 1 if self.preprocessing is None else self.preprocessing.frame_skip

    def normalised(self, score: float) -> float | None:
        """An Atari score on the scale from random play, 0, to people, 1."""
        from conqur.environments.atari import atari_game
        from conqur.environments.atari_scores import human_normalised

        game = atari_game(self.name) if self.is_atari else None
        return None if game is None else human_normalised(game, score)

    def as_learned(self) -> "Arena":
        """With actions as sticky as in training, and lives lost as there."""
        if self.preprocessing is None or self.preprocessing_name is None:
            return self
        from conqur.environments.atari import preprocessing_named

        basis = preprocessing_named(self.preprocessing_name)
        rules = replace(self.preprocessing, sticky=basis.sticky, life_loss=basis.life_loss)
        return replace(self, preprocessing=rules)

    def make(self, copies: int, *, render: bool = False) -> VectorEnvironment:
        """Copies of the environment; refused if a network does not fit it."""
        environment = self._made(copies, render)
        spec = environment.spec
        for network in self.networks:
            wanted = network.architecture
            if wanted.actions != len(spec.actions):
                environment.close()
                known = network.environment not in ("", self.name)
                hint = f"it was trained on {network.environment}" if known else "name another"
                raise ValueError(
                    f"the network chooses among {wanted.actions} actions, but {self.name} has "
                    f"{len(spec.actions)}: {hint} (--env)"
                )
            if wanted.observation_shape != spec.observation_shape:
                environment.close()
                raise ValueError(
                    f"the network takes observations of shape {list(wanted.observation_shape)}, "
                    f"but those of {self.name} have {list(spec.observation_shape)}"
                )
        return environment

    def _made(self, copies: int, render: bool) -> VectorEnvironment:
        if self.preprocessing is None or render:
            return make(self.name, copies, preprocessing=self.preprocessing, render=render)
        from conqur.environments.atari import make_atari

        # Games are of very different lengths: those that are over must not be played on.
        one = partial(make_atari, self.name, 1, preprocessing=self.preprocessing, threads=1)
        return Separate(one, copies)


def arena(
    networks: Sequence[Pretrained],
    name: str | None = None,
    *,
    sticky: float = 0.0,
    preprocessing: str | None = None,
) -> Arena:
    """Where networks are evaluated.

    Args:
        networks: those that play; all of one kind.
        name: of the environment; the one they were trained on if not given.
        sticky: of Atari games.
        preprocessing: of Atari games, a name; that of the networks' training if not given. Losing
            a life is never the end of an episode here, and games begin with up to 30 no-ops.
    """
    if len({network.architecture for network in networks}) != 1:
        raise ValueError("the networks are not all of the same architecture: evaluate them apart")
    trained_on = {network.environment for network in networks}
    if name is None and len(trained_on) != 1:
        raise ValueError("the networks were trained on several environments: name one with --env")
    if name is None:
        name = networks[0].environment
        if ":" in name:
            raise ValueError(
                f"the network was trained on {name}, which is code to be loaded: if you trust it, "
                "name it with --env"
            )
    if not name:
        raise ValueError(
            "the network's file does not say what it was trained on: name it with --env"
        )
    if is_data(name):
        raise ValueError(f"{name} is a data set: name the environment to play in with --env")
    from conqur.environments.atari import is_atari

    if not is_atari(name):
        if preprocessing is not None or sticky:
            raise ValueError(
                f"--sticky and --preprocessing are for Atari games, and {name} is none"
            )
        return Arena(name, tuple(networks))
    seen_as = sorted({preprocessing or network.preprocessing or "conqur" for network in networks})
    if len(seen_as) > 1:
        raise ValueError(
            f"the networks were trained with the preprocessings {', '.join(seen_as)}: evaluate "
            "them apart, or name one for all with --preprocessing"
        )
    return Arena(name, tuple(networks), _evaluated(seen_as[0], sticky), seen_as[0])


def _evaluated(name: str, sticky: float) -> "Preprocessing":
    from conqur.environments.atari import LifeLoss, Preprocessing, preprocessing_named

    basis = preprocessing_named(name)
    most = Preprocessing().no_ops[1]
    no_ops = (min(basis.no_ops[0], most), most)
    return replace(basis, sticky=sticky, no_ops=no_ops, life_loss=LifeLoss.IGNORED)
