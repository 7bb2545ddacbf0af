"""Trained networks in files."""

from conqur.pretrained.bundle import DEFAULT, bundled_names, card, is_bundled
from conqur.pretrained.loading import (
    described,
    find_networks,
    load,
    local_file,
    write_like,
    written_suffix,
)
from conqur.pretrained.native import to_bytes, together
from conqur.pretrained.network import Pretrained

__all__ = [
    "Pretrained",
    "DEFAULT",
    "bundled_names",
    "card",
    "described",
    "find_networks",
    "is_bundled",
    "load",
    "local_file",
    "to_bytes",
    "together",
    "write_like",
    "written_suffix",
]
