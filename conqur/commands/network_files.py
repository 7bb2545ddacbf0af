"""`conqur inspect`, `conqur import` and `conqur export`: files of networks."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from conqur._files import replacing
from conqur._messages import printable
from conqur.commands.starting import is_code
from conqur.commands.support import Flag, UsageError, check_writable, option, sparkline

if TYPE_CHECKING:
    from conqur.pretrained import Pretrained

File = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
Output = Annotated[Path, tyro.conf.arg(metavar="PATH")]


def one_network(path: Path, environment: str | None) -> "tuple[Path, Pretrained]":
    """The one network that a path stands for, and its file.

    Args:
        path: what was typed.
        environment: where it is to play; taken for what it was trained on if its file is silent.
    """
    from conqur.pretrained import find_networks, load, local_file

    found = find_networks(path)
    if len(found) > 1:
        raise UsageError(
            f"{path} holds {len(found)} networks; name one of them, such as {found[0]}"
        )
    network = load(found[0])
    if environment is None and is_code(network.environment):
        raise UsageError(
            f"{path} was trained on {printable(network.environment)!r}, which is code to be "
            "loaded: if you trust it, name it with --env"
        )
    if not network.environment:
        if environment is None:
            raise UsageError(f"{path} does not say what it was trained on: name it with --env")
        network = replace(network, environment=environment)
    return local_file(found[0]), network


@dataclass(frozen=True)
class Inspect:
    """Say what a network's file holds, without executing anything in it.

    Without FILE, the networks that come with conqur are listed: bundled:NAME stands for one
    wherever a file can be named, and has a card that says how it was trained and what it scores.

    FILE is of conqur, Stable-Baselines3 (.zip), CleanRL (.cleanrl_model, of torch or JAX), Dopamine
    (ckpt.N, or a checkpoint of TensorFlow), dqn_zoo, a state dict of torch or safetensors, or the
    name of a model on the Hugging Face Hub. What the arrays of a state dict or of safetensors are
    is told by a file FILE.json beside it, such as {"layers": ["fc1", "fc2", "out"]}; Nature's
    network needs none. `python -m pydoc conqur.pretrained.mapped` has all that it can say.

    Examples:
      conqur inspect
      conqur inspect bundled:Pong
      conqur inspect CartPole-v1.zip
      conqur inspect sb3/dqn-CartPole-v1 --json
      conqur inspect agent.pth
    """

    file: Annotated[
        tyro.conf.Positional[Path | None], option("[FILE]", "all that come with conqur")
    ] = None
    """The network's file."""
    json: Flag = False
    """Print it as one JSON object."""

    def run(self, command: str) -> None:
        """Read the file and tell."""
        import jax

        from conqur.pretrained import card, described, is_bundled, load
        from conqur.runs import flatten

        if self.file is None:
            _list_bundled(as_json=self.json)
            return
        network = load(self.file)
        arrays = flatten(jax.device_get(network.regressor))
        weights = sum(array.size for array in arrays.values())
        if self.json:
            about: dict[str, Any] = {
                "format": network.format,
                "architecture": network.architecture.to_json(),
                "weights": weights,
                "shapes": {name: list(array.shape) for name, array in arrays.items()},
                "environment": network.environment,
                "preprocessing": network.preprocessing,
                "origin": network.origin,
            }
            about |= {"card": card(self.file)} if is_bundled(self.file) else {}
            print(json.dumps(about))
            return
        told = {
            "format": network.format,
            "network": f"{described(network)} ({weights:,} weights)",
            "trained on": network.environment or "the file does not say: name it with --env",
        }
        if network.preprocessing:
            told["preprocessing"] = network.preprocessing
        told |= {name: str(value) for name, value in network.origin.items()}
        told |= _card_in_words(card(self.file)) if is_bundled(self.file) else {}
        width = max(len(name) for name in (*told, *arrays))
        for name, value in told.items():
            print(f"{printable(name):<{width}}  {printable(value)}")
        for name, array in arrays.items():
            print(f"{name:<{width}}  {' × '.join(str(side) for side in array.shape)}")


