"""What a run was made with, and whether two runs were made alike."""

import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import conqur
from conqur.runs.files import RunError, canonical

_PACKAGES = (
    *("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    *("numpy", "equinox", "optax", "gymnasium", "ale-py", "pgx"),
)
_VARIABLES = (
    *("XLA_FLAGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION"),
    "NVIDIA_TF32_OVERRIDE",
)
# Rightly other ones when a run is resumed.
_FREE = ("command", "resumed", "seeds")


def make_manifest(*, seeds: Sequence[int], command: str, data: str = "") -> dict[str, Any]:
    """Versions, device and settings that the numbers of a run depend on.

    It holds neither folders nor names of machines.

    Args:
        seeds: of the run.
        command: the command line that started it.
        data: a digest of the data that it learns from, if any.
    """
    devices = jax.devices()
    return {
        "command": shlex.join(_without_folders(shlex.split(command))),
        "commit": _commit(Path(conqur.__file__).parent),
        "conqur": conqur.__version__,
        **({"data": data} if data else {}),
        "device": {
            "kind": devices[0].device_kind,
            "count": len(devices),
            "processor": _processor(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "environment": {
            name: " ".join(_without_folders(os.environ[name].split()))
            for name in _VARIABLES
            if name in os.environ
        },
        "packages": dict(_versions()),
        "python": platform.python_version(),
        "seeds": [int(seed) for seed in seeds],
    }


def check_same_config(
    old: Mapping[str, Any], new: Mapping[str, Any], *, may_change: Collection[str] = ()
) -> None:
    """Refuse to resume a run with another configuration than it was started with.

    Args:
        old: the configuration of the run.
        new: the one asked for.
        may_change: names of fields that may differ, such as "steps" or "optimiser.steps".
    """
    lines = differences(old, new, may_change)
    if lines:
        raise RunError(
            "\n  ".join(["the run was started with another configuration:", *lines])
            + "\nGive --resume the options it was started with, or name another --run-dir."
        )


def check_unchanged(
    saved: Mapping[str, Any], now: Mapping[str, Any], *, may_change: Collection[str] = ()
) -> None:
    """Refuse to resume a run whose configuration file is not as its checkpoints have it.

    Args:
        saved: the configuration in a checkpoint.
        now: the one in the file.
        may_change: names of fields that may differ.
    """
    lines = differences(saved, now, may_change)
    if lines:
        raise RunError(
            "\n  ".join(["config.json was changed since the last checkpoint:", *lines])
            + "\nPut it back, or name another --run-dir."
        )


def manifest_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs, one line for each field, of all that a run's numbers may depend on."""
    return differences(old, new, _FREE)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_change: Collection[str] = ()
) -> list[str]:
    """One line for each differing field, such as "learning_rate: 0.00025 -> 0.0001"."""
    before, after = dict(_fields(as_json(old))), dict(_fields(as_json(new)))
    return [
        f"{name}: {before.get(name, '(not set)')} -> {after.get(name, '(not set)')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
        and not any(f"{name}.".startswith(f"{free}.") for free in may_change)
    ]


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it comes back from a JSON file."""
    try:
        return json.loads(canonical(config).encode())
    except (TypeError, ValueError) as error:
        raise ValueError(f"config must hold what JSON can: {error}") from None


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Names such as "optimizer.learning_rate", each with its value as JSON."""
    if isinstance(value, dict) and (value or not name):
        for key, entry in value.items():
            yield from _fields(entry, f"{name}.{key}" if name else key)
    else:
        whole = isinstance(value, float) and value.is_integer()  # 1.0 is the same as 1
        yield name, canonical(int(value) if whole else value)


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _commit(folder: Path) -> str | None:
    """The commit the package is of, "-dirty" if it was changed since; None outside a work tree."""
    git = ["git", "-C", str(folder)]
    tracked = [*git, "ls-files", "--error-unmatch", "__init__.py"]  # not just installed below one
    describe = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        for command in (tracked, describe):
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    """Its instructions decide how XLA orders sums."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _without_folders(words: Sequence[str]) -> list[str]:
    """Words of a command in UTF-8, with absolute paths cut to their last part."""
    readable = [word.encode(errors="replace").decode() for word in words]  # names may be any bytes
    parts = [word.rpartition("=") for word in readable]
    return [
        option + equals + (f".../{Path(value).name}" if value[:1] in ("/", "~") else value)
        for option, equals, value in parts
    ]
