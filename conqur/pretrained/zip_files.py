"""Zip files that are read in place, and changed in place with their checksums made right again.

Only stored entries are served, as torch and Stable-Baselines3 write them: nothing is unpacked, so
no file takes more memory than its own size.
"""

import io
import itertools
import struct
import zipfile
import zlib
from dataclasses import dataclass

MOST_ENTRIES = 100_000
"""Zip files with more are not believed in."""

_DIRECTORY_ENTRY = b"PK\x01\x02"
_LOCAL_HEADER = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_ENCRYPTED, _DESCRIBED_AFTERWARDS = 0x1, 0x8


@dataclass(frozen=True)
class Entry:
    """A file within a zip file.

    Attributes:
        start: where its content begins.
        stop: where it ends.
        plain: whether it is neither compressed nor encrypted.
        checksum: of its content, CRC-32; 0 if torch was told to write none.
        checksum_places: where in the zip file that is written.
    """

    start: int
    stop: int
    plain: bool
    checksum: int
    checksum_places: tuple[int, ...]


@dataclass(frozen=True)
class Archive:
    """A zip file.

    Attributes:
        data: all of it.
        entries: what is in it, by name.
    """

    data: bytes
    entries: dict[str, Entry]

    def read(self, name: str) -> memoryview:
        """The content of an entry."""
        entry = self.entries.get(name)
        if entry is None:
            raise ValueError(f"it lacks {name}")
        if not entry.plain:
            raise ValueError(f"its {name} is compressed or encrypted: store it plainly (zip -0)")
        content = memoryview(self.data)[entry.start : entry.stop]
        if entry.checksum not in (0, zlib.crc32(content)):
            raise ValueError(f"its {name} is damaged: the checksum is another one")
        return content

    def sealed(self, changed: bytearray) -> bytes:
        """The zip file with the checksums of what was changed in it.

        Args:
            changed: as `data`, but for the content of some entries.
        """
        before, after = memoryview(self.data), memoryview(changed).toreadonly()
        for entry in self.entries.values():
            content = after[entry.start : entry.stop]
            if entry.checksum and content != before[entry.start : entry.stop]:
                for place in entry.checksum_places:
                    struct.pack_into("<I", changed, place, zlib.crc32(content))
        return bytes(changed)


def open_archive(data: bytes) -> Archive:
    """Find what is in a zip file.

    Raises:
        ValueError: if it is none, or a strange one.
    """
    if data.count(_DIRECTORY_ENTRY) > MOST_ENTRIES:
        raise ValueError(f"it is a zip file with more than {MOST_ENTRIES} entries")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            found, directory = file.infolist(), file.start_dir
            spans, entries = [], {}
            for info in found:
                if info.filename in entries or ".." in info.filename or info.filename[:1] == "/":
                    raise ValueError(f"it holds {info.filename!r} twice, or outside of itself")
                entries[info.filename] = _entry(data, info, directory)
                spans.append((info.header_offset, entries[info.filename].stop))
                directory += 46 + sum(struct.unpack_from("<3H", data, directory + 28))
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        struct.error,
        EOFError,
        OverflowError,
    ) as error:
        raise ValueError(f"it is no whole zip file: {error}") from None
    spans = [*sorted(spans), (file.start_dir, len(data))]
    if any(end > start for (_, end), (start, _) in itertools.pairwise(spans)):
        raise ValueError("it is a zip file whose entries overlap")
    return Archive(data, entries)


def _entry(data: bytes, info: zipfile.ZipInfo, directory: int) -> Entry:
    """An entry, as its directory entry and the header before its content tell.

    Args:
        data: the zip file.
        info: what `zipfile` read.
        directory: where it read that.
    """
    header = info.header_offset
    name_length, extra_length = struct.unpack_from("<2H", data, max(header, 0) + 26)
    start = header + 30 + name_length + extra_length
    stop = start + info.compress_size
    signs = (data[header : header + 4], data[directory : directory + 4])
    if header < 0 or signs != (_LOCAL_HEADER, _DIRECTORY_ENTRY) or stop > len(data):
        raise ValueError(f"it is no whole zip file: {info.filename!r} is not where it should be")
    places = [directory + 16, header + 14]
    if info.flag_bits & _DESCRIBED_AFTERWARDS:
        places.append(stop + 4 if data[stop : stop + 4] == _DESCRIPTOR else stop)
    checksum = struct.pack("<I", info.CRC)
    stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
    return Entry(
        start,
        stop,
        plain=stored and not info.flag_bits & _ENCRYPTED,
        checksum=info.CRC,
        checksum_places=tuple(p for p in places if data[p : p + 4] == checksum),
    )
