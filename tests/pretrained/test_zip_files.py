"""Zip files changed in place, with Python's own reader as referee; strange ones are refused."""

import io
import struct
import zipfile

import pytest
from torch_by_hand import damaged, sb3_zip, torch_zip, without_checksums

from conqur.pretrained import zip_files
from conqur.pretrained.zip_files import open_archive

SEEKABLE = sb3_zip(b"0123456789")
PIPED = torch_zip({}, {"0": b"0123456789"})


def zipped(entries, compression=zipfile.ZIP_STORED):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return content.getvalue()


@pytest.mark.parametrize(
    ("data", "name"),
    [(SEEKABLE, "policy.pth"), (PIPED, "archive/data/0"), (b"before it" + PIPED, "archive/data/0")],
    ids=["checksums before", "checksums after", "something before"],
)
def test_changed_in_place(data, name):
    archive = open_archive(data)
    assert bytes(archive.read(name)) == b"0123456789"
    entry, changed = archive.entries[name], bytearray(data)
    assert archive.sealed(bytearray(data)) == data
    changed[entry.start : entry.stop] = b"abcdefghij"
    after = archive.sealed(changed)
    with zipfile.ZipFile(io.BytesIO(after)) as file, zipfile.ZipFile(io.BytesIO(data)) as before:
        assert file.testzip() is None
        assert file.read(name) == b"abcdefghij"
        for other in set(before.namelist()) - {name}:
            assert file.read(other) == before.read(other)
    assert bytes(open_archive(after).read(name)) == b"abcdefghij"
    # Two copies of the checksum, of four bytes each, and the ten of the content.
    assert sum(a != b for a, b in zip(data, after, strict=True)) <= 10 + 2 * 4
    # Readers that go from header to header find it there, too.
    header = struct.unpack_from("<I", after, after.rindex(name.encode(), 0, entry.start) - 16)[0]
    checksum = zipfile.ZipFile(io.BytesIO(after)).getinfo(name).CRC
    if header != checksum:
        assert after[entry.stop : entry.stop + 8] == b"PK\x07\x08" + struct.pack("<I", checksum)


def test_a_file_without_checksums_is_read_and_stays_so():
    data = without_checksums(PIPED)
    bare = open_archive(data)
    entry, changed = bare.entries["archive/data/0"], bytearray(data)
    assert bytes(bare.read("archive/data/0")) == b"0123456789"
    changed[entry.start] ^= 1
    assert bare.sealed(bytearray(changed)) == bytes(changed)


def test_damage_is_noticed():
    data = bytearray(PIPED)
    data[PIPED.index(b"0123456789")] ^= 1
    with pytest.raises(ValueError, match="archive/data/0 is damaged"):
        open_archive(bytes(data)).read("archive/data/0")


def test_nothing_is_unpacked():
    bomb = zipped({"a": bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    with pytest.raises(ValueError, match="its a is compressed or encrypted"):
        open_archive(bomb).read("a")


def test_what_is_not_there():
    with pytest.raises(ValueError, match="it lacks b"):
        open_archive(zipped({"a": b"1"})).read("b")


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd"])
def test_names_that_lead_outside(name):
    with pytest.raises(ValueError, match="outside of itself"):
        open_archive(zipped({name: b"1"}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("a", b"1")
        file.writestr("a", b"2")
    with pytest.raises(ValueError, match="holds 'a' twice"):
        open_archive(content.getvalue())


def test_entries_that_overlap():
    data = bytearray(zipped({"a": b"x" * 50, "b": b"y" * 50}))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        directory = file.start_dir
    struct.pack_into("<II", data, directory + 20, 60, 60)  # a: sizes into b's header
    with pytest.raises(ValueError, match="entries overlap"):
        open_archive(bytes(data))


def test_an_entry_in_place_of_the_directory():
    data = bytearray(zipped({"a": b"x" * 50}))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        directory = file.start_dir
    struct.pack_into("<II", data, directory + 20, 60, 60)
    with pytest.raises(ValueError, match="entries overlap"):
        open_archive(bytes(data))


def test_too_many_entries(monkeypatch):
    monkeypatch.setattr(zip_files, "MOST_ENTRIES", 3)
    assert len(open_archive(zipped(dict.fromkeys("abc", b"1"))).entries) == 3
    with pytest.raises(ValueError, match="more than 3 entries"):
        open_archive(zipped(dict.fromkeys("abcd", b"1")))


def test_an_empty_zip_file():
    assert open_archive(b"PK\x05\x06" + bytes(18)).entries == {}


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x" * 1000, PIPED[:-1], PIPED[:-30]])
def test_no_zip_file(data):
    with pytest.raises(ValueError, match="no whole zip file"):
        open_archive(data)


@pytest.mark.parametrize("data", [SEEKABLE, PIPED, without_checksums(PIPED)])
def test_damaged_files(data):
    for raw in damaged(data):
        try:
            archive = open_archive(raw)
            for name in archive.entries:
                archive.read(name)
        except ValueError:
            continue
