"""Nodes and their lineages; and the four-state example, where the answer is known."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.consistency import Everything, Subsample, Window
from conqur.environments.interface import Transitions
from conqur.exact import Consistency, consistent
from conqur.mdp import sample_batch
from conqur.regressor import Dense, Perceptron
from conqur.search.algorithms import beam_search, independent_search
from conqur.search.approximator import LinearTuning, StateActionFeatures
from conqur.search.batches import Batch, Batches
from conqur.search.growing import Grower, Growing
from conqur.search.node import Birth, Kind, Tree, dive, expand, top
from conqur.search.records import Records
from conqur.search.refining import Regression
from conqur.search.saving import tree_from_arrays, tree_to_arrays
from conqur.search.scoring import NO_ACTION
from conqur.search.strict import StrictSampler
from conqur.tabular import four_state

ROWS, FEATURES, ACTIONS = 12, 4, 3


class Given(Batches):
    """Batches that are made up."""

    def __init__(self, rows=ROWS):
        self.example = jax.ShapeDtypeStruct((FEATURES,), jnp.float32)
        self.level, self.rows = 0, rows

    def collect(self, theta):
        rng = np.random.default_rng(self.level)
        self.level += 1
        states, successors = rng.normal(size=(2, self.rows, FEATURES)).astype(np.float32)
        transitions = Transitions(
            jnp.asarray(states),
            jnp.asarray(rng.integers(ACTIONS, size=self.rows), jnp.int32),
            jnp.asarray(rng.normal(size=self.rows), jnp.float32),
            jnp.asarray(successors),
            jnp.asarray(rng.random(self.rows) < 0.25),
        )
        return Batch(transitions, jnp.zeros(self.rows, bool), (), 3)

    def state(self):
        return {"level": np.int64(self.level)}

    def restore(self, state):
        self.level = int(state["level"])
        return True


def growing(**changes):
    basis = {
        "children": "boltzmann",
        "boltzmann_every": 5,
        "target_every": 2,
        "temperature": 1.0,
        "adapt_temperature": True,
        "perturbation": 0.5,
        "scoring": "loss",
    }
    return Growing(**basis | changes)


def regression(**changes):
    basis = {
        "updates": 5,
        "batch_size": 4,
        "pairs": 4,
        "scored_pairs": 100,
        "discount": 0.9,
        "learning_rate": 0.05,
        "penalty_weight": 1.0,
        "margin": 0.0,
        "over_actions": "mean",
        "proximal": 0.0,
        "own_minibatches": False,
        "refit": "sgd",
        "gap_units": False,
    }
    return Regression(**basis | changes)


def grower(width=4, kept=9, population=None, collector=None, how=None, grows=None, **options):
    rng = np.random.default_rng(0)
    head = Dense(*(jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((4, 3), (3,))))
    return Grower(
        LinearTuning(Perceptron(())),
        jax.device_get(head),
        collector or Given(),
        growing=grows or growing(),
        regression=how or regression(),
        population=population or Everything(),
        kept_levels=kept,
        transitions=ROWS,
        width=width,
        seed=0,
        **options,
    )


def beam(tree, world, levels=9):
    return beam_search(
        tree,
        world,
        levels=levels,
        frontier_size=4,
        splitting_factor=2,
        expanded=2,
        pool_size=9,
        dive_levels=1,
    )


@pytest.mark.parametrize(
    ("population", "kept"), [(Everything(), 9), (Window(3), 3), (Subsample(0.6), 9)]
)
def test_every_lineage_has_its_own_buffer(population, kept):
    """Against one that is put together from the nodes' histories, after backtracking, too."""
    world = grower(population=population, kept=kept)
    batches, collect = [], world.collect
    world.collect = lambda node, level: batches.append(collect(node, level)) or batches[-1]
    waited = False
    for tree in beam(Tree.planted(world.roots()), world):
        buffer = world._commitments.buffer
        weights, born = np.asarray(buffer.weights()), np.asarray(buffer.born)
        for i, node in enumerate(tree.frontier):
            waited |= any(assigned is None for assigned in node.history)
            found = set()
            for place in np.flatnonzero(weights > 0):
                action = int(buffer.assigned[place, i])
                if action != NO_ACTION:
                    found.add(
                        (int(born[place]), tuple(np.asarray(buffer.successors[place])), action)
                    )
            expected = set()
            for level, (batch, assigned) in enumerate(zip(batches, node.history, strict=True)):
                admitted = np.asarray(population.admits(jnp.int32(level), ROWS))
                recent = not isinstance(population, Window) or level > tree.level - 1 - 3
                for row in np.flatnonzero(admitted & ~np.asarray(batch.transitions.terminal)):
                    if assigned is not None and recent:
                        half = np.asarray(batch.transitions.successors[row], np.float16)
                        expected.add((level, tuple(half), int(assigned[row])))
            assert found == expected
    assert waited  # some leaf was come back to


