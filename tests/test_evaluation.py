import json
import math

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.environments import Spec, Step, VectorEnvironment, first_stack, make, push
from conqur.environments.separate import Separate
from conqur.evaluation import Evaluation, compiled, episodes, evaluate, rounds
from conqur.evaluation.acting import episode_seeds
from conqur.policies import Policies


class Script(VectorEnvironment):
    """Frames count the steps, rewards are the actions, lengths follow from the seeds.

    With one seed for a life: the later episodes of a copy go on from where the first one ended.
    """

    def __init__(self, num_envs, *, length, actions=3, stack=1, pad_with_first=False):
        names = tuple(f"action {i}" for i in range(actions))
        self.spec = Spec("Script", (2,), "uint8", names, stack, pad_with_first)
        self.num_envs = num_envs
        self.length = length
        self.seen_seeds, self.seen_actions = [], []

    def reset(self, seeds):
        self.seen_seeds.append(list(seeds))
        self.left = np.array([self.length(seed) for seed in seeds])
        self.clock = np.zeros(self.num_envs, int)
        return self._frame()

    def send(self, actions):
        self.seen_actions.append(actions.copy())
        self.reset_now = self.left <= 0
        self.left = np.where(self.reset_now, 5, self.left - 1)
        self.clock = np.where(self.reset_now, 0, self.clock + 1)

    def receive(self):
        over = (self.left <= 0) & ~self.reset_now
        reward = np.where(self.reset_now, 1000.0, self.seen_actions[-1])
        return Step(self._frame(), reward, over, over, self.reset_now)

    def _frame(self):
        return np.stack([self.clock % 7 + 1, self.clock % 5 + 1], axis=1).astype(np.uint8)


class Balance(Policies):
    """A linear policy for each of K: push towards where the pole falls, or nearly so."""

    weights: jax.Array  # [K, 4]

    def __call__(self, observations):
        push = jnp.einsum("kef,kf->ke", observations, self.weights)
        return jnp.stack([-push, push], axis=-1)

    def some(self, numbers):
        return Balance(self.weights[numbers])


WEIGHTS = jnp.array([[0.0, -0.5, 0.0, 1.0], [0.0, 0.0, 0.3, 1.0], [0.0, 0.0, 1.0, 0.0]])


def always(action, actions=3):
    return lambda observations: jnp.broadcast_to(
        jax.nn.one_hot(action, actions), (*observations.shape[:2], actions)
    )


def lengths_by_seed(seed):
    return 1 + seed % 9


def expected_lengths(seed, episodes):
    return [lengths_by_seed(s) for s in episode_seeds(seed, range(episodes))[0]]


def play_alone(weights, seed):
    """One greedy episode in a plain loop, without any of the code under test."""
    environment, score, over = gymnasium.make("CartPole-v1"), 0.0, False
    state, _ = environment.reset(seed=seed)
    while not over:
        state, reward, terminal, truncated, _ = environment.step(int(state @ weights > 0))
        score, over = score + reward, terminal or truncated
    return score


def test_episodes_against_a_plain_loop():
    results = evaluate(
        Balance(WEIGHTS),
        make("CartPole-v1", 6),
        policies=3,
        episodes=5,
        epsilon=0,
        seed=7,
        frame_skip=4,
    )
    seeds, _ = episode_seeds(7, range(5))
    assert len(set(seeds)) == 5
    for result, weights in zip(results, np.asarray(WEIGHTS), strict=True):
        scores = [play_alone(weights, seed) for seed in seeds]
        assert result.scores == tuple(scores)
        assert result.lengths == tuple(int(score) for score in scores)  # a point for each step
        assert result.frames == 4 * sum(scores)
        assert result.finished
    assert len({result.scores for result in results}) == 3


class Chaos(eqx.Module):
    """Random weights for each of K policies, which each bit of an observation matters to."""

    weights: jax.Array  # [K, I, A]

    @classmethod
    def of(cls, spec, policies):
        inputs = math.prod(spec.observation_shape)
        shape = (policies, inputs, len(spec.actions))
        return cls(np.random.default_rng(1).integers(-9, 9, shape).astype(np.int32))

    def __call__(self, observations):  # in whole numbers: no width changes a last bit
        flat = observations.reshape(*observations.shape[:2], -1) * 100.0
        flat = jnp.round(flat).astype(jnp.int32)
        return (jnp.einsum("kei,kia->kea", flat, self.weights) % 1009).astype(jnp.float32)


