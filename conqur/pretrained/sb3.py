"""Stable-Baselines3: DQN agents in the zip files of its `save`, of all versions since 1.0.

Such a file holds its settings as JSON, in which everything that is no plain value is pickled and
also described in words, and the policy's weights as a file of torch. The words are enough here:
no pickle but that of the weights is looked at.
"""

import json
import math
from typing import Any

from conqur.pretrained.array_files import ArrayFile, Names
from conqur.pretrained.assembling import from_torch, nature, perceptron, to_torch
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.torch_files import is_torch, read_torch
from conqur.pretrained.zip_files import Archive, open_archive
from conqur.regressor import Architecture, Regressor

_SETTINGS, _POLICY, _VERSION = "data", "policy.pth", "_stable_baselines3_version"
_MODULE = "stable_baselines3.dqn.policies"
_CONVOLUTIONS = ("cnn.0", "cnn.2", "cnn.4", "linear.0")
_EXTRACTORS = "stable_baselines3.common.torch_layers."

_KNOWN_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation_fn": ("<class 'torch.nn.modules.activation.ReLU'>",),
    "normalize_images": (True,),
    "features_extractor_class": tuple(
        f"<class '{_EXTRACTORS}{name}'>" for name in ("NatureCNN", "FlattenExtractor")
    ),
}
"""Of the policy's settings, those that change what it computes, and how a regressor computes."""

_NO_MATTER = ("net_arch", "optimizer_class", "optimizer_kwargs")
"""Settings that the weights tell, or that matter in training only."""


class StableBaselines3(Format):
    """Zip files of `DQN.save`, with `MlpPolicy` or `CnnPolicy` and any layers.

    Of the file's two networks the online one, which acts, is read and written. The target network
    stays as it is: with the next update of it that training makes, it is the same again.
    """

    name = "sb3"
    writes = ".zip"

    def recognises(self, content: Content) -> bool:
        """Whether it is a zip file with a policy."""
        is_zip = content.start.startswith(b"PK\x03\x04") and not is_torch(content)
        return is_zip and _POLICY.encode() in content.data

    def read(self, content: Content) -> Pretrained:
        """The online network."""
        archive = open_archive(content.data)
        settings = _settings(archive)
        _check_policy(settings)
        shape, of_bytes = _observations(settings)
        file = read_torch(bytes(archive.read(_POLICY)))
        names = _names(file)
        convolutions, layers = from_torch(file.layers(names))
        if convolutions:
            if len(shape) != 3 or not of_bytes:
                raise ValueError("its policy has convolutions, but the observations are no images")
            regressor, architecture = nature(convolutions, layers, same=False, size=shape[1:])
        elif of_bytes:
            raise ValueError("its observations are bytes, which only a CnnPolicy scales as we do")
        else:
            regressor, architecture = perceptron(layers, observation_shape=shape)
        _check_spaces(settings, shape, architecture)
        origin = _origin(archive, settings)
        preprocessing = "sb3" if convolutions else ""
        return Pretrained(regressor, architecture, "", preprocessing, origin, self.name)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The file with another online network."""
        archive = open_archive(content.data)
        policy = read_torch(bytes(archive.read(_POLICY)))
        entry, changed = archive.entries[_POLICY], bytearray(content.data)
        written = policy.with_layers(_names(policy), to_torch(regressor))
        changed[entry.start : entry.stop] = written
        return archive.sealed(changed)


def _settings(archive: Archive) -> dict[str, Any]:
    try:
        settings = json.loads(bytes(archive.read(_SETTINGS)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its settings cannot be read: {error}") from None
    if not isinstance(settings, dict):
        raise ValueError("its settings are none of Stable-Baselines3")
    return settings


def _described(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """What the settings say about something."""
    found = settings.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"its settings lack {name!r}")
    return found


def _check_policy(settings: dict[str, Any]) -> None:
    """Refuse what is no DQN, or computes anything else than a regressor."""
    module = _described(settings, "policy_class").get("__module__")
    if module != _MODULE:
        raise ValueError(
            f"its policy comes from {str(module)[:80]!r}, and only those of DQN ({_MODULE}) can be "
            "read"
        )
    for name, choice in _described(settings, "policy_kwargs").items():
        if name.startswith(":") or name in _NO_MATTER:
            continue
        if name == "features_extractor_kwargs":
            if isinstance(choice, dict) and not choice.keys() - {"features_dim"}:
                continue
        elif choice in _KNOWN_CHOICES.get(name, ()):
            continue
        raise ValueError(f"its policy has {name} = {str(choice)[:80]}, which is not supported")


def _observations(settings: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    """The shape of observations, images with their channels first, and whether they are bytes."""
    space = _described(settings, "observation_space")
    if not str(space.get(":type:")).endswith(".spaces.box.Box'>"):
        raise ValueError(
            f"its observations are of {str(space.get(':type:'))[:80]}, and only a Box is supported"
        )
    shape = space.get("_shape", space.get("shape"))
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError("its settings do not say what shape observations have")
    return tuple(shape), "uint8" in str(space.get("dtype"))


def _names(file: ArrayFile) -> Names:
    """What the layers of the online network are called, in the order of their use."""
    own = {name for name in file.places if name.startswith("q_net.")}
    layers = [f"q_net.features_extractor.{name}" for name in _CONVOLUTIONS]
    if layers[0] + ".weight" not in own:
        layers = []
    index = 0
    while f"q_net.q_net.{index}.weight" in own:
        layers.append(f"q_net.q_net.{index}")
        index += 2  # an activation after each
    names = [(f"{layer}.weight", f"{layer}.bias") for layer in layers]
    if own != {name for both in names for name in both}:
        raise ValueError("its Q-network has other layers than those of MlpPolicy and CnnPolicy")
    return names


def _check_spaces(
    settings: dict[str, Any], shape: tuple[int, ...], architecture: Architecture
) -> None:
    space = _described(settings, "action_space")
    channels = architecture.observation_shape[-1] if architecture.body == "nature" else shape[0]
    if str(space.get("n")) != str(architecture.actions) or channels != shape[0]:
        raise ValueError("its settings have other observations or actions than its network")


def _origin(archive: Archive, settings: dict[str, Any]) -> dict[str, Any]:
    version = "of unknown version"
    if _VERSION in archive.entries:
        version = bytes(archive.read(_VERSION)[:40]).decode("ascii", "replace").strip()
    wanted = {"step": "num_timesteps", "discount": "gamma", "seed": "seed"}
    found = {ours: settings.get(theirs) for ours, theirs in wanted.items()}
    numbers = {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return {"algorithm": "dqn", "saved_by": f"stable-baselines3 {version}"} | numbers
