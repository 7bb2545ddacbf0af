"""What results/exact.md says is what came out."""

import collections
import csv
import itertools
import json
import math
import statistics

from measured import student
from told import ROOT, words


def test_appendix_a_is_told_as_it_came_out():
    with (ROOT / "results/appendix_a/ends.csv").open() as file:
        every = list(csv.DictReader(file))
    rows = [row for row in every if row["discount"] == "1.0"]

    def at(value, method, setting):
        own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
        assert len(own) == 121
        return sum(math.isclose(float(row["value"]), value) for row in own)

    found = words("results")
    low = [at(0.3, "Q-learning", f"ε = {epsilon}") for epsilon in (1, 0.8)]
    high = [at(0.5, "Q-learning", f"ε = {epsilon}") for epsilon in (0.6, 0.4, 0.2)]
    assert "from {} of 121 starts with uniform behaviour (ε = 1), and from {}".format(*low) in found
    assert "ends at 1122 from {}, {} and {}".format(*high) in found
    assert at(0.3, "regression", "") == 121
    for buffer in ("all", "newest"):
        ends = [at(value, "penalised regression", f"λ = 10, {buffer}") for value in (0.5, 0.3, 0)]
        told = "at 1122 from {} of 121 starts, at 0.3 from {}, and at a policy worth 0 from {}."
        assert told.format(*ends) in found
    little = [at(value, "Q-learning", "ε = 0.05") for value in (0.5, 0.3)]
    assert sum(little) == 121
    assert f"with ε = 0.05 from {little[0]}, else at 0.3" in found
    uniform = [row for row in rows if row["setting"] == "ε = 1"]
    theta = (statistics.mean(float(row[f"theta_{i}"]) for row in uniform) for i in (1, 2))
    assert "near one θ, ({:.3f}, {:.3f}) on average".format(*theta).replace("-", "−") in found
    ends = collections.defaultdict(dict)
    for row in every:
        start = (row["discount"], row["start_1"], row["start_2"])
        ends[row["method"], row["setting"]][start] = row["policy"]
    for discount in ("0.95", "0.9", "0.8"):
        best = [
            sum(
                policy == "1122"
                for start, policy in ends["Q-learning", f"ε = {epsilon}"].items()
                if start[0] == discount
            )
            for epsilon in (1, 0.8, 0.6, 0.4, 0.2, 0.05)
        ]
        assert best in ([0, 4, 36, 36, 36, 30], [0, 5, 36, 36, 36, 30])  # as told
    for weight in (1, 10, 100):
        newest, all_ = (
            ends["penalised regression", f"λ = {weight}, {buffer}"] for buffer in ("newest", "all")
        )
        assert (newest == all_) == (weight > 1)  # as told


def test_the_limit_of_the_penalty_is_told_as_it_came_out():
    with (ROOT / "results/exactness/limit.csv").open() as file:
        rows = [
            {k: v if k == "game" else float(v) for k, v in r.items()} for r in csv.DictReader(file)
        ]
    broken = {
        weight: [r["broken"] for r in rows if r["penalty_weight"] == weight] for weight in (0, 1)
    }
    assert "breaks {:.0f} to {:.0f} % of the choices, λ = 1 at most {:.0f} %".format(
        *(100 * end for end in (min(broken[0]), max(broken[0]), max(broken[1])))
    ) in words("results")
    limit = [row for row in rows if 10 <= row["penalty_weight"] <= 1000]
    assert len(limit) == 15
    assert all(row["broken"] == 0 and row["apart"] < 1e-4 for row in limit)


