import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import conqur
from conqur import ConsistencyBuffer, Decay, Everything, Subsample, Widening, Window

Q_VALUES = np.array([[1.0, 4.0, 2.0], [1.0, 4.0, 2.0], [0.0, 0.0, 0.0]])
ASSIGNED = np.array([0, 1, 2])


def test_penalty_by_hand():
    # State 1: (4 − 1) + (2 − 1) = 4; state 2: greedy; state 3: a tie costs nothing.
    assert conqur.penalty(Q_VALUES, ASSIGNED).tolist() == [4.0, 0.0, 0.0]


def test_penalty_with_a_margin_by_hand():
    # 3.5 + 1.5; 4 is ahead of 2 by more than 0.5; both ties fall short by 0.5.
    assert conqur.penalty(Q_VALUES, ASSIGNED, margin=0.5).tolist() == [5.0, 0.0, 1.0]
    mean = conqur.penalty(Q_VALUES, ASSIGNED, margin=0.5, over_actions="mean")
    np.testing.assert_allclose(mean, [5 / 3, 0.0, 1 / 3])


def test_penalty_of_one_state_and_of_many_axes():
    assert conqur.penalty(np.array([1.0, 3.0]), np.array(0)) == 2.0
    stacked = conqur.penalty(np.stack([Q_VALUES] * 2), np.stack([ASSIGNED] * 2))
    assert stacked.tolist() == [[4.0, 0.0, 0.0]] * 2


@given(
    st.data(),
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=5),
)
def test_penalty_is_zero_exactly_where_the_assigned_action_is_greedy(data, shape):
    q_values = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e3, 1e3)))
    assigned = data.draw(hnp.arrays(np.int64, shape[:-1], elements=st.integers(0, shape[-1] - 1)))
    values = np.take_along_axis(q_values, assigned[..., None], axis=-1)[..., 0]
    penalty = conqur.penalty(q_values, assigned)
    np.testing.assert_array_equal(penalty == 0, values == q_values.max(axis=-1))
    by_loop = sum(np.maximum(q_values[..., a] - values, 0) for a in range(shape[-1]))
    np.testing.assert_allclose(penalty, by_loop)


def test_libraries_agree_and_gradients_flow():
    q_values, assigned = jnp.array(Q_VALUES), jnp.array(ASSIGNED)
    np.testing.assert_array_equal(jax.jit(conqur.penalty)(q_values, assigned), [4.0, 0.0, 0.0])
    gradient = jax.grad(lambda q: conqur.penalty(q, assigned).sum())(q_values)
    # Up for the two actions that are ahead, down twice for the assigned one, nothing on ties.
    np.testing.assert_array_equal(gradient, [[-2.0, 1.0, 1.0], [0.0] * 3, [0.0] * 3])


def test_nan_and_actions_that_are_not_there_are_not_hidden_by_compiling():
    compiled = jax.jit(conqur.penalty)
    assert np.isnan(compiled(jnp.array([[jnp.nan, 0.0]]), jnp.array([1]))).all()
    assert np.isnan(compiled(jnp.zeros((1, 3)), jnp.array([5]))).all()


def test_integers_are_no_trap():
    assert conqur.penalty(np.array([[0, 200]], np.uint8), [1]) == 0
    assert conqur.penalty(np.array([[-100, 100]], np.int8), [0]) == 200
    assert conqur.penalty([[1, 4, 2]], [0]).tolist() == [4.0]


@pytest.mark.parametrize(
    ("q_values", "assigned", "message"),
    [
        (np.full((2, 3), np.nan, jnp.bfloat16), np.zeros(2, int), "q_values holds NaN"),
        ([[1.0, 2.0], [3.0]], [0, 0], "q_values must be an array"),
        ([["a", "b"]], [0], "q_values must be an array of real numbers"),
        (np.zeros((2, 3)), np.zeros(3, int), r"assigned must have shape \[2\], got \[3\]"),
        (np.zeros((2, 3)), np.array([0, 3]), "assigned holds action 3"),
        (np.zeros((2, 3)), np.array([0.0, 1.0]), "assigned must hold integers"),
        (np.full((2, 3), np.nan), np.zeros(2, int), "q_values holds NaN"),
        (np.zeros((0, 3)), np.zeros(0, int), "q_values must have shape"),
        (np.zeros(()), np.zeros((), int), "q_values must have shape"),
    ],
)
def test_penalty_refuses_bad_input(q_values, assigned, message):
    with pytest.raises(ValueError, match=message):
        conqur.penalty(q_values, assigned)
    if isinstance(q_values, np.ndarray):
        with jax.default_device(jax.devices("cpu")[0]), pytest.raises(ValueError, match=message):
            conqur.penalty(jnp.asarray(q_values), jnp.asarray(assigned))


def test_penalty_refuses_a_negative_margin():
    with pytest.raises(ValueError, match="margin must be"):
        conqur.penalty(Q_VALUES, ASSIGNED, margin=-1.0)