@pytest.mark.parametrize(
    ("name", "rule", "alone"),
    [
        ("CartPole-v1", {"episodes": 3}, {0: 1, 1: 2, 2: 5}),
        ("CartPole-v1", {"frames": 40}, {0: 1, 1: 2, 2: 5}),
        ("MinAtar/Breakout", {"episodes": 4}, {1: 1}),
        ("ALE/Breakout-v5", {"frames": 40}, {1: 1}),
    ],
)
@pytest.mark.usefixtures("optimised")
def test_neither_company_nor_width_matters(name, rule, alone):
    environment = make(name, 6)
    q = Chaos.of(environment.spec, 3)
    together = evaluate(q, environment, policies=3, epsilon=0.2, seed=1, **rule)
    assert len({result.lengths for result in together}) > 1
    for k, copies in alone.items():
        only = Chaos(q.weights[k : k + 1])
        (result,) = evaluate(only, make(name, copies), epsilon=0.2, seed=1, **rule)
        assert result == together[k]


@pytest.mark.parametrize(
    ("rule", "patience", "copies"),
    [
        ({"episodes": 7}, episodes.PATIENCE, 3),
        ({"frames": 500, "frame_skip": 2}, episodes.PATIENCE, 3),
        ({"episodes": 5, "frames": 100}, episodes.PATIENCE, 1),
        ({"episodes": 7}, compiled.AT_ONCE + 5, 3),
        ({"frames": 150}, 20, 1),
    ],
)
def test_what_compiles_scores_as_step_by_step(monkeypatch, rule, patience, copies):
    monkeypatch.setattr(episodes, "PATIENCE", patience)
    num_envs = 3 * copies
    compiled = make("MinAtar/Breakout", num_envs)
    settings = {"policies": 3, "epsilon": 0.2, "seed": 4, **rule}
    q = Chaos.of(compiled.spec, 3)
    found = evaluate(q, compiled, **settings)
    hosted = Separate(lambda: make("MinAtar/Breakout", 1), num_envs)
    assert found == evaluate(q, hosted, **settings)
    assert len({result.lengths for result in found}) > 1


def test_policies_are_paired():
    environment = Script(6, length=lengths_by_seed)
    first, second = evaluate(always(1), environment, policies=2, episodes=5, epsilon=0.5, seed=3)
    assert first == second
    for seeds in environment.seen_seeds:  # two rounds of three
        assert seeds[:3] == seeds[3:]
    assert len({seed for seeds in environment.seen_seeds for seed in seeds}) == 6
    other, _ = evaluate(always(1), environment, policies=2, episodes=5, epsilon=0.5, seed=4)
    assert other != first


@pytest.mark.parametrize("copies", [1, 4, 11])
def test_all_episodes_count_not_the_first_to_end(copies):
    (result,) = evaluate(
        always(2), Script(copies, length=lengths_by_seed), episodes=10, epsilon=0, seed=5
    )
    lengths = expected_lengths(5, 10)
    assert len(set(lengths)) > 4
    assert result.lengths == tuple(lengths)
    assert result.scores == tuple(2.0 * length for length in lengths)  # and no reward of a reset


@pytest.mark.parametrize("copies", [1, 3, 8])
@pytest.mark.parametrize("frames", [1, 60, 75])
def test_frames_end_with_the_episode_that_uses_them_up(copies, frames):
    (result,) = evaluate(
        always(0), Script(copies, length=lengths_by_seed), frames=frames, frame_skip=3, seed=2
    )
    total, lengths = 0, []
    for length in expected_lengths(2, 100):  # one environment, one episode after the other
        if 3 * total >= frames:
            break
        total += length
        lengths.append(length)
    assert result.lengths == tuple(lengths)
    assert result.frames == 3 * total


def test_whichever_comes_first():
    environment = Script(2, length=lambda seed: 10)
    assert evaluate(always(0), environment, episodes=3, frames=1000)[0].lengths == (10, 10, 10)
    assert evaluate(always(0), environment, episodes=30, frames=15)[0].lengths == (10, 10)


@pytest.mark.parametrize("rule", [{"episodes": 2}, {"frames": 30}])
def test_an_episode_without_end_is_broken_off_and_counted(monkeypatch, rule):
    monkeypatch.setattr(episodes, "PATIENCE", 20)
    forever = Script(3, length=lambda seed: 10**6)
    (result,) = evaluate(always(1), forever, **rule, epsilon=0)
    assert (result.scores, result.lengths, result.frames) == ((20.0, 20.0), (20, 20), 40)
    assert not result.finished
    assert result.to_json()["finished"] is False


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_one_episode_without_end_is_counted_with_the_others(monkeypatch, copies):
    monkeypatch.setattr(episodes, "PATIENCE", 20)
    seeds, _ = episode_seeds(0, range(3))
    sometimes = Script(copies, length=lambda seed: 10**6 if seed == seeds[1] else 8)
    for rule in ({"episodes": 3}, {"frames": 30}):
        (result,) = evaluate(always(1), sometimes, **rule, epsilon=0)
        assert result.lengths == (8, 20, 8)
        assert result.scores == (8.0, 20.0, 8.0)
        assert not result.finished
    assert evaluate(always(1), sometimes, episodes=1)[0].finished  # the others do not count
    # One that ends with the last step it may take was not broken off.
    (result,) = evaluate(always(1), Script(copies, length=lambda seed: 20), episodes=2)
    assert result.finished


