"""Can one linear head make all these choices greedily?

The class is Q(s, a) = w_a·x_s with x_s = (φ_s, 1): one weight vector and one bias per action. A
commitment of state s to action a is the rows d = (e_a − e_a') ⊗ x_s, one for every rival a'. With
unit rows d̂ = d/|d| the question is whether the linear program

    maximise t   subject to   d̂·θ ≥ t for every row

rises above 0 (a witness θ) or has the optimum 0 (then its dual holds weights y ≥ 0 that sum to
one with Σ y d̂ = 0: Farkas' certificate that no witness exists).

It is solved by a primal-dual interior-point method whose iterates are tested for both proofs, so
that most instances end after a handful of steps. Two things make it fast and robust:

* The rows are never formed. Products with them are matrix products with the features, and the
  normal matrix Σ (y/s) d̂ d̂ᵀ, A(F+1) square, needs one pass over the states because a state
  couples only its own action with each rival.
* Features are whitened first. That changes neither the class nor the answer, but learned
  features are so correlated that the normal matrix would otherwise drown in rounding errors.

Nothing the solver says is believed: proofs are checked on the given features with bounds for the
rounding errors of the check itself.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from conqur.exact.verdict import Consistency, Verdict

_EPS = float(np.finfo(np.float64).eps)
_SHARP = 1e-10
"""Whitened residual at which a certificate ends the search: a consistent instance whose margin
is below the caller's tolerance would otherwise be at risk of being called inconsistent."""


class _Rows(NamedTuple):
    """The rows d̂, by states: C chunks of K states (padded), a chunk's states share their action."""

    basis: Float[Array, "C K R"]
    """Unit whitened features; padding is zero."""
    action: Int[Array, "C"]
    chosen: Float[Array, "C 1 A"]
    rival: Float[Array, "C K A"]
    """One where there is a row, zero at the committed action and in the padding."""


class _Iterate(NamedTuple):
    """Where the solver is: the program's variables θ and t, and the dual's y."""

    theta: Float[Array, "A R"]
    level: Float[Array, ""]
    """Below every gap d̂·θ."""
    weight: Float[Array, "C K A"]
    """Positive on every row."""


def consistent_head(
    phi: Any, actions: Any, num_actions: int, *, tolerance: float = 1e-7, max_iterations: int = 100
) -> Verdict:
    """Decide if a linear head on `phi` [S, F] strictly prefers `actions` [S] in every state.

    A witness is [F + 1, A] with the biases in the last row, a certificate is [S, A]. The margins
    hold for the rows of the given features (not whitened) and are valid but rarely tight: the
    search stops at the first proof. INCONSISTENT means that the best normalised margin is below
    `tolerance`; the search tries to go far beyond it before it settles for that.
    """
    features, actions = _validated(phi, actions, num_actions, tolerance, max_iterations)
    x = np.column_stack([features, np.ones(len(features))])
    if num_actions == 1:
        zero = np.zeros((x.shape[1], 1))
        return Verdict(Consistency.CONSISTENT, zero, None, np.inf, np.inf)
    certificate = _contradiction(features, actions, num_actions)
    if certificate is not None:
        upper = _margin_upper(x, actions, certificate)
        return Verdict(Consistency.INCONSISTENT, None, certificate, 0.0, upper)
    best = np.inf
    for theta, weight, residual in _candidates(x, actions, num_actions, max_iterations):
        upper = _margin_upper(x, actions, weight)
        if upper < best:
            best, certificate = upper, weight
        lower = _margin_lower(x, actions, theta)
        if lower > 0:
            return Verdict(Consistency.CONSISTENT, theta, None, lower, best)
        if best <= tolerance and residual <= _SHARP:
            break
    if best <= tolerance:
        return Verdict(Consistency.INCONSISTENT, None, certificate, 0.0, best)
    return Verdict(Consistency.UNDECIDED, None, None, 0.0, best)


