"""What a run that is killed while it chooses leaves behind."""

import json

import numpy as np
import pytest

from conqur.runs import RunDirectory, RunError
from conqur.search.choosing import FILE, Choosing, forget
from conqur.search.rollouts import Round

AMONG = ([np.array([1.0, 2.0]), np.array([3.0])], {"episodes": 2, "seed": 5})
OTHERS = {
    "a weight": ([np.array([1.0, 2.5]), np.array([3.0])], AMONG[1]),
    "the order": (AMONG[0][::-1], AMONG[1]),
    "one less": (AMONG[0][:1], AMONG[1]),
    "other starts": (AMONG[0], AMONG[1] | {"seed": 6}),
}
ROUNDS = [Round([[0.1, 2.0], [1e-300, 3.0]], 70)]


@pytest.fixture
def run(tmp_path):
    with RunDirectory.create(tmp_path / "run", {}, seeds=[0]) as made:
        yield made


def test_rounds_come_back_as_they_were(run):
    nothing = Choosing(run, AMONG)
    assert (nothing.rounds, nothing.seconds) == ((), 0.0)
    nothing.keep(ROUNDS, 12.5)
    again = Choosing(run, AMONG)
    assert (again.rounds, again.seconds) == (ROUNDS, 12.5)
    forget(run)
    assert Choosing(run, AMONG).rounds == ()
    forget(run)  # twice is once


@pytest.mark.parametrize("among", OTHERS.values(), ids=OTHERS)
def test_rounds_among_others_are_of_no_use(run, among):
    Choosing(run, AMONG).keep(ROUNDS, 1.0)
    found = Choosing(run, among)
    assert (found.rounds, found.seconds) == ((), 0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 3},
        {"rounds": [[["x"], 1]]},
        {"rounds": [[[[1.0]], float("inf")]]},
        {"rounds": [[[[1.0]]]]},
        {"rounds": [[[[float("nan")]], 1]]},
        {"rounds": [[[[1.0]], -5]]},
        {"rounds": [[[[1.0]], 1e30]]},
        {"seconds": None},
        {"seconds": float("nan")},
        {"seconds": []},
    ],
)
def test_what_was_damaged_is_not_used(run, changes):
    Choosing(run, AMONG).keep(ROUNDS, 1.0)
    found = json.loads((run.path / FILE).read_bytes())
    (run.path / FILE).write_text(json.dumps(found | changes))
    assert Choosing(run, AMONG).rounds == ()


def test_what_is_no_file_is_named_before_anything_is_played(run):
    (run.path / FILE).mkdir()
    with pytest.raises(RunError, match=r"choosing.json is no regular file: remove it"):
        Choosing(run, AMONG)