@pytest.mark.usefixtures("optimised")
def test_games_that_are_over_are_no_longer_looked_at_which_changes_no_score(monkeypatch):
    shapes, results = [], []

    def q(observations):
        shapes.append(observations.shape[:2])
        return Balance(WEIGHTS)(observations)

    for few in (10**6, 1):
        monkeypatch.setattr(rounds, "FEW", few)
        environment = make("CartPole-v1", 24)
        results.append(evaluate(q, environment, policies=3, episodes=20, epsilon=0.1, seed=5))
    assert results[0] == results[1]
    assert len({length for result in results[0] for length in result.lengths}) > 10
    assert set(shapes) == {(3, 8), (3, 2), (3, 1)}  # these are programs: q is seen once for each


def test_policies_that_are_done_are_no_longer_asked_which_changes_no_score(monkeypatch):
    shapes = []

    class Watched(Balance):
        def __call__(self, observations):
            shapes.append(observations.shape[:2])
            return super().__call__(observations)

        def some(self, numbers):
            return Watched(self.weights[numbers])

    # The second of five holds the pole for long, the others let it fall: it plays on alone.
    weights = jnp.zeros((5, 4)).at[1].set(WEIGHTS[0])
    options = {"policies": 5, "episodes": 4, "epsilon": 0.1, "seed": 5}
    function = Balance(weights).__call__
    whole = evaluate(lambda seen: function(seen), make("CartPole-v1", 20), **options)
    monkeypatch.setattr(rounds, "FEW", 1)
    parts = evaluate(Watched(weights), make("CartPole-v1", 20), **options)
    assert parts == whole
    assert min(parts[1].lengths) > max(
        length for r in parts[:1] + parts[2:] for length in r.lengths
    )
    assert shapes[0] == (5, 4)
    assert (1, 1) in shapes


def test_no_program_is_made_that_is_passed_over_in_the_same_step(monkeypatch):
    """Sixteen policies of which all but one end at once: not first four of them, then one."""
    shapes = []

    class Watched(Policies):
        count: int

        def __call__(self, observations):
            shapes.append(observations.shape[:2])
            return always(1)(observations)

        def some(self, places):
            return Watched(len(places))

    monkeypatch.setattr(rounds, "FEW", 1)
    lengths = iter([30, *[2] * 15])
    environment = Script(16, length=lambda seed: next(lengths))
    evaluate(Watched(16), environment, policies=16, episodes=1, epsilon=0)
    assert shapes == [(16, 1), (1, 1)]


def test_games_that_are_over_are_left_standing_which_changes_no_score():
    steps = []

    def made():
        environment = make("CartPole-v1", 1)
        send = environment.send
        environment.send = lambda actions: (steps.append(1), send(actions))[1]
        return environment

    options = {"policies": 3, "episodes": 8, "epsilon": 0.1, "seed": 5}
    together = evaluate(Balance(WEIGHTS), make("CartPole-v1", 24), **options)
    apart = evaluate(Balance(WEIGHTS), Separate(made, 24), **options)
    assert apart == together
    assert len(steps) == sum(sum(result.lengths) for result in apart)


def test_exploration_rate_and_choice():
    environment = Script(50, length=lambda seed: 60, actions=4)
    evaluate(always(3, 4), environment, episodes=50, epsilon=0.4)
    actions = np.array(environment.seen_actions)  # [time, episode]
    rate = np.bincount(actions.ravel(), minlength=4) / actions.size
    # Standard error below 0.01: 3,000 draws.
    np.testing.assert_allclose(rate, [0.1, 0.1, 0.1, 0.7], atol=0.03)
    deviates = actions != 3
    assert len({tuple(row) for row in deviates.T}) == 50  # no two episodes alike
    assert len({tuple(row) for row in deviates}) == 60  # nor two times


def test_no_exploration_at_zero_and_nothing_else_at_one():
    environment = Script(4, length=lambda seed: 50)
    evaluate(always(1), environment, episodes=4, epsilon=0)
    assert (np.array(environment.seen_actions) == 1).all()
    environment = Script(4, length=lambda seed: 50)
    evaluate(always(1), environment, episodes=4, epsilon=1)
    assert np.bincount(np.ravel(environment.seen_actions)).min() > 40


