"""Files of `torch.save` without torch: tensors where they lie, and nothing that is called."""

import io
import pickle
import zipfile

import numpy as np
import pytest
from torch_by_hand import (
    Call,
    Name,
    damaged,
    random_arrays,
    state,
    state_dict,
    storage,
    tensor,
    torch_legacy,
    torch_zip,
    without_checksums,
)

from conqur.pretrained import zip_files
from conqur.pretrained.format import Content
from conqur.pretrained.torch_files import is_torch, read_torch

ARRAYS = random_arrays({"one": (3, 4), "two": (2, 3)})
NAMES = [("one.weight", "one.bias"), ("two.weight", "two.bias")]
ZIP = state_dict(ARRAYS, more={"byteorder": b"little", "version": b"3\n"})
LEGACY = torch_legacy(*state(ARRAYS, legacy=True), sizes=dict.fromkeys("0123", 4))
FILES = pytest.mark.parametrize("data", [ZIP, LEGACY], ids=["zip", "legacy"])


def numbers(*values):
    return np.array(values, "<f4").tobytes()


def one_tensor(stored, shape, length=6, **options):
    """A file with the numbers 0 … length − 1 and one tensor "a"."""
    root = {"a": tensor(stored, shape, **options)}
    return torch_zip(root, {"0": numbers(*range(length))})


@FILES
def test_tensors_are_found(data):
    file = read_torch(data)
    assert list(file.places) == list(ARRAYS)
    for (weight, bias), names in zip(file.layers(NAMES), NAMES, strict=True):
        np.testing.assert_array_equal(weight, ARRAYS[names[0]])
        np.testing.assert_array_equal(bias, ARRAYS[names[1]])


@FILES
def test_nothing_changes_but_what_is_written(data):
    file = read_torch(data)
    layers = file.layers(NAMES)
    assert file.with_layers(NAMES, layers) == data
    new = layers[1][0].copy()
    new[1, 2] = 7.5
    after = file.with_layers(NAMES, [layers[0], (new, layers[1][1])])
    assert len(after) == len(data)
    # The number itself and, in a zip file, two copies of a checksum.
    assert 1 <= sum(a != b for a, b in zip(data, after, strict=True)) <= 4 + 2 * 4
    found = [array for layer in read_torch(after).layers(NAMES) for array in layer]
    again = dict(zip(ARRAYS, found, strict=True))
    np.testing.assert_array_equal(again["two.weight"], new)
    for name in ("one.weight", "one.bias", "two.bias"):
        np.testing.assert_array_equal(again[name], ARRAYS[name])


def test_dicts_within_dicts():
    inner = {"w": tensor(storage("0", 2), (2,)), "step": 3, "rate": None}
    inner["scalar"] = Call(Name("numpy._core.multiarray", "scalar"), ("f8", "1234"))
    root = {"model": inner, "optimizer": {"state": {0: {"m": tensor(storage("0", 2), (2,))}}}}
    ordered = Call(Name("collections", "OrderedDict"), ())
    root |= {"args": ordered, "device": Call(Name("torch", "device"), ("cpu",)), "list": [1, True]}
    file = read_torch(torch_zip(root, {"0": numbers(4, 5)}))
    assert list(file.places) == ["model.w"]
    np.testing.assert_array_equal(file.places["model.w"].within(file.data), [4, 5])


def test_views_of_storages():
    file = read_torch(one_tensor(storage("0", 6), (2, 2), offset=1, strides=(1, 3)))
    np.testing.assert_array_equal(file.places["a"].within(file.data), [[1, 4], [2, 5]])
    new = np.array([[1, 40], [20, 5]], np.float32)
    after = read_torch(file.with_layers([("a", "a")], [(new, new)]))
    np.testing.assert_array_equal(after.places["a"].within(after.data), new)
    assert numbers(0, 1, 20, 3, 40, 5) in after.data


def test_parameters_are_tensors():
    parameter = Call(
        Name("torch._utils", "_rebuild_parameter"), (tensor(storage("0", 2), (2,)), True, {})
    )
    assert list(read_torch(torch_zip({"p": parameter}, {"0": numbers(1, 2)})).places) == ["p"]


