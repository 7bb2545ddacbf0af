"""State dicts and safetensors of people's own code: with a mapping, and obvious without one."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from torch_by_hand import damaged, random_arrays, state, state_dict, torch_zip, without_checksums

from conqur.pretrained.format import Content
from conqur.pretrained.mapped import Mapped
from conqur.regressor import Architecture

MAPPED = Mapped()
MLP = {"fc1": (6, 4), "fc2": (5, 6), "out": (2, 5)}
NATURE = {
    "net.0": (32, 4, 8, 8),
    "net.2": (64, 32, 4, 4),
    "net.4": (64, 64, 3, 3),
    "net.7": (3, 3136),
    "net.9": (6, 3),
}
MINATAR = {"conv": (16, 4, 3, 3), "fc_hidden": (8, 1024), "output": (6, 8)}


def content(tmp_path, data, mapping=None, name="network.pth"):
    path = tmp_path / name
    path.write_bytes(data)
    if mapping is not None:
        (tmp_path / f"{name}.json").write_text(json.dumps(mapping))
    return Content(path)


def leaves_equal(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def in_ours(arrays):
    """Dense layers in JAX's layout."""
    return {name: np.ascontiguousarray(array.T) for name, array in arrays.items()}


def test_natures_network_is_obvious(tmp_path):
    arrays = random_arrays(NATURE)
    file = content(tmp_path, state_dict(arrays))
    assert MAPPED.recognises(file)
    network = MAPPED.read(file)
    assert network.architecture == Architecture("nature", (84, 84, 4), 6, (3,))
    assert (network.environment, network.preprocessing, network.format) == ("", "", "mapped")
    first = network.regressor.body.layers[0].weight
    np.testing.assert_array_equal(first[581], arrays["net.7.weight"][:, 254])
    assert MAPPED.write(file, network.regressor) == file.data
    mapping = {
        "layers": list(NATURE),
        "body": "nature",
        "layout": "torch",
        "observation_shape": [84, 84, 4],
        "preprocessing": "sb3",
        "environment": "PongNoFrameskip-v4",
    }
    told = MAPPED.read(content(tmp_path, file.data, mapping))
    leaves_equal(told.regressor, network.regressor)
    assert told.architecture == network.architecture
    assert (told.environment, told.preprocessing) == ("PongNoFrameskip-v4", "sb3")


@pytest.mark.parametrize("form", ["torch", "safetensors", "torch within", "jax"])
def test_a_perceptron(tmp_path, form):
    arrays = random_arrays(MLP)
    mapping = {"layers": list(MLP), "environment": "CartPole-v1"}
    if form == "torch":
        data = state_dict(arrays)
    elif form == "torch within":
        root, storages = state(arrays)
        data = torch_zip({"model_state_dict": root, "epoch": 3}, storages)
        mapping["layers"] = [f"model_state_dict.{name}" for name in MLP]
    else:
        stored = in_ours(arrays) if form == "jax" else arrays
        data = safetensors.numpy.save(stored, metadata={"made by": "hand"})
        mapping |= {"layout": "jax"} if form == "jax" else {}
    file = content(tmp_path, data, mapping)
    assert MAPPED.recognises(file)
    network = MAPPED.read(file)
    assert network.architecture == Architecture("mlp", (4,), 2, (6, 5))
    assert network.environment == "CartPole-v1"
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    for name in MLP:
        x = arrays[f"{name}.weight"] @ x + arrays[f"{name}.bias"]
        x = x if name == "out" else np.maximum(x, 0)
    found = network.q_values(jnp.array([[1.0, -2.0, 0.5, 3.0]]))[0]
    np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-6)
    assert MAPPED.write(file, network.regressor) == data
    doubled = jax.tree.map(lambda leaf: 2 * leaf, network.regressor)
    after = content(tmp_path, MAPPED.write(file, doubled))
    leaves_equal(MAPPED.read(after).regressor, doubled)


