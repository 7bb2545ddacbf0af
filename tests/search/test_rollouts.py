"""Playing with nodes."""

import jax
import numpy as np
import pytest

from conqur.environments import make
from conqur.environments.separate import Separate
from conqur.evaluation import Evaluation, evaluate
from conqur.regressor import Architecture, initial_regressor
from conqur.search.approximator import LinearTuning, WholeNetwork
from conqur.search.rollouts import Players, Rollouts

ARCHITECTURE = Architecture("mlp", (4,), 2, (8,))


def heads(count):
    regressors = [initial_regressor(jax.random.key(i), ARCHITECTURE) for i in range(count)]
    return regressors[0].body, [jax.device_get(regressor.head) for regressor in regressors]


def rollouts(body, **options):
    return Rollouts(
        LinearTuning(body), lambda copies: make("CartPole-v1", copies), frame_skip=1, **options
    )


@pytest.mark.usefixtures("optimised")
def test_each_node_scores_what_its_whole_network_scores_alone():
    body, thetas = heads(3)
    found = rollouts(body).play(thetas, episodes=4, seed=5)
    for theta, evaluation in zip(thetas, found, strict=True):
        network = LinearTuning(body).regressor(jax.tree.map(jax.numpy.asarray, theta))
        (alone,) = evaluate(
            lambda seen, network=network: network(seen[0])[None],
            make("CartPole-v1", 2),
            episodes=4,
            seed=5,
        )
        assert evaluation.scores == alone.scores
    assert len({evaluation.scores for evaluation in found}) > 1


def test_more_nodes_than_fit_at_once_are_played_in_parts(monkeypatch):
    body, thetas = heads(5)
    whole = rollouts(body).play(thetas, episodes=2, seed=1)
    monkeypatch.setattr("conqur.search.rollouts.MOST_COPIES", 4)
    done = []
    played = rollouts(body)
    played.watch = done.append
    parts = played.play(thetas, episodes=2, seed=1)
    assert [e.scores for e in parts] == [e.scores for e in whole]
    assert done == sorted(done)
    assert done[-1] == 1
    assert played.frames == sum(e.frames for e in whole)


def test_copies_are_kept_for_what_is_played_next():
    body, thetas = heads(3)
    made = []

    def one():
        made.append(make("CartPole-v1", 1))
        return made[-1]

    apart = Rollouts(LinearTuning(body), lambda copies: Separate(one, copies), frame_skip=1)
    for episodes in (2, 4, 3):
        found = apart.play(thetas, episodes=episodes, seed=episodes)
        assert found == rollouts(body).play(thetas, episodes=episodes, seed=episodes)
    assert len(made) == 3 * 4


def test_regressors_that_are_the_same_play_once():
    body, thetas = heads(2)
    played = rollouts(body)
    one, other, again, _ = played.play([*thetas, *thetas], episodes=3, seed=4)
    assert again == one != other
    assert played.frames == one.frames + other.frames


def test_gains_are_differences_on_common_starts():
    body, thetas = heads(3)
    played = rollouts(body)
    root, *others = played.play(thetas, episodes=3, seed=2)
    gains = played.gains(thetas[0], thetas[1:], episodes=3, seed=2)
    assert gains == [other.mean - root.mean for other in others]


def test_what_diverged_is_not_played_and_gains_nothing():
    body, (root, other) = heads(2)
    lost = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), root)
    gains = rollouts(body).gains(root, [other, lost, other], episodes=2, seed=0)
    assert gains[1] == -np.inf
    assert gains[0] == gains[2] > -np.inf


def test_all_are_played_in_parts_of_about_the_same_size(monkeypatch):
    sizes = []
    monkeypatch.setattr(
        "conqur.search.rollouts.evaluate",
        lambda q, environment, *, policies, episodes, **_: (
            sizes.append(policies) or [Evaluation((0.0,), (1,), 1)] * policies
        ),
    )
    body, thetas = heads(17)
    rollouts(body).play(thetas, episodes=16, seed=0)
    assert sizes == [9, 9]


def test_whole_networks_play_too():
    networks = [jax.device_get(initial_regressor(jax.random.key(i), ARCHITECTURE)) for i in (0, 1)]
    played = Rollouts(WholeNetwork(), lambda n: make("CartPole-v1", n), frame_skip=1)
    found = played.play(networks, episodes=3, seed=0)
    body, head = networks[1].body, networks[1].head
    (alone,) = rollouts(jax.tree.map(jax.numpy.asarray, body)).play([head], episodes=3, seed=0)
    assert found[1].scores == alone.scores