def test_doubles_keep_what_floats_lack():
    exact = np.array([0.1, 1 / 3, -0.0, 1e-60], "<f8")
    root = {"a": tensor(storage("0", 4, "DoubleStorage"), (4,))}
    data = torch_zip(root, {"0": exact.tobytes()})
    file = read_torch(data)
    read = exact.astype(np.float32)
    assert file.with_layers([("a", "a")], [(read, read)]) == data
    read[1] = 2.0
    after = read_torch(file.with_layers([("a", "a")], [(read, read)]))
    np.testing.assert_array_equal(after.places["a"].within(after.data), [0.1, 2.0, -0.0, 1e-60])


def test_other_kinds_of_numbers_are_no_weights_but_do_no_harm():
    root = {
        "a": tensor(storage("0", 2), (2,)),
        "count": tensor(storage("1", 1, "LongStorage"), ()),
        "half": tensor(storage("2", 3, "HalfStorage"), (3,)),
    }
    file = read_torch(torch_zip(root, {"0": numbers(1, 2), "1": bytes(8), "2": bytes(6)}))
    assert file.places["count"].shape == ()
    with pytest.raises(ValueError, match="weights of type float16: convert them to float32"):
        file.layers([("half", "a")])
    with pytest.raises(ValueError, match="it lacks the array 'b'"):
        file.layers([("a", "b")])


def test_weights_that_do_not_fit_are_not_written():
    file = read_torch(ZIP)
    layers = file.layers(NAMES)
    for bad in (np.zeros((2, 2), np.float32), np.full((2, 3), np.inf, np.float32)):
        with pytest.raises(ValueError, match=r"other layers than the file's 'two\.weight'"):
            file.with_layers(NAMES, [layers[0], (bad, layers[1][1])])


def test_two_arrays_in_one_place_cannot_differ():
    root = {name: tensor(storage("0", 2), (2,)) for name in "ab"}
    data = torch_zip(root, {"0": numbers(1, 2)})
    file = read_torch(data)
    one, two = np.array([3, 4], np.float32), np.array([5, 6], np.float32)
    assert numbers(3, 4) in file.with_layers([("a", "b")], [(one, one)])
    with pytest.raises(ValueError, match="'a' shares memory"):
        file.with_layers([("a", "b")], [(one, two)])


@pytest.mark.parametrize(
    ("stored", "shape", "options", "message"),
    [
        (storage("0", 6), (7,), {}, "larger than what is stored"),
        (storage("0", 6), (6,), {"offset": 1}, "larger than what is stored"),
        (storage("0", 6), (2, 3), {"strides": (4, 1)}, "larger than what is stored"),
        (storage("0", 7), (6,), {}, "storage '0' is shorter"),
        (storage("0", 6, "DoubleStorage"), (6,), {}, "storage '0' is shorter"),
        (storage("0", 2**40 - 1), (6,), {}, "storage '0' is shorter"),
        (storage("0", 2**40), (6,), {}, "pickle is broken"),
        (storage("0", -1), (6,), {}, "pickle is broken"),
        (storage("0", 6, "FloatStorage", ("view", 0, 1)), (6,), {}, "pickle is broken"),
        (storage("1", 6), (6,), {}, "it lacks archive/data/1"),
        (storage("../data/0", 6), (6,), {}, "it lacks archive/data/../data/0"),
        (storage("0", 6), (1000, 1000), {"strides": (0, 0)}, "share memory"),
        (storage("0", 6), (2, 3), {"strides": (2, 1)}, "share memory"),
        (storage("0", 6), (-1,), {"strides": (1,)}, "no usual one"),
        (storage("0", 6), (6,), {"strides": (-1,)}, "no usual one"),
        (storage("0", 6), (6,), {"strides": (1, 1)}, "no usual one"),
        (storage("0", 6), (6,), {"offset": -1}, "no usual one"),
        (storage("0", 6), (6,), {"offset": True}, "no usual one"),
        (storage("0", 6), (1,) * 9, {}, "no usual one"),
        (storage("0", 6), [6], {"strides": [1]}, "no usual one"),
        ("0", (6,), {}, "no usual one"),
    ],
)
def test_tensors_that_cannot_be(stored, shape, options, message):
    with pytest.raises(ValueError, match=message):
        read_torch(one_tensor(stored, shape, **options))


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("torch", "load"), ("__main__", "QNetwork")],
)
def test_nothing_is_called(tmp_path, module, name):
    trace = tmp_path / "trace"
    root = {"a": Call(Name(module, name), (f"touch {trace}",))}
    with pytest.raises(ValueError, match=rf"names {module}\.{name}: save only the state_dict"):
        read_torch(torch_zip(root, {}))
    assert not trace.exists()