def _candidates(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], num_actions: int, steps: int
) -> Iterator[tuple[Float[np.ndarray, "G A"], Float[np.ndarray, "S A"], float]]:
    """After every step of the solver: a head, weights of the rows, their whitened |Σ y d̂|."""
    basis, to_features = _whitened(x)
    size = np.linalg.norm(basis, axis=1, keepdims=True)
    with jax.enable_x64(True):
        rows, slot = _arranged(basis / size, actions, num_actions)
        theta = jnp.zeros((num_actions, basis.shape[1]))
        iterate = _Iterate(theta, jnp.asarray(-1.0), rows.rival / jnp.sum(rows.rival))
    for _ in range(steps):
        with jax.enable_x64(True):
            iterate, residual = _step(rows, iterate)
        if not np.isfinite(residual):  # the normal matrix is singular to working precision
            return
        weight = np.asarray(iterate.weight).reshape(-1, num_actions)[slot] / size
        yield to_features @ np.asarray(iterate.theta).T, weight / weight.sum(), float(residual)


@jax.jit
def _step(rows: _Rows, now: _Iterate) -> tuple[_Iterate, Float[Array, ""]]:
    """One predictor-corrector step (Mehrotra); also |Σ y d̂| / Σ y.

    The program is regularised to max t − ½μ|θ|², μ being the barrier parameter: that bounds θ on
    consistent instances, where t has no optimum, and vanishes on inconsistent ones.
    """
    real = rows.rival > 0
    theta, level, y = now
    slack = jnp.where(real, _gaps(rows, theta) - level, 1.0)
    count = jnp.sum(rows.rival)
    mu = jnp.sum(slack * y) / count
    direction = _newton(rows, now, slack, mu)

    d_theta, d_level, d_slack, d_y = direction(-slack * y)
    primal, dual = _longest(slack, d_slack, real), _longest(y, d_y, real)
    predicted = jnp.sum((slack + primal * d_slack) * (y + dual * d_y) * rows.rival) / count
    target = mu * jnp.minimum(predicted / mu, 1.0) ** 3
    d_theta, d_level, d_slack, d_y = direction(target - slack * y - d_slack * d_y)
    primal, dual = _longest(slack, d_slack, real, 0.99), _longest(y, d_y, real, 0.99)

    theta, level, y = theta + primal * d_theta, level + primal * d_level, y + dual * d_y
    residual = jnp.linalg.norm(_combination(rows, y)) / jnp.sum(y)
    return _Iterate(theta, level, y), residual


def _newton(
    rows: _Rows, now: _Iterate, slack: Float[Array, "C K A"], mu: Float[Array, ""]
) -> Callable[[Array], tuple[Array, Array, Array, Array]]:
    """The map from a wanted change of slack·y to the Newton direction (dθ, dt, dslack, dy).

    It solves Σ(y + dy) d̂ = μ(θ + dθ), Σ(y + dy) = 1, dslack = d̂·dθ − dt and
    slack·dy + y·dslack = change, by elimination down to θ.
    """
    stiffness = rows.rival * now.weight / slack
    normal = jsl.cho_factor(_normal_matrix(rows, stiffness, mu), lower=True)

    def solve(right: Float[Array, "A R"]) -> Float[Array, "A R"]:
        return jsl.cho_solve(normal, right.reshape(-1)).reshape(right.shape)

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
    rows: _Rows, weight: Float[Array, "C K A"], mu: Float[Array, ""]
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
    return matrix + (mu + 1e-13 * scale) * jnp.eye(num_actions * rank)


def _gaps(rows: _Rows, theta: Float[Array, "A R"]) -> Float[Array, "C K A"]:
    """d̂·θ for every row."""
    q = jnp.einsum("ckr,ar->cka", rows.basis, theta)
    return (jnp.sum(q * rows.chosen, axis=-1, keepdims=True) - q) / np.sqrt(2)


def _combination(rows: _Rows, weight: Float[Array, "C K A"]) -> Float[Array, "A R"]:
    """Σ weight d̂: the transpose of `_gaps`."""
    pull = jnp.sum(weight, axis=-1, keepdims=True) * rows.chosen - weight
    return jnp.einsum("ckr,cka->ar", rows.basis, pull) / np.sqrt(2)


def _longest(z: Array, dz: Array, real: Array, safety: float = 1.0) -> Float[Array, ""]:
    """The longest step up to one that keeps z + step·dz ≥ 0, shortened by `safety`."""
    return jnp.minimum(1.0, safety * jnp.min(jnp.where(real & (dz < 0), -z / dz, jnp.inf)))


def _arranged(
    basis: Float[np.ndarray, "S R"], actions: Int[np.ndarray, "S"], num_actions: int
) -> tuple[_Rows, Int[np.ndarray, "S"]]:
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
    return _Rows(*map(jnp.asarray, (padded, action, chosen, real * (1.0 - chosen)))), slot


