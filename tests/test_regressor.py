import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conqur.regressor import Architecture, Convolution, Dense, initial_regressor

NATURE = Architecture("nature", (84, 84, 4), 6)
SAME = Architecture("nature-same", (84, 84, 4), 6)
MINATAR = Architecture("minatar", (10, 10, 4), 3, (32,))
MLP = Architecture("mlp", (5,), 2, (8, 7))


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled():
    """Most of the time would go into making fast programs of which each runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    size=st.integers(1, 4),
    stride=st.integers(1, 4),
    padding=st.sampled_from(["VALID", "SAME"]),
)
@settings(max_examples=25)
def test_convolution_equals_the_compilers(height, width, size, stride, padding):
    assume(padding == "SAME" or min(height, width) >= size)
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(size, size, 2, 3)).astype(np.float32)
    bias = rng.normal(size=3).astype(np.float32)
    x = rng.normal(size=(2, height, width, 2)).astype(np.float32)

    @jax.jit
    def both(weight, bias, x):
        return Convolution(weight, bias, stride, padding)(x), jax.lax.conv_general_dilated(
            x, weight, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    found, expected = both(weight, bias, x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, np.asarray(expected) + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("architecture", "flat"), [(NATURE, 3136), (SAME, 7744), (MINATAR, 1024)])
def test_sizes_of_the_known_networks(architecture, flat):
    def use(key, observations):
        regressor = initial_regressor(key, architecture)
        return regressor, regressor.embed(observations), regressor(observations)

    observations = jax.ShapeDtypeStruct((2, *architecture.observation_shape), jnp.uint8)
    regressor, features, q_values = jax.eval_shape(use, jax.random.key(0), observations)
    hidden = architecture.hidden[-1]
    assert regressor.body.layers[0].weight.shape == (flat, hidden)
    assert regressor.head.weight.shape == (hidden, architecture.actions)
    assert features.shape == (2, hidden)
    assert q_values.shape == (2, architecture.actions)


@pytest.mark.parametrize("architecture", [MINATAR, MLP])
def test_a_value_is_the_head_of_the_features(architecture):
    regressor = initial_regressor(jax.random.key(0), architecture)
    shape = (3, *architecture.observation_shape)
    observations = jax.random.uniform(jax.random.key(1), shape)
    features = regressor.embed(observations)
    assert (features >= 0).all()
    assert (features > 0).any()
    q_values = regressor(observations)
    np.testing.assert_array_equal(q_values, regressor.predict(features))
    weight, bias = map(np.asarray, (regressor.head.weight, regressor.head.bias))
    head = np.asarray(features) @ weight + bias
    np.testing.assert_allclose(q_values, head, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", [MINATAR, MLP])
def test_observations_of_a_batch_do_not_see_one_another(architecture):
    regressor = initial_regressor(jax.random.key(0), architecture)
    observations = jax.random.uniform(jax.random.key(1), (3, *architecture.observation_shape))
    alone = jnp.concatenate([regressor(one[None]) for one in observations])
    np.testing.assert_allclose(regressor(observations), alone, rtol=1e-5, atol=1e-6)


def test_many_observations_are_embedded_some_at_a_time(monkeypatch):
    """Tiles of two, with one left over; alike for gradients and for many regressors at once."""
    monkeypatch.setattr("conqur.regressor.CACHED", 2 * 8 * 8 * 9 * 4 * 4 + 1)
    observations = jax.random.uniform(jax.random.key(1), (7, *MINATAR.observation_shape))

    def both(key):
        regressor = initial_regressor(key, MINATAR)
        body = regressor.body
        weight = body.convolutions[0].weight

        def embed(weight, how):
            changed = eqx.tree_at(lambda body: body.convolutions[0].weight, body, weight)
            return how(changed)(observations)

        ways = (lambda body: body), (lambda body: body._embed)
        features = [embed(weight, how) for how in ways]
        return features, [jax.grad(lambda w, h=how: embed(w, h).sum())(weight) for how in ways]

    assert "scan" in str(jax.make_jaxpr(both)(jax.random.key(0)))
    many = jax.vmap(both)(jax.random.split(jax.random.key(2), 3))
    for found, expected in (*both(jax.random.key(0)), *many):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", ["minatar", "mlp"])
def test_bytes_are_scaled_and_nothing_else_is(body):
    regressor = initial_regressor(jax.random.key(0), Architecture(body, (4, 4, 2), 3, (8,)))
    values = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 2))
    values[0] = 255
    as_bytes = regressor(jnp.asarray(values, jnp.uint8))
    np.testing.assert_allclose(as_bytes, regressor(jnp.asarray(values / 255, jnp.float32)), 1e-5)
    unscaled = regressor(jnp.asarray(values, jnp.float32))
    assert not np.allclose(unscaled, as_bytes)
    flags = values > 100
    np.testing.assert_array_equal(
        regressor(jnp.asarray(flags)), regressor(jnp.asarray(flags, jnp.float32))
    )


def test_a_perceptron_by_hand():
    """Two layers: relu(1·1 − 2·2 + 3), then relu(0·2 + 1), then 1·5 − 4."""
    regressor = initial_regressor(jax.random.key(0), Architecture("mlp", (2,), 1, (1, 1)))
    layers = (
        Dense(jnp.array([[1.0], [-2.0]]), jnp.array([3.0])),
        Dense(jnp.array([[2.0]]), jnp.array([1.0])),
    )
    head = Dense(jnp.array([[5.0]]), jnp.array([-4.0]))
    regressor = eqx.tree_at(lambda r: (r.body.layers, r.head), regressor, (layers, head))
    # At (1, 2) the first layer is 0, at (1, 0) it is 4, at (0, 9) it is cut off at 0.
    observations = jnp.array([[1.0, 2.0], [1.0, 0.0], [0.0, 9.0]])
    np.testing.assert_array_equal(regressor(observations), [[1.0], [41.0], [1.0]])


@pytest.mark.parametrize("architecture", [NATURE, SAME, MINATAR, MLP])
def test_first_weights_differ_lie_within_bounds_and_follow_the_key(architecture):
    initial = jax.jit(lambda key: jax.tree.leaves(initial_regressor(key, architecture)))
    one, same, other = (initial(jax.random.key(seed)) for seed in (0, 0, 1))
    for a, b, c in zip(one, same, other, strict=True):
        a, b, c = map(np.asarray, (a, b, c))
        assert (a == b).all()
        assert (a != c).any()
        assert a.dtype == jnp.float32
    shares = []
    for weight, bias in zip(one[::2], one[1::2], strict=True):
        bound = np.prod(weight.shape[:-1]) ** -0.5
        assert bound * 0.5 < np.abs(weight).max() <= bound
        assert np.abs(bias).max() <= bound
        shares += [round(float(np.ravel(leaf)[0] / bound), 4) for leaf in (weight, bias)]
    assert len(set(shares)) == len(shares)  # no two of them were drawn with one key


def test_many_regressors_at_once_are_each_themselves():
    keys = jax.random.split(jax.random.key(0), 3)
    observations = jax.random.uniform(jax.random.key(1), (2, 10, 10, 4))

    def use(key):
        return initial_regressor(key, MINATAR)(observations)

    together, alone = jax.jit(jax.vmap(use))(keys), jax.jit(use)
    for i, key in enumerate(keys):
        np.testing.assert_allclose(together[i], alone(key), rtol=1e-4, atol=1e-5)


def test_architecture_survives_plain_values():
    for architecture in (NATURE, MLP):
        again = Architecture(**architecture.to_json())
        assert again == architecture
        assert hash(again) == hash(architecture)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"body": "resnet"}, "body must be one of nature, nature-same, minatar, mlp, got 'resnet'"),
        ({"actions": 0}, "actions must be a whole number of at least 1, got 0"),
        ({"hidden": ()}, "hidden must name at least one"),
        ({"hidden": (8, 0)}, "sizes of an architecture must be .* got 0"),
        ({"observation_shape": (84, -1, 4)}, "sizes of an architecture must be .* got -1"),
        ({"observation_shape": (84, 84)}, r"a nature body needs images .* got .* \[84, 84\]"),
    ],
)
def test_impossible_architectures_are_refused(changes, message):
    good = {"body": "nature", "observation_shape": (84, 84, 4), "actions": 3}
    with pytest.raises(ValueError, match=message):
        Architecture(**(good | changes))


def test_a_perceptron_without_hidden_layers_is_linear():
    regressor = initial_regressor(jax.random.key(0), Architecture("mlp", (2, 3), 4, ()))
    x = jax.random.normal(jax.random.key(1), (5, 2, 3))
    np.testing.assert_array_equal(regressor.embed(x), x.reshape(5, 6))
    assert regressor.head.weight.shape == (6, 4)


@pytest.mark.parametrize("side", [1, 7, 8, 20, 35])
def test_images_that_are_too_small_are_refused(side):
    with pytest.raises(ValueError, match=r"shape \[\d+, 84, 4\] are too small for a nature body"):
        initial_regressor(jax.random.key(0), Architecture("nature", (side, 84, 4), 3))


def test_the_smallest_images():
    for body, side in [("nature", 36), ("nature-same", 1), ("minatar", 3)]:
        architecture = Architecture(body, (side, side, 1), 3, (8,))
        image = jax.ShapeDtypeStruct((2, side, side, 1), jnp.float32)
        apply = lambda key, x: initial_regressor(key, architecture)(x)  # noqa: B023, E731
        assert jax.eval_shape(apply, jax.random.key(0), image).shape == (2, 3)