def test_a_child_is_the_same_with_and_without_siblings():
    alone, together = grower(), grower()
    tree = Tree.planted(alone.roots())
    batch = Given().collect(None)
    (only,) = alone.train(expand(tree.pool, 1), tree, batch)
    first, second, *_ = together.train(expand(tree.pool, 3), tree, batch)
    np.testing.assert_array_equal(only.weights.theta.weight, first.weights.theta.weight)
    assert only.score == first.score
    assert not np.array_equal(first.history[0], second.history[0])


def test_assignments_are_sampled_in_expansions_and_every_so_many_levels():
    world = grower(grows=growing(boltzmann_every=3))
    hows = [
        (tree.frontier[0].kind.value, tree.frontier[0].assigned_how)
        for tree in beam(Tree.planted(world.roots()), world)
    ]
    assert hows == [
        *[("expansion", "boltzmann")] * 3,  # 0 and 1 fill the frontier, 2 is every second one
        ("dive", "boltzmann"),  # 3
        ("expansion", "boltzmann"),
        ("dive", "max"),  # 5
        ("expansion", "boltzmann"),
        ("dive", "max"),  # 7
        ("expansion", "boltzmann"),
    ]


def test_targets_are_copied_every_so_many_levels():
    world = grower(width=1)
    tree = Tree.planted(world.roots())
    trail = [tree.pool[0]]
    for level in range(4):
        (child,) = world.train(dive(tree.frontier), tree, world.collect(tree.frontier[0], level))
        tree = tree.after((child,), (child,))
        trail.append(child)
    same = lambda a, b: np.array_equal(a.weight, b.weight)  # noqa: E731
    root, first, second, third, fourth = (node.weights for node in trail)
    assert same(first.target, root.theta)
    assert same(second.target, root.theta)
    assert not same(second.target, first.theta)
    assert same(third.target, second.theta)
    assert same(fourth.target, second.theta)


def test_random_children_are_perturbed_by_parts_of_the_action_gap():
    world = grower(
        kept=200,
        how=regression(updates=0, scored_pairs=10),
        grows=growing(children="random", perturbation=0.5),
    )
    tree = Tree.planted(world.roots())
    batch = Given(rows=2000).collect(None)
    copy, *moved = world.train(expand(tree.pool, 4), tree, batch)
    root = tree.pool[0].weights.theta
    np.testing.assert_array_equal(copy.weights.theta.weight, root.weight)
    states = np.asarray(batch.transitions.states)
    ordered = np.sort(states @ root.weight + root.bias, axis=1)
    gap = (ordered[:, -1] - ordered[:, -2]).mean()
    changes = [
        states @ (child.weights.theta.weight - root.weight) + child.weights.theta.bias - root.bias
        for child in moved
    ]
    assert 0.25 * gap < np.std(changes) < 1.0 * gap
    assert all(child.assigned_how == "max" for child in moved)


def test_only_one_of_a_parents_random_children_is_the_parent_itself():
    """Also in local search, where the first is born as a dive's."""
    world = grower(how=regression(updates=0), grows=growing(children="random", perturbation=0.5))
    tree = Tree.planted(world.roots())
    births = (*dive(tree.pool), *expand(tree.pool, 2))
    copy, *moved = world.train(births, tree, Given().collect(None))
    root = tree.pool[0].weights.theta.weight
    assert np.array_equal(copy.weights.theta.weight, root)
    assert not any(np.array_equal(child.weights.theta.weight, root) for child in moved)


def test_with_rollouts_the_highest_gain_is_the_best_score():
    gains = {0: [3.0, -1.0, 5.0, 0.0]}
    world = grower(
        grows=growing(scoring="rollouts"),
        rollouts=lambda thetas, level: gains[level][: len(thetas)],
    )
    tree = Tree.planted(world.roots())
    children = world.train(expand(tree.pool, 3), tree, world.collect(tree.pool[0], 0))
    assert [child.score for child in children] == [-3.0, 1.0, -5.0]
    assert top(children, 1)[0] is children[2]