def _whitened(
    x: Float[np.ndarray, "S G"],
) -> tuple[Float[np.ndarray, "S R"], Float[np.ndarray, "G R"]]:
    """Orthonormal coordinates of the states, and the map of heads on them to heads on x.

    Directions the features do not span (dead or duplicate units) are dropped, but for zero
    columns up to a multiple of 64: few widths, few compilations.
    """
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    column = np.linalg.norm(unit, axis=0)
    column[column == 0] = 1.0
    q, r = np.linalg.qr(unit / column)
    left, singular, right = np.linalg.svd(r, full_matrices=False)
    rank = int(np.sum(singular > x.shape[1] * _EPS * singular[0]))
    spare = ((0, 0), (0, min(-rank % 64, len(singular) - rank)))
    basis = np.pad(q @ left[:, :rank], spare)
    to_features = np.pad(right[:rank].T / column[:, None] / singular[:rank], spare)
    return basis, to_features


def _margin_lower(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], theta: Float[np.ndarray, "G A"]
) -> float:
    """A lower bound of θ's normalised margin, positive only if θ is certainly strictly greedy."""
    each = np.arange(len(x))
    q = x @ theta
    error = (x.shape[1] + 3) * _EPS * (np.abs(x) @ np.abs(theta))
    gap = (q - error)[each, actions][:, None] - (q + error)
    gap[each, actions] = np.inf
    if not gap.min() > 0:
        return 0.0
    length = np.sqrt(2) * np.linalg.norm(x, axis=1) * np.linalg.norm(theta)
    return float((gap.min(axis=1) / length).min())


def _margin_upper(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], weight: Float[np.ndarray, "S A"]
) -> float:
    """An upper bound of |Σ y d̂| / Σ y, and so of every head's normalised margin."""
    pull = -weight
    pull[np.arange(len(x)), actions] += weight.sum(axis=1)
    pull /= np.linalg.norm(x, axis=1, keepdims=True)
    norm = np.linalg.norm(x.T @ pull) / np.sqrt(2) / weight.sum()
    return float(norm + np.sqrt(2) * (sum(x.shape) + 3) * _EPS)


def _contradiction(
    features: Float[np.ndarray, "S F"], actions: Int[np.ndarray, "S"], num_actions: int
) -> Float[np.ndarray, "S A"] | None:
    """The certificate of one state that is committed to two actions, if there is one."""
    seen: dict[bytes, int] = {}
    for state, row in enumerate(features):
        twin = seen.setdefault(row.tobytes(), state)
        if actions[twin] != actions[state]:
            certificate = np.zeros((len(actions), num_actions))
            certificate[twin, actions[state]] = certificate[state, actions[twin]] = 0.5
            return certificate
    return None


def _validated(
    phi: Any, actions: Any, num_actions: int, tolerance: float, max_iterations: int
) -> tuple[Float[np.ndarray, "S F"], Int[np.ndarray, "S"]]:
    """The arguments as float64 and int64 arrays on the host."""
    phi, actions = np.asarray(phi), np.asarray(actions)
    if phi.ndim != 2 or len(phi) == 0:
        raise ValueError(f"phi must be [states, features] with a state, but has shape {phi.shape}")
    if not jnp.issubdtype(phi.dtype, np.floating) and not jnp.issubdtype(phi.dtype, np.integer):
        raise ValueError(f"phi must hold real numbers, but has dtype {phi.dtype}")
    features = phi.astype(np.float64)
    if not np.all(np.abs(features) < 1e100):
        raise ValueError("phi must be finite and below 1e100 in magnitude everywhere")
    if num_actions < 1:
        raise ValueError(f"num_actions must be at least 1, but is {num_actions}")
    if actions.shape != phi.shape[:1]:
        raise ValueError(
            f"actions must hold one action per row of phi ({len(phi)}), not shape {actions.shape}"
        )
    if not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(f"actions must be integers, but have dtype {actions.dtype}")
    if actions.min() < 0 or actions.max() >= num_actions:
        raise ValueError(f"actions must lie in 0..{num_actions - 1}, but do not")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, but is {tolerance}")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, but is {max_iterations}")
    return features, actions.astype(np.int64)
