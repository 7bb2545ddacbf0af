"""Networks on the Hugging Face Hub, through its own library and the cache that it keeps."""

import os
import re
from pathlib import Path

_ID = re.compile(r"[\w-]+/[\w.-]+", re.ASCII)
_NETWORKS = ("*.zip", "*.cleanrl_model", "*.safetensors", "*.pth")
_SUFFIXES = {kind.removeprefix("*") for kind in _NETWORKS}
_SB3 = re.compile(r"(?:dqn|ddqn)-(.+)")
_CLEANRL = re.compile(r"(.+)-dqn(?:_\w+)?-seed\d+")


def is_hub_id(path: Path) -> bool:
    """Whether this is the name of a model, such as sb3/dqn-CartPole-v1, and of no file here."""
    if path.suffix in _SUFFIXES or path.parent.is_dir():
        return False
    return _ID.fullmatch(path.as_posix()) is not None and not os.path.lexists(path)


def trained_on(name: str) -> str:
    """The environment that a model's name speaks of; "" if it does not."""
    own = name.partition("/")[2]
    match = _SB3.fullmatch(own) or _CLEANRL.fullmatch(own)
    return match[1] if match else ""


def hub_file(name: str) -> Path:
    """The network's file of a model, from the cache or downloaded to it.

    Args:
        name: of the model.

    Raises:
        ValueError: if it cannot be had.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError:
        raise ValueError(
            f"there is no file {name}; if it is a model on the Hugging Face Hub: pip install "
            "'conqur[hub]'"
        ) from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_NETWORKS)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"there is no file {name}, and no such model could be had from the Hugging Face Hub: "
            f"{reason[:200]}"
        ) from None
    found = sorted(path for kind in _NETWORKS for path in folder.glob(kind))
    if not found:
        raise ValueError(f"the model {name} holds no network in a format that conqur reads")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"the model {name} holds several networks ({names}): name one in {folder}")
    return found[0]
