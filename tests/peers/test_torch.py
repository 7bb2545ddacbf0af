"""The penalty and the loss inside someone's own PyTorch training loop."""

import numpy as np
import pytest
import torch

import conqur

RNG = np.random.default_rng(0)
Q_VALUES = RNG.normal(size=(6, 4)).astype(np.float32)
ASSIGNED = RNG.integers(0, 4, 6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_penalty_and_its_gradient_equal_jax(dtype, margin):
    import jax
    import jax.numpy as jnp

    q_values = torch.tensor(Q_VALUES, requires_grad=True)
    penalties = conqur.penalty(q_values, torch.tensor(ASSIGNED).to(dtype), margin=margin)
    assert isinstance(penalties, torch.Tensor)
    penalties.sum().backward()

    def total(q):
        return conqur.penalty(q, jnp.asarray(ASSIGNED), margin=margin).sum()

    expected, gradient = jax.value_and_grad(total)(jnp.asarray(Q_VALUES))
    np.testing.assert_allclose(penalties.sum().item(), expected, rtol=1e-5)
    np.testing.assert_allclose(q_values.grad.numpy(), gradient, rtol=1e-5)


def test_numpy_torch_and_jax_agree_on_the_loss():
    import jax.numpy as jnp

    arguments = (Q_VALUES, ASSIGNED, RNG.normal(size=6).astype(np.float32), Q_VALUES[::-1].copy(),
                 ASSIGNED)  # fmt: skip
    for settings in ({}, {"huber": 0.5}, {"over_actions": "mean", "margin": 0.1}):
        losses = [
            float(conqur.penalised_loss(*map(to, arguments), penalty_weight=0.7, **settings))
            for to in (np.asarray, jnp.asarray, torch.tensor)
        ]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_one_line_in_a_pytorch_loop_teaches_the_assigned_actions():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    states, successors = torch.randn(64, 3), torch.randn(64, 3)
    actions, assigned = torch.randint(0, 4, (64,)), torch.randint(0, 4, (64,))
    reward, terminal = torch.randn(64), torch.rand(64) < 0.1
    with torch.no_grad():
        labels = conqur.q_labels(reward, terminal, network(successors), assigned, discount=0.9)
        before = conqur.penalty(network(successors), assigned).mean().item()
    for _ in range(200):
        loss = torch.nn.functional.smooth_l1_loss(
            network(states).gather(1, actions[:, None])[:, 0], labels
        )
        loss = loss + 0.5 * conqur.penalty(network(successors), assigned).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = conqur.penalty(network(successors), assigned).mean().item()
    assert after < 0.2 * before


def test_huber_equals_torch():
    labels = torch.randn(6)
    ours = conqur.bellman_error(torch.tensor(Q_VALUES), torch.tensor(ASSIGNED), labels, huber=1.0)
    chosen = torch.tensor(Q_VALUES).gather(1, torch.tensor(ASSIGNED)[:, None])[:, 0]
    theirs = torch.nn.functional.huber_loss(chosen, labels, delta=1.0)
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-6)


def test_bad_tensors_are_refused():
    with pytest.raises(ValueError, match="assigned must have shape"):
        conqur.penalty(torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="assigned holds action 3"):
        conqur.penalty(torch.zeros(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="q_values holds NaN"):
        conqur.penalty(torch.full((2, 3), torch.nan), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="assigned must hold integers"):
        conqur.penalty(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="same library"):
        conqur.penalty(torch.zeros(2, 3), np.zeros(2, int))


def test_low_precision_and_function_transforms():
    assigned = torch.tensor(ASSIGNED)
    half = conqur.penalty(torch.tensor(Q_VALUES).bfloat16(), assigned)
    assert half.dtype is torch.bfloat16
    gradient = torch.func.grad(lambda q: conqur.penalty(q, assigned).sum())(torch.tensor(Q_VALUES))
    assert gradient.shape == (6, 4)
    rows = torch.func.vmap(conqur.penalty)(torch.tensor(Q_VALUES), assigned)
    np.testing.assert_allclose(rows, conqur.penalty(Q_VALUES, ASSIGNED), rtol=1e-5)


def test_an_annealed_weight_suits_a_torch_loss():
    weight = conqur.annealed_penalty_weight(0.5, 1000)
    loss = weight * conqur.penalty(torch.tensor(Q_VALUES), torch.tensor(ASSIGNED)).mean()
    assert isinstance(loss, torch.Tensor)
