"""Readers of data sets' files: arrays by name, with sizes looked at before anything is read."""

import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from conqur._memory import machine_memory

ARRAYS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminals",
    "timeouts",
    "num_actions",
)
"""The arrays that are read; others in a file are left alone."""
MAX_HEADER = 10_000
"""The longest header of an array, in bytes; NumPy's own limit."""
MAX_RATIO = 500
"""How many times larger than its file a data set may be once it is larger than `HARMLESS`."""
HARMLESS = 2**30
"""Bytes that any machine can spare."""


def read_npz(path: str) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = set(archive.namelist())
            members = {name: f"{name}.npy" for name in ARRAYS if f"{name}.npy" in found}
            sizes = [_check_member(archive, name, member) for name, member in members.items()]
            _check_size(sum(sizes), Path(path).stat().st_size)
            arrays = {}
            for name, member in members.items():
                with archive.open(member) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
            return arrays
    except Exception as error:  # what damaged files do to parsers has no end
        raise ValueError(f"{path} cannot be read as .npz: {_one_line(error)}") from None


def _check_member(archive: zipfile.ZipFile, name: str, member: str) -> int:
    """Refuse an array whose header and size do not agree; its size in bytes."""
    size = archive.getinfo(member).file_size
    with archive.open(member) as file:
        shape, dtype, header = _header(name, file)
    _check_numbers(name, dtype)
    if math.prod(shape) * dtype.itemsize != size - header or min(shape, default=0) < 0:
        raise ValueError(f"{name} says it has shape {list(shape)}, but holds {size - header} bytes")
    return size


def _header(name: str, file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and length of the header of an array."""
    start = file.read(12)
    # The magic string, two bytes of version, the header's length in two bytes or in four.
    width = {1: 2, 2: 4, 3: 4}.get(start[6] if len(start) == 12 else 0)
    if not start.startswith(b"\x93NUMPY") or width is None:
        raise ValueError(f"{name} is no array of NumPy's format")
    length = int.from_bytes(start[8 : 8 + width], "little")
    if length > MAX_HEADER:
        raise ValueError(f"{name} has a header of {length} bytes")
    file.seek(8)
    one = width == 2
    read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype, 8 + width + length


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors` file, whose own library compares sizes with the file."""
    try:
        size = Path(path).stat().st_size
        _check_size(size, size)
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys() if name in ARRAYS}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as .safetensors: {_one_line(error)}") from None
    for name, array in arrays.items():
        _check_numbers(f"{path}: {name}", array.dtype)
    return arrays


def read_minari(path: str) -> dict[str, np.ndarray]:
    """The transitions of a Minari data set: its directory, or minari:NAME."""
    try:
        import h5py
        import minari
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} is a Minari data set, which needs {error.name}: pip install 'conqur[minari]'"
        ) from None
    folder = _minari_folder(path)
    try:
        metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        _check_minari(metadata)
        with h5py.File(folder / "main_data.hdf5", "r") as file:
            _check_episodes(metadata, file)
        return _join_episodes(minari.MinariDataset(folder))
    except Exception as error:  # a damaged set makes Minari and HDF5 fail in any way
        raise ValueError(
            f"{path} cannot be read as a Minari data set: {_one_line(error)}"
        ) from None


def _minari_folder(path: str) -> Path:
    """The directory that holds a set's metadata.json."""
    if path.startswith("minari:"):
        from minari.storage.datasets_root_dir import get_dataset_path

        name = path.removeprefix("minari:")
        folder = Path(get_dataset_path()) / name / "data"
        if not name or name.startswith("/") or ".." in name or not folder.is_dir():
            raise ValueError(f"there is no {path} on this machine: minari download {name}")
        return folder
    folder = Path(path)
    return folder / "data" if (folder / "data").is_dir() else folder


def _check_minari(metadata: Any) -> None:
    # Without the spaces Minari would make the environment, and so run code that the set names.
    for key in ("observation_space", "action_space"):
        if not isinstance(metadata.get(key), str):
            raise ValueError(f"its metadata lacks the {key}")
    if metadata.get("data_format") != "hdf5":
        raise ValueError(f"its format is {metadata.get('data_format')}, but has to be hdf5")
    for key, wanted in (("observation_space", "Box"), ("action_space", "Discrete")):
        kind = json.loads(metadata[key]).get("type")
        if kind != wanted:
            raise ValueError(f"its {key} is {kind}, but has to be {wanted}")


def _check_episodes(metadata: Any, file: Any) -> None:
    """Refuse a set that does not hold the episodes it counts, or is larger than it looks."""
    sizes: dict[str, int] = {}

    def note(name: str, entry: Any) -> None:
        dtype = getattr(entry, "dtype", None)  # groups have none
        if dtype is not None:
            sizes[name] = int(entry.size or 0) * dtype.itemsize

    file.visititems(note)
    episodes = metadata.get("total_episodes")
    if not isinstance(episodes, int) or not 0 < episodes <= len(file):
        raise ValueError(f"its metadata counts {episodes} episodes, but it holds {len(file)}")
    parts = ("observations", "actions", "rewards", "terminations", "truncations")
    for episode in range(episodes):
        for part in parts:
            # Links are not visited, so that what they lead to counts as missing.
            if f"episode_{episode}/{part}" not in sizes:
                raise ValueError(f"episode {episode} has no {part}")
    shape = json.loads(metadata["observation_space"])["shape"]
    steps = sum(file[f"episode_{episode}/rewards"].size for episode in range(episodes))
    decoded = (steps + episodes) * math.prod(shape)  # images are stored as JPEG
    _check_size(sum(sizes.values()) + decoded, os.path.getsize(file.filename))


def _join_episodes(dataset: Any) -> dict[str, np.ndarray]:
    """One array of each kind; truncated episodes keep their true last observation."""
    parts: dict[str, list[np.ndarray]] = {}
    for arrays in map(_episode, dataset.iterate_episodes()):
        for name, array in arrays.items():
            parts.setdefault(name, []).append(array)
    joined = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    joined["actions"] = joined["actions"] - int(dataset.action_space.start)
    return joined | {"num_actions": np.array(int(dataset.action_space.n))}


def _episode(episode: Any) -> dict[str, np.ndarray]:
    count = len(episode.rewards)
    observations = np.asarray(episode.observations)
    if len(observations) != count + 1:
        seen = len(observations)
        raise ValueError(f"episode {episode.id} has {seen} observations, but {count} steps")
    return {
        "observations": observations[:-1],
        "actions": np.asarray(episode.actions),
        "rewards": np.asarray(episode.rewards),
        "next_observations": observations[1:],
        "terminals": np.asarray(episode.terminations),
    }


def _check_numbers(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {dtype} instead of numbers")


def _check_size(size: int, stored: int) -> None:
    """Refuse what would not fit into memory, or blows up as no real data does."""
    if size > HARMLESS and size > MAX_RATIO * stored:
        raise ValueError(f"it has {stored} bytes, but claims to hold {size}")
    if 2 * size > machine_memory():
        raise ValueError(f"it holds {size / 2**30:.1f} GiB, too much for this machine")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
