"""CleanRL's torch files: read, written back, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from torch_by_hand import (
    damaged,
    random_arrays,
    state,
    state_dict,
    torch_legacy,
    torch_zip,
    without_checksums,
)

from conqur.pretrained.cleanrl_torch import CleanRLTorch
from conqur.pretrained.format import Content
from conqur.regressor import Architecture

CLEANRL = CleanRLTorch()
MLP = {"network.0": (6, 4), "network.2": (5, 6), "network.4": (2, 5)}
ATARI = {
    "network.0": (32, 4, 8, 8),
    "network.2": (64, 32, 4, 4),
    "network.4": (64, 64, 3, 3),
    "network.7": (3, 3136),
    "network.9": (6, 3),
}


def content(tmp_path, data):
    path = tmp_path / "dqn.cleanrl_model"
    path.write_bytes(data)
    return Content(path)


def test_a_perceptron(tmp_path):
    arrays = random_arrays(MLP)
    file = content(tmp_path, state_dict(arrays, folder="dqn"))
    assert CLEANRL.recognises(file)
    network = CLEANRL.read(file)
    assert network.architecture == Architecture("mlp", (4,), 2, (6, 5))
    assert (network.environment, network.preprocessing) == ("", "")
    assert network.format == CLEANRL.name == "cleanrl-torch"
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    for index in (0, 2, 4):
        x = arrays[f"network.{index}.weight"] @ x + arrays[f"network.{index}.bias"]
        x = np.maximum(x, 0) if index < 4 else x
    seen = jnp.array([[1.0, -2.0, 0.5, 3.0]])
    np.testing.assert_allclose(network.q_values(seen)[0], x, rtol=1e-5, atol=1e-6)


def test_a_network_of_images_and_its_way_back(tmp_path):
    arrays = random_arrays(ATARI)
    file = content(tmp_path, state_dict(arrays))
    assert CLEANRL.recognises(file)
    network = CLEANRL.read(file)
    assert network.architecture == Architecture("nature", (84, 84, 4), 6, (3,))
    assert network.preprocessing == "cleanrl"
    # Place (1, 2) of channel 5: row (1 · 7 + 2) · 64 + 5 here, column 5 · 49 + 1 · 7 + 2 there.
    first = network.regressor.body.layers[0].weight
    np.testing.assert_array_equal(first[581], arrays["network.7.weight"][:, 254])
    assert CLEANRL.write(file, network.regressor) == file.data
    halved = jax.tree.map(lambda leaf: leaf / 2, network.regressor)
    halves = {name: array / 2 for name, array in arrays.items()}
    assert CLEANRL.write(file, halved) == state_dict(halves)


@pytest.mark.parametrize("legacy", [False, True])
def test_written_back(tmp_path, legacy):
    arrays = random_arrays(MLP)
    if legacy:
        sizes = {str(i): 4 for i in range(6)}
        data = torch_legacy(*state(arrays, legacy=True), sizes=sizes)
    else:
        data = without_checksums(state_dict(arrays))
    file = content(tmp_path, data)
    network = CLEANRL.read(file)
    assert CLEANRL.write(file, network.regressor) == data
    other = CLEANRL.read(content(tmp_path, state_dict(random_arrays(MLP, seed=1)))).regressor
    after = CLEANRL.read(content(tmp_path, CLEANRL.write(file, other))).regressor
    for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("other", [{"network.0": (2, 4)}, ATARI, MLP | {"network.4": (3, 5)}])
def test_other_networks_are_not_written(tmp_path, other):
    from conqur.pretrained.assembling import from_torch, nature, perceptron

    arrays = list(random_arrays(other).values())
    convolutions, layers = from_torch(list(zip(arrays[::2], arrays[1::2], strict=True)))
    if convolutions:
        regressor, _ = nature(convolutions, layers, same=False)
    else:
        regressor, _ = perceptron(layers)
    with pytest.raises(ValueError, match="the network to be written has other layers"):
        CLEANRL.write(content(tmp_path, state_dict(random_arrays(MLP))), regressor)


def test_distributions_are_refused(tmp_path):
    root, storages = state(random_arrays(ATARI))
    file = content(tmp_path, torch_zip({"model_weights": root, "args": {"n_atoms": 51}}, storages))
    assert CLEANRL.recognises(file)
    with pytest.raises(ValueError, match="a C51 agent"):
        CLEANRL.read(file)


@pytest.mark.parametrize(
    "shapes",
    [
        {"net.0": (6, 4), "net.2": (5, 6), "net.4": (2, 5)},
        {"network.0.conv": (16, 4, 3, 3)},
        MLP | {"network.6": (2, 2)},
    ],
)
def test_other_state_dicts(tmp_path, shapes):
    file = content(tmp_path, state_dict(random_arrays(shapes)))
    assert not CLEANRL.recognises(file)
    with pytest.raises(ValueError, match="not those of CleanRL's dqn"):
        CLEANRL.read(file)


def test_a_mapping_file_comes_first(tmp_path):
    file = content(tmp_path, state_dict(random_arrays(MLP)))
    assert CLEANRL.recognises(file)
    (tmp_path / "dqn.cleanrl_model.json").write_text("{}")
    assert not CLEANRL.recognises(file)


OTHERS = [
    b"",
    b"PK\x03\x04".ljust(26) + b"\x0a\x00\x00\x00a/data.pkl",
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j",
]


@pytest.mark.parametrize("data", OTHERS)
def test_other_files(tmp_path, data):
    file = content(tmp_path, data)
    assert not CLEANRL.recognises(file)
    with pytest.raises(ValueError, match=r"torch\.save did not write it|zip file"):
        CLEANRL.read(file)


def test_damaged_files(tmp_path):
    good = without_checksums(state_dict(random_arrays(MLP)))
    read = 0
    for raw in damaged(good):
        file = content(tmp_path, raw)
        CLEANRL.recognises(file)
        try:
            network = CLEANRL.read(file)
            assert CLEANRL.write(file, network.regressor) == raw
            read += 1
        except ValueError:
            continue
    assert 0 < read < 250
