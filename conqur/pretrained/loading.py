"""Networks in files of any format: recognised by content, read, and written back."""

import os
from dataclasses import replace
from pathlib import Path

from conqur.pretrained.bundle import bundled_file, is_bundled
from conqur.pretrained.cleanrl_jax import CleanRLJax
from conqur.pretrained.cleanrl_torch import CleanRLTorch
from conqur.pretrained.dopamine import Dopamine
from conqur.pretrained.dopamine_tf import DopamineTF
from conqur.pretrained.dqn_zoo import DQNZoo
from conqur.pretrained.format import Content, Format
from conqur.pretrained.hub import hub_file, is_hub_id, trained_on
from conqur.pretrained.mapped import Mapped
from conqur.pretrained.native import Native
from conqur.pretrained.network import Pretrained
from conqur.pretrained.sb3 import StableBaselines3
from conqur.pretrained.tensor_bundle import is_bundle
from conqur.runs.layout import NETWORKS


def formats(mapping: Path | None = None) -> tuple[Format, ...]:
    """All formats, in the order in which they are asked whether a file is theirs.

    Args:
        mapping: what the arrays of a file are that says nothing itself, see
            `conqur.pretrained.mapped`.
    """
    own = Mapped(mapping)
    if mapping is not None:
        return (own,)
    return (
        Native(),
        StableBaselines3(),
        CleanRLTorch(),
        CleanRLJax(),
        Dopamine(),
        DQNZoo(),
        DopamineTF(),
        own,
    )


def load(path: str | Path, *, mapping: str | Path | None = None) -> Pretrained:
    """Read a network, whoever wrote it.

    Args:
        path: a file: of conqur itself, Stable-Baselines3 (.zip), CleanRL (.cleanrl_model, of torch
            or JAX), Dopamine (ckpt.N, or a checkpoint of TensorFlow), dqn_zoo, a state dict of
            torch, or safetensors. Or a network that comes with conqur, such as "bundled:Pong", or
            the name of a model on the Hugging Face Hub, such as "sb3/dqn-CartPole-v1".
        mapping: a JSON file that tells what the arrays of a state dict or of safetensors are, see
            `conqur.pretrained.mapped`; otherwise one beside the file, if there is one.

    Raises:
        ValueError: if there is no such file or it holds no network, with what is wrong.
    """
    path = Path(path)
    if is_hub_id(path):
        network = load(local_file(path), mapping=mapping)
        return replace(network, environment=network.environment or trained_on(path.as_posix()))
    content = Content(local_file(path))
    try:
        found = _format(content, mapping)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    return _read(found, content)


def write_like(
    network: Pretrained, original: str | Path, *, mapping: str | Path | None = None
) -> bytes:
    """A file's content with another network's weights, for the tool that the file comes from.

    Args:
        network: of the same architecture as the file's.
        original: the file, or what else `load` takes.
        mapping: as for `load`.

    Raises:
        ValueError: if the file cannot be read or the network does not fit it.
    """
    content = Content(local_file(original))
    there = load(content.path, mapping=mapping)
    if there.architecture != network.architecture:
        raise ValueError(
            f"the network is {described(network)}, but {original} holds {described(there)}"
        )
    try:
        return _format(content, mapping).write(content, network.regressor)
    except ValueError as error:
        raise ValueError(f"{original} cannot be written like that: {error}") from None


def find_networks(path: str | Path) -> list[Path]:
    """The network files that a path stands for: the file itself, or those of a run.

    Args:
        path: a file, a run directory or a folder of network files; also what else `load` takes.
    """
    path = Path(path)
    if path.is_dir():
        folder = path / "networks" if (path / "networks").is_dir() else path
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise ValueError(f"{path} holds no networks (yet)")
        return found
    if is_bundled(path):
        bundled_file(path)  # refuses those that are not there
        return [path]
    if is_hub_id(path) or is_bundle(path):
        return [path]
    if not path.exists():
        raise ValueError(f"there is no file or run {path}")
    if not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{path} is no regular file")
    return [path]


def local_file(path: str | Path) -> Path:
    """The file that `load` reads: a model of the Hugging Face Hub is in its cache then."""
    path = Path(path)
    if is_bundled(path):
        return bundled_file(path)
    return hub_file(path.as_posix()) if is_hub_id(path) else path


def written_suffix(original: str | Path) -> str:
    """How names of files like this one end, for `write_like`; "" if they cannot be written."""
    path = local_file(original)
    found = _format(Content(path), None)
    return path.suffix if isinstance(found, Mapped) else found.writes


def described(network: Pretrained) -> str:
    """What a network is made of, in words."""
    architecture = network.architecture
    widths = "-".join(str(width) for width in architecture.hidden) or "no"
    shape = "×".join(str(side) for side in architecture.observation_shape)
    return (
        f"a network of type {architecture.body} for observations {shape} with {widths} hidden "
        f"units and {architecture.actions} actions"
    )


def _format(content: Content, mapping: str | Path | None) -> Format:
    """The format of a file."""
    path = content.path
    known = formats(None if mapping is None else Path(mapping))
    if path.is_dir():
        kept = sorted((path / NETWORKS).glob("*.safetensors"))
        named = f"; name a network of the run, such as {kept[0]}" if kept else ""
        raise ValueError(f"{path} cannot be read: it is a folder{named}")
    if not path.is_file():
        bundle = DopamineTF()  # may be named by what its files' names have in common
        if bundle.recognises(content):
            return bundle
        if not os.path.lexists(path):
            raise ValueError(f"there is no file {path}")
        raise ValueError(f"{path} cannot be read: it is {_kind(path)}")
    for candidate in known:
        try:
            if candidate.recognises(content):
                return candidate
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}") from None
    names = ", ".join(candidate.name for candidate in formats())
    raise ValueError(f"{path} is in none of the formats that conqur reads ({names})")


def _read(found: Format, content: Content) -> Pretrained:
    path = content.path
    try:
        return found.read(content)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if found.name == Native.name:  # has said so
            raise
        raise ValueError(f"{path} cannot be used: {error}") from None


def _kind(path: Path) -> str:
    try:
        path.stat()
    except OSError:
        return "a link to nothing"
    return "no regular file"
