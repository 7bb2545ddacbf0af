import os
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest
from foreign_networks import broken

from conqur.pretrained import unpickling
from conqur.pretrained.pickled_arrays import ARRAYS, PickledArray
from conqur.pretrained.unpickling import Inert, Located, unpickle

PLAIN = {
    "words": ["a", "ä" * 300, "\ud800", ""],
    "numbers": (0, 1, -1, 255, 256, 70000, -(2**31), 2**31, 2**80, -(2**80), 1.5, float("inf")),
    "constants": [None, True, False],
    "bytes": [b"", b"abc", b"x" * 300, bytearray(b"yz")],
    "nested": {"list": [[], [1], [1, 2]], "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))},
    "sets": [set(), {1, "b"}, frozenset({1.5, b"c"})],
    3: {False: 1, None: 2, 2.5: 3},
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_as_pickle_reads_it(protocol):
    plain = dict(PLAIN)
    if protocol < 5:  # before, byte arrays are calls, and so are bytes and sets still earlier
        plain["bytes"] = [b"", b"abc"] if protocol > 2 else []
        plain["sets"] = plain["sets"] if protocol > 3 else []
    shared = [1]
    plain = plain | {"shared": [shared, shared, "a", "a"]}
    found = unpickle(pickle.dumps(plain, protocol), allowed={})
    assert found == plain
    assert found["shared"][0] is found["shared"][1]


def test_a_list_within_itself():
    inner = []
    inner.append(inner)
    found = unpickle(pickle.dumps(inner), allowed={})
    assert found[0] is found


def test_bytes_know_their_place():
    data = pickle.dumps([b"hello", b"h" * 400, bytearray(b"there")], 5)
    found = unpickle(b"" + data, allowed={})
    for value in found:
        assert type(value) is Located
        assert data[value.start : value.start + len(value)] == value
    assert found[0].start == data.index(b"hello")


class Calls:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch hacked",), "system"),
        (eval, ("1/0",), "builtin.*eval"),
        (getattr, (1, "real"), "builtin.*getattr"),
        (print, ("hello",), "builtin.*print"),
        (np.frombuffer, (b"",), "numpy"),
    ],
)
def test_nothing_is_called(tmp_path, monkeypatch, capsys, function, arguments, name):
    monkeypatch.chdir(tmp_path)
    for protocol in (2, 4):
        data = pickle.dumps({"a": Calls(function, *arguments)}, protocol)
        with pytest.raises(ValueError, match=f"its pickle names .*{name}"):
            unpickle(data, allowed=ARRAYS)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == ""


def test_allowed_names_are_called_with_what_the_file_says():
    data = pickle.dumps(Calls(os.system, "ls", 3))
    module = os.system.__module__
    assert unpickle(data, allowed={(module, "system"): lambda *all: all}) == ("ls", 3)
    assert type(unpickle(data, allowed={(module, "*"): Inert})) is Inert
    with pytest.raises(ValueError, match=f"names {module}.system"):
        unpickle(data, allowed={(f"{module}.path", "*"): Inert, (module[:-1], "*"): Inert})


def test_a_star_stands_for_modules_below():
    data = b"\x80\x04\x8c\x0aoptax._src\x8c\x05State\x93)\x81N}\x86b."
    assert type(unpickle(data, allowed={("optax", "*"): Inert})) is Inert


def fails(*_):
    raise RuntimeError("whatever")


def test_what_callables_raise_is_one_error():
    data = pickle.dumps(Calls(os.system, "ls"))
    with pytest.raises(ValueError, match=r"its pickle is broken \(RuntimeError\)"):
        unpickle(data, allowed={(os.system.__module__, "system"): fails})


def test_states_reach_only_objects_that_take_them():
    class Takes:
        def __setstate__(self, state):
            self.taken = state

    def attempt(made, state):
        data = b"\x80\x02cm\nf\n)R" + state + b"b."
        return unpickle(data, allowed={("m", "f"): made})

    assert attempt(Takes, b"}").taken == {}
    assert attempt(OrderedDict, b"}") == {}
    before = dict(vars(Takes))
    for target in (b"cm\nf\n", b"cm\nf\n)R"):
        # a state that pickle would set on a class, or on a function
        state = b"N}X\x01\x00\x00\x00aK\x01s\x86b."
        made = Takes if target.endswith(b"f\n") else list
        with pytest.raises(ValueError, match="broken"):
            unpickle(b"\x80\x02" + target + state, allowed={("m", "f"): made})
    assert dict(vars(Takes)) == before


def test_persistent_objects():
    data = b"\x80\x02K\x05Q."
    assert unpickle(data, allowed={}, persistent=lambda number: number + 1) == 6
    with pytest.raises(ValueError, match="refers to objects outside"):
        unpickle(data, allowed={})


def laughs(depth):
    """A tuple of two of a tuple of two ... as a key, which takes forever to hash."""
    return b"\x80\x02}K\x01" + b"q\x00h\x00\x86" * depth + b"K\x01s."


