"""A tuning run's folder read without touching it: nothing is locked, written or put right.

The files may come from anywhere: what does not fit is refused in one sentence.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Bool, Float, UInt8

from conqur.consistency import Window
from conqur.pretrained import Pretrained, load
from conqur.regressor import Dense
from conqur.runs import Checkpoint, RunError
from conqur.runs.checkpoint import Checkpoints
from conqur.runs.files import Damaged, file_size, read_json
from conqur.runs.layout import CHECKPOINTS, CONFIG, LOG, NETWORKS
from conqur.runs.record import Record
from conqur.search.config import TuneConfig, population
from conqur.search.node import Kind, Node, Tree
from conqur.search.refining import begin
from conqur.search.saving import digest, tree_from_arrays

NUMBERS = ("score", "calibrated", "reference", "bellman", "penalty")
"""Of a node."""
_NOT_OURS = (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError)
"""What other people's arrays lead to."""


class Run(NamedTuple):
    """A run at its newest checkpoint.

    Attributes:
        config: its settings.
        network: the checkpoint that is tuned.
        tree: the search.
        successors: φ(s') of the levels whose states it kept, each [n, F], by level.
        kept: which of them are there, in each level: no terminal states, and what the run's
            buffer admitted, [K, n].
        log: a row for each level.
    """

    config: TuneConfig
    network: Pretrained
    tree: Tree
    successors: dict[int, Float[np.ndarray, "n F"]]
    kept: Bool[np.ndarray, "K n"]
    log: tuple[dict[str, Any], ...]

    def choices(
        self, node: Node, level: int
    ) -> tuple[Float[np.ndarray, "S F"], UInt8[np.ndarray, " S"]]:
        """φ of the states, and the actions, that a node is committed to since a level."""
        assigned = node.history[level] if level < len(node.history) else None
        if assigned is None:  # its ancestors were not trained then
            kept = np.zeros(0, int)
            return self.successors[level][kept], np.zeros(0, np.uint8)
        kept = np.flatnonzero(self.kept[level])
        return self.successors[level][kept], assigned[kept]


def is_tune_run(path: Path) -> bool:
    """Whether a folder is that of a tuning run, as its settings say."""
    if not (path / CONFIG).exists():
        return False
    return "search" in _config(path)


def read_run(path: Path) -> Run:
    """Read a tuning run's newest checkpoint.

    Args:
        path: the run's folder.
    """
    config = _settings(path)
    if config.approximator != "head":
        raise RunError(
            f"{path} searched whole networks: what can be diagnosed is a search for last layers, "
            "or one of the networks in it"
        )
    network = load(path / NETWORKS / "checkpoint.safetensors")
    if digest(network.regressor) != config.checkpoint:
        raise RunError(f"{path / NETWORKS / 'checkpoint.safetensors'} is not the run's own")
    checkpoints = Checkpoints(path / CHECKPOINTS)
    record = checkpoints.newest()
    if record is None:
        why = "its checkpoints are damaged or of another version of conqur"
        raise RunError(
            f"{path} cannot be read: {why if checkpoints.steps() else 'it has no checkpoint (yet)'}"
            "; name a network in it"
        )
    if record.config != config.to_json():
        raise RunError(f"{path} cannot be read: {CONFIG} was changed since its last checkpoint")
    checkpoint = _checkpoint(path, record)
    try:
        tree = _tree(checkpoint, config, network)
        kept = _kept(checkpoint, config)
        successors = _successors(checkpoint, kept.shape, network)
    except _NOT_OURS as error:
        raise RunError(
            f"{path} cannot be read: its checkpoint is damaged or of another version of conqur "
            f"({_line(error)})"
        ) from None
    if tree.level == 0 or not successors:
        raise RunError(f"{path} has no choices yet: let it run for a level")
    return Run(config, network, tree, successors, kept, _log(path, record))


def _config(path: Path) -> dict[str, Any]:
    try:
        return read_json(path / CONFIG)
    except Damaged as reason:
        raise RunError(f"{path} cannot be read: {reason}; name a network in it") from None


