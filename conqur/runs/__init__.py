"""Runs: directories that survive anything, progress, and being asked to stop."""

from conqur.runs.checkpoint import Checkpoint
from conqur.runs.directory import RunDirectory
from conqur.runs.files import RunError
from conqur.runs.progress import Progress, progress
from conqur.runs.rows import ring_rows
from conqur.runs.signals import StopRequest, stop_requested
from conqur.runs.tree import flatten, unflatten

__all__ = [
    "Checkpoint",
    "Progress",
    "RunDirectory",
    "RunError",
    "StopRequest",
    "flatten",
    "progress",
    "ring_rows",
    "stop_requested",
    "unflatten",
]
