"""Networks of DQN Zoo: pickles of its agents' states, or of the parameters alone.

DQN Zoo leaves the writing of checkpoints to its users. What they pickle is what the `get_state` of
its agents gives, a dict of those, or haiku's parameters.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from conqur.pretrained.assembling import Layer, taken_apart
from conqur.pretrained.atari_networks import atari_network
from conqur.pretrained.dopamine import NAMES, is_pickle, same, stored_arrays
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.pickled_arrays import whole_number
from conqur.pretrained.stored import StoredArray, patched
from conqur.pretrained.unpickling import Inert, Names, unpickle
from conqur.regressor import Regressor

_NAMES: Names = {
    **NAMES,
    ("haiku._src.data_structures", "FlatMapping"): same,
    ("haiku._src.data_structures", "FlatMap"): same,
    ("haiku._src.data_structures", "frozendict"): same,
    ("dqn_zoo.parts", "AttributeDict"): same,
    ("dqn_zoo", "*"): Inert,
    ("numpy.random", "*"): Inert,
}
_CONVOLUTIONS = tuple(f"sequential/sequential/conv2_d{end}" for end in ("", "_1", "_2"))
_HIDDEN, _LAST = "sequential/sequential_1/linear", "sequential/sequential_1/linear_1"
_SHARED = "sequential/sequential_1"
"""Where double Q-learning has the one bias of all actions."""


class DQNZoo(Format):
    """The online network; the rest of an agent's state, such as its target network, is left alone.

    If a pickle has one network for both, writing changes both.
    """

    name = "dqn_zoo"
    writes = ".pkl"

    def recognises(self, content: Content) -> bool:
        """Whether it is a pickle that speaks of haiku's convolutions."""
        return is_pickle(content) and b"conv2_d" in content.data

    def read(self, content: Content) -> Pretrained:
        """The online network."""
        state = unpickle(content.data, allowed=_NAMES)
        layers = _layers(_parameters(state))
        actions = layers[-1][0].array.shape[-1]
        arrays: list[Layer] = [(weight.array, bias.array) for weight, bias in layers]
        arrays[-1] = (arrays[-1][0], _for_all(layers[-1][1].array, actions))
        regressor, architecture = atari_network(arrays[:3], arrays[3:], same=False)
        frames = whole_number(_agent(state).get("frame_t"))
        origin = {} if frames is None else {"agent_steps": frames}
        return Pretrained(regressor, architecture, "", "dqn_zoo", origin, self.name)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The same file with other weights in its online network.

        Raises:
            ValueError: also if all actions have one bias in the file, and not in the regressor.
        """
        layers = _layers(_parameters(unpickle(content.data, allowed=_NAMES)))
        places = [array for layer in layers for array in layer]
        arrays = [array for layer in taken_apart(regressor) for array in layer]
        if places[-1].array.shape == (1,):
            if (arrays[-1] != arrays[-1][0]).any():
                raise ValueError(
                    "it has one bias for all actions, and the network to write has several: "
                    "export to another format"
                )
            arrays[-1] = arrays[-1][:1]
        return patched(content.data, places, arrays)


def _for_all(bias: np.ndarray, actions: int) -> np.ndarray:
    return np.repeat(bias, actions) if bias.shape == (1,) else bias


def _agent(state: Any) -> dict[str, Any]:
    """The state of the agent that learns, where there are several."""
    if isinstance(state, dict) and isinstance(state.get("train_agent"), dict):
        state = state["train_agent"]
    if not isinstance(state, dict):
        raise ValueError("it holds no state of an agent")
    return state


def _parameters(state: Any) -> Mapping[str, Any]:
    agent = _agent(state)
    for name in ("online_params", "network_params"):
        if isinstance(agent.get(name), dict):
            return agent[name]
    return agent


def _layers(parameters: Mapping[str, Any]) -> list[tuple[StoredArray, StoredArray]]:
    """The weights and biases of all layers in the order of their use."""
    dense = (_HIDDEN, _LAST)
    known = {*_CONVOLUTIONS, *dense, _SHARED}
    for name in parameters:
        if name not in known:
            raise ValueError(f"it has a part {str(name)[:60]!a}, which no plain DQN has")
    found = {name: stored_arrays(parameters[name]) for name in parameters}
    if _SHARED in found and set(found.get(_LAST, ())) == {"w"}:
        found[_LAST] |= found.pop(_SHARED)
    layers = []
    for name in (*_CONVOLUTIONS, *dense):
        if set(found.get(name, ())) != {"w", "b"}:
            raise ValueError(f"its layer {name} is missing, or has other parts than w and b")
        layers.append((found[name]["w"], found[name]["b"]))
    return layers