def test_what_training_commits_to_is_told_as_it_came_out():
    with (ROOT / "results/exactness/unions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    found = words("results")

    def ends(weight, column, digits):
        shares = [100 * float(r[column]) for r in rows if float(r["penalty_weight"]) == weight]
        return f"{min(shares):.{digits}f} to {max(shares):.{digits}f} %"

    columns = {"broken": 1, "broken_at_best_found": 2, "broken_by_any_policy": 2}
    for weight in (0, 1, 10, 100, 1000):
        cells = [ends(weight, column, digits) for column, digits in columns.items()]
        own = [row for row in rows if float(row["penalty_weight"]) == weight]
        times, proved, open_ = (
            sum(int(row[name]) for row in own)
            for name in ("repetitions", "inconsistent", "undecided")
        )
        assert times == 15
        cells.append(f"{proved}, {open_}, {times - proved - open_}")
        assert f"| {weight:,} | {' | '.join(cells)} |" in found
    plain, little, *more = (
        [int(row["inconsistent"]) for row in rows if float(row["penalty_weight"]) == weight]
        for weight in (0, 1, 10, 100, 1000)
    )
    told = f"so in {sum(plain)} of 15 repetitions, in two or three of three in every game"
    assert told in found
    assert min(plain) == 2
    assert f"With λ = 1 it is proved in {sum(little)}, and with λ = 10 or more in none" in found
    assert not any(map(sum, more))
    open_ = {
        (row["game"], row["penalty_weight"]): int(row["undecided"])
        for row in rows
        if float(row["penalty_weight"]) >= 10
    }
    left = sum(count for (_, weight), count in open_.items() if weight == "10")
    assert f"with λ = 10 one last layer can in {15 - left}, and {left} are open" in found
    assert all(open_["SpaceInvaders", weight] == 3 for weight in ("10", "100", "1000"))  # as told
    by_game = collections.defaultdict(list)
    for row in rows:
        by_game[row["game"]].append(float(row["broken"]))
    assert all(max(penalised) < plain for plain, *penalised in by_game.values())


def test_what_labels_promise_is_told_as_it_was_measured():
    found = json.loads((ROOT / "results/diagnosis/minatar_breakout.json").read_text())
    plain, penalised = (found[name] for name in ("plain", "penalised"))
    more = student(
        after["worth"]["excess"] - before["worth"]["excess"]
        for before, after in zip(plain["repetitions"], penalised["repetitions"], strict=True)
    )
    balance = plain["balance"]
    one, other = (
        "{:.2f} ({:.2f} to {:.2f})".format(own["mean"], *own["interval"])
        for own in (balance["excess"], penalised["balance"]["excess"])
    )
    exact = words("results/exact.md")
    resolved = [
        [each["satisfiable"]["resolved"] for each in own["repetitions"]]
        for own in (plain, penalised)
    ]
    proved, still = (own.count("inconsistent") for own in resolved)
    possible = resolved[1].count("consistent")
    assert f"In {proved} of the 10 it is proved that no last layer keeps as many" in exact
    assert f"in {still} of 10, and in the other {possible} one last layer does" in exact
    assert f"labels are {balance['promised']['mean']:.2f} on average" in exact
    assert f"it earns {balance['earned']['mean']:.2f} from there" in exact
    assert f"they promise {one} too much" in exact
    assert f"labels promise {other} too much" in exact
    assert "too much, {:.2f} ({:.2f} to {:.2f}) more".format(*more) in exact
    before = found["checkpoint"]["balance"]["excess"]
    told = "checkpoint itself promises {:.2f} ({:.2f} to {:.2f}) too much"
    assert told.format(before["mean"], *before["interval"]) in exact


def test_how_uncertain_shares_of_broken_choices_are_is_told():
    with (ROOT / "results/exactness/unions.csv").open() as file:
        rows = {(row["game"], row["penalty_weight"]): row for row in csv.DictReader(file)}
    told = "{} {:.1f} % are {:.1f} to {:.1f} %"
    for name, game in (("Asterix'", "Asterix"), ("Seaquest's", "Seaquest")):
        row = rows[game, "0"]
        shares = (100 * float(row[column]) for column in ("broken", "broken_low", "broken_high"))
        assert told.format(name, *shares) in words("results/exact.md")
    weights = ("0", "1", "10", "100", "1000")
    for before, after in itertools.pairwise(weights):
        more = {
            game
            for game, weight in rows
            if weight == after
            and float(rows[game, after]["broken"]) > float(rows[game, before]["broken"])
        }
        assert more == ({"Asterix"} if after == "1000" else set())  # as told