@pytest.mark.parametrize("scoring", ["label", "initial-label"])
def test_labels_tell_siblings_apart_and_a_batch_without_starts_tells_nothing(scoring):
    world = grower(grows=growing(scoring=scoring))
    tree = Tree.planted(world.roots())
    batch = world.collect(tree.pool[0], 0)
    begun = batch._replace(initial=jnp.arange(ROWS) < 3)
    children = world.train(expand(tree.pool, 3), tree, begun)
    assert len({child.score for child in children}) == 3
    tree = tree.after(children, children)
    after = world.train(dive(children), tree, batch)
    same = [child.score == node.score for child, node in zip(after, children, strict=True)]
    assert same == [scoring == "initial-label"] * 3


@pytest.mark.parametrize("replayed", [0, 9])
def test_it_goes_on_from_any_level(replayed):
    world = grower(replayed_levels=replayed)
    trees, states, levels = [], [], []
    for tree in beam(Tree.planted(world.roots()), world):
        trees.append(tree)
        states.append({**world.state(), **tree_to_arrays(tree)})
        levels.append(world.levels(0, tree.level))
    for k in (2, 5):
        other = grower(replayed_levels=replayed)
        tree = tree_from_arrays(states[k], other.roots()[0])
        ring = {
            name: np.concatenate([rows, np.zeros((9 - len(rows), *rows.shape[1:]), rows.dtype)])
            for name, rows in levels[k].items()
        }
        assert other.restore(states[k], ring)
        for expected, found in zip(trees[k + 1 :], beam(tree, other), strict=True):
            assert [n.id for n in found.pool] == [n.id for n in expected.pool]
            for a, b in zip(found.pool, expected.pool, strict=True):
                assert (a.score, a.calibrated, a.reference) == (b.score, b.calibrated, b.reference)
                np.testing.assert_array_equal(a.weights.theta.weight, b.weights.theta.weight)


def test_features_that_half_precision_has_no_room_for_do_no_harm():
    class Huge(Given):
        def collect(self, theta):
            batch = super().collect(theta)
            successors = batch.transitions.successors.at[0].set(1e5)
            return batch._replace(transitions=batch.transitions._replace(successors=successors))

    world = grower(collector=Huge(), how=regression(learning_rate=1e-6), replayed_levels=2)
    *_, tree = beam(Tree.planted(world.roots()), world, levels=2)
    assert all(np.isfinite(node.score) for node in tree.frontier)
    kept, _ = world._commitments.of(tree.frontier[0])
    assert kept.max() == np.finfo(np.float16).max


def test_nodes_that_diverged_do_not_blank_the_log():
    world = grower(how=regression(learning_rate=1e-3))
    roots = world.roots(3)
    lost = jax.tree.map(lambda leaf: leaf * np.nan, roots[1].weights)
    roots = (roots[0], replace(roots[1], weights=lost), roots[2])
    (tree,) = independent_search(Tree.planted(roots), world, levels=1)
    first, diverged, third = tree.frontier
    assert np.isnan(diverged.score)
    assert world.found["bellman"] == pytest.approx((first.bellman + third.bellman) / 2)
    assert all(np.isfinite(world.found[name]) for name in ("loss", "churn", "gap", "label"))


def test_equal_regressors_are_one_champion_at_most():
    roots = grower().roots(6)
    others = [
        replace(node, weights=jax.tree.map(lambda leaf, i=i: leaf + i, node.weights))
        for i, node in enumerate(roots[:3], 1)
    ]
    records = Records({})
    for i, node in enumerate((*roots, *others, roots[0])):
        records.evaluated(node, {"gain": [0, 0, 0, 0, 0, 0, -1, -2, 5, 1][i], "node": i})
    assert [row["node"] for _, row in records.champions] == [8, 9, 6, 7]
    assert len(records.evaluations) == 10


def test_replay_draws_from_all_batches_so_far():
    world = grower(replayed_levels=9)
    root = world.roots()[0]

    def half(batch):
        return {tuple(np.float16(row)) for row in np.asarray(batch.transitions.states)}

    other = Given()
    first, second = half(other.collect(None)), half(other.collect(None))
    assert half(world.collect(root, 0)) <= first
    both = half(world.collect(root, 1))
    assert both & first
    assert both & second
    assert both <= first | second


