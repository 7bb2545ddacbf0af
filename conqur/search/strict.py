"""Strictly consistent assignments for small heads, in place of the penalty (Sec. 3.4)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur.assignment import strict_assignment
from conqur.exact import Consistency, consistent
from conqur.search.assigning import temperatures
from conqur.search.node import Birth, Kind

MOST_UNKNOWNS = 600
"""Weights of a head that exact tests are tried for."""
MOST_STATES = 5_000
"""Committed states that they are tried for, in all levels together."""
GREEDY = 1e-9
"""A temperature that leaves nothing to chance."""


class StrictSampler:
    """Boltzmann assignments, made consistent with all that a node's ancestors chose.

    A dive's choices are the highest-valued consistent ones.
    """

    def __init__(self, temperature: float, *, adapt: bool, gap_units: bool) -> None:
        """Draw at a temperature, as `conqur.search.assigning.temperatures` has it.

        Args:
            temperature: τ of expansions.
            adapt: whether it is adapted to each state.
            gap_units: it is in units of the action gap.
        """
        self._temperature, self._adapt, self._gap_units = temperature, adapt, gap_units

    def __call__(
        self,
        birth: Birth,
        key: Key[Array, ""],
        q_values: Float[np.ndarray, "n A"],
        features: Float[np.ndarray, "n ..."],
        committed: tuple[np.ndarray, np.ndarray],
    ) -> Int[np.ndarray, " n"]:
        """σ of a child on states that are not terminal.

        Args:
            birth: of the child.
            key: of the child.
            q_values: of the states.
            features: φ of the states.
            committed: φ of the states, and the actions, that its ancestors are committed to.
        """
        actions = q_values.shape[-1]
        old, chosen = committed
        blocks = of_actions(np.concatenate([old, features]), actions)
        check_size(blocks.shape[-1], len(blocks))
        oracle = _Oracle(blocks[len(old) :], blocks[: len(old)], chosen)
        taus: Any = GREEDY
        if birth.kind is Kind.EXPANSION:
            values = jnp.asarray(q_values)
            taus = temperatures(
                values, self._temperature, adapt=self._adapt, gap_units=self._gap_units
            )
        return strict_assignment(key, q_values, oracle, temperature=taus)


class _Oracle:
    """Whether choices can hold together; asks the exact test only if the last proof does not do."""

    def __init__(
        self,
        features: Float[np.ndarray, "n A d"],
        old: Float[np.ndarray, "K A d"],
        chosen: Int[np.ndarray, " K"],
    ) -> None:
        self._features, self._old, self._chosen = features, old, chosen
        self._witness: np.ndarray | None = None

    def __call__(self, rows: Any, actions: Any) -> bool:
        blocks = np.concatenate([self._old, self._features[rows]])
        chosen = np.concatenate([self._chosen, actions]).astype(int)
        if self._witness is not None and _leads(blocks, chosen, self._witness).all():
            return True
        verdict = consistent(blocks, chosen)
        if verdict.outcome is not Consistency.CONSISTENT:
            return False
        self._witness = verdict.theta
        return True


def of_actions(features: Float[np.ndarray, "S ..."], actions: int) -> Float[np.ndarray, "S A d"]:
    """Features of states and actions, for which a head with biases is one vector θ."""
    if features.ndim == 3:  # they are already
        return features.astype(float)
    states, width = features.shape
    with_bias = np.column_stack([features, np.ones(states)])
    blocks = np.zeros((states, actions, actions, width + 1))
    for action in range(actions):
        blocks[:, action, action] = with_bias
    return blocks.reshape(states, actions, -1)


def check_size(unknowns: int, states: int) -> None:
    """Refuse what exact tests would take too long for."""
    if unknowns > MOST_UNKNOWNS:
        raise ValueError(
            f"children strict needs a head of at most {MOST_UNKNOWNS} weights, this one has "
            f"{unknowns}: use the penalty"
        )
    if states > MOST_STATES:
        raise ValueError(
            f"children strict needs at most {MOST_STATES} states in all levels, got {states}: "
            "lower transitions or levels"
        )


def _leads(
    blocks: Float[np.ndarray, "S A d"], chosen: Int[np.ndarray, " S"], theta: np.ndarray
) -> Bool[np.ndarray, " S"]:
    """Where the chosen action is strictly the best."""
    q_values = blocks @ theta
    own = np.take_along_axis(q_values, chosen[:, None], 1)
    others = np.where(np.arange(q_values.shape[1]) == chosen[:, None], -np.inf, q_values)
    scale = np.abs(q_values).max(axis=1, keepdims=True)
    return (own - others.max(axis=1, keepdims=True) > 1e-9 * scale)[:, 0]
