"""What an environment's observations are as frames, and a picture of a frame for people."""

import colorsys
import math
from typing import Any

import numpy as np
from jaxtyping import UInt8

PICTURE_SIZE = 320
"""About how many pixels wide a picture of a small grid is."""


def frame_layout(name: str, shape: tuple[int, ...], dtype: Any) -> tuple[tuple[int, ...], str]:
    """The shape and dtype that observations have as frames.

    Images, which are bytes or booleans with two or three axes, stay as they are; any other numbers
    become a vector of float32.

    Args:
        name: of the environment or data set, for the error.
        shape: of one observation.
        dtype: of the observations.
    """
    shape, dtype = tuple(shape), np.dtype(dtype)
    if dtype.kind not in "biuf" or 0 in shape:
        raise ValueError(
            f"{name} has observations of shape {list(shape)} and dtype {dtype}, but they have to "
            "be non-empty arrays of real numbers"
        )
    if dtype.name in ("uint8", "bool") and len(shape) in (2, 3):
        return shape, dtype.name
    return (math.prod(shape),), "float32"


def can_draw(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether `draw` has a picture for frames of this shape and dtype."""
    if dtype == "bool":
        return len(shape) == 3
    return dtype == "uint8" and (len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3)))


def draw(frame: np.ndarray) -> UInt8[np.ndarray, "H W 3"]:
    """A picture of a frame: grey or RGB images as they are, channels of booleans in colours.

    Every channel has a colour of its own; where several are set, the first one is seen.

    Args:
        frame: [H, W] or [H, W, 1 or 3] of uint8, or [H, W, C] of bool.
    """
    if frame.dtype == np.uint8:
        channels = frame[..., None] if frame.ndim == 2 else frame
        return np.ascontiguousarray(np.broadcast_to(channels, (*channels.shape[:2], 3)))
    height, width, count = frame.shape
    picture = np.zeros((height, width, 3), np.uint8)
    for channel in reversed(range(count)):
        colour = colorsys.hsv_to_rgb(channel / count, 0.8, 1.0)
        picture[frame[..., channel]] = np.round(255 * np.array(colour))
    scale = max(1, round(PICTURE_SIZE / max(height, width)))
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)