def filled(population, batches=4, capacity=100):
    """A buffer with `batches` batches of two pairs; pair (10 k + i, k % 2) from batch k."""
    buffer = ConsistencyBuffer.empty(capacity, jnp.array(0), population=population)
    for k in range(batches):
        buffer = buffer.add(jnp.array([10 * k, 10 * k + 1]), jnp.array([k % 2, k % 2]))
    return buffer


def weight_of_batches(buffer, batches=4):
    born, weights = np.asarray(buffer.born), np.asarray(buffer.weights())
    return [float(weights[born == k].sum()) for k in range(batches)]


@pytest.mark.parametrize(
    ("population", "expected"),
    [
        (Everything(), [2.0, 2.0, 2.0, 2.0]),
        (Window(1), [0.0, 0.0, 0.0, 2.0]),
        (Window(3), [0.0, 2.0, 2.0, 2.0]),
        (Decay(0.5), [0.25, 0.5, 1.0, 2.0]),
        (Widening(0.5), [0.0, 0.0, 2.0, 2.0]),
    ],
)
def test_populations_by_hand(population, expected):
    assert weight_of_batches(filled(population)) == expected


def test_widening_becomes_more_inclusive():
    kept = [np.count_nonzero(filled(Widening(0.5), batches=k).weights()) for k in range(1, 9)]
    assert kept == [2, 2, 4, 4, 6, 6, 8, 8]


def test_subsample_keeps_a_fraction_of_the_same_rows_whatever_the_assignment():
    buffers = []
    for action in (0, 1):
        buffer = ConsistencyBuffer.empty(1000, jnp.array(0), population=Subsample(0.3))
        for k in range(2):
            buffer = buffer.add(jnp.arange(500) + 500 * k, jnp.full(500, action))
        buffers.append(buffer)
    kept = int((buffers[0].born >= 0).sum())
    assert 240 < kept < 360
    np.testing.assert_array_equal(buffers[0].successors, buffers[1].successors)
    first, second = (np.asarray(buffers[0].successors[buffers[0].born == k]) for k in (0, 1))
    assert set(first) != set(second - 500)  # not the same rows of every batch


def test_terminal_successors_never_enter():
    buffer = ConsistencyBuffer.empty(5, jnp.array(0))
    buffer = buffer.add(
        jnp.array([7, 8, 9]), jnp.array([0, 1, 0]), terminal=jnp.array([False, True, False])
    )
    assert buffer.successors[buffer.born >= 0].tolist() == [7, 9]


def test_a_full_buffer_forgets_its_oldest_pairs():
    buffer = filled(Everything(), batches=4, capacity=5)
    assert sorted(buffer.successors.tolist()) == [11, 20, 21, 30, 31]


def test_the_same_state_with_other_actions_stays_a_multiset():
    buffer = ConsistencyBuffer.empty(4, jnp.array(0))
    buffer = buffer.add(jnp.array([3]), jnp.array([0])).add(jnp.array([3]), jnp.array([1]))
    q_values = jnp.array([[0.0, 2.0]] * 4)
    # The pair (3, 0) costs 2, the pair (3, 1) nothing: the mean is 1.
    assert buffer.penalty(lambda states: q_values) == 1.0


def test_buffer_penalty_is_the_weighted_mean():
    buffer = filled(Decay(0.5), batches=2, capacity=8)
    q_values = jnp.tile(jnp.array([[0.0, 3.0]]), (8, 1))
    # Batch 0 (weight ½ each) assigned action 0, which costs 3; batch 1 action 1, which costs 0.
    np.testing.assert_allclose(buffer.penalty(lambda states: q_values), 3 * (1 / 3), rtol=1e-6)


def test_an_empty_buffer_costs_nothing():
    buffer = ConsistencyBuffer.empty(3, jnp.zeros(2))
    assert buffer.penalty(lambda states: states) == 0.0


def test_samples_follow_the_weights():
    successors, assigned, weights = filled(Decay(0.5)).sample(jax.random.key(0), 20_000)
    assert (weights == 1).all()
    batch = np.asarray(successors) // 10
    np.testing.assert_array_equal(assigned, batch % 2)
    frequencies = np.bincount(batch, minlength=4) / 20_000
    np.testing.assert_allclose(frequencies, np.array([1, 2, 4, 8]) / 15, atol=0.02)


@pytest.mark.parametrize(
    "population", [Everything(), Window(2), Window(9), Decay(0.6), Subsample(0.7), Widening(0.4)]
)
@pytest.mark.parametrize("capacity", [5, 7, 12])
def test_samples_of_a_ring_that_was_written_over_follow_the_weights(population, capacity):
    """Seven batches with a terminal successor each: the ring's oldest pair lies anywhere in it."""
    buffer = ConsistencyBuffer.empty(capacity, jnp.array(0), population=population)
    for k in range(7):
        terminal = jnp.arange(3) == k % 3
        buffer = buffer.add(3 * k + jnp.arange(3), jnp.full(3, k), terminal=terminal)
    successors, assigned, found = buffer.sample(jax.random.key(1), 20_000)
    assert (found == 1).all()
    np.testing.assert_array_equal(np.asarray(successors) // 3, assigned)
    drawn = np.bincount(successors, minlength=21) / 20_000
    weights = np.zeros(21)
    weights[np.asarray(buffer.successors)] = np.asarray(buffer.weights())
    np.testing.assert_array_equal(drawn > 0, weights > 0)
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=0.02)


