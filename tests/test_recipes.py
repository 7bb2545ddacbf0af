"""The recipe for JAX in docs/recipes.md, run; and what those without Stable-Baselines3 are told."""

import re
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import conqur

RECIPES = (Path(__file__).parent.parent / "docs/recipes.md").read_text()

THETA = jnp.array([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
TARGET = jnp.array([[1.0, 0.0], [2.0, 0.0], [1.0, 4.0]])
ONE_HOT = jnp.eye(3)
BATCH = (
    ONE_HOT,
    jnp.array([0, 1, 0]),
    jnp.array([1.0, 0.5, 2.6]),
    ONE_HOT[jnp.array([1, 2, 0])],
    jnp.array([False, False, True]),
)
# Labels 1 + 0.99·2, 0.5 + 0.99·4 and 2.6 against 1, 0 and 3; the choices are 0, 1 and, terminal, 0.
ERROR = ((1.98 - 0.5) + (4.46 - 0.5) + 0.4**2 / 2) / 3
PENALTY = (0 + 2) / 2


@pytest.fixture(scope="module")
def recipe():
    section = RECIPES.split("## JAX and Optax\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {}
    exec(compile(block, "docs/recipes.md", "exec"), names)
    (jitted,) = re.findall(r"`(jax\.jit\(.*?\))`", section)
    return names | {"jitted": eval(jitted, names)}


def table(theta, states):
    return states @ theta


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_its_loss_is_that_computed_by_hand(recipe, weight):
    loss = recipe["loss"](THETA, TARGET, table, BATCH, weight)
    np.testing.assert_allclose(loss, ERROR + weight * PENALTY, rtol=1e-6)


def test_its_loss_is_finite_if_all_successors_are_terminal(recipe):
    batch = (*BATCH[:-1], jnp.ones(3, bool))
    loss = recipe["loss"](THETA, TARGET, table, batch, 0.5)
    np.testing.assert_allclose(loss, ((0.5**2 / 2 + 0) + 0.4**2 / 2) / 3, rtol=1e-6)


def test_an_update_descends_the_loss(recipe):
    optimizer = optax.sgd(0.1)
    theta, _, loss = recipe["update"](table, optimizer, THETA, TARGET, optimizer.init(THETA), BATCH)
    np.testing.assert_allclose(loss, ERROR + 0.5 * PENALTY, rtol=1e-6)
    # Two errors are beyond 1; and s2's choice 1, half of the mean, is to rise above 0.
    gradient = [[-1 / 3, 0], [0, -1 / 3], [0.4 / 3 + 0.5 / 2, -0.5 / 2]]
    np.testing.assert_allclose(theta, THETA - 0.1 * np.array(gradient), rtol=1e-6)


def test_some_updates_bring_the_choices_about(recipe):
    optimizer = optax.adam(0.1)

    def penalty_after(weight):
        theta, state = THETA, optimizer.init(THETA)
        for _ in range(20):
            theta, state, _ = recipe["jitted"](
                table, optimizer, theta, TARGET, state, BATCH, weight
            )
        return conqur.penalty(table(theta, BATCH[3][:2]), jnp.array([0, 1])).mean()

    assert penalty_after(0.0) > 0.4
    assert penalty_after(0.5) < 0.1


def test_the_weight_is_annealed_as_it_is_told():
    (anneal,) = re.findall(r"`(conqur\.annealed_penalty_weight\(.*?\))`", RECIPES)
    assert eval(anneal, {"conqur": conqur, "t": 20_000}) == 0.25


def test_without_stable_baselines3_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "conqur.sb3", raising=False)
    with pytest.raises(ModuleNotFoundError) as refused:
        import conqur.sb3  # noqa: F401
    assert str(refused.value) == "conqur.sb3 needs stable-baselines3: pip install stable-baselines3"