class Scripted(Rollouts):
    """Scores that are made up: θ itself with noise, the same for all on a start."""

    def __init__(self):
        self.calls, self.frames, self.watch = [], 0, lambda done: None

    def play(self, thetas, *, episodes, seed):
        self.calls.append((len(thetas), episodes, seed))
        self.frames += len(thetas) * episodes
        noise = np.random.default_rng(seed).normal(size=episodes) * 10
        return [Evaluation(tuple(theta + noise), (1,) * episodes, episodes) for theta in thetas]


def test_successive_halving_finds_the_best_with_ever_more_episodes_for_fewer():
    played = Scripted()
    thetas = [0.1, 0.5, 0.2, 0.9, 0.3, 0.8, 0.4, 0.7]
    best, scores = played.best_of(thetas, episodes=2, seed=10)
    assert best == 3
    assert played.calls == [(8, 2, 10), (4, 4, 11), (2, 8, 12)]
    assert [found.episodes for found in scores] == [2, 6, 2, 14, 2, 14, 2, 6]
    first, second, third = (
        np.random.default_rng(seed).normal(size=n) * 10 for seed, n in ((10, 2), (11, 4), (12, 8))
    )
    assert scores[0].mean == pytest.approx(0.1 + first.mean())
    assert scores[3].mean == pytest.approx(0.9 + np.concatenate([first, second, third]).mean())


@pytest.mark.parametrize("fits", [True, False])
def test_successive_halving_goes_on_after_rounds_that_were_played_before(fits):
    thetas = [0.1, 0.5, 0.2, 0.9, 0.3, 0.8, 0.4, 0.7]
    once, again, kept = Scripted(), Scripted(), []
    found = once.best_of(thetas, episodes=2, seed=10, keep=kept.append)
    *_, before, last = kept
    assert [[len(own) for own in round_.scores] for round_ in last] == [[2] * 8, [4] * 4, [8] * 2]
    assert [round_.frames for round_ in last] == [16, 16, 16]
    assert before == last[:2]
    if not fits:
        before = [before[0]._replace(scores=before[0].scores[:-1]), before[1]]
    kept.clear()
    assert again.best_of(thetas, episodes=2, seed=10, before=before, keep=kept.append) == found
    assert again.calls == once.calls[2 if fits else 0 :]
    assert kept[-1] == last
    assert again.frames == once.frames == 48


def test_progress_of_successive_halving_only_ever_grows():
    class Watched(Scripted):
        def play(self, thetas, *, episodes, seed):
            for done in (0.0, 0.5, 1.0):
                self.watch(done)
            return super().play(thetas, episodes=episodes, seed=seed)

    played, told = Watched(), []
    played.watch = told.append
    played.best_of([0.0, 1.0, 2.0, 3.0], episodes=2, seed=0)  # 4 · 2 episodes, then 2 · 4
    assert told == [0, 0.25, 0.5, 0.5, 0.75, 1]
    assert played.watch == told.append  # as it was


def test_successive_halving_stays_within_the_most_episodes():
    played = Scripted()
    played.best_of([0.0] * 9, episodes=2, seed=0, budget=3)
    assert played.calls == [(9, 2, 0), (4, 3, 1), (2, 3, 2)]
    best, ((_, episodes),) = played.best_of([5.0], episodes=2, seed=0)
    assert (best, episodes) == (0, 0)


@pytest.mark.parametrize("copies", [1, 3])
def test_the_body_runs_once_a_step_for_all_nodes(copies):
    seen = []

    class Counting(LinearTuning):
        def embed(self, observations):
            seen.append(observations.shape)
            return super().embed(observations)

    body, thetas = heads(2)
    approximator = Counting(body)
    Players.of(approximator, thetas)(jax.numpy.zeros((2, copies, 4)))
    assert seen == [(2 * copies, 4)]


def test_regressors_are_on_the_device_before_they_play():
    body, thetas = heads(3)
    players = Players.of(LinearTuning(body), thetas)
    leaves = jax.tree.leaves((players, players.some(np.array([2, 0]))))
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)


def test_some_regressors_of_many_answer_as_they_do_among_all():
    body, thetas = heads(4)
    approximator = LinearTuning(body)
    seen = jax.random.normal(jax.random.key(9), (2, 3, 4))
    some = Players.of(approximator, thetas).some(np.array([3, 1]))(seen)
    np.testing.assert_array_equal(some, Players.of(approximator, [thetas[3], thetas[1]])(seen))
    assert not np.allclose(some, Players.of(approximator, thetas[:2])(seen))