def test_storages_are_not_called():
    with pytest.raises(ValueError, match="pickle is broken"):
        read_torch(torch_zip({"a": Call(Name("torch", "FloatStorage"), (10**12,))}, {}))


def test_dicts_that_hold_themselves_and_deep_ones():
    # d = {}; d["a"] = d["b"] = d, and a dict in a dict in a dict …
    itself = b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00X\x01\x00\x00\x00bh\x00u."
    deep = b"\x80\x02" + b"}X\x01\x00\x00\x00a" * 20_000 + b"}" + b"s" * 20_000 + b"."
    for raw in (itself, deep):
        assert read_torch(with_pickle(raw)).places == {}


def test_a_storage_that_is_named_often_is_looked_at_once(monkeypatch):
    checksum, looked_at = zip_files.zlib.crc32, []
    monkeypatch.setattr(
        zip_files.zlib, "crc32", lambda data: (looked_at.append(len(data)), checksum(data))[1]
    )
    root = {str(i): tensor(storage("0", 1000), (1,)) for i in range(200)}
    assert len(read_torch(torch_zip(root, {"0": bytes(4000)})).places) == 200
    assert looked_at.count(4000) == 1


def with_pickle(raw):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("archive/data.pkl", raw)
    return content.getvalue()


def legacy_with_keys(keys):
    """An old torch file without tensors."""
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    parts = (0x1950A86A20F9469CFC6C, 1001, machine, {}, keys)
    return b"".join(pickle.dumps(part, protocol=2) for part in parts) + bytes(64)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (state_dict(ARRAYS, more={"byteorder": b"big"}), "another order of bytes"),
        (state_dict(ARRAYS, more={"constants.pkl": b""}), "a TorchScript program"),
        (state_dict(ARRAYS, more={"x/data.pkl": b""}), "torch.save did not write it"),
        (with_pickle(b""), "pickle is broken"),
        (b"", "torch.save did not write it"),
        (LEGACY[:-1], "storage '3' is shorter"),
        (LEGACY[: len(LEGACY) // 2], "pickle is broken|storage '.' is shorter"),
        (
            torch_legacy(*state(ARRAYS, True), sizes=dict.fromkeys("0123", 4), little_endian=False),
            "an old torch file of an unknown kind",
        ),
        (
            torch_legacy(*state(ARRAYS, True), sizes=dict.fromkeys("0123", 8)),
            "storage '0' is shorter",
        ),
        (torch_legacy(state(ARRAYS, True)[0], {}, sizes={}), "not those of its tensors"),
        *((legacy_with_keys(keys), "not those of its tensors") for keys in ([5], [[1]], [None])),
    ],
)
def test_other_files(data, message):
    with pytest.raises(ValueError, match=message):
        read_torch(data)


@pytest.mark.parametrize(
    ("data", "expected"), [(ZIP, True), (LEGACY, True), (b"PK\x03\x04", False), (b"", False)]
)
def test_recognised_by_their_beginning(tmp_path, data, expected):
    (tmp_path / "a").write_bytes(data)
    assert is_torch(Content(tmp_path / "a")) == expected


@pytest.mark.parametrize(
    "data", [ZIP, without_checksums(ZIP), LEGACY], ids=["zip", "bare zip", "legacy"]
)
def test_damaged_files(data):
    for raw in damaged(data):
        try:
            file = read_torch(raw)
            names = [(name, name) for name, place in file.places.items() if place.kind == "<f4"]
            layers = file.layers(names)
            file.with_layers(names, layers)
        except ValueError:
            continue
