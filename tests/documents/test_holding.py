"""What results/search.md says of why is what came out: holding, and losses of batches."""

import csv
import statistics

import holding
import waiting
from told import ROOT, text, words

from conqur.statistics import student_interval


def test_holding_is_told_as_it_came_out():
    runs = holding.read(ROOT / "results/holding/runs.csv")
    found = list(holding.means(runs))
    with (ROOT / "results/holding/means.csv").open() as file:
        assert [row["score"] for row in csv.DictReader(file)] == [str(mean.score) for mean in found]
    assert holding.picture(runs) == (ROOT / "results/holding/distances.svg").read_text()
    told = words("results")
    assert holding.table(found) in text("results")
    means = {(mean.game, mean.arm, mean.weight): mean for mean in found}
    ours, none, *held = (
        means["SpaceInvaders", arm, weight]
        for arm, weight in (("λ", 10.0), ("ρ", 0.0), ("ρ", 1.0), ("ρ", 10.0), ("ρ", 100.0))
    )
    assert ours.distance / none.distance > 1
    for mean in (ours, none):
        assert f"score {mean.score:.2f} ({mean.low:.2f} to {mean.high:.2f})" in told
    near = "at {:.2f} and {:.2f} of the distance with λ = 10 are ruined as well".format(
        *(mean.distance / ours.distance for mean in held[:2])
    )
    assert near in told
    assert f"With ρ = 100, at {held[2].distance / ours.distance:.2f} of it" in told
    scores = {(run.network, run.arm, run.weight): run.score for run in runs}
    parts = {key: scores[key] / run.checkpoint for key, run in zip(scores, runs, strict=True)}
    space = [f"SpaceInvaders-{seed}" for seed in holding.SEEDS]
    assert all(parts[name, "ρ", weight] < 0.6 for name in space for weight in (0.0, 1.0))
    assert sum(parts[name, "ρ", 10.0] < 0.6 for name in space) == len(space) - 1 == 8
    lowest, second, *_ = sorted(parts[name, "ρ", 100.0] for name in space)
    assert (
        f"eight of nine keep {second:.2f} of their score or more, and one falls to {lowest:.2f}"
        in told
    )
    unseen = [r for r in runs if r.network in space[-4:] and r.arm == "λ"]
    interval = student_interval(holding.in_parts(unseen))
    shown = statistics.mean(holding.in_parts(unseen)), *interval
    assert "not seen before it is {:.2f} ({:.2f} to {:.2f})".format(*shown) in told
    changed = {(run.network, run.arm, run.weight): 100 * run.changed for run in runs}
    fewer = [changed[name, "λ", 10.0] - changed[name, "ρ", 0.0] for name in space]
    interval = "(difference {:.0f} points, {:.0f} to {:+.0f})".format(
        statistics.mean(fewer), *student_interval(fewer)
    )
    assert interval.replace("-", "−") in told
    for arm, words_of in (
        (("τ", 0.001), "({:.1f} points less, {:.1f} to {:.1f})"),
        (("ρ", 100.0), "{:.1f} points behind those with λ = 10 ({:.1f} to {:.1f})"),
    ):
        ahead = [scores[name, "λ", 10.0] - scores[name, *arm] for name in space]
        shown = words_of.format(statistics.mean(ahead), *student_interval(ahead))
        assert shown.replace("-", "−") in told
    far, free = (means["Freeway", arm, weight] for arm, weight in (("λ", 10.0), ("ρ", 0.0)))
    assert f"{far.distance / free.distance:.1f} times as far as those without it" in told
    for run in runs:
        if run.network.startswith("Freeway"):
            assert (run.score / run.checkpoint < 0.6) == (run.arm == "λ")


