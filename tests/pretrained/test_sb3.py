"""Stable-Baselines3's zip files: read, written back, and what is refused."""

import io
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from torch_by_hand import (
    Call,
    Name,
    damaged,
    random_arrays,
    sb3_settings,
    sb3_zip,
    state_dict,
    torch_zip,
    without_checksums,
)

from conqur.pretrained.format import Content
from conqur.pretrained.sb3 import StableBaselines3
from conqur.regressor import Architecture

SB3 = StableBaselines3()
MLP = {"0": (5, 4), "2": (2, 5)}
CNN = {"cnn.0": (32, 3, 8, 8), "cnn.2": (64, 32, 4, 4), "cnn.4": (64, 64, 3, 3)}
CNN |= {"linear.0": (9, 128)}


def policy(shapes, extractor=None, seed=0):
    """The arrays of a policy: two networks."""
    names = {f"features_extractor.{name}": shape for name, shape in (extractor or {}).items()}
    names |= {f"q_net.{name}": shape for name, shape in shapes.items()}
    both = [f"{net}.{name}" for net in ("q_net", "q_net_target") for name in names]
    return random_arrays(dict(zip(both, [*names.values()] * 2, strict=True)), seed)


def content(tmp_path, data):
    path = tmp_path / "agent.zip"
    path.write_bytes(data)
    return Content(path)


def images(**changes):
    space = sb3_settings()["observation_space"]
    return sb3_settings(
        observation_space=space | {"dtype": "uint8", "_shape": [3, 44, 36]}, **changes
    )


@pytest.mark.parametrize("version", ["1.0", "2.9.2"])
def test_a_perceptron(tmp_path, version):
    arrays = policy(MLP)
    settings = sb3_settings()
    if version == "1.0":  # gym's, whose spaces called it so
        settings["observation_space"] = {
            ":type:": "<class 'gym.spaces.box.Box'>", "dtype": "float32", "shape": [4]
        }  # fmt: skip
        settings["action_space"]["n"] = 2
    file = content(tmp_path, sb3_zip(state_dict(arrays), settings, version=version))
    assert SB3.recognises(file)
    network = SB3.read(file)
    assert network.architecture == Architecture("mlp", (4,), 2, (5,))
    assert (network.environment, network.preprocessing, network.format) == ("", "", "sb3")
    assert network.origin == {
        "algorithm": "dqn",
        "saved_by": f"stable-baselines3 {version}",
        "step": 1000,
        "discount": 0.99,
    }
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    hidden = np.maximum(arrays["q_net.q_net.0.weight"] @ x + arrays["q_net.q_net.0.bias"], 0)
    expected = arrays["q_net.q_net.2.weight"] @ hidden + arrays["q_net.q_net.2.bias"]
    np.testing.assert_allclose(network.q_values(jnp.asarray(x[None]))[0], expected, rtol=1e-5)


def test_a_network_of_images(tmp_path):
    arrays = policy({"0": (7, 9), "2": (2, 7)}, CNN)
    network = SB3.read(content(tmp_path, sb3_zip(state_dict(arrays), images())))
    assert network.architecture == Architecture("nature", (44, 36, 3), 2, (9, 7))
    assert network.preprocessing == "sb3"
    weight = arrays["q_net.features_extractor.cnn.0.weight"]
    found = network.regressor.body.convolutions[0].weight
    np.testing.assert_array_equal(found, weight.transpose(2, 3, 1, 0))


@pytest.mark.parametrize("shapes", [{"0": (2, 4)}, {"0": (3, 4), "2": (5, 3), "4": (2, 5)}])
def test_any_layers(tmp_path, shapes):
    file = content(tmp_path, sb3_zip(state_dict(policy(shapes))))
    network = SB3.read(file)
    assert network.architecture.hidden == tuple(shape[0] for shape in shapes.values())[:-1]
    assert SB3.write(file, network.regressor) == file.data


@pytest.mark.parametrize("data", [
    sb3_zip(state_dict(policy(MLP))),
    sb3_zip(without_checksums(state_dict(policy(MLP)))),
    sb3_zip(state_dict(policy({"0": (2, 9)}, CNN)), images()),
])  # fmt: skip
def test_only_the_online_network_is_written(tmp_path, data):
    file = content(tmp_path, data)
    network = SB3.read(file)
    assert SB3.write(file, network.regressor) == data
    doubled = jax.tree.map(lambda leaf: 2 * leaf, network.regressor)
    after = SB3.write(file, doubled)
    again = SB3.read(content(tmp_path, after))
    for one, other in zip(jax.tree.leaves(again.regressor), jax.tree.leaves(doubled), strict=True):
        np.testing.assert_array_equal(one, other)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(io.BytesIO(after)) as new:
        assert new.testzip() is None
        for name in set(old.namelist()) - {"policy.pth"}:
            assert new.read(name) == old.read(name)
        assert _of_target(new.read("policy.pth")) == _of_target(old.read("policy.pth"))


