"""Files as torch and Stable-Baselines3 write them, made without either; and damaged ones."""

import base64
import io
import json
import random
import struct
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT = "FloatStorage"


@dataclass(frozen=True)
class Name:
    """A name within a module."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call that a pickle asks for."""

    function: Any
    arguments: tuple


@dataclass(frozen=True)
class Outside:
    """Something that is not in the pickle."""

    identity: tuple


def pickled(value) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + _code(value) + b"."


def _code(value) -> bytes:
    if isinstance(value, Name):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        return _code(value.function) + _code(value.arguments) + b"R"
    if isinstance(value, Outside):
        return _code(value.identity) + b"Q"
    if isinstance(value, dict):
        return b"}(" + b"".join(_code(k) + _code(v) for k, v in value.items()) + b"u"
    if isinstance(value, tuple | list):
        start, end = (b"(", b"t") if isinstance(value, tuple) else (b"](", b"e")
        return start + b"".join(map(_code, value)) + end
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def storage(key, length, kind=FLOAT, *more):
    return Outside(("storage", Name("torch", kind), key, "cpu", length, *more))


def tensor(stored, shape, *, offset=0, strides=None):
    if strides is None:
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    hooks = Call(Name("collections", "OrderedDict"), ())
    return Call(
        Name("torch._utils", "_rebuild_tensor_v2"), (stored, offset, shape, strides, False, hooks)
    )


class _Pipe(io.RawIOBase):
    """A file that cannot be gone back in, so that checksums come after what they are of."""

    def __init__(self):
        self.content = io.BytesIO()

    def writable(self):
        return True

    def write(self, data):
        return self.content.write(data)


def undated(name, compression=zipfile.ZIP_STORED):
    """An entry that is the same whenever it is written."""
    info = zipfile.ZipInfo(name)
    info.compress_type = compression
    return info


def torch_zip(root, storages, *, more=None, folder="archive") -> bytes:
    """What `torch.save` writes.

    Args:
        root: what is saved.
        storages: the bytes of each, by key.
        more: further entries.
        folder: in which all is.
    """
    pipe = _Pipe()
    entries = {"data.pkl": pickled(root)}
    entries |= {f"data/{key}": raw for key, raw in storages.items()} | (more or {})
    with zipfile.ZipFile(pipe, "w") as file:
        for name, content in entries.items():
            file.writestr(undated(f"{folder}/{name}"), content)
    return pipe.content.getvalue()


def torch_legacy(root, storages, *, sizes, little_endian=True) -> bytes:
    """What `torch.save` wrote before 1.6; `sizes` are the storages' bytes per number."""
    machine = {"protocol_version": 1001, "little_endian": little_endian, "type_sizes": {}}
    parts = [0x1950A86A20F9469CFC6C, 1001, machine, root, list(storages)]
    raw = b"".join(map(pickled, parts))
    for key, content in storages.items():
        raw += struct.pack("<q", len(content) // sizes[key]) + content
    return raw


def without_checksums(data) -> bytes:
    """A zip file as torch writes it when it is told to make no checksums: they are zero."""
    raw = bytearray(data)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for checksum in {info.CRC for info in file.infolist()} - {0}:
            raw = raw.replace(struct.pack("<I", checksum), bytes(4))
    return bytes(raw)


def state(arrays, legacy=False):
    """A state dict of float32 arrays and its storages, as the writers above take them."""
    more = (None,) if legacy else ()
    root, storages = {}, {}
    for number, (name, array) in enumerate(arrays.items()):
        root[name] = tensor(storage(str(number), array.size, FLOAT, *more), array.shape)
        storages[str(number)] = np.ascontiguousarray(array, "<f4").tobytes()
    return root, storages


def state_dict(arrays, **options) -> bytes:
    return torch_zip(*state(arrays), **options)


def random_arrays(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"{name}.{part}": (rng.normal(size=shape) / 8).astype(np.float32)
        for name, weight in shapes.items()
        for part, shape in (("weight", weight), ("bias", weight[:1]))
    }


def sb3_settings(**changes):
    """The settings of a DQN agent on CartPole-v1, with what else is said about them."""
    serialized = base64.b64encode(b"\x80\x05N.").decode()
    settings = {
        "policy_class": {
            ":type:": "<class 'abc.ABCMeta'>",
            ":serialized:": serialized,
            "__module__": "stable_baselines3.dqn.policies",
        },
        "policy_kwargs": {},
        "observation_space": {
            ":type:": "<class 'gymnasium.spaces.box.Box'>",
            ":serialized:": serialized,
            "dtype": "float32",
            "_shape": [4],
        },
        "action_space": {
            ":type:": "<class 'gymnasium.spaces.discrete.Discrete'>",
            ":serialized:": serialized,
            "n": "2",
        },
        "num_timesteps": 1000,
        "gamma": 0.99,
        "seed": None,
    }
    return settings | changes


def sb3_zip(policy, settings=None, *, version="2.9.2", compression=zipfile.ZIP_STORED) -> bytes:
    """What `DQN.save` writes, around a policy's file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        text = json.dumps(settings or sb3_settings(), indent=4)
        file.writestr(undated("data", compression), text)
        file.writestr(undated("pytorch_variables.pth", compression), b"")
        with file.open(undated("policy.pth", compression), "w", force_zip64=True) as entry:
            entry.write(policy)
        file.writestr(undated("policy.optimizer.pth", compression), b"of no interest")
        file.writestr(undated("_stable_baselines3_version", compression), version)
    return content.getvalue()


def damaged(data, count=250, seed=0):
    """Files that differ from a good one: flipped bits, cut, spans doubled or exchanged."""
    rng = random.Random(seed)
    for _ in range(count):
        raw = bytearray(data)
        here, there = sorted(rng.randrange(len(raw)) for _ in range(2))
        length = rng.randrange(1, 40)
        match rng.randrange(4):
            case 0:
                for _ in range(rng.randrange(1, 4)):
                    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            case 1:
                del raw[here : rng.choice([len(raw), here + length])]
            case 2:
                raw[there:there] = raw[here : here + length]
            case 3:
                one, other = raw[here : here + length], raw[there : there + length]
                raw[there : there + length], raw[here : here + length] = one, other
        yield bytes(raw)
