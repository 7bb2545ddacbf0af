"""What results/search.md says of single runs and of Atari networks is what came out."""

import html
import json
import re

import measured
import pytest
from measured import study
from told import ROOT, words

from conqur.report.run_page import headline
from conqur.report.tuned_run import read_tuned


def test_the_run_with_the_paper_s_settings_is_told_as_it_was():
    told = words("results").replace("−", "-")
    folder = ROOT / "results/tuning/minatar_breakout_paper16"
    found = json.loads((folder / "summary.json").read_text())
    best, chosen, scored = (
        found[name] for name in ("best_of_evaluations", "chosen", "chosen_by_score")
    )
    assert f"node {best['node']} after level {best['level']}, +{best['gain']:.2f} points" in told
    assert best["node"] == chosen["node"]
    for one, said in ((chosen, "+{:.2f} (95 % interval {:.2f} to"), (scored, "{:.2f} ({:.2f} to")):
        assert said.format(one["gain"], one["gain_interval"][0]) in told
    assert f"took {found['seconds'] / 60:.0f} minutes" in told
    assert len((folder / "tree.jsonl").read_text().splitlines()) > 1000


@pytest.mark.parametrize("folder", ["upndown_paper16", "minatar_asterix_default"])
def test_runs_in_the_results_are_told_as_they_were(folder):
    def plain(name):
        return words(name).replace("−", "-")

    found = json.loads((ROOT / "results/tuning" / folder / "summary.json").read_text())
    chosen, before = found["chosen"], found["checkpoint"]["mean"]
    low, high = chosen["gain_interval"]
    after, gain = chosen["mean"], chosen["gain"]
    if folder == "upndown_paper16":
        results = (
            f"scores {before:.1f} and node {chosen['node']} {after:.1f}: +{gain:.1f} (95 % "
            f"interval {low:.1f} to {high:.1f}); the node with the best score, "
            f"{found['chosen_by_score']['node']}, leads by +{found['chosen_by_score']['gain']:.1f}"
        )
        assert f"took {found['seconds'] / 60:.0f} minutes" in plain("results")
    else:
        readme = (
            f"from {before:.1f} to {after:.1f} (+{gain:.1f}, 95 % interval {low:.1f} to "
            f"{high:.1f}, {chosen['episodes']} fresh starts) in {found['seconds']:.0f} seconds"
        )
        results = f"goes from {before:.2f} to {after:.2f}, +{gain:.2f} ({low:.2f} to {high:.2f}, "
        assert readme in plain("README.md")
    assert results in plain("results")
    told = read_tuned(ROOT / "results/tuning" / folder)
    assert headline(told) in html.unescape(
        (ROOT / "results/tuning" / folder / "report.html").read_text()
    )


def test_the_first_runs_on_atari_are_told_as_they_came_out():
    results, _ = study("atari_search")
    found = words("results")
    assert (results.done, results.runs) == (21, 54)
    assert f"{results.done} of its {results.runs} runs" in found
    runs = {
        (row.game.removeprefix("ALE/").removesuffix("-v5"), row.seed, row.algorithm): row
        for row in results.rows
    }
    for line in measured.atari_table("atari_search").splitlines():
        assert re.sub(" +", " ", line) in found
    by_loss = {key: row.score_by_score for key, row in runs.items()}
    krull = (runs["Krull", 0, "conqur"].checkpoint, by_loss["Krull", 0, "conqur"])
    told = (*krull, by_loss["Krull", 0, "multi-dqn"])
    assert "from {:,.0f} to {:,.0f} points with λ = 10 and to {:,.0f} in".format(*told) in found
    ours, multi = (runs["Pong", 0, name] for name in ("conqur", "multi-dqn"))
    told = (ours.checkpoint, ours.score_by_score, multi.checkpoint, multi.score_by_score)
    assert "Pong, from {:.1f} to {:.1f} and from {:.1f} to {:.1f}".format(*told) in found
    assert len([key for key in runs if key[0] == "UpNDown"]) == 9
    names = ("conqur", "no-penalty", "multi-dqn")
    ranked = (
        "{:,.0f}, {:,.0f} and {:,.0f}".format(*(by_loss["UpNDown", s, name] for s in range(3)))
        for name in names
    )
    told = "{} points with λ = 10, {} without, {} in multi-DQN."
    assert told.format(*ranked) in found
    up = measured.of_seeds("UpNDown")
    gains = [measured.points(up[name]) for name in names]
    told = "the search gains {} points, without the penalty {}, multi-DQN {}."
    assert told.format(*gains) in found
    told = "multi-DQN gains {2} points, the same search without the penalty {1}, with λ = 10 {0} ("
    assert told.format(*gains) in words("README.md")
    again = runs["Krull", 1, "conqur"]
    told = f"with seed 1 and λ = 10 from {again.checkpoint:,.0f} to {again.score_by_score:,.0f}"
    assert told in found


