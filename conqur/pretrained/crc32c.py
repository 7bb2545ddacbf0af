"""CRC-32C (Castagnoli), the checksum in TensorFlow's files, for megabytes at a time."""

import numpy as np
from jaxtyping import UInt32

_POLYNOMIAL = 0x82F63B78
_LANES = 4096


def crc32c(data: bytes) -> int:
    """The checksum of bytes."""
    length = len(data) // _LANES
    register = 0xFFFFFFFF
    if length > 64:  # all lanes at once; one number after the other takes seconds
        lanes = np.frombuffer(data, np.uint8, length * _LANES).reshape(_LANES, length)
        registers = np.zeros(_LANES, np.uint32)
        for column in np.ascontiguousarray(lanes.T):
            registers = _TABLE[(registers ^ column) & 0xFF] ^ (registers >> np.uint32(8))
        skip = _skipping(length)
        for lane in registers.tolist():
            register = _applied(skip, register) ^ lane
        data = data[length * _LANES :]
    for byte in data:
        register = int(_TABLE[(register ^ byte) & 0xFF]) ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """A checksum as it is stored next to what it is of."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> UInt32[np.ndarray, "256"]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


_TABLE = _table()


def _applied(matrix: list[int], register: int) -> int:
    """A linear map of registers, given by the images of their 32 bits."""
    result = 0
    while register:
        lowest = register & -register
        result ^= matrix[lowest.bit_length() - 1]
        register ^= lowest
    return result


def _skipping(count: int) -> list[int]:
    """What so many zero bytes do to a register."""
    step = [int(_TABLE[(1 << bit) & 0xFF]) ^ ((1 << bit) >> 8) for bit in range(32)]
    result = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            result = [_applied(step, image) for image in result]
        step = [_applied(step, image) for image in step]
        count >>= 1
    return result
