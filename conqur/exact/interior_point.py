"""A primal-dual interior-point method for linear heads that never forms the constraints.

It solves

    maximise t   subject to   d̂·θ ≥ t for every row,

where the rows d̂ = (e_a − e_a') ⊗ x / (√2 |x|) belong to states x that are committed to an action
a, one row for every rival a'. Products with them are matrix products with the states, and the
normal matrix Σ (y/s) d̂ d̂ᵀ, A·R square, needs one pass over the states because a state couples
only its own action with each rival.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int


class Rows(NamedTuple):
    """The rows d̂, by states: C chunks of K states (padded), a chunk's states share their action."""

    basis: Float[Array, "C K R"]
    """Unit whitened features; padding is zero."""
    action: Int[Array, "C"]
    chosen: Float[Array, "C 1 A"]
    rival: Float[Array, "C K A"]
    """One where there is a row, zero at the committed action and in the padding."""


class Iterate(NamedTuple):
    """Where the solver is: the program's variables θ and t, and the dual's y."""

    theta: Float[Array, "A R"]
    level: Float[Array, ""]
    """Below every gap d̂·θ."""
    weight: Float[Array, "C K A"]
    """Positive on every row."""


@jax.jit
def step(rows: Rows, now: Iterate, damping: Float[Array, ""]) -> tuple[Iterate, Float[Array, ""]]:
    """One predictor-corrector step (Mehrotra); also |Σ y d̂| / Σ y.

    The program is regularised to max t − ½μ|θ|², μ being the barrier parameter: that bounds θ on
    consistent instances, where t has no optimum, and vanishes on inconsistent ones.
    """
    real = rows.rival > 0
    theta, level, y = now
    slack = jnp.where(real, _gaps(rows, theta) - level, 1.0)
    count = jnp.sum(rows.rival)
    mu = jnp.sum(slack * y) / count
    direction = _newton(rows, now, slack, mu, damping)

    d_theta, d_level, d_slack, d_y = direction(-slack * y)
    primal, dual = _longest(slack, d_slack, real), _longest(y, d_y, real)
    predicted = jnp.sum((slack + primal * d_slack) * (y + dual * d_y) * rows.rival) / count
    target = mu * jnp.minimum(predicted / mu, 1.0) ** 3
    d_theta, d_level, d_slack, d_y = direction(target - slack * y - d_slack * d_y)
    primal, dual = _longest(slack, d_slack, real, 0.99), _longest(y, d_y, real, 0.99)

    theta, level, y = theta + primal * d_theta, level + primal * d_level, y + dual * d_y
    residual = jnp.linalg.norm(_combination(rows, y)) / jnp.sum(y)
    return Iterate(theta, level, y), residual


def _newton(
    rows: Rows,
    now: Iterate,
    slack: Float[Array, "C K A"],
    mu: Float[Array, ""],
    damping: Float[Array, ""],
) -> Callable[[Array], tuple[Array, Array, Array, Array]]:
    """The map from a wanted change of slack·y to the Newton direction (dθ, dt, dslack, dy).

    It solves Σ(y + dy) d̂ = μ(θ + dθ), Σ(y + dy) = 1, dslack = d̂·dθ − dt and
    slack·dy + y·dslack = change, by elimination down to θ.
    """
    stiffness = rows.rival * now.weight / slack
    normal = jsl.cho_factor(_normal_matrix(rows, stiffness, mu, damping), lower=True)

    def solve_damped(right: Float[Array, "A R"]) -> Float[Array, "A R"]:
        return jsl.cho_solve(normal, right.reshape(-1)).reshape(right.shape)

    def solve(right: Float[Array, "A R"]) -> Float[Array, "A R"]:
        """With two rounds of refinement, which undo the damping and most of the rounding."""
        found = solve_damped(right)
        for _ in range(2):
            missed = right - _combination(rows, stiffness * _gaps(rows, found)) - mu * found
            found = found + solve_damped(missed)
        return found

    per_level = solve(_combination(rows, stiffness))
    pivot = jnp.sum(stiffness) - jnp.sum(stiffness * _gaps(rows, per_level))
    unbalanced = _combination(rows, now.weight) - mu * now.theta
    missing = 1.0 - jnp.sum(now.weight)

    def direction(change: Float[Array, "C K A"]) -> tuple[Array, Array, Array, Array]:
        push = rows.rival * change / slack
        at_level = solve(_combination(rows, push) + unbalanced)
        excess = jnp.sum(push) - jnp.sum(stiffness * _gaps(rows, at_level))
        d_level = (missing - excess) / pivot
        d_theta = at_level + per_level * d_level
        d_slack = rows.rival * (_gaps(rows, d_theta) - d_level)
        return d_theta, d_level, d_slack, push - stiffness * d_slack

    return direction


