"""DQN and Double DQN with Nature's network against the same in plain PyTorch."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from conqur.dqn import DQN
from conqur.environments import Transitions
from conqur.regressor import Architecture, initial_regressor

functional = torch.nn.functional

B, A = 5, 6


class NatureNetwork(torch.nn.Module):
    """The usual network; images [B, 4, 84, 84], weights taken over from a regressor."""

    def __init__(self, regressor, *, same):
        super().__init__()
        self.same = same
        flat = 64 * 11 * 11 if same else 64 * 7 * 7
        self.convolutions = torch.nn.ModuleList(
            [
                torch.nn.Conv2d(4, 32, 8, stride=4),
                torch.nn.Conv2d(32, 64, 4, stride=2),
                torch.nn.Conv2d(64, 64, 3, stride=1),
            ]
        )
        self.hidden = torch.nn.Linear(flat, 512)
        self.output = torch.nn.Linear(512, A)
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), as_torch(regressor), strict=True):
                assert parameter.shape == value.shape
                parameter.copy_(value)

    def forward(self, images):
        x = images.float() / 255
        for convolution in self.convolutions:
            if self.same:
                x = pad_as_tensorflow(x, convolution.kernel_size[0], convolution.stride[0])
            x = functional.relu(convolution(x))
        return self.output(functional.relu(self.hidden(x.flatten(1))))


def pad_as_tensorflow(x, size, stride):
    """So that one output stands for every `stride` inputs; an odd one goes to the far side."""
    side = x.shape[-1]
    over = side % stride
    total = max(size - (over if over else stride), 0)
    near, far = total // 2, total - total // 2
    return functional.pad(x, (near, far, near, far))


def as_torch(regressor):
    """Weights, or gradients with the same structure, in the order and layout of torch."""
    values = []
    for convolution in regressor.body.convolutions:
        values += [np.transpose(convolution.weight, (3, 2, 0, 1)), convolution.bias]
    (layer,) = regressor.body.layers
    side = int(np.sqrt(layer.weight.shape[0] / 64))
    by_place = np.reshape(layer.weight, (side, side, 64, 512))
    values += [np.transpose(by_place, (3, 2, 0, 1)).reshape(512, -1), layer.bias]
    values += [np.transpose(regressor.head.weight), regressor.head.bias]
    return [torch.tensor(np.ascontiguousarray(value)) for value in values]


def drawn():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, B, 84, 84, 4), dtype=np.uint8)
    return Transitions(
        images[0],
        rng.integers(0, A, B),
        np.array([1.0, -2.5, 0.0, 0.3, 4.0], np.float32),
        images[1],
        np.array([False, True, False, False, True]),
    )


@pytest.mark.parametrize("body", ["nature", "nature-same"])
@pytest.mark.parametrize("double", [False, True])
def test_loss_and_gradients_equal_those_of_torch(body, double):
    architecture = Architecture(body, (84, 84, 4), A)
    regressors = [initial_regressor(jax.random.key(seed), architecture) for seed in (0, 1)]
    online, target = (NatureNetwork(r, same=body == "nature-same") for r in regressors)
    batch = drawn()
    states, successors = (
        torch.tensor(images).permute(0, 3, 1, 2) for images in (batch.states, batch.successors)
    )
    with torch.no_grad():
        future = target(successors)
        choices = online(successors) if double else future
        value = future.gather(1, choices.argmax(1, keepdim=True))[:, 0]
        reward, alive = torch.tensor(batch.rewards), 1 - torch.tensor(batch.terminal).float()
        labels = reward.clamp(-1, 1) + 0.99 * alive * value
    q_values = online(states)
    loss = functional.smooth_l1_loss(
        q_values.gather(1, torch.tensor(batch.actions)[:, None])[:, 0], labels
    )
    loss.backward()

    algorithm = DQN(
        optimizer=optax.sgd(1.0),
        double=double,
        batch_size=B,
        discount=0.99,
        huber=1.0,
        clip_rewards=True,
        target_every=100,
        halfway=1.0,
        penalised=False,
    )
    agent = algorithm.begin(regressors[0], jnp.zeros((84, 84, 4), jnp.uint8))
    agent = eqx.tree_at(lambda agent: agent.target, agent, regressors[1])
    given = Transitions(*map(jnp.asarray, batch))
    np.testing.assert_allclose(
        agent.theta(given.states), q_values.detach().numpy(), rtol=1e-3, atol=1e-5
    )
    after, found = jax.jit(algorithm.update)(agent, given, jax.random.key(0), penalty_weight=0.0)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    gradients = jax.tree.map(lambda old, new: np.asarray(old - new), agent.theta, after.theta)
    for gradient, parameter in zip(as_torch(gradients), online.parameters(), strict=True):
        expected = parameter.grad.numpy()
        assert np.abs(expected).max() > 1e-4
        np.testing.assert_allclose(gradient, expected, rtol=1e-2, atol=1e-6)