def _list_bundled(*, as_json: bool) -> None:
    from conqur.pretrained import bundled_names, card

    cards = {name: card(name) for name in bundled_names()}
    if as_json:
        print(json.dumps(cards))
        return
    width = max(len(name) for name in cards)
    print(f"{'network':<{width}}  {'frames':>7}  score (95 % interval)")
    for name, about in cards.items():
        frames = f"{about['frames'] / 1e6:.1f}M"
        print(f"{name:<{width}}  {frames:>7}  {_score(about)}")
    print("\nMore of each: conqur inspect NAME. Tune one: conqur tune NAME.")


def _card_in_words(about: dict[str, Any]) -> dict[str, str]:
    """What the card of a network says."""
    returns = [value for _, value in about["curve"]]
    return {
        "trained by": about["command"],
        "stopped after": f"{about['steps']:,} steps, {about['frames']:,} frames; seed "
        f"{about['seed']}",
        "hardware": about["hardware"],
        "returns then": f"{sparkline(returns)} up to {max(returns):,.6g}",
        "score": f"{_score(about)}: {about['score']['command']}",
        "precision": about["precision"],
        "licence": about["licence"],
    }


def _score(about: dict[str, Any]) -> str:
    score = about["score"]
    low, high = score["interval"]
    human = score["human_normalised"]
    normalised = "" if human is None else f", {human:.0%} of human"
    return f"{score['mean']:,.1f} ({low:,.1f} to {high:,.1f}){normalised}"


@dataclass(frozen=True)
class Import:
    """Turn a network of another tool into a file of conqur.

    This is needed only to add what the file does not say: `conqur tune`, `diagnose`, `evaluate` and
    `play` read all formats themselves, see `conqur inspect --help`.

    Examples:
      conqur import agent.zip --env CartPole-v1 --output cartpole.safetensors
      conqur import pong.pth --preprocessing sb3 --output pong.safetensors
    """

    file: File
    """The network's file."""
    output: Output
    """Where to write it."""
    env: Annotated[str | None, option("ID", "what the file says")] = None
    """The environment it was trained on."""
    preprocessing: Annotated[str | None, option("NAME", "that of the tool")] = None
    """Atari: how pictures were made for it, see `conqur train --help`."""

    def run(self, command: str) -> None:
        """Read and write."""
        from conqur.environments.atari import preprocessing_named
        from conqur.pretrained import described, load, to_bytes

        check_writable("--output", self.output, keep=[self.file])
        network = load(self.file)
        if self.preprocessing is not None:
            preprocessing_named(self.preprocessing)
            if len(network.architecture.observation_shape) != 3:
                raise UsageError("--preprocessing is for pictures, which this network does not see")
        network = replace(
            network,
            environment=self.env or network.environment,
            preprocessing=self.preprocessing or network.preprocessing,
            origin=network.origin | {"format": network.format},
        )
        with replacing(self.output) as file:
            file.write(to_bytes(network))
        print(f"{self.output}: {described(network)}, from a file of format {network.format}")
        if not network.environment:
            print("What it was trained on is not known: add --env, or name it in other commands.")


@dataclass(frozen=True)
class Export:
    """Write a network for the tool that another file of it comes from.

    The file that --like names stays as it is; the new one is a copy of it with other weights. All
    that is no weight of the acting network is kept: settings, the optimizer's state, the target
    network. `conqur tune` does this itself for the network it hands back.

    Examples:
      conqur export best.safetensors --like agent.zip --output tuned.zip
    """

    file: File
    """The network, in any format."""
    like: Annotated[Path, tyro.conf.arg(metavar="ORIGINAL")]
    """A file of the tool, with a network of the same architecture."""
    output: Output
    """Where to write it."""

    def run(self, command: str) -> None:
        """Read both, and write."""
        from conqur.pretrained import described, load, local_file, write_like

        check_writable("--output", self.output, keep=[self.file, self.like])
        network = load(self.file)
        written = write_like(network, local_file(self.like))
        with replacing(self.output) as file:
            file.write(written)
        print(f"{self.output}: {described(network)}, like {self.like}")