def _settings(path: Path) -> TuneConfig:
    try:
        config = TuneConfig.from_json(_config(path))
        if not all(isinstance(word, str) for word in (config.environment, config.checkpoint)):
            raise ValueError("its settings are none")
    except (ValueError, TypeError, AttributeError) as error:
        raise RunError(f"{path} cannot be read: {_line(error)}") from None
    return config


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _checkpoint(path: Path, record: Record) -> Checkpoint:
    """What the record names, read back and found whole."""
    folder = path / CHECKPOINTS
    try:
        for segment in record.segments:
            segment.verify(folder)
        arrays = safetensors.numpy.load(record.state.read(folder))
    except (Damaged, safetensors.SafetensorError, KeyError, FileNotFoundError) as reason:
        raise RunError(
            f"{path} cannot be read: checkpoint {record.step} is damaged, or was replaced just "
            f"now ({reason})"
        ) from None
    files = tuple((segment.first, folder / segment.name) for segment in record.segments)
    return Checkpoint(record.step, arrays, record.total_rows, record.log, files)


def _tree(checkpoint: Checkpoint, config: TuneConfig, network: Pretrained) -> Tree:
    """The tree, with all that is used of it checked."""
    arrays = checkpoint.arrays
    count = len(json.loads(arrays["tree"].tobytes())["nodes"])
    sizes = {array.shape[:1] for name, array in arrays.items() if name.startswith("weights/")}
    if sizes != {(count,)}:  # before room is made for as many
        raise ValueError("its nodes lack weights")
    weights = jax.device_get(begin(jax.device_get(network.head)))
    nan = math.nan
    root = Node(0, None, -1, Kind.ROOT, "", nan, nan, nan, nan, nan, weights, ())
    tree = tree_from_arrays(arrays, root)
    if not tree.level == checkpoint.step <= config.levels:
        raise ValueError("its tree is of another level")
    for node in (*tree.pool, *tree.frontier):
        _check_node(node, tree.level, config.transitions, network.head)
    return tree


def _check_node(node: Node, levels: int, transitions: int, head: Dense) -> None:
    whole = (node.id, node.level, -1 if node.parent is None else node.parent)
    numbers = [getattr(node, name) for name in NUMBERS]
    if not all(type(value) is int for value in whole) or not all(
        isinstance(value, float | int) for value in numbers
    ):
        raise ValueError("a node is none")
    if len(node.history) > levels:
        raise ValueError("a node's history is too long")
    for assigned in node.history:
        if assigned is not None and (
            assigned.dtype != np.uint8
            or assigned.shape != (transitions,)
            or assigned.max() >= len(head.bias)
        ):
            raise ValueError("a node's history is none")


def _kept(checkpoint: Checkpoint, config: TuneConfig) -> Bool[np.ndarray, "K n"]:
    places = checkpoint.arrays["world/places"]
    if places.shape != (checkpoint.step, config.transitions):
        raise ValueError("its places are of another size")
    how = population(config.buffer)
    levels = min(how.batches, config.levels) if isinstance(how, Window) else config.levels
    kept = np.asarray(places < levels * config.transitions)
    kept[: max(0, len(kept) - levels)] = False  # newer ones took their places
    return kept


def _successors(
    checkpoint: Checkpoint, shape: tuple[int, ...], network: Pretrained
) -> dict[int, Float[np.ndarray, "n F"]]:
    levels, transitions = shape
    wanted = (transitions, network.head.weight.shape[0])
    found: dict[int, Any] = {}
    for first, rows in checkpoint.segments():
        for number, row in enumerate(rows["successors"], first):
            if row.shape != wanted or row.dtype not in (np.float16, np.float32):
                raise ValueError("its states are none of the network's")
            if not np.isfinite(row).all():
                raise ValueError("its states are no finite numbers")
            if number < levels:
                found[number] = row
    return found


def _log(path: Path, record: Record) -> tuple[dict[str, Any], ...]:
    """The log as it was when the checkpoint was taken."""
    try:
        if file_size(path / LOG) < record.log.size:
            raise Damaged(f"{LOG} has become shorter")
        with open(path / LOG, "rb") as file:
            data = file.read(record.log.size)
        if hashlib.sha256(data).hexdigest() != record.log.sha256:
            raise Damaged(f"{LOG} was changed")
        rows = tuple(json.loads(line) for line in data.splitlines())
        if not all(isinstance(row, dict) for row in rows):
            raise Damaged(f"{LOG} holds no rows")
    except (Damaged, ValueError, RecursionError) as reason:
        raise RunError(f"{path} cannot be read: {reason}") from None
    return rows
