"""Which nodes the searches give children, against a model in dicts and lists, and by hand."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conqur.search.algorithms import (
    World,
    beam_search,
    best_first_search,
    depth_first_search,
    independent_search,
    local_search,
)
from conqur.search.node import Kind, Node, Tree

NAN = math.nan


def plant(count=1):
    nan = NAN
    return Tree.planted(
        Node(i, None, -1, Kind.ROOT, "", nan, nan, nan, nan, nan, None, ()) for i in range(count)
    )


class Scored(World):
    """Gives nodes scores by their number and level, and writes down what it was asked for."""

    def __init__(self, score):
        self.score = score
        self.collectors = []
        self.births = []

    def collect(self, node, level):
        self.collectors.append(node.id)
        return ("data of level", level)

    def train(self, births, tree, data):
        assert data == ("data of level", tree.level)
        self.births.append([(b.parent.id, str(b.kind), b.sibling) for b in births])
        return tuple(self._child(b, tree.next_id + i, tree.level) for i, b in enumerate(births))

    def _child(self, birth, number, level):
        parent, score = birth.parent, float(self.score(number, level))
        last = parent.calibrated if birth.kind is Kind.EXPANSION else parent.reference
        return Node(
            number, parent.id, level, birth.kind, "", score, score, last, NAN, NAN, None, ()
        )


def by_hand(scores):
    """A world that gives the node i the i-th of these scores; None for a root."""
    return Scored(lambda number, level: scores[number])


def made_up(seed):
    """Scores with many ties within a level, and none between levels."""

    def score(number, level):
        offset = random.Random(f"{seed} {level}").uniform(-3, 3)
        return offset + random.Random(f"{seed} {level} {number}").randrange(4)

    return score


def ids(nodes):
    return [node.id for node in nodes]


def shape(tree):
    return (
        tree.level,
        tree.next_id,
        ids(tree.frontier),
        ids(tree.pool),
        [(n.parent, n.level, n.kind, n.score, n.calibrated) for n in tree.pool],
    )


def recorded(trees, world):
    """What can be seen of a search, level by level."""
    levels = []
    for k, tree in enumerate(trees):
        assert tree.level == k + 1
        in_pool = {node.id: node for node in tree.pool}
        assert len(in_pool) == len(tree.pool)
        assert all(in_pool[node.id] is node for node in tree.frontier)
        levels.append(
            {
                "collector": world.collectors[k],
                "births": world.births[k],
                "frontier": ids(tree.frontier),
                "pool": sorted(in_pool),
                "calibrated": {node.id: node.calibrated for node in tree.pool},
            }
        )
    assert len(world.collectors) == len(world.births) == len(levels)
    return levels


def algorithm_2(score, *, T, F, c, ell, m, d, backtracking):
    """Algorithm 2's bookkeeping. Whatever was not selected since gets 2.5 Δ at an expansion."""
    value = {}  # by node, calibrated; the root has none
    since = {}  # by node, the value of its ancestor that was expanded last
    frontier, leaves, made = [0], [0], 1
    levels = []

    def best_first(numbers):
        return sorted(numbers, key=lambda number: (value.get(number, 0.0), number))

    for k in range(T):
        level = {"collector": best_first(leaves)[0]}
        room_for_all = c > 1 and len(frontier) * c <= F
        if room_for_all or k in range(0, T, d + 1):
            level["kind"] = "expansion"
            if not backtracking:
                leaves = list(frontier)
            changes = [value[n] - since[n] for n in frontier if n in since]
            if changes:
                delta = fmean(changes)
                for n in set(leaves) - set(frontier):
                    value[n] += 2.5 * delta
            selected = list(frontier) if room_for_all else best_first(leaves)[:ell]
            level["births"] = [(n, "expansion", j) for n in selected for j in range(c)]
        else:
            level["kind"] = "dive"
            selected = list(frontier)
            level["births"] = [(n, "dive", 0) for n in selected]

        frontier = []
        for parent, kind, _ in level["births"]:
            value[made] = score(made, k)
            before = value if kind == "expansion" else since
            if parent in before:
                since[made] = before[parent]
            frontier.append(made)
            made += 1
        others = best_first(n for n in leaves if n not in selected)
        leaves = frontier + others[: m - len(frontier)]
        level |= {"frontier": frontier, "pool": sorted(leaves)}
        level["calibrated"] = {n: value[n] for n in leaves if n in value}
        levels.append(level)
    return levels