def test_strict_children_are_consistent_with_all_their_ancestors():
    world = grower(
        grows=growing(children="strict"),
        sampler=StrictSampler(1.0, adapt=False, gap_units=False),
        half_precision=False,
    )
    batches, collect = [], world.collect
    world.collect = lambda node, level: batches.append(collect(node, level)) or batches[-1]
    *_, tree = beam(Tree.planted(world.roots()), world, levels=3)
    for node in tree.frontier:
        blocks, actions = [], []
        for batch, assigned in zip(batches, node.history, strict=True):
            alive = ~np.asarray(batch.transitions.terminal)
            states = np.column_stack(
                [np.asarray(batch.transitions.successors)[alive], np.ones(alive.sum())]
            )
            for state, action in zip(states, assigned[alive], strict=True):
                block = np.zeros((ACTIONS, ACTIONS, 5))
                block[np.arange(ACTIONS), np.arange(ACTIONS)] = state
                blocks.append(block.reshape(ACTIONS, -1))
                actions.append(action)
        assert consistent(np.array(blocks), np.array(actions)).outcome is Consistency.CONSISTENT
    assert len({tuple(np.concatenate(node.history)) for node in tree.frontier}) > 1


@pytest.mark.parametrize(("gap_units", "greedy"), [(True, True), (False, False)])
def test_strict_children_are_drawn_in_units_of_the_action_gap(gap_units, greedy):
    """Action gaps of a millionth: what is cold beside them, and hot in units of Q."""
    random = np.random.default_rng(0)
    q_values = 1e-6 * random.permuted(np.tile([0.0, 1.0, 2.0], (20, 1)), axis=1)
    features = random.normal(size=(20, 25))  # so many that all choices are consistent
    birth = Birth(None, Kind.EXPANSION, 0)
    nothing = np.zeros((0, 25)), np.zeros(0, int)
    sampler = StrictSampler(0.01, adapt=False, gap_units=gap_units)
    drawn = sampler(birth, jax.random.key(0), q_values, features, nothing)
    assert (drawn == q_values.argmax(axis=1)).all() == greedy


class FourState(Batches):
    """Batches of the paper's example under uniform behaviour."""

    def __init__(self):
        self.problem = four_state()
        self.table = jnp.asarray(self.problem.features, jnp.float32)
        self.example = jax.ShapeDtypeStruct(self.table.shape[1:], jnp.float32)
        self.level = 0

    def collect(self, theta):
        batch = sample_batch(self.problem.mdp, self.level, 400)
        self.level += 1
        transitions = Transitions(
            self.table[batch.state],
            jnp.asarray(batch.action, jnp.int32),
            jnp.asarray(batch.reward, jnp.float32),
            self.table[batch.successor],
            jnp.asarray(batch.terminal),
        )
        return Batch(transitions, jnp.asarray(batch.state == 0), (), 0)


def exhaustive(table):
    """Child j has the j-th of all assignments to the states that appear as successors."""
    choices = list(itertools.product(range(2), repeat=3))

    def sampler(birth, key, q_values, features, committed):
        if birth.kind is Kind.DIVE:
            return q_values.argmax(axis=1)
        number = np.array([np.flatnonzero((table == row).all(axis=(1, 2)))[0] for row in features])
        return np.array((0, *choices[birth.sibling]))[number]

    return sampler


def search_the_example(penalty_weight, start, levels=12):
    collector = FourState()
    problem, table = collector.problem, np.asarray(collector.table)

    def value(theta):
        policy = (table @ theta).argmax(axis=1)
        return problem.mdp.value(policy)

    world = Grower(
        StateActionFeatures(collector.table),
        np.array(start, np.float32),
        collector,
        growing=growing(target_every=1, scoring="rollouts", children="exhaustive"),
        regression=regression(
            updates=300,
            batch_size=32,
            pairs=64,
            discount=1.0,
            learning_rate=0.01,
            penalty_weight=penalty_weight,
            margin=0.05,
            scored_pairs=500,
        ),
        population=Everything(),
        kept_levels=levels,
        transitions=400,
        width=8,
        seed=0,
        half_precision=False,
        sampler=exhaustive(table),
        rollouts=lambda thetas, level: [value(theta) for theta in thetas],
    )
    *_, tree = beam_search(
        Tree.planted(world.roots()),
        world,
        levels=levels,
        frontier_size=8,
        splitting_factor=8,
        expanded=1,
        pool_size=20,
        dive_levels=3,
    )
    return value(top(tree.pool, 1)[0].weights.theta), [
        value(n.weights.theta) for n in tree.frontier
    ]


@pytest.mark.parametrize("start", [(-2.0, 0.5), (-0.2352, 0.2791)])
def test_with_all_children_and_a_large_penalty_the_search_finds_the_best_realizable_policy(start):
    """From the best policy, which is left without the penalty, and from where Q-learning ends."""
    best, frontier = search_the_example(10.0, start)
    assert best == 0.5
    assert 0.5 in frontier


def test_without_the_penalty_the_frontier_leaves_the_best_realizable_policy():
    _, frontier = search_the_example(0.0, (-2.0, 0.5))
    assert set(frontier) == {0.3}