def _normal_matrix(
    rows: Rows, weight: Float[Array, "C K A"], mu: Float[Array, ""], damping: Float[Array, ""]
) -> Float[Array, "N N"]:
    """Σ weight d̂ d̂ᵀ + μI, plus a term for shifts of all actions' weights, which no row sees."""
    num_actions, rank = weight.shape[-1], rows.basis.shape[-1]

    def add(
        total: Float[Array, "A R A R"], chunk: tuple[Array, Array, Array]
    ) -> tuple[Float[Array, "A R A R"], None]:
        basis, w, action = chunk
        weighted = (w[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
        block = (basis.T @ weighted).reshape(rank, num_actions, rank)
        block += lax.dynamic_index_in_dim(total, action, keepdims=False)
        return lax.dynamic_update_index_in_dim(total, block, action, axis=0), None

    zeros = jnp.zeros((num_actions, rank, num_actions, rank))
    total, _ = lax.scan(add, zeros, (rows.basis, weight, rows.action))
    own = jnp.sum(total, axis=0).swapaxes(0, 1) + jnp.sum(total, axis=2)
    scale = jnp.trace(own, axis1=1, axis2=2).mean() / rank
    flat = total.reshape(num_actions * rank, -1)
    matrix = -(flat + flat.T).reshape(total.shape)
    each = jnp.arange(num_actions)
    matrix = matrix.at[each, :, each, :].add(own)
    matrix = (matrix + scale * jnp.eye(rank)[None, :, None, :]).reshape(flat.shape) / 2
    return matrix + (mu + damping * scale) * jnp.eye(num_actions * rank)


def _gaps(rows: Rows, theta: Float[Array, "A R"]) -> Float[Array, "C K A"]:
    """d̂·θ for every row."""
    q = jnp.einsum("ckr,ar->cka", rows.basis, theta)
    return (jnp.sum(q * rows.chosen, axis=-1, keepdims=True) - q) / np.sqrt(2)


def _combination(rows: Rows, weight: Float[Array, "C K A"]) -> Float[Array, "A R"]:
    """Σ weight d̂: the transpose of `_gaps`."""
    pull = jnp.sum(weight, axis=-1, keepdims=True) * rows.chosen - weight
    return jnp.einsum("ckr,cka->ar", rows.basis, pull) / np.sqrt(2)


def _longest(z: Array, dz: Array, real: Array, safety: float = 1.0) -> Float[Array, ""]:
    """The longest step up to one that keeps z + step·dz ≥ 0, shortened by `safety`."""
    return jnp.minimum(1.0, safety * jnp.min(jnp.where(real & (dz < 0), -z / dz, jnp.inf)))


def arranged(
    basis: Float[np.ndarray, "S R"], actions: Int[np.ndarray, "S"], num_actions: int
) -> tuple[Rows, Int[np.ndarray, "S"]]:
    """The rows, and each state's slot among them.

    The number and the length of the chunks depend on S and A only, so the solver compiles once.
    """
    length = max(16, -(-len(actions) // (4 * num_actions)))
    members = np.bincount(actions, minlength=num_actions)
    chunks = -(-members // length)
    action = np.zeros(-(-len(actions) // length) + num_actions, dtype=np.int64)
    action[: chunks.sum()] = np.repeat(np.arange(num_actions), chunks)
    before = np.cumsum(chunks * length) - chunks * length
    skipped = np.repeat(before - (np.cumsum(members) - members), members)
    slot = np.empty(len(actions), dtype=np.int64)
    slot[np.argsort(actions, kind="stable")] = np.arange(len(actions)) + skipped

    padded = np.zeros((len(action), length, basis.shape[1]))
    padded.reshape(-1, basis.shape[1])[slot] = basis
    real = np.zeros((len(action), length, 1))
    real.reshape(-1)[slot] = 1.0
    chosen = np.eye(num_actions)[action][:, None, :]
    return Rows(*map(jnp.asarray, (padded, action, chosen, real * (1.0 - chosen)))), slot