def test_arrays_by_both_names(tmp_path):
    arrays = {"w": np.eye(2, 3, dtype=np.float32), "b": np.array([0.5, -1.0], np.float32)}
    mapping = {"layers": [{"weight": "w", "bias": "b"}], "observation_shape": [3, 1]}
    network = MAPPED.read(content(tmp_path, safetensors.numpy.save(arrays), mapping))
    assert network.architecture == Architecture("mlp", (3, 1), 2, ())
    found = network.q_values(jnp.array([[[1.0], [2.0], [3.0]]]))
    np.testing.assert_allclose(found, [[1.5, 1.0]])


def test_minatars_network(tmp_path):
    data = state_dict(random_arrays(MINATAR))
    mapping = {"layers": list(MINATAR), "body": "minatar"}
    file = content(tmp_path, data, mapping)
    network = MAPPED.read(file)
    assert network.architecture == Architecture("minatar", (10, 10, 4), 6, (8,))
    assert MAPPED.write(file, network.regressor) == data


def test_dopamines_network_in_jax_layout(tmp_path):
    shapes = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7744, 2), (2, 3)]
    rng, arrays = np.random.default_rng(0), {}
    for number, shape in enumerate(shapes):
        arrays[f"{number}.weight"] = rng.normal(size=shape).astype(np.float32)
        arrays[f"{number}.bias"] = rng.normal(size=shape[-1]).astype(np.float32)
    mapping = {"layers": list("01234"), "body": "nature-same", "layout": "jax"}
    file = content(tmp_path, safetensors.numpy.save(arrays), mapping)
    network = MAPPED.read(file)
    assert network.architecture == Architecture("nature-same", (84, 84, 4), 3, (2,))
    leaves_equal(network.regressor, list(arrays.values()))
    assert MAPPED.write(file, network.regressor) == file.data


def test_a_mapping_may_lie_elsewhere(tmp_path):
    file = content(tmp_path, state_dict(random_arrays(MLP)), {"layers": ["nothing"]})
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({"layers": list(MLP)}))
    assert Mapped(elsewhere).read(file).architecture.hidden == (6, 5)
    with pytest.raises(ValueError, match=r"its mapping missing\.json cannot be used: No such file"):
        Mapped(tmp_path / "missing.json").read(file)


@pytest.mark.parametrize(
    "shapes",
    [
        MLP,  # nobody knows what comes between dense layers
        NATURE | {"noise": (3, 3)},
        {f"{net}.{name}": NATURE[name] for net in ("online", "target") for name in NATURE},
        dict(list(NATURE.items())[:3]),
        MINATAR,
    ],
)  # fmt: skip
def test_what_is_not_obvious(tmp_path, shapes):
    arrays = random_arrays(shapes)
    if "noise" in shapes:
        arrays["noise.sigma"] = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"write a mapping file network\.pth\.json beside it"):
        MAPPED.read(content(tmp_path, state_dict(arrays)))


def test_the_obvious_has_to_fit(tmp_path):
    shapes = NATURE | {"net.0": (32, 4, 5, 5)}
    with pytest.raises(ValueError, match="weight of its layer 1 has shape"):
        MAPPED.read(content(tmp_path, state_dict(random_arrays(shapes))))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([], "an object with a list 'layers'"),
        ({}, "an object with a list 'layers'"),
        ({"layers": "fc1"}, "an object with a list 'layers'"),
        ({"layers": []}, "at least one layer"),
        ({"layers": ["fc1", "fc1"]}, "each array only once"),
        ({"layers": [3]}, "each of 'layers' must be a name"),
        ({"layers": [{"weight": "a"}]}, "each of 'layers' must be a name"),
        ({"layers": [{"weight": "a", "bias": 1}]}, "each of 'layers' must be a name"),
        ({"layers": ["fc1"], "activation": "tanh"}, "knows no 'activation'"),
        ({"layers": ["fc1"], "body": "resnet"}, "'body' must be one of nature, .* got 'resnet'"),
        ({"layers": ["fc1"], "body": 1}, "'body' must be a word"),
        ({"layers": ["fc1"], "layout": "tf"}, "'layout' must be one of torch, jax, got 'tf'"),
        ({"layers": ["fc1"], "preprocessing": "x"}, "there is no preprocessing 'x'"),
        ({"layers": ["fc1"], "environment": []}, "'environment' must be a word"),
        ({"layers": ["fc1"], "observation_shape": 4}, "must be a list of whole numbers"),
        ({"layers": ["fc1"], "observation_shape": [0]}, "must be a list of whole numbers"),
        ({"layers": ["fc1"], "observation_shape": [1.5]}, "must be a list of whole numbers"),
    ],
)
def test_other_mappings(tmp_path, mapping, message):
    file = content(tmp_path, state_dict(random_arrays(MLP)), mapping)
    with pytest.raises(ValueError, match=rf"its mapping .* cannot be used: .*{message}"):
        MAPPED.read(file)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, " " * 2**21, "\0"])
