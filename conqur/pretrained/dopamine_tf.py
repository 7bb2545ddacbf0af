"""Dopamine's TensorFlow networks: `tf_ckpt-N.index` with `tf_ckpt-N.data-00000-of-00001`."""

import re

from conqur.pretrained.atari_networks import atari_network
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.tensor_bundle import TensorBundle, is_bundle, open_bundle

_CONVOLUTIONS = ("Conv", "Conv_1", "Conv_2")
_DENSE = ("fully_connected", "fully_connected_1")
_PARTS = (("weights", "biases"), ("kernel", "bias"))
"""What the parts of a layer are called, until and since Dopamine moved to Keras."""


class DopamineTF(Format):
    """The online network; the content may be any file of a checkpoint, or what all begin with."""

    name = "dopamine-tf"
    writes = ""

    def recognises(self, content: Content) -> bool:
        """Whether there is the table of a checkpoint of TensorFlow."""
        return is_bundle(content.path)

    def read(self, content: Content) -> Pretrained:
        """The online network."""
        bundle = open_bundle(content.path)
        layers = _layers(bundle)
        weight, bias = _part_names(layers)
        arrays = [
            (bundle.read(f"Online/{name}/{weight}"), bundle.read(f"Online/{name}/{bias}"))
            for name in (*_CONVOLUTIONS, *_DENSE)
        ]
        regressor, architecture = atari_network(arrays[:3], arrays[3:], same=True)
        iteration = re.search(r"-(\d{1,9})$", bundle.prefix.name)
        origin = {} if iteration is None else {"iteration": int(iteration[1])}
        return Pretrained(regressor, architecture, "", "dopamine", origin, self.name)


def _layers(bundle: TensorBundle) -> dict[str, set[str]]:
    """The parts of each layer of the online network; optimizers' variables have longer names."""
    layers: dict[str, set[str]] = {}
    for name in bundle.variables:
        network, *within = name.split("/")
        if network == "Online" and len(within) == 2:
            layers.setdefault(within[0], set()).add(within[1])
    return layers


def _part_names(layers: dict[str, set[str]]) -> tuple[str, str]:
    if not layers:
        raise ValueError("it holds no network of Dopamine: no variable begins with Online/")
    for name in layers:
        if name not in (*_CONVOLUTIONS, *_DENSE):
            raise ValueError(f"it has a part {name[:60]!a}, which no plain DQN has")
    for weight, bias in _PARTS:
        if all(layers.get(name) == {weight, bias} for name in (*_CONVOLUTIONS, *_DENSE)):
            return weight, bias
    raise ValueError("it lacks layers of a DQN for Atari games, or parts of them")
