"""As much of protocol buffers as it takes to read a few numbers out of a message."""

from collections.abc import Iterable, Iterator

_FIXED = {1: 8, 5: 4}


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("it is cut short within a number")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value & (2**64 - 1), position
    raise ValueError("it has a number of more than 64 bits")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, each with its number: numbers, and bytes of everything else."""
    position = 0
    while position < len(message):
        tag, position = varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, position = varint(message, position)
            yield number, value
            continue
        if kind == 2:
            size, position = varint(message, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError("it has a message of an unknown kind")
        if position + size > len(message):
            raise ValueError("it has a message that is cut short")
        part = message[position : position + size]
        yield number, part if kind == 2 else int.from_bytes(part, "little")
        position += size


def as_numbers(parts: Iterable[tuple[int, int | bytes]]) -> dict[int, int]:
    """Those fields that are numbers, the last of each; negative ones are huge here."""
    return {number: value for number, value in parts if isinstance(value, int)}