@pytest.mark.parametrize("population", [Everything(), Decay(0.5)])
def test_an_empty_buffer_yields_pairs_of_no_weight(population):
    buffer = ConsistencyBuffer.empty(4, jnp.zeros(2), population=population)
    _, assigned, weights = buffer.sample(jax.random.key(0), 3)
    assert assigned.shape == (3,)
    assert weights.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("feature_dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_half_precision_features_and_one_byte_for_an_action(feature_dtype):
    example = jax.ShapeDtypeStruct((2,), feature_dtype)
    buffer = ConsistencyBuffer.empty(4, example, action_dtype=jnp.uint8)
    buffer = jax.jit(lambda b: b.add(jnp.ones((3, 2)), jnp.array([0, 1, 1])))(buffer)
    assert buffer.successors.dtype == feature_dtype
    assert buffer.assigned.dtype == jnp.uint8
    penalty = buffer.penalty(lambda s: s * jnp.array([[1.0, 3.0]], feature_dtype))
    np.testing.assert_allclose(penalty, 2 / 3, rtol=1e-2)
    with pytest.raises(ValueError, match="actions are 0 to 255"):
        buffer.add(np.ones((1, 2), np.float32), np.array([256]))
    with pytest.raises(ValueError, match="successors must have dtype int32"):
        ConsistencyBuffer.empty(4, jnp.array(0)).add(np.array([1.7]), np.array([0]))


def test_a_jitted_add_is_compiled_once():
    traces = []

    @jax.jit
    def add(buffer):
        traces.append(1)
        return buffer.add(jnp.ones((1, 2)), jnp.array([0]))

    buffer = ConsistencyBuffer.empty(4, jnp.zeros(2))
    for _ in range(3):
        buffer = add(buffer)
    assert len(traces) == 1


def test_old_pairs_of_a_decaying_buffer_still_make_a_mean():
    buffer = ConsistencyBuffer.empty(4, jnp.array(0), population=Decay(0.5))
    buffer = buffer.add(jnp.array([0]), jnp.array([0]))
    for _ in range(60):
        buffer = buffer.add(jnp.array([0]), jnp.array([0]), terminal=jnp.array([True]))
    q_values = jnp.array([[0.0, 3.0]] * 4)
    np.testing.assert_allclose(buffer.penalty(lambda s: q_values), 3.0, rtol=1e-5)


def test_buffer_compiles_and_shares_its_states_between_nodes():
    """One set of successors, two nodes' assignments: the vmapped penalty is each node's own."""
    add = jax.jit(lambda buffer, s, a: buffer.add(s, a))
    successors = jnp.arange(6.0).reshape(3, 2)
    nodes = jnp.array([[0, 1, 0], [1, 1, 1]])
    buffers = [add(ConsistencyBuffer.empty(4, jnp.zeros(2)), successors, a) for a in nodes]

    def node_penalty(assigned):
        buffer = eqx.tree_at(lambda b: b.assigned, buffers[0], assigned)
        return buffer.penalty(lambda states: states)

    penalties = jax.vmap(node_penalty)(jnp.stack([b.assigned for b in buffers]))
    np.testing.assert_allclose(penalties, [b.penalty(lambda s: s) for b in buffers])
    assert penalties[0] > penalties[1]


@pytest.mark.parametrize(
    ("successors", "assigned", "terminal", "message"),
    [
        (jnp.zeros((2, 3)), jnp.zeros(2, int), None, "successors must have shape"),
        (jnp.zeros((2, 2)), jnp.zeros(3, int), None, "successors must have shape"),
        (jnp.zeros((2, 2)), jnp.zeros(2), None, "assigned must hold integers"),
        (jnp.zeros((2, 2)), jnp.zeros(2, int), jnp.zeros(3, bool), "terminal must have shape"),
        (jnp.zeros((0, 2)), jnp.zeros(0, int), None, "assigned must hold 1 to 4"),
        (jnp.zeros((5, 2)), jnp.zeros(5, int), None, "assigned must hold 1 to 4"),
        (jnp.full((2, 2), jnp.nan), jnp.zeros(2, int), None, "successors holds NaN"),
        (jnp.zeros((2, 2)), jnp.array([0, -1]), None, "assigned holds"),
    ],
)
def test_buffer_refuses_bad_batches(successors, assigned, terminal, message):
    cpu = jax.devices("cpu")[0]  # on an accelerator, entries are not looked at
    arguments = jax.device_put((successors, assigned, terminal), cpu)
    with jax.default_device(cpu), pytest.raises(ValueError, match=message):
        ConsistencyBuffer.empty(4, jnp.zeros(2)).add(*arguments[:2], terminal=arguments[2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Window(0),
        lambda: Decay(1.0),
        lambda: Subsample(0.0),
        lambda: Widening(1.1),
        lambda: ConsistencyBuffer.empty(0, jnp.zeros(2)),
    ],
)
def test_populations_refuse_bad_settings(make):
    with pytest.raises(ValueError, match=r"batches|rate|fraction|capacity"):
        make()
