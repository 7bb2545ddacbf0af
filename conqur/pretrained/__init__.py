"""Trained networks in files."""

from conqur.pretrained.native import Pretrained, find_networks, load, to_bytes, together

__all__ = ["Pretrained", "find_networks", "load", "to_bytes", "together"]
