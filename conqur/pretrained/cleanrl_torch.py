"""CleanRL: `.cleanrl_model` files of its torch scripts dqn.py and dqn_atari.py."""

from conqur.pretrained.array_files import ArrayFile, Names
from conqur.pretrained.assembling import from_torch, perceptron, to_torch
from conqur.pretrained.atari_networks import atari_network
from conqur.pretrained.format import Content, Format
from conqur.pretrained.mapped import has_mapping
from conqur.pretrained.network import Pretrained
from conqur.pretrained.torch_files import is_torch, read_torch
from conqur.regressor import Regressor

_ATARI, _OTHERS = (0, 2, 4, 7, 9), (0, 2, 4)
"""Where the layers are in CleanRL's sequences; between them are rectifiers and a flattening."""

_DISTRIBUTIONAL = "model_weights."
"""Before the names in the files of c51.py and c51_atari.py."""


class CleanRLTorch(Format):
    """State dicts of CleanRL's Q-networks; the files do not say for which environment."""

    name = "cleanrl-torch"
    writes = ".cleanrl_model"

    def recognises(self, content: Content) -> bool:
        """Whether it is a file of torch with arrays of CleanRL's names."""
        if not is_torch(content) or has_mapping(content):
            return False
        try:
            names = set(read_torch(content.data).places)
        except ValueError:
            return False
        plain = {name.removeprefix(_DISTRIBUTIONAL) for name in names}
        return any(plain == _flat(_names(indices)) for indices in (_ATARI, _OTHERS))

    def read(self, content: Content) -> Pretrained:
        """The network."""
        file = read_torch(content.data)
        convolutions, layers = from_torch(file.layers(_names_in(file)))
        if convolutions:
            regressor, architecture = atari_network(convolutions, layers, same=False)
        else:
            regressor, architecture = perceptron(layers)
        preprocessing = "cleanrl" if convolutions else ""
        origin = {"algorithm": "dqn", "saved_by": "CleanRL (torch)"}
        return Pretrained(regressor, architecture, "", preprocessing, origin, self.name)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The file with another network."""
        file = read_torch(content.data)
        return file.with_layers(_names_in(file), to_torch(regressor))


def _names_in(file: ArrayFile) -> Names:
    names = set(file.places)
    if any(name.startswith(_DISTRIBUTIONAL) for name in names):
        raise ValueError("it is a C51 agent of CleanRL, whose outputs are distributions of returns")
    for indices in (_ATARI, _OTHERS):
        if names == _flat(_names(indices)):
            return _names(indices)
    raise ValueError("its arrays are not those of CleanRL's dqn.py or dqn_atari.py")


def _names(indices: tuple[int, ...]) -> Names:
    return [(f"network.{index}.weight", f"network.{index}.bias") for index in indices]


def _flat(names: Names) -> set[str]:
    return {name for both in names for name in both}