HOSTILE = {
    "nothing": (b"", "broken"),
    "no end": (b"\x80\x04]", "broken"),
    "only an end": (b".", "broken"),
    "empty memory": (b"\x80\x04h\x07.", "broken"),
    "no mark": (b"\x80\x04e.", "broken"),
    "short stack": (b"\x80\x04K\x01\x86.", "broken"),
    "billion laughs": (laughs(200), "a set or a dict with unusual keys"),
    "laughs in a set": (b"\x80\x04\x8f(K\x01" + b"\x94h\x00\x86" * 9 + b"\x90.", "unusual keys"),
    "colliding keys": (b"\x80\x04}\x8a\x09" + b"\xff" * 8 + b"\x00K\x01s.", "unusual keys"),
    "a huge size": (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"abc.", "broken"),
    "a huge word": (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.", "broken"),
    "a huge number": (b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"abc.", "broken"),
    "a negative size": (b"\x80\x04\x8b" + struct.pack("<i", -5) + b"abc.", "broken"),
    "a huge frame": (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"\x8c\x01\n)R.", "broken"),
    "text": (b"import os\n", "broken|unusual"),
    "the old way to call": (b"(S'ls'\nios\nsystem\n.", "unusual instruction"),
    "an extension": (b"\x80\x02\x82\x01.", "unusual instruction EXT1"),
    "a buffer": (b"\x80\x05\x97.", "unusual instruction NEXT_BUFFER"),
    "many arguments": (b"\x80\x04cm\nf\n(" + b"N" * 40 + b"tR.", "more than 32 arguments"),
    "named arguments": (b"\x80\x04cm\nf\n)}X\x01\x00\x00\x00aNs\x92.", "named arguments"),
    "a call of a number": (b"\x80\x04K\x01)R.", "broken"),
    "a call of a result": (b"\x80\x04cm\nf\n)R)R.", "broken"),
    "names that are numbers": (b"\x80\x04K\x01K\x02\x93.", "broken"),
    "a list as a dict": (b"\x80\x04]K\x01K\x02s.", "broken"),
    "a dict as a list": (b"\x80\x04}K\x01a.", "broken"),
    "half a pair": (b"\x80\x04}(K\x01u.", "broken"),
    "long names": (b"\x80\x04c" + b"a." * 9999 + b"\nb\n.", r"names a\.a\."),
    "a line break": (b"\x80\x04\x8c\x02a\n\x8c\x02\rb\x93.", r"names a\\n\.\\rb"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pickles_are_one_sentence(kind):
    data, words = HOSTILE[kind]
    with pytest.raises(ValueError, match=words) as caught:
        unpickle(data, allowed={("m", "f"): lambda *_: lambda: 1})
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_too_many_instructions(monkeypatch):
    monkeypatch.setattr(unpickling, "MOST_INSTRUCTIONS", 100)
    assert unpickle(b"\x80\x04" + b"N0" * 49 + b"N.", allowed={}) is None
    with pytest.raises(ValueError, match="more than 100 instructions"):
        unpickle(b"\x80\x04" + b"N0" * 50 + b"N.", allowed={})


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_arrays(protocol, order, dtype):
    array = np.asarray(np.arange(6).reshape(2, 3), dtype, order=order)
    data = pickle.dumps({"x": array, "y": array[:1] * 2}, protocol)
    found = unpickle(data, allowed=ARRAYS)
    stored = found["x"].stored()
    np.testing.assert_array_equal(stored.array, array)
    assert stored.array.dtype == array.dtype
    assert data[stored.start : stored.start + 24] == array.tobytes(order)
    np.testing.assert_array_equal(found["y"].stored().array, [[0, 2, 4]])


def test_arrays_of_other_things():
    odd = [
        np.zeros(2),
        np.array(["a"]),
        np.array([{}], object),
        np.zeros(2, "f4,i4"),
        np.zeros(2, int),
    ]
    odd += [np.zeros((), np.float32), np.zeros((0, 2), np.float32), np.zeros(2, "M8[s]")]
    for array in unpickle(pickle.dumps(odd), allowed=ARRAYS):
        assert type(array) is PickledArray
        with pytest.raises(ValueError, match="it holds"):
            array.stored()
    numbers = unpickle(
        pickle.dumps([np.float64(1.5), np.int32(-7), np.bool_(True)]), allowed=ARRAYS
    )
    assert numbers == [1.5, -7, True]


def test_broken_arrays():
    good = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = pickle.dumps(good, 4)
    for old, new in (
        (b"K\x02K\x03\x86", b"K\x02K\x04\x86"),
        (b"K\x02K\x03\x86", b"K\x02J\xfd\xff\xff\xff\x86"),
        (b"K\x02K\x03\x86", b"]"),
        (b"K\x02K\x03\x86", b"\x8a\x09" + b"\xff" * 8 + b"\x00\x85"),
    ):
        assert old in data
        array = unpickle(data.replace(old, new), allowed=ARRAYS)
        with pytest.raises(ValueError, match="shape"):
            array.stored()


def test_broken_pickles_never_do_anything_else():
    plain = PLAIN | {"array": np.arange(5, dtype=np.float32), "number": np.float32(3)}
    data = pickle.dumps(plain, 5)
    outcomes = set()
    for copy in broken(data, 2000):
        try:
            unpickle(copy, allowed=ARRAYS)
            outcomes.add("read")
        except ValueError as error:
            outcomes.add(str(error)[:18])
    assert {"read", "its pickle is brok"} <= outcomes