@pytest.mark.parametrize("pad_with_first", [False, True])
def test_observations_are_the_newest_frames(pad_with_first):
    def oldest(observations):  # Q is highest for the action that the oldest frame names
        assert observations.shape[2:] == (2, 3)
        assert observations.dtype == jnp.uint8
        return jax.nn.one_hot(observations[:, :, 0, 0], 8)

    environment = Script(
        2, length=lambda seed: 6, actions=8, stack=3, pad_with_first=pad_with_first
    )
    (result,) = evaluate(oldest, environment, episodes=3, epsilon=0)
    # Frames show 1, 2, 3, …; the oldest of three is two steps behind.
    behind = [1, 1, 1, 2, 3, 4] if pad_with_first else [0, 0, 1, 2, 3, 4]
    assert result.scores == (sum(behind),) * 3
    np.testing.assert_array_equal([actions[0] for actions in environment.seen_actions[:6]], behind)


def test_stacks_are_those_of_the_interface():
    seen = []
    spec = Spec("Script", (2,), "uint8", ("a", "b"), 2)

    def q(observations):
        jax.debug.callback(lambda array: seen.append(np.array(array)), observations, ordered=True)
        return jnp.zeros((*observations.shape[:2], 2))

    evaluate(q, Script(3, length=lambda seed: 4, actions=2, stack=2), episodes=3, epsilon=0)
    jax.effects_barrier()
    replay = Script(3, length=lambda seed: 4, actions=2, stack=2)
    observations = first_stack(spec, replay.reset([0, 0, 0]))
    for array in seen:
        np.testing.assert_array_equal(array[0], observations)
        step = replay.step(np.zeros(3, int))
        observations = push(spec, observations, step.frame, step.reset)
    assert len(seen) == 4


def test_one_compilation_for_all_weights_and_settings():
    traces = []

    class Counted(Balance):
        def __call__(self, observations):
            traces.append(observations.shape)
            return super().__call__(observations)

    for seed in range(3):
        q = Counted(WEIGHTS[seed : seed + 1])
        evaluate(q, make("CartPole-v1", 2), episodes=3, seed=seed, epsilon=0.1 * seed)
    assert traces == [(1, 2, 4)]


def test_progress():
    reports = []
    length = rounds.REPORT_EVERY + 5
    evaluate(
        always(0), Script(2, length=lambda seed: length), episodes=4, on_progress=reports.append
    )
    assert reports == [0.0, 0.0, 0.5, 0.5, 1.0]


def test_numbers_by_hand():
    result = Evaluation(scores=(1.0, 2.0, 3.0, 10.0), lengths=(5, 6, 7, 8), frames=104)
    assert (result.mean, result.median) == (4.0, 2.5)
    # Squares around 4: 9 + 4 + 1 + 36 = 50; √(50/3)/2.
    assert result.standard_error == pytest.approx(math.sqrt(50 / 12))
    low, high = result.interval
    assert 1 < low < 4 < high < 10
    written = json.loads(json.dumps(result.to_json(human_normalised=0.5), allow_nan=False))
    assert written == {
        "mean": 4.0,
        "median": 2.5,
        "standard_error": result.standard_error,
        "interval": [low, high],
        "human_normalised": 0.5,
        "frames": 104,
        "finished": True,
        "episodes": [1.0, 2.0, 3.0, 10.0],
        "lengths": [5, 6, 7, 8],
    }


def test_json_of_a_single_episode_has_no_spread():
    written = Evaluation(scores=(3.0,), lengths=(5,), frames=5).to_json()
    assert json.loads(json.dumps(written, allow_nan=False))["interval"] == [None, None]
    assert written["standard_error"] is None
    assert written["human_normalised"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "episodes or frames"),
        ({"episodes": 0}, "episodes"),
        ({"frames": 0}, "frames"),
        ({"frames": 5, "frame_skip": 0}, "frame_skip"),
        ({"episodes": 1, "policies": 0}, "policies"),
        ({"episodes": 1, "policies": 3}, "4 copies.*3 policies.*multiple of 3"),
        ({"episodes": 1, "epsilon": 1.5}, "epsilon"),
        ({"episodes": 1, "seed": -1}, "seed"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(always(0), Script(4, length=lengths_by_seed), **options)


def test_q_of_another_width_is_refused():
    environment = Script(2, length=lengths_by_seed)
    with pytest.raises(ValueError, match=r"\[1, 2, 3\].*3 actions of Script.*\[1, 2, 4\]"):
        evaluate(always(0, 4), environment, episodes=1)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        evaluate(
            lambda observations: jnp.full((*observations.shape[:2], 3), jnp.nan),
            Script(2, length=lengths_by_seed),
            episodes=1,
        )
