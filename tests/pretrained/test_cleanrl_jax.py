import struct
import tracemalloc

import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import pytest
from foreign_networks import (
    answers,
    broken,
    dense_layers,
    images,
    nature_layers,
    q_values,
    same_weights,
    weight_spans,
)

from conqur.pretrained.cleanrl_jax import CleanRLJax
from conqur.pretrained.format import Content
from conqur.regressor import Architecture

FORMAT = CleanRLJax()


def short(text):
    return bytes([0xA0 + len(text)]) + text.encode()


def array_bytes(array, name="float32", shape=None):
    """An array as flax packs it, byte by byte: shape, type and entries, as extension 1."""
    shape = array.shape if shape is None else shape
    sides = b"".join(b"\xcd" + struct.pack(">H", side) for side in shape)
    raw = array.tobytes()
    message = b"\x93" + bytes([0x90 + len(shape)]) + sides + short(name)
    message += b"\xc6" + struct.pack(">I", len(raw)) + raw
    return b"\xc9" + struct.pack(">I", len(message)) + b"\x01" + message


def file_bytes(layers, names=None):
    """A file by formula."""
    count = [sum(weight.ndim == rank for weight, _ in layers) for rank in (4, 2)]
    names = names or [f"Conv_{k}" for k in range(count[0])] + [
        f"Dense_{k}" for k in range(count[1])
    ]
    data = b"\x81" + short("params") + bytes([0x80 + len(layers)])
    for name, (weight, bias) in zip(names, layers, strict=True):
        data += short(name) + b"\x82" + short("kernel") + array_bytes(weight)
        data += short("bias") + array_bytes(bias)
    return data


def content(tmp_path, data):
    path = tmp_path / "dqn_jax.cleanrl_model"
    path.write_bytes(data)
    return Content(path)


CONTROL = dense_layers((4, 12, 8, 2))
NATURE = nature_layers("VALID")


def test_the_writer_here_writes_what_msgpack_reads():
    found = msgpack.unpackb(file_bytes(CONTROL))["params"]
    assert sorted(found) == ["Dense_0", "Dense_1", "Dense_2"]
    code, message = found["Dense_2"]["bias"]
    assert (code, msgpack.unpackb(message)) == (1, [[2], "float32", CONTROL[2][1].tobytes()])


def test_a_network_for_control(tmp_path):
    seen = content(tmp_path, file_bytes(CONTROL))
    assert FORMAT.recognises(seen)
    network = FORMAT.read(seen)
    assert network.architecture == Architecture("mlp", (4,), 2, (12, 8))
    assert (network.format, network.preprocessing, network.environment) == ("cleanrl-jax", "", "")
    assert same_weights(network.regressor, CONTROL)
    observations = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    expected = q_values(CONTROL, observations)
    np.testing.assert_allclose(network.q_values(jnp.asarray(observations)), expected, atol=1e-5)


def test_a_network_for_atari(tmp_path):
    network = FORMAT.read(content(tmp_path, file_bytes(NATURE)))
    assert network.architecture == Architecture("nature", (84, 84, 4), 6, (8,))
    assert network.preprocessing == "cleanrl"
    assert same_weights(network.regressor, NATURE)
    found = answers(network.regressor, images())
    np.testing.assert_allclose(found, q_values(NATURE, images()), atol=1e-5)


def test_layers_are_taken_by_number_and_not_by_place(tmp_path):
    layers = dense_layers((3, *[5] * 10, 2))
    names = [f"Dense_{k}" for k in range(11)]
    order = np.random.default_rng(0).permutation(11)
    data = file_bytes([layers[k] for k in order], [names[k] for k in order])
    assert same_weights(FORMAT.read(content(tmp_path, data)).regressor, layers)


@pytest.mark.parametrize("layers", [CONTROL, NATURE], ids=["control", "atari"])
def test_a_file_is_written_in_place(tmp_path, layers):
    data = file_bytes(layers)
    seen = content(tmp_path, data)
    regressor = FORMAT.read(seen).regressor
    assert FORMAT.write(seen, regressor) == data
    other = jax.tree.map(lambda leaf: -2 * leaf, regressor)
    doubled = [(-2 * weight, -2 * bias) for weight, bias in layers]
    assert FORMAT.write(seen, other) == file_bytes(doubled)
    with pytest.raises(ValueError, match="another architecture"):
        FORMAT.write(
            seen, FORMAT.read(content(tmp_path, file_bytes(dense_layers((4, 2, 2))))).regressor
        )