def test_what_is_told_of_low_temperatures_is_what_came_out():
    runs = holding.read(ROOT / "results/holding/runs.csv")
    means = {(mean.game, mean.arm, mean.weight): mean for mean in holding.means(runs)}
    told = words("results")
    with (ROOT / "results/holding/sampled.csv").open() as file:
        rows = [(float(r["temperature"]), 100 * float(r["greedy"])) for r in csv.DictReader(file)]
    warm, cold = ([share for tau, share in rows if tau == own] for own in (1.0, 0.001))
    assert f"are greedy: {min(cold):.0f} to {max(cold):.0f} %, where with τ = 1 it is " in told
    assert f"with τ = 1 it is {min(warm):.0f} to {max(warm):.0f} %" in told
    shown = dict(zip(("SpaceInvaders", "Freeway", *holding.OTHERS), warm, strict=True))
    shares = f"{shown['Breakout']:.0f} % (Breakout) and {shown['Asterix']:.0f} % (Asterix)"
    assert f"{shares} of the sampled choices are greedy" in words("README.md")
    games = (*holding.GAMES, *holding.OTHERS)
    kept = [100 * (1 - means[game, "τ", 0.001].changed) for game in games]
    assert f"leaves {min(kept):.0f} to {max(kept):.0f} % of greedy actions as they were" in told
    space, held = means["SpaceInvaders", "τ", 0.001], means["SpaceInvaders", "ρ", 1.0]
    assert space.distance > held.distance  # whose heads are ruined
    assert f"temperature have {space.score:.2f} ({space.low:.2f} to {space.high:.2f})" in told
    freeway = means["Freeway", "τ", 0.001]
    assert "lose a little, {:.2f} ({:.2f} to {:.2f})".format(*freeway[4:7]) in told
    with_it, without = means["Asterix", "τ", 0.001], means["Asterix", "ρ", 0.0]
    shown = "in Asterix {:.2f} ({:.2f} to {:.2f}) with it, where training without it has {:.2f} "
    shown += "({:.2f} to {:.2f})"
    assert shown.format(*with_it[4:7], *without[4:7]) in told
    for game in holding.OTHERS:
        ours, free = means[game, "λ", 10.0], means[game, "ρ", 0.0]
        assert ours.distance > free.distance
        assert ours.score < 1
    shown = (
        "in Seaquest {:.2f} ({:.2f} to {:.2f}), where those without have {:.2f} ({:.2f} to {:.2f})"
    )
    assert shown.format(*ours[4:7], *free[4:7]) in told  # the last of them
    cold = [means[game, "τ", 0.001] for game in holding.OTHERS]
    assert "it is {:.2f}, {:.2f} and {:.2f}, in none".format(*(mean.score for mean in cold)) in told
    assert all(mean.low < 1 < mean.high for mean in cold)
    seaquest = [
        r for r in runs if r.network.startswith("Seaquest") and (r.arm, r.weight) == ("ρ", 0)
    ]
    assert all(run.commit and run.score / run.checkpoint > 0.6 for run in seaquest)


def test_losses_of_different_batches_are_told_as_they_came_out(tmp_path):
    names = ("minatar_breakout_paper16", "upndown_paper16")
    folders = [ROOT / "results/tuning" / name for name in names]
    waiting.main(folders, tmp_path / "waiting.csv")
    made = (tmp_path / "waiting.csv").read_text()
    assert made == (ROOT / "results/tuning/waiting.csv").read_text()
    found, rows = words("results"), list(csv.DictReader(made.splitlines()))
    for told, cells in (
        ("had waited", [f"{row['collected']} of {row['levels']}" for row in rows]),
        ("had been credited at a selection", [row["credited"] for row in rows]),
        ("by the same one", [row["longest"] for row in rows]),
        ("leaves that had waited", [f"{row['returns']} of {row['selections']}" for row in rows]),
        ("in the end were trained in", [row["trained"] for row in rows]),
        ("in the end had waited", [row["waits"] for row in rows]),
        ("(median of levels)", [f"{float(row['within']):.2g}" for row in rows]),
        ("to the next level (median)", [f"{float(row['between']):.2g}" for row in rows]),
    ):
        assert f"{told} | {' | '.join(cells)} |" in found
    times = [float(row["between"]) / float(row["within"]) for row in rows]
    assert all(25 < each < 35 for each in times)  # "some thirty times"
    assert all(row["calibrated"] != row["chosen"] for row in rows)
