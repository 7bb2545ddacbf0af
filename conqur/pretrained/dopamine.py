"""Dopamine's JAX networks: the pickles `ckpt.N` that its runs leave in `checkpoints/`."""

from collections.abc import Mapping
from typing import Any

from conqur.pretrained.assembling import taken_apart
from conqur.pretrained.atari_networks import atari_network
from conqur.pretrained.flax_layers import flax_layers
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.pickled_arrays import ARRAYS, PickledArray, whole_number
from conqur.pretrained.stored import StoredArray, patched
from conqur.pretrained.unpickling import Inert, Names, unpickle
from conqur.regressor import Regressor


def is_pickle(content: Content) -> bool:
    """Whether a file begins as pickles do, since their second version."""
    return content.start[:1] == b"\x80" and 2 <= int.from_bytes(content.start[1:2], "little") <= 5


def same(value: Any = None) -> Any:
    """What stands for mappings made of a dict, such as flax's: that dict."""
    return {} if value is None else value


NAMES: Names = {
    **ARRAYS,
    ("collections", "OrderedDict"): same,
    ("flax.core.frozen_dict", "FrozenDict"): same,
    ("flax", "*"): Inert,
    ("optax", "*"): Inert,
}


class Dopamine(Format):
    """The online network of a checkpoint; its state and its optimizer's are left alone.

    So is the target network. Right after the two were made equal, however, Dopamine writes one
    for both, and writing changes both.
    """

    name = "dopamine"
    writes = ".ckpt"

    def recognises(self, content: Content) -> bool:
        """Whether it is a pickle that speaks of online parameters, and not in haiku's terms."""
        if not is_pickle(content):
            return False
        return b"online_params" in content.data and b"conv2_d" not in content.data

    def read(self, content: Content) -> Pretrained:
        """The online network."""
        bundle = _bundle(content.data)
        convolutions, layers = (
            [(weight.array, bias.array) for weight, bias in kind]
            for kind in flax_layers(_parameters(bundle))
        )
        regressor, architecture = atari_network(convolutions, layers, same=True)
        said = {
            "iteration": whole_number(bundle.get("current_iteration")),
            "steps": whole_number(bundle.get("training_steps")),
        }
        origin = {name: count for name, count in said.items() if count is not None}
        return Pretrained(regressor, architecture, "", "dopamine", origin, self.name)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The same file with other weights in its online network."""
        convolutions, layers = flax_layers(_parameters(_bundle(content.data)))
        places = [array for layer in (*convolutions, *layers) for array in layer]
        arrays = [array for layer in taken_apart(regressor) for array in layer]
        return patched(content.data, places, arrays)


def _bundle(data: bytes) -> Mapping[str, Any]:
    bundle = unpickle(data, allowed=NAMES)
    if not isinstance(bundle, dict) or "online_params" not in bundle:
        raise ValueError("it holds no online_params")
    return bundle


def _parameters(bundle: Mapping[str, Any]) -> dict[str, dict[str, StoredArray]]:
    """By layer and kind; those of old checkpoints are not within "params"."""
    parameters = bundle["online_params"]
    if isinstance(parameters, dict) and set(parameters) == {"params"}:
        parameters = parameters["params"]
    if not isinstance(parameters, dict):
        raise ValueError("its online_params are no parameters")
    if "final_layer" in parameters:
        raise ValueError(
            "it is a network for classic control, and how that rescales observations is not in "
            "its file"
        )
    return {str(name): stored_arrays(layer) for name, layer in parameters.items()}


def stored_arrays(layer: Any) -> dict[str, StoredArray]:
    """The arrays of a layer in a pickle, by name.

    Raises:
        ValueError: if there is anything else in it.
    """
    if not isinstance(layer, dict) or not all(
        isinstance(array, PickledArray) for array in layer.values()
    ):
        raise ValueError("it has a layer of other things than arrays")
    return {str(name): array.stored() for name, array in layer.items()}