def beam(tree, world, *, T, F, c, ell, m, d, backtracking=True):
    return list(
        beam_search(
            tree,
            world,
            levels=T,
            frontier_size=F,
            splitting_factor=c,
            expanded=ell,
            pool_size=m,
            dive_levels=d,
            backtracking=backtracking,
        )
    )


@st.composite
def beams(draw):
    c = draw(st.integers(1, 4))
    selected = draw(st.integers(1, 4))
    size = c * selected + draw(st.integers(0, 10))
    return {
        "T": draw(st.integers(0, 24)),
        "F": size,
        "c": c,
        "ell": selected,
        "m": size + draw(st.integers(0, 8)),
        "d": draw(st.integers(0, 4)),
        "backtracking": draw(st.booleans()),
    }


@given(beams(), st.integers(0, 1_000_000))
@settings(max_examples=300)
def test_beam_search_is_algorithm_2(sizes, seed):
    world = Scored(made_up(seed))
    found = recorded(beam(plant(), world, **sizes), world)
    expected = algorithm_2(made_up(seed), **sizes)
    assert len(found) == len(expected) == sizes["T"]
    for ours, model in zip(found, expected, strict=True):
        assert {kind for _, kind, _ in ours["births"]} == {model.pop("kind")}
        calibrated, value = ours.pop("calibrated"), model.pop("calibrated")
        assert calibrated == pytest.approx(value, rel=1e-9, abs=1e-6)
        assert ours == model
        assert len(ours["frontier"]) <= sizes["F"]
        assert len(ours["pool"]) <= sizes["m"]


@given(beams(), st.integers(0, 1_000_000))
@settings(max_examples=10)
def test_beam_search_goes_on_from_any_tree(sizes, seed):
    first = Scored(made_up(seed))
    trees = beam(plant(), first, **sizes)
    shapes = [shape(tree) for tree in trees]
    for k, tree in enumerate(trees):
        again = Scored(made_up(seed))
        rest = [shape(tree) for tree in beam(tree, again, **sizes)]
        assert rest == shapes[k + 1 :]
        assert again.collectors == first.collectors[k + 1 :]
        assert again.births == first.births[k + 1 :]


TENS = range(10, 100, 10)


@pytest.mark.parametrize(
    ("sizes", "expansions"),
    [
        ({"F": 16, "c": 4, "ell": 4, "m": 46}, [0, 1, *TENS]),
        ({"F": 8, "c": 2, "ell": 2, "m": 38}, [0, 1, 2, *sorted([*TENS, *(k + 1 for k in TENS)])]),
    ],
)
def test_the_schedules_of_the_paper(sizes, expansions):
    world = Scored(made_up(0))
    trees = beam(plant(), world, T=100, d=9, **sizes)
    kinds = [births[0][1] for births in world.births]
    assert [k for k, kind in enumerate(kinds) if kind == "expansion"] == expansions
    full = [len(tree.frontier) == sizes["F"] for tree in trees]
    assert [k for k in range(100) if not full[k]] == [k for k in expansions if k + 1 in expansions]
    assert max(len(tree.pool) for tree in trees) == sizes["m"]


def test_a_node_that_diverged_is_not_followed():
    world = by_hand([None, NAN, 2.0, NAN, 1.0, 3.0, 3.0])
    sizes = {"T": 3, "F": 2, "c": 2, "ell": 1, "m": 3, "d": 0}
    assert [ids(tree.pool) for tree in beam(plant(), world, **sizes)] == [
        [1, 2],
        [3, 4, 1],
        [5, 6, 1],
    ]
    assert world.collectors == [0, 2, 4]
    assert [births[0][0] for births in world.births] == [0, 2, 4]


