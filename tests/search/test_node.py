"""Choosing among nodes, by hand. Scores are losses: lower is better."""

import itertools
import math

import pytest

from conqur.search.node import (
    Birth,
    Kind,
    Node,
    Tree,
    calibrate,
    dive,
    evict,
    expand,
    top,
    without,
)

NAN = math.nan


def node(number, calibrated=0.0, *, score=0.0, reference=0.0):
    return Node(number, None, 0, Kind.DIVE, "max", score, calibrated, reference, NAN, NAN, None, ())


def trained(number, score, reference):
    return node(number, score, score=score, reference=reference)


def ids(nodes):
    return [node.id for node in nodes]


def test_top_is_the_lowest_calibrated_score_and_the_older_of_equals():
    nodes = [node(7, 1.5), node(2, 3.0), node(9, -1.0), node(4, 1.5), node(5, 1.5, score=-9.0)]
    assert ids(top(nodes, 5)) == [9, 4, 5, 7, 2]
    assert ids(top(nodes, 2)) == [9, 4]
    assert ids(top(nodes, 9)) == [9, 4, 5, 7, 2]
    assert top(nodes, 0) == top([], 3) == ()


def test_what_diverged_is_last_wherever_it_stood():
    nodes = [node(0, NAN), node(1, 2.0), node(2, float("nan")), node(3, 1.0)]
    for order in itertools.permutations(nodes):
        assert ids(top(order, 4)) == [3, 1, 0, 2]


def test_without_goes_by_id_and_keeps_the_order():
    nodes = [node(3), node(1), node(2), node(5)]
    again = [node(1, 8.0), node(5), node(6)]  # other objects, as after a calibration
    assert ids(without(nodes, again)) == [3, 2]
    assert ids(without(nodes, [])) == [3, 1, 2, 5]


def test_calibrate_adds_what_the_frontier_changed_by_to_the_others():
    frontier = (trained(4, 5.0, 6.0), trained(5, 3.0, 3.5), trained(6, 7.0, 7.0))  # Δ = −0.5
    waiting = (node(1, 8.0, score=9.0, reference=1.0), node(2, -2.0, score=4.0))
    pool = (waiting[0], *frontier, waiting[1])
    after = calibrate(pool, frontier, 2.5)
    assert ids(after) == [1, 4, 5, 6, 2]
    assert [n.calibrated for n in after] == [8.0 - 1.25, 5.0, 3.0, 7.0, -2.0 - 1.25]
    assert [n.score for n in after] == [9.0, 5.0, 3.0, 7.0, 4.0]
    assert [n.reference for n in after] == [1.0, 6.0, 3.5, 7.0, 0.0]
    assert [n.calibrated for n in pool] == [8.0, 5.0, 3.0, 7.0, -2.0]  # as it was
    again = calibrate(after, frontier, 2.0)  # what was added stays
    assert [n.calibrated for n in again] == [8.0 - 2.25, 5.0, 3.0, 7.0, -2.0 - 2.25]
    assert [n.calibrated for n in calibrate(pool, frontier, 0.0)] == [8.0, 5.0, 3.0, 7.0, -2.0]


def test_a_change_for_the_worse_makes_the_others_worse():
    frontier = (trained(1, 4.0, 3.0),)
    assert [n.calibrated for n in calibrate((node(0, 1.0), *frontier), frontier, 2.5)] == [3.5, 4.0]


@pytest.mark.parametrize("unknown", [(NAN, 3.0), (4.0, NAN), (math.inf, 3.0), (NAN, NAN)])
def test_changes_that_are_not_known_do_not_count(unknown):
    odd = trained(3, *unknown)
    frontier = (trained(1, 4.0, 3.0), odd, trained(2, 6.0, 3.0))  # Δ = 2 of the known
    assert calibrate((node(0, 1.0), *frontier), frontier, 2.5)[0].calibrated == 6.0
    assert calibrate((node(0, 1.0), odd), (odd,), 2.5)[0].calibrated == 1.0


def test_evict_keeps_the_frontier_and_the_best_of_the_rest():
    frontier = (node(8, 90.0), node(9, 80.0))
    pool = (node(1, 3.0), frontier[1], node(2, 1.0), node(3, 2.0), frontier[0], node(4, 1.0))
    assert ids(evict(pool, frontier, 9)) == [8, 9, 2, 4, 3, 1]
    assert ids(evict(pool, frontier, 5)) == [8, 9, 2, 4, 3]
    assert ids(evict(pool, frontier, 3)) == [8, 9, 2]
    assert ids(evict(pool, frontier, 2)) == [8, 9]
    assert ids(evict(pool, frontier, 1)) == [8, 9]  # the frontier is never evicted


def test_births():
    a, b = node(3), node(5)
    expected = [(a, 0), (a, 1), (a, 2), (b, 0), (b, 1), (b, 2)]
    assert expand((a, b), 3) == tuple(Birth(n, Kind.EXPANSION, j) for n, j in expected)
    assert expand((a, b), 0) == ()
    assert dive((b, a)) == (Birth(b, Kind.DIVE, 0), Birth(a, Kind.DIVE, 0))


def test_a_tree_counts_its_levels_and_nodes():
    tree = Tree.planted(node(i) for i in range(3))
    assert (tree.level, ids(tree.pool), ids(tree.frontier), tree.next_id) == (
        0,
        [0, 1, 2],
        [0, 1, 2],
        3,
    )
    children = (node(3), node(4))
    after = tree.after((*children, tree.pool[1]), children)
    assert (after.level, ids(after.pool), ids(after.frontier), after.next_id) == (
        1,
        [3, 4, 1],
        [3, 4],
        5,
    )