def test_mappings_that_are_none(tmp_path, text):
    file = content(tmp_path, state_dict(random_arrays(MLP)), {})
    (tmp_path / "network.pth.json").write_text(text)
    with pytest.raises(ValueError, match=r"mapping network\.pth\.json cannot be used"):
        MAPPED.read(file)


@pytest.mark.parametrize(
    ("shapes", "mapping", "message"),
    [
        (MLP, {"layers": ["fc1", "fc3"]}, "lacks the array 'fc3.weight'"),
        (MLP, {"layers": ["fc2", "fc1"]}, r"weight of its layer 2 has shape \[4, 6\]"),
        (MLP, {"layers": list(MLP), "body": "nature"}, "lacks the convolutions"),
        (MLP, {"layers": list(MLP), "observation_shape": [3]}, "weight of its layer 1 has shape"),
        (NATURE, {"layers": list(NATURE), "body": "mlp"}, "'body' says mlp"),
        (NATURE, {"layers": list(NATURE), "body": "minatar"}, "it has 5 layers"),
        (
            NATURE,
            {"layers": list(NATURE), "observation_shape": [84, 84, 3]},
            r"observations of shape \[84, 84, 4\], not \[84, 84, 3\]",
        ),
        (
            NATURE,
            {"layers": list(NATURE), "observation_shape": [84]},
            r"observations of shape \[84, 84, 4\], not \[84\]",
        ),
    ],
)
def test_mappings_that_do_not_fit(tmp_path, shapes, mapping, message):
    with pytest.raises(ValueError, match=message):
        MAPPED.read(content(tmp_path, state_dict(random_arrays(shapes)), mapping))


def test_other_networks_are_not_written(tmp_path):
    file = content(tmp_path, state_dict(random_arrays(MLP)), {"layers": list(MLP)})
    other = MAPPED.read(content(tmp_path, file.data, {"layers": ["out"]})).regressor
    file = content(tmp_path, file.data, {"layers": list(MLP)})
    with pytest.raises(ValueError, match="the network to be written has other layers"):
        MAPPED.write(file, other)


def test_recognised(tmp_path):
    good = safetensors.numpy.save(random_arrays(MLP))
    assert MAPPED.recognises(content(tmp_path, good))
    for data in (b"", b"\x01", b"\xff" * 7 + b"\x7f{", b"{" * 20):
        assert not MAPPED.recognises(content(tmp_path, data))


@pytest.mark.parametrize("kind", [np.float16, np.int32, np.uint8])
def test_other_kinds_of_numbers(tmp_path, kind):
    arrays = {"a.weight": np.ones((2, 2), kind), "a.bias": np.ones(2, kind)}
    file = content(tmp_path, safetensors.numpy.save(arrays), {"layers": ["a"]})
    with pytest.raises(ValueError, match="convert them to float32"):
        MAPPED.read(file)


@pytest.mark.parametrize("data", [
    without_checksums(state_dict(random_arrays(MLP))), safetensors.numpy.save(random_arrays(MLP))
], ids=["torch", "safetensors"])  # fmt: skip
def test_damaged_files(tmp_path, data):
    read = 0
    for raw in damaged(data):
        file = content(tmp_path, raw, {"layers": list(MLP)})
        MAPPED.recognises(file)
        try:
            network = MAPPED.read(file)
            assert MAPPED.write(file, network.regressor) == raw
            read += 1
        except ValueError:
            continue
    assert 0 < read < 250