def _of_target(raw):
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        storages = [name for name in file.namelist() if "/data/" in name]
        return [_raw_entry(raw, file, name) for name in storages[len(storages) // 2 :]]


def _raw_entry(raw, file, name):
    info = file.getinfo(name)
    start = info.header_offset + 30 + len(name)
    return raw[start : start + info.file_size]


def test_a_network_with_other_layers_is_not_written(tmp_path):
    (tmp_path / "there").mkdir()
    file = content(tmp_path / "there", sb3_zip(state_dict(policy(MLP))))
    for shapes in ({"0": (6, 4), "2": (2, 6)}, {"0": (2, 4)}):
        other = SB3.read(content(tmp_path, sb3_zip(state_dict(policy(shapes))))).regressor
        with pytest.raises(ValueError, match="network to be written has other layers"):
            SB3.write(file, other)


def described(name, **changes):
    return sb3_settings(**{name: sb3_settings()[name] | changes})


ACTIVATIONS = "<class 'torch.nn.modules.activation."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (described("policy_class", __module__="stable_baselines3.ppo"), "only those of"),
        (described("policy_class", __module__="sb3_contrib.qrdqn.policies"), "only those of DQN"),
        (sb3_settings(policy_class=None), "lack 'policy_class'"),
        (sb3_settings(policy_kwargs=[]), "lack 'policy_kwargs'"),
        (sb3_settings(policy_kwargs={"activation_fn": f"{ACTIVATIONS}Tanh'>"}), "activation_fn = "),
        (sb3_settings(policy_kwargs={"normalize_images": False}), "normalize_images = False"),
        (sb3_settings(policy_kwargs={"dueling": True}), "dueling = True, which is not supported"),
        (
            sb3_settings(policy_kwargs={"features_extractor_class": "<class '__main__.Mine'>"}),
            "features_extractor_class = ",
        ),
        (
            sb3_settings(policy_kwargs={"features_extractor_kwargs": {"normalized_image": True}}),
            "features_extractor_kwargs = ",
        ),
        (described("observation_space", **{":type:": "gymnasium.spaces.dict.Dict"}), "only a Box"),
        (described("observation_space", _shape=None), "what shape observations have"),
        (described("observation_space", _shape=[-4]), "what shape observations have"),
        (described("observation_space", _shape=["4"]), "what shape observations have"),
        (described("observation_space", _shape=[5]), r"has shape \[4, 5\]"),
        (described("observation_space", _shape=[10**30]), "has shape"),
        (described("observation_space", dtype="uint8"), "bytes, which only a CnnPolicy scales"),
        (described("action_space", n=3), "other observations or actions than its network"),
    ],
)  # fmt: skip
def test_other_settings(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        SB3.read(content(tmp_path, sb3_zip(state_dict(policy(MLP)), settings)))


def test_settings_that_do_not_matter(tmp_path):
    kwargs = {
        ":type:": "<class 'dict'>",
        ":serialized:": "!",
        "net_arch": [5],
        "activation_fn": f"{ACTIVATIONS}ReLU'>",
        "optimizer_class": "<class 'torch.optim.rmsprop.RMSprop'>",
        "features_extractor_kwargs": {"features_dim": 9},
    }
    data = sb3_zip(state_dict(policy(MLP)), sb3_settings(policy_kwargs=kwargs))
    assert SB3.read(content(tmp_path, data)).architecture.hidden == (5,)


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        (policy(MLP) | {"q_net.norm.weight": np.zeros(3, np.float32)}, None, "other layers"),
        (policy({"0": (5, 4), "3": (2, 5)}), None, "other layers"),
        (random_arrays({"action_net": (2, 4)}), None, "lacks dense layers"),
        (policy({"0": (2, 9)}, CNN), None, "the observations are no images"),
        (policy({"0": (2, 9)}, CNN | {"linear.0": (9, 192)}), images(), "shape"),
        (
            policy({"0": (2, 9)}, CNN | {"cnn.0": (32, 4, 8, 8)}),
            images(),
            "other observations or actions",
        ),
        ({n: a * np.nan for n, a in policy(MLP).items()}, None, "no finite numbers"),
    ],
)
def test_other_networks(tmp_path, arrays, settings, message):
    with pytest.raises(ValueError, match=message):
        SB3.read(content(tmp_path, sb3_zip(state_dict(arrays), settings)))


def test_nothing_in_it_is_called(tmp_path):
    trace = tmp_path / "trace"
    root = {"q_net.q_net.0.weight": Call(Name("os", "system"), (f"touch {trace}",))}
    with pytest.raises(ValueError, match=r"names os\.system"):
        SB3.read(content(tmp_path, sb3_zip(torch_zip(root, {}))))
    assert not trace.exists()


def test_other_zip_files(tmp_path):
    compressed = sb3_zip(state_dict(policy(MLP)), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="is compressed"):
        SB3.read(content(tmp_path, compressed))
    nested = "[" * 100_000
    for settings in (b"{", b"[]", nested.encode(), b"\xff"):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w") as file:
            file.writestr("data", settings)
            file.writestr("policy.pth", b"")
        file = content(tmp_path, raw.getvalue())
        assert SB3.recognises(file)
        with pytest.raises(ValueError, match="its settings"):
            SB3.read(file)
    assert not SB3.recognises(content(tmp_path, state_dict(policy(MLP))))
    assert not SB3.recognises(content(tmp_path, b""))


@pytest.mark.parametrize("data", [
    sb3_zip(state_dict(policy(MLP))),
    without_checksums(sb3_zip(without_checksums(state_dict(policy(MLP))))),
], ids=["checksums", "none"])  # fmt: skip
def test_damaged_files(tmp_path, data):
    read = 0
    for raw in damaged(data):
        file = content(tmp_path, raw)
        try:
            network = SB3.read(file)
            assert SB3.write(file, network.regressor) == raw
            read += 1
        except ValueError:
            continue
    assert 0 < read < 250
