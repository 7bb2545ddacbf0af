"""Networks of other people's own code, saved by torch in all the ways it can."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import torch

from conqur.pretrained.format import Content
from conqur.pretrained.mapped import Mapped

nn = torch.nn
relu = nn.functional.relu

MAPPED = Mapped()


class Named(nn.Module):
    """Nature's network with a name for each layer."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.fc1, self.fc2 = nn.Linear(3136, 32), nn.Linear(32, 6)

    def forward(self, x):
        x = relu(self.conv3(relu(self.conv2(relu(self.conv1(x / 255))))))
        return self.fc2(relu(self.fc1(x.flatten(1))))


LAYERS = ["conv1", "conv2", "conv3", "fc1", "fc2"]


def plain(made, path):
    torch.save(made.state_dict(), path)


def legacy(made, path):
    torch.save(made.state_dict(), path, _use_new_zipfile_serialization=False)


def without_checksums(made, path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(made.state_dict(), path)
    finally:
        torch.serialization.set_crc32_options(True)


def channels_last(made, path):
    torch.save(made.to(memory_format=torch.channels_last).state_dict(), path)


def in_one_storage(made, path):
    arrays = made.state_dict()
    flat = torch.cat([array.flatten() for array in arrays.values()])
    parts = torch.split(flat, [array.numel() for array in arrays.values()])
    views = {
        name: part.view(array.shape)
        for (name, array), part in zip(arrays.items(), parts, strict=True)
    }
    torch.save(views, path)


def checkpoint(made, path):
    optimizer = torch.optim.Adam(made.parameters())
    made(torch.ones(1, 4, 84, 84)).sum().backward()
    optimizer.step()
    state = {"model": made.state_dict(), "epoch": 3, "loss": np.float64(0.5)}
    state |= {"optimizer": optimizer.state_dict(), "parameter": nn.Parameter(torch.ones(2))}
    torch.save(state, path)
    path.with_name(path.name + ".json").write_text(
        json.dumps({"layers": [f"model.{name}" for name in LAYERS]})
    )


def tensors(made, path):
    from safetensors.torch import save_file

    save_file(made.state_dict(), path)
    path.with_name(path.name + ".json").write_text(json.dumps({"layers": LAYERS}))


def read_again(path):
    try:
        state = torch.load(path, weights_only=True)
    except Exception:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return state.get("model", state)


q_values = jax.jit(lambda regressor, seen: regressor(seen))


def changed(regressor, seen):
    """Another network, with about the same mean value of each action, so that all are chosen."""
    rng = np.random.default_rng(1)
    noisy = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.02 * rng.normal(size=leaf.shape), jnp.float32), regressor
    )
    means = q_values(noisy, seen).mean(0)
    return eqx.tree_at(lambda r: r.head.bias, noisy, noisy.head.bias - means)


WAYS = [plain, legacy, without_checksums, channels_last, in_one_storage, tensors]


@pytest.mark.parametrize("save", WAYS, ids=lambda f: f.__name__)
def test_the_same_values_there_and_back(tmp_path, save):
    torch.manual_seed(0)
    made, path = Named(), tmp_path / "network.pth"
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84)).astype(np.uint8)
    save(made, path)
    file = Content(path)
    assert MAPPED.recognises(file)
    network = MAPPED.read(file)
    ours = jnp.asarray(images.transpose(0, 2, 3, 1))
    check(made, images, q_values(network.regressor, ours))
    assert MAPPED.write(file, network.regressor) == file.data

    other = changed(network.regressor, ours)
    path.write_bytes(MAPPED.write(file, other))
    fresh = Named()
    fresh.load_state_dict(read_again(path))
    check(fresh, images, q_values(other, ours))


def test_a_checkpoint_with_more_in_it(tmp_path):
    made, path = Named(), tmp_path / "network.pth"
    checkpoint(made, path)
    network = MAPPED.read(Content(path))
    np.testing.assert_array_equal(network.head.weight, made.fc2.weight.detach().numpy().T)
    assert MAPPED.write(Content(path), network.regressor) == path.read_bytes()


def test_a_whole_module_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "network.pth")
    with pytest.raises(ValueError, match=r"names torch\.nn.*Linear: save only the state_dict"):
        MAPPED.read(Content(tmp_path / "network.pth"))


def check(made, seen, found):
    with torch.no_grad():
        expected = made(torch.as_tensor(seen)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.argmax(found, 1), expected.argmax(1))