def with_array(packed):
    """A small network whose last bias is packed otherwise."""
    layers = dense_layers((4, 3, 2))
    data = file_bytes(layers)
    return data.replace(array_bytes(layers[1][1]), packed)


def nested(depth):
    return b"\x81\xa6params" + b"\x81\xa1a" * depth + b"\x01"


TWO = np.float32([1, 2])
HOSTILE = {
    "nothing more": (b"\x81\xa6params", "broken"),
    "cut": (file_bytes(CONTROL)[:-1], "broken"),
    "more behind": (file_bytes(CONTROL) + b"\x01", "something else"),
    "another map": (b"\x82\xa6params\x80\xa1x\x80", "something else"),
    "no layers": (b"\x81\xa6params\x80", "no layers"),
    "a number": (b"\x81\xa6params\x07", "no layers"),
    "deep": (nested(500), "nested deeper"),
    "deep lists": (b"\x81\xa6params" + b"\x91" * 5000 + b"\x01", "broken"),
    "a long map": (b"\x81\xa6params\xdf\xff\xff\xff\xff", "broken"),
    "a long list": (b"\x81\xa6params\xdd\xff\xff\xff\xff", "broken"),
    "many long lists": (b"\x81\xa6params" + b"\xdd\x00\x00\x40\x00" * 1000, "broken"),
    "keys that are numbers": (b"\x81\xa6params\x81\x01\x80", "unusual keys"),
    "one key twice": (b"\x81\xa6params\x82\xa1a\x80\xa1a\x80", "unusual keys"),
    "no text": (b"\x81\xa6params\x81\xa2\xff\xfe\x80", "broken"),
    "other layers": (
        file_bytes(CONTROL, ["Dense_0", "Dense_1", "LayerNorm_0"]),
        "part 'LayerNorm_0'",
    ),
    "a layer of numbers": (b"\x81\xa6params\x81\xa7Dense_0\x05", "other parts"),
    "arrays of numbers": (
        b"\x81\xa6params\x81\xa7Dense_0\x82\xa6kernel\x05\xa4bias\x05",
        "no arrays",
    ),
    "no bias": (b"\x81\xa6params\x81\xa7Dense_0\x81\xa6kernel\x05", "other parts"),
    "half precision": (with_array(array_bytes(TWO, "float16")), "type 'float16'"),
    "objects": (with_array(array_bytes(TWO, "object")), "type 'object'"),
    "too few entries": (with_array(array_bytes(TWO, shape=(3,))), r"shape \[3\] has 8 bytes"),
    "empty": (with_array(array_bytes(TWO, shape=(0,))), "shape is none"),
    "many axes": (with_array(array_bytes(TWO, shape=(2, *[1] * 12))), "shape is none"),
    "another extension": (with_array(b"\xc7\x01\x05a"), "no arrays"),
    "no array within": (with_array(b"\xc7\x01\x01\x05"), "array that is none"),
    "a broken one within": (with_array(b"\xc7\x01\x01\xdd"), "broken"),
    "not a number": (with_array(array_bytes(np.float32([0, np.nan]))), "no finite numbers"),
    "other widths": (file_bytes([*dense_layers((4, 3)), *dense_layers((4, 2))]), "has shape"),
    "distributions": (file_bytes(nature_layers("VALID", actions=204)), "204 outputs"),
    "another padding": (file_bytes(nature_layers("SAME")), r"has shape \[7744, 8\]"),
    "more layers": (file_bytes([*NATURE, *dense_layers((6, 4))]), "3 dense layers"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_sentence(tmp_path, kind):
    data, words = HOSTILE[kind]
    with pytest.raises(ValueError, match=words) as caught:
        FORMAT.read(content(tmp_path, data))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_promised_entries_take_no_memory(tmp_path):
    """Lists within lists, each with as many entries as the file has bytes, as it says."""
    data = b"\x81\xa6params" + b"\xdd\x00\x00\x13\x88" * 1000
    assert len(data) >= 0x1388
    seen = content(tmp_path, data)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="broken"):
            FORMAT.read(seen)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_other_files_are_not_recognised(tmp_path):
    for data in (b"", b"PK\x03\x04", b"\x80\x04}", b"\x81\xa5param", b"\x82\xadmodel_weights"):
        assert not FORMAT.recognises(content(tmp_path, data))


def test_broken_files_are_refused_or_harmless(tmp_path):
    data = file_bytes(CONTROL)
    read = 0
    for copy in broken(data, 250, keep=weight_spans(data, CONTROL)):
        try:
            network = FORMAT.read(content(tmp_path, copy))
        except ValueError:
            continue
        read += 1
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network.regressor))
    assert read < 50
