"""Pytrees to named arrays and back, bit for bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conqur.runs import RunDirectory, flatten, unflatten


def example():
    mlp = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    params = eqx.filter(mlp, eqx.is_array)
    return {
        "params": params,
        "optimiser": optax.adam(1e-3).init(params),
        "flags": np.array([True, False]),
        "frame": np.arange(6, dtype=np.uint8).reshape(2, 3).T,
        "half": jnp.array([0.1, jnp.nan, -0.0], jnp.bfloat16),
        "scalar": jnp.float32(3),
        "empty": np.zeros((0, 2), np.float64),
        "none": None,
    }


def blank(tree):
    return jax.tree.map(
        lambda leaf: (jnp if isinstance(leaf, jax.Array) else np).zeros_like(leaf), tree
    )


def same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert isinstance(one, jax.Array) == isinstance(other, jax.Array)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_through_a_file_and_back(tmp_path):
    tree = example()
    arrays = flatten(tree)
    assert {"params/layers/0/weight", "optimiser/0/count", "flags", "scalar"} < arrays.keys()
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.save(1, arrays)
        checkpoint = run.load()
    assert checkpoint.step == 1
    back = unflatten(blank(tree), checkpoint.arrays)
    same(back, tree)
    back["frame"][0] = 9  # writable, and its own
    same(unflatten(blank(tree), checkpoint.arrays), tree)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ],
)
def test_every_dtype_survives(tmp_path, dtype, fast_disk):
    array = np.arange(12).reshape(3, 4).astype(jnp.dtype(dtype))
    arrays = {"c": array, "f": np.asfortranarray(array), "part": array[:, ::2], "one": array[1, 1]}
    arrays = flatten(arrays)
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.save(1, arrays)
        same(run.load().arrays, arrays)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    with RunDirectory.create(tmp_path_factory.mktemp("bits") / "run", {}) as run:
        yield run


@settings(max_examples=30)
@given(data=st.binary(min_size=4, max_size=64))
def test_any_bits_survive(long_run, data):
    array = np.frombuffer(data[: len(data) // 4 * 4], np.float32)
    total = long_run.saved_rows + len(array)
    new = {"y": array}
    long_run.save(total, {"x": array}, appended=new, total_rows=total, keep_rows=len(array))
    checkpoint = long_run.load()
    assert checkpoint.arrays["x"].tobytes() == array.tobytes()
    ring = checkpoint.rings(len(array))["y"]
    assert np.roll(ring, -total % len(array)).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"a": 1}, "tree holds a int at 'a'; make it an array"),
        ({"a": [np.zeros(1), "x"]}, "tree holds a str at 'a/1'; make it an array"),
        ({"k": jax.random.key(0)}, "tree holds a random key at 'k'; keep jax.random.key_data"),
        ({"o": np.array([None])}, "tree holds Python objects at 'o'"),
        ({"w": jnp.asarray(1.0)}, "tree holds a weakly typed array at 'w'"),
        ({"a": {"b": np.zeros(1)}, "a/b": np.zeros(1)}, "tree holds two arrays named 'a/b'"),
    ],
)
def test_what_a_file_would_not_give_back_is_refused(tree, words):
    with pytest.raises(ValueError, match=words):
        flatten(tree)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "arrays lacks 'a': it was saved from another kind of state"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, "arrays holds 'b', which the template"),
        ({"a": np.zeros(3)}, r"arrays holds 'a' with shape \[3\], but the template's has \[2\]"),
        ({"a": np.zeros(2, np.float32)}, "'a' with dtype float32, but the template's has float64"),
    ],
)
def test_another_state_than_the_template_is_refused(arrays, words):
    with pytest.raises(ValueError, match=words):
        unflatten({"a": np.zeros(2)}, arrays)


def test_a_template_of_shapes_alone():
    tree = {"a": jnp.arange(3)}
    same(unflatten(jax.eval_shape(lambda: tree), flatten(tree)), tree)
