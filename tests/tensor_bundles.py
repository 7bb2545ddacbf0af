"""Checkpoints as TensorFlow writes them: a sorted table of names, and a file with all values."""

import struct

import numpy as np
from tensorboardX.crc32c import crc32c

KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9}


def varint(value):
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def number(tag, value):
    return varint(tag << 3) + varint(value)


def message(tag, content):
    return varint(tag << 3 | 2) + varint(len(content)) + content


def checksum(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def entry(array, offset, shard=0, more=b""):
    raw = array.tobytes()
    shape = b"".join(message(2, number(1, side)) for side in array.shape)
    data = number(1, KINDS[array.dtype.name]) + message(2, shape)
    data += number(3, shard) if shard else b""
    data += number(4, offset) if offset else b""
    return data + number(5, len(raw)) + b"\x35" + checksum(raw) + more


def block(entries, *, every=16, kind=b"\x00"):
    """Entries by rising keys; every so many of them a key is not shortened."""
    data, restarts, before = b"", [], b""
    for k, (key, value) in enumerate(entries):
        shared = 0
        if k % every == 0:
            restarts.append(len(data))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        data += varint(shared) + varint(len(key) - shared) + varint(len(value))
        data += key[shared:] + value
        before = key
    data += b"".join(struct.pack("<I", place) for place in restarts or [0])
    data += struct.pack("<I", len(restarts or [0])) + kind
    return data + checksum(data)


def table(entries, *, per_block=20):
    """A whole table."""
    entries = sorted(entries.items())
    data, index = b"", []
    for first in range(0, len(entries), per_block):
        part = entries[first : first + per_block]
        written = block(part)
        index.append((part[-1][0] + b"\x00", varint(len(data)) + varint(len(written) - 5)))
        data += written
    statistics, last = block([]), block(index, every=1)
    footer = varint(len(data)) + varint(len(statistics) - 5)
    footer += varint(len(data + statistics)) + varint(len(last) - 5)
    return data + statistics + last + footer.ljust(40, b"\x00") + bytes.fromhex("57fb808b247547db")


HEADER = number(1, 1) + message(3, number(1, 1))


def bundle(arrays, header=HEADER):
    """The contents of the table and of the one file with values."""
    entries, data = {b"": header}, b""
    for name in sorted(arrays):
        entries[name.encode()] = entry(arrays[name], len(data))
        data += arrays[name].tobytes()
    return table(entries), data


def write(folder, name, index, data):
    (folder / f"{name}.index").write_bytes(index)
    (folder / f"{name}.data-00000-of-00001").write_bytes(data)
    return folder / name


def scalars():
    return {"beta1_power": np.float32(0.9).reshape(()), "global_step": np.int64([7])}