def drawn(trees):
    """A search's tree as text: scores after those at the last selection, and where leaves are."""
    nodes = {node.id: node for tree in trees for node in tree.pool}
    last = trees[-1]
    places = dict.fromkeys(ids(last.pool), "pool") | dict.fromkeys(ids(last.frontier), "frontier")

    def lines(parent, depth):
        for number in sorted(n for n, node in nodes.items() if node.parent == parent):
            node, below = nodes[number], list(lines(number, depth + 1))
            line = f"{'  ' * depth}{number} {node.kind} "
            line += f"{node.score:g}" if depth == 1 else f"{node.reference:g} → {node.score:g}"
            if node.calibrated != node.score:
                line += f", calibrated {node.calibrated:g}"
            yield line if below else f"{line}: {places.get(number, 'evicted')}"
            yield from below

    return "\n".join(["0 root", *lines(0, 1)])


GOLDEN_SCORES = [
    None,  # 0, the root
    *(8, 9),  # 1, 2 in level 0, which fills the frontier
    *(5, 3, 4, 7),  # 3–6 in level 1, which fills it, too; 4 and 5 are the best two
    *(4, 6, 4, 6),  # 7–10 in level 2, an expansion of them; 3 and 6 wait
    *(3, 3, -1, 5),  # 11–14 in level 3, a dive. Δ = (3−3 + 3−3 − 1−4 + 5−4) / 4 = −1
    *(1, 2, 0.5, 3),  # 15–18 in level 4, an expansion of 13 and of 3, which is now 5 − 2.5
]
GOLDEN = """\
0 root
  1 expansion 8
    3 expansion 8 → 5
      17 expansion 2.5 → 0.5: frontier
      18 expansion 2.5 → 3: frontier
    4 expansion 8 → 3
      7 expansion 3 → 4
        11 dive 3 → 3: pool
      8 expansion 3 → 6
        12 dive 3 → 3: pool
  2 expansion 9
    5 expansion 9 → 4
      9 expansion 4 → 4
        13 dive 4 → -1
          15 expansion -1 → 1: frontier
          16 expansion -1 → 2: frontier
      10 expansion 4 → 6
        14 dive 4 → 5: evicted
    6 expansion 9 → 7, calibrated 4.5: pool"""


def test_a_golden_tree():
    """Two selections, the second of which goes back to a leaf that was left behind."""
    world = by_hand(GOLDEN_SCORES)
    trees = beam(plant(), world, T=5, F=4, c=2, ell=2, m=7, d=1)
    assert drawn(trees) == GOLDEN
    assert world.collectors == [0, 1, 4, 7, 13]  # 7 and 9 are equals


def test_without_backtracking_what_was_left_behind_is_gone():
    """The golden tree up to level 3; then 13 and 11 are expanded, and 3 and 6 are no more."""
    world = by_hand(GOLDEN_SCORES)
    trees = beam(plant(), world, T=5, F=4, c=2, ell=2, m=7, d=1, backtracking=False)
    assert [ids(tree.pool) for tree in trees] == [
        [1, 2],
        [3, 4, 5, 6],
        [7, 8, 9, 10, 3, 6],
        [11, 12, 13, 14, 3, 6],
        [15, 16, 17, 18, 12, 14],
    ]
    assert [number for number, _, _ in world.births[-1]] == [13, 13, 11, 11]


def parents(world):
    """Who had children in each level."""
    return [list(dict.fromkeys(number for number, _, _ in births)) for births in world.births]


def test_best_first_search():
    world = by_hand([None, *(5, 4), *(6, 5), *(7, 5.5), *(9, 9), *(8, 1)])
    trees = list(best_first_search(plant(), world, levels=5, splitting_factor=2, pool_size=3))
    assert parents(world) == [[0], [2], [1], [4], [6]]  # 1 and 4 are equals
    assert world.collectors == [0, 2, 1, 4, 6]
    assert [ids(tree.pool) for tree in trees] == [
        [1, 2],
        [3, 4, 1],
        [5, 6, 4],  # 3 is evicted; 5 is worse, but new
        [7, 8, 6],
        [9, 10, 7],
    ]
    assert all(kind == "expansion" for births in world.births for _, kind, _ in births)


