"""What a file format of networks is: recognised by content, read, and written with other weights.

Files are hostile until proven otherwise. Reading one executes nothing that it holds, takes memory
in proportion to its size at most, and whatever is wrong with it ends in a `ValueError`.
"""

import abc
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from conqur.pretrained.network import Pretrained
from conqur.regressor import Regressor

MOST_BYTES = 2**31
"""Larger files are not believed in."""


@dataclass(frozen=True)
class Content:
    """A file that may hold a network.

    Attributes:
        path: of the file; where a format has several files, of any of them.
    """

    path: Path

    @cached_property
    def data(self) -> bytes:
        """All of it."""
        if self.path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES // 2**30} GiB")
        return self.path.read_bytes()

    @cached_property
    def start(self) -> bytes:
        """Its first 16 bytes, enough to tell most formats apart."""
        with self.path.open("rb") as file:
            return file.read(16)


class Format(abc.ABC):
    """A file format.

    Attributes:
        name: of the format, such as "sb3".
        writes: what is written back: the suffix of such files; "" if that is not possible.
    """

    name: str
    writes: str

    @abc.abstractmethod
    def recognises(self, content: Content) -> bool:
        """Whether a file is of this format, as far as a quick look can tell."""

    @abc.abstractmethod
    def read(self, content: Content) -> Pretrained:
        """The network in a file.

        Raises:
            ValueError: if there is none, with what is wrong.
        """

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """A file's content with the weights of another regressor of the same architecture.

        All that is no weight of the network, such as an optimizer's state, stays as it is, and
        with the regressor that `read` gave so does every byte.
        """
        raise ValueError(f"files of format {self.name} cannot be written: export to another one")