def test_the_runs_with_own_minibatches_on_atari_are_told_as_they_came_out():
    results, _ = study("atari_minibatches")
    found = words("results/search.md")
    assert f"{results.done} of its {results.runs} runs" in found
    for line in measured.atari_table("atari_minibatches").splitlines():
        assert re.sub(" +", " ", line) in found
    runs = {(row.game, row.algorithm): row for row in results.rows}
    multi, ours = (runs["ALE/Seaquest-v5", name] for name in ("multi-dqn", "conqur"))
    assert multi.gain_low > 0 < ours.gain_low
    assert ours.gain_high > multi.gain_low
    chosen = json.loads((ROOT / "results/studies/atari_minibatches/chosen.json").read_text())
    by_loss = []
    for row, name in ((multi, "multi-dqn-weight-0"), (ours, "conqur-weight-10")):
        scored = chosen[f"Seaquest-{name}-seed-1"]["chosen_by_score"]
        assert scored["gain"] == row.gain_by_score
        told = "{:+.1f} ({:.1f} to {:.1f})".format(scored["gain"], *scored["gain_interval"])
        by_loss.append(measured.with_minus(told))
    assert "multi-DQN gains {} and λ = 10 {}.".format(*by_loss) in found
    assert (
        chosen["Seaquest-multi-dqn-weight-0-seed-1"]["chosen_by_score"]["gain_interval"][0]
        > (chosen["Seaquest-conqur-weight-10-seed-1"]["chosen_by_score"]["gain_interval"][1])
    )
    shared = measured.on_atari()
    before = [
        "{:,.0f} and {:,.0f}".format(*(shared["Seaquest", s][name].score_by_score for s in (0, 1)))
        for name in ("multi-dqn", "conqur")
    ]
    assert "they scored {} in multi-DQN, {} with λ = 10.".format(*before) in found
    krull = runs["ALE/Krull-v5", "conqur"]
    assert f"from {krull.checkpoint:,.0f} to {krull.score_by_score:,.0f} points" in found
    assert krull.handed_back_gain == 0


def test_the_default_preset_on_atari_networks_is_told_as_it_came_out():
    results, _ = study("atari_quick")
    found, readme = words("results/search.md"), words("README.md")
    assert len(results.rows) == 6
    better, points = [], {}
    for row in results.rows:
        name = row.network.removeprefix("bundled:")
        gain = f"{row.gain:+,.1f} ({row.gain_low:,.1f} to {row.gain_high:,.1f})".replace("-", "−")
        back = "the node" if row.handed_back_gain else "the checkpoint"
        cells = (f"{row.checkpoint:,.1f}", f"{row.score:,.1f}", gain, back)
        took = f"{row.frames / 1e6:.1f} | {row.seconds / 60:.0f}"
        assert f"| {name} | {' | '.join(cells)} | {took} |" in found
        assert bool(row.handed_back_gain) == (row.gain_low > 0)
        digits = 1 if name == "Pong" else 0
        points[name] = [f"{score:,.{digits}f}" for score in (row.checkpoint, row.score)]
        better += [name] if row.gain_low > 0 else []
    chosen = json.loads((ROOT / "results/studies/atari_quick/chosen.json").read_text())
    for row in results.rows:
        own = chosen[row.network.removeprefix("bundled:")]
        assert (own["mean"], own["gain"], own["episodes"]) == (row.score, row.gain, row.episodes)
    assert chosen["Krull"]["mean"] == chosen["UpNDown"]["mean"]
    assert all(chosen["Krull"][name] != chosen["UpNDown"][name] for name in ("interval", "frames"))
    assert better == ["CrazyClimber", "Pong", "Seaquest", "UpNDown"]
    told = (f"from {' to '.join(points[name])}" for name in better)
    crazy, pong, seaquest, up = told
    sentence = f"Crazy Climber goes {crazy} points, Pong {pong}, Seaquest {seaquest}, UpNDown {up};"
    assert sentence in readme
    searched = {
        (row.network, row.algorithm, row.seed): row for row in study("atari_search")[0].rows
    }
    for name, above in (("Pong", False), ("Krull", False), ("Seaquest", True), ("UpNDown", True)):
        multi = searched[f"bundled:{name}", "multi-dqn", 0]
        quick = next(row for row in results.rows if row.network == f"bundled:{name}")
        assert (multi.gain > quick.gain) == above
        assert above or multi.gain == searched[f"bundled:{name}", "conqur", 0].gain == 0
    krull = json.loads((ROOT / "results/tuning/krull_default.json").read_text())["summary"][
        "chosen"
    ]
    assert krull["gain"] == next(row.gain for row in results.rows if row.network == "bundled:Krull")


def test_the_penalty_alone_on_a_collapsed_network_is_told_as_it_came_out():
    found = json.loads((ROOT / "results/tuning/upndown_no_search.json").read_text())
    settings, summary = found["settings"], found["summary"]
    kind = (settings["search"], settings["penalty_weight"], settings["nodes"])
    assert kind == ("independent", 10.0, 16)
    chosen, by_score = (
        "{:+,.0f} ({:,.0f} to {:,.0f})".format(own["gain"], *own["gain_interval"])
        for own in (summary["chosen"], summary["chosen_by_score"])
    )
    assert f"gain {chosen} points with seed {settings['seed']}" in words("results")
    assert f"and {by_score} by the node that the loss ranks first" in words("results")
    plain = measured.of_seeds("UpNDown")["multi-dqn"][0]
    assert summary["chosen"]["gain_interval"][1] < plain.gain_low / 4