def test_depth_first_search():
    scores = [
        None,
        *(5.5, 4),  # of the root, which has no score to compare to
        *(3, 5),  # of 2: 4 is a dead end
        *(6, 7),  # of 3: dead ends, so back to 1, though 4 scores better
        *(5.5, 9),  # of 1: as good as 1 is good enough
        *(8, 9),  # of 7: dead ends, so nothing is left but 4, the best of them
        *(4, 4),  # of 4
    ]
    world = by_hand(scores)
    trees = list(depth_first_search(plant(), world, levels=6, splitting_factor=2, pool_size=6))
    assert parents(world) == [[0], [2], [3], [1], [7], [4]]
    assert world.collectors == [0, 2, 3, 1, 7, 4]
    assert [ids(tree.pool) for tree in trees] == [
        [1, 2],
        [3, 4, 1],
        [5, 6, 4, 1],
        [7, 8, 4, 5, 6],
        [9, 10, 4, 5, 6, 8],
        [11, 12, 5, 6, 9, 8],  # 10 is evicted: it is the worst, and made after 8
    ]


def test_depth_first_search_goes_down_rather_than_aside_among_equals():
    world = by_hand([None, *(4, 4), *(4, 5), *(1, 1)])
    list(depth_first_search(plant(), world, levels=3, splitting_factor=2, pool_size=6))
    assert parents(world) == [[0], [1], [3]]


def test_depth_first_search_turns_back_from_what_diverged():
    world = by_hand([None, *(9, 4), *(NAN, NAN), *(1, 1)])
    list(depth_first_search(plant(), world, levels=3, splitting_factor=2, pool_size=6))
    assert parents(world) == [[0], [2], [1]]


def test_local_search():
    world = by_hand([None, *(4, 3, 3), *(9, 8, 7), *(1, 2, 3)])
    trees = list(local_search(plant(), world, levels=3, splitting_factor=3))
    births = [[(n, "dive", 0), (n, "expansion", 0), (n, "expansion", 1)] for n in (0, 2, 6)]
    assert world.births == births  # it stays with 2's children, though they are worse
    assert world.collectors == [0, 2, 6]
    assert [ids(tree.pool) for tree in trees] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert [ids(tree.frontier) for tree in trees] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_local_search_with_one_child_is_plain_q_learning():
    world = by_hand([None, 3, 2, 5])
    list(local_search(plant(), world, levels=3, splitting_factor=1))
    assert world.births == [[(0, "dive", 0)], [(1, "dive", 0)], [(2, "dive", 0)]]


def test_independent_search():
    world = by_hand([None, None, None, *(5, 3, 4), *(6, 9, 6), *(0, 0, 0)])
    trees = list(independent_search(plant(3), world, levels=3))
    assert world.births == [[(n + i, "dive", 0) for i in range(3)] for n in (0, 3, 6)]
    assert world.collectors == [0, 4, 6]  # one batch for all
    for tree, expected in zip(trees, [[3, 4, 5], [6, 7, 8], [9, 10, 11]], strict=True):
        assert ids(tree.pool) == ids(tree.frontier) == expected


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (best_first_search, {"splitting_factor": 3, "pool_size": 5}),
        (depth_first_search, {"splitting_factor": 2, "pool_size": 4}),
        (local_search, {"splitting_factor": 3}),
        (independent_search, {}),
    ],
)
def test_the_others_go_on_from_any_tree(search, options):
    first = Scored(made_up(1))
    trees = list(search(plant(2), first, levels=8, **options))
    assert [tree.level for tree in trees] == list(range(1, 9))
    for k, tree in enumerate(trees):
        again = Scored(made_up(1))
        rest = search(tree, again, levels=8, **options)
        assert [shape(tree) for tree in rest] == [shape(tree) for tree in trees[k + 1 :]]
        assert again.collectors == first.collectors[k + 1 :]
        assert again.births == first.births[k + 1 :]
