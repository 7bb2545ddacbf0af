"""Networks for Atari games out of the layers of a file."""

from collections.abc import Sequence

from conqur.pretrained.assembling import Layer, nature
from conqur.regressor import Architecture, Regressor

MOST_ACTIONS = 18
"""Of an Atari game."""


def atari_network(
    convolutions: Sequence[Layer], layers: Sequence[Layer], *, same: bool
) -> tuple[Regressor, Architecture]:
    """Nature's network with one hidden layer, see `nature`.

    Raises:
        ValueError: if the layers are not those of one, in particular if the last one gives
            distributions of returns.
    """
    if len(convolutions) != 3 or len(layers) != 2:
        raise ValueError(
            f"it has {len(convolutions)} convolutions and {len(layers)} dense layers, where a "
            "plain DQN for Atari games has 3 and 2"
        )
    regressor, architecture = nature(convolutions, layers, same=same)
    if architecture.actions > MOST_ACTIONS:
        raise ValueError(
            f"its last layer has {architecture.actions} outputs, more than a game has actions: "
            "networks that give distributions of returns are not read"
        )
    return regressor, architecture
