"""What the documents say was measured is what the files in results/ say."""

import collections
import csv
import functools
import html
import json
import math
import re
import runpy
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import conqur
from conqur.pretrained import card
from conqur.report.charts import number
from conqur.report.run_page import headline
from conqur.report.search_settings import Arm
from conqur.report.study_page import study_exhibits
from conqur.report.tuned_run import read_tuned
from conqur.statistics import difference
from conqur.suite import read_study
from conqur.suite.results import read_results

ROOT = Path(__file__).parent.parent


def test_figures_in_the_readme_are_those_of_the_results():
    """Rounded as they are there."""
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    cpu, gpu = (
        {case["case"]: case for case in json.loads((ROOT / path).read_text())["results"]}
        for path in ("results/exact/head_cpu.json", "results/exact/head_gpu.json")
    )
    for case in (cpu["teacher"], cpu["random labels"], cpu["random labels, rank 256"]):
        times = case["cold_seconds"], case["warm_seconds"], case["highs_seconds"]
        assert "| {:.1f} s | {:.2f} s | {:.1f} s |".format(*times) in text
        assert case["agree"]
    for case in (gpu["random labels"], gpu["teacher"], gpu["rare exceptions on ReLU"]):
        assert f"| {case['cold_seconds']:.1f} s | {case['warm_seconds']:.1f} s | not" in text
        assert case["outcome"] != "UNDECIDED"
    demo = json.loads((ROOT / "results/exact/demo.json").read_text())
    starts, grid = demo["random_starts"], demo["grid_world"]
    assert f"From {starts['starts']} random starts" in text
    assert f"best realizable policy {starts['penalised']} times, but {starts['begun']} of" in text
    assert starts["plain"] == 0
    assert f"({grid['regression']:.2f} without it, {grid['penalised']:.2f} with it)" in text
    assert f"better than both ({grid['q_learning']:.2f})" in text
    assert f"best realizable value ({grid['best_realizable']:.2f})" in text


def scores(name, weight, played=""):
    """Of the final networks, by seed."""
    results = json.loads((ROOT / "results/training" / name / "results.json").read_text())
    found = {
        score["seed"]: score["mean"]
        for score in results["scores"]
        if score["penalty_weight"] == weight
        and score["played"].startswith("Evaluation: ")
        and played in score["played"]
    }
    return np.array([found[seed] for seed in sorted(found)])


def words(document):
    return re.sub(r"\s+", " ", (ROOT / document).read_text())


def test_scores_in_the_readme_are_those_of_the_results():
    """Rounded as they are there."""
    text = words("README.md")
    for name, row in (("minatar_breakout", "Breakout"), ("minatar_asterix", "Asterix")):
        plain, penalised = scores(name, 0.0), scores(name, 0.5)
        found = difference(penalised, plain)
        low, high = (number(bound, 1) for bound in found.interval)
        assert len(plain) == len(penalised) == 10
        assert (
            f"| MinAtar {row}, 10 seeds | 5M | {plain.mean():.1f} | {penalised.mean():.1f} "
            f"| +{found.mean:.1f} ({low} to {high}) |"
        ) in text
    for name, title in (("cartpole", "CartPole"), ("lunarlander", "LunarLander")):
        plain = scores(name, 0.0)
        assert f"| {title}, {len(plain)} seeds | 0.5M | {plain.mean():.1f} |" in text
    still, sticky = (scores("pong", 0.0, f"sticky actions {p},")[0] for p in ("0", "0.25"))
    assert f"| Pong, one seed | 2.7M | {still:.1f} |" in text
    assert f"the same network scores {sticky:.1f}" in text


def test_what_is_said_of_the_penalty_s_gain_is_what_the_tables_say():
    signs = {}
    for name in ("minatar_breakout", "minatar_asterix"):
        table = (ROOT / "results/training" / name / "table.md").read_text()
        bounds = re.findall(r"\| DQN, λ = 0.5 \| \+[\d.]+ \| (−?)[\d.]+ to [\d.]+ \|", table)
        signs[name] = ["without zero" if sign == "" else "with zero" for sign in bounds]
    assert signs == {  # scores, and returns while training
        "minatar_breakout": ["without zero", "with zero"],
        "minatar_asterix": ["with zero", "without zero"],
    }
    assert "two hold zero (Asterix' scores, Breakout's returns while training)" in words(
        "results/README.md"
    )
    assert "in Asterix the difference cannot be told from zero" in words("README.md")


def test_settings_in_the_list_of_results_are_those_of_the_runs():
    text = words("results/README.md")
    for name in ("cartpole", "lunarlander", "minatar_breakout"):
        results = json.loads((ROOT / "results/training" / name / "results.json").read_text())
        command = results["runs"][0]["manifest"]["command"].partition(" --run-dir")[0]
        assert f"| `{name}` | `{command}`" in text


def test_speed_in_the_documents_is_that_of_the_results():
    """Rounded as it is there."""
    found = json.loads((ROOT / "results/training/speed_gpu.json").read_text())
    atari = {(case["num_envs"], case["penalty_weight"]): case["ratio"] for case in found["atari"]}
    one, ten = (
        [
            found["minatar"]["ratios"][f"conqur, {members}"][f"plain loop, {environments}"]
            for environments in ("1 environment", "64 environments")
        ]
        for members in ("1 member", "10 members")
    )
    readme, results = words("README.md"), words("results/README.md")
    assert f"at {min(atari.values()):.2f} to {max(atari.values()):.2f} of the emulator" in readme
    assert f"at {one[0]:.0f} times the speed" in readme
    assert f"environment and {one[1]:.1f} times that of one with 64;" in readme
    assert f"come to {ten[0]:.0f} and {ten[1]:.0f} times" in readme
    for envs in (64, 128):
        assert f"| {envs} | {atari[envs, 0.0]:.2f} | {atari[envs, 0.5]:.2f} |" in results
    assert f"| one member | {one[0]:.1f} | {one[1]:.1f} |" in results
    assert f"| ten members together | {ten[0]:.1f} | {ten[1]:.1f} |" in results


def test_the_speed_beside_peers_is_that_of_the_results():
    found = json.loads((ROOT / "results/training/peers_cpu.json").read_text())
    rates = [found[case]["steps_per_second"] for case in ("Breakout", "CartPole")]
    for name in rates[0]:
        cells = []
        for of_case in rates:
            low, rate, high = (f(of_case[name]) for f in (min, np.median, max))
            cells.append(f"{rate:,.0f} ({low:,.0f} to {high:,.0f})")
            cells.append(f"{np.median(of_case['conqur']) / rate:.2f}")
        assert f"| {name} | {' | '.join(cells)} |" in words("results/README.md")
    ours, *theirs = (np.median(values) for values in rates[0].values())
    slower = [100 * (1 - ours / rate) for rate in theirs]
    assert f"by {min(slower):.0f} to {max(slower):.0f} %" in words("results/README.md")
    assert f"it is {min(slower):.0f} to {max(slower):.0f} % slower" in words("README.md")


def test_the_speed_beside_peers_on_a_gpu_is_that_of_the_results():
    found = json.loads((ROOT / "results/training/peers_gpu.json").read_text())
    rates = found["Breakout"]["steps_per_second"]
    ours = np.median(rates["conqur"])
    for name, values in rates.items():
        low, rate, high = (f(values) for f in (min, np.median, max))
        cells = f"{rate:,.0f} ({low:,.0f} to {high:,.0f}) | {ours / rate:.1f}"
        assert f"| {name} | {cells} |" in words("results/README.md")
    alone, together, cleanrl = (ours / np.median(rates[name]) for name in list(rates)[1:])
    text = f"{together:.0f} to {alone:.0f} times as fast as Stable-Baselines3 and {cleanrl:.0f}"
    assert f"{text} times as fast as CleanRL" in words("README.md")


def test_the_penalty_on_atari_games_is_told_as_it_came_out():
    text = words("results/README.md")
    for game, name in {"gravitar": "Gravitar", "spaceinvaders": "Space Invaders"}.items():
        folder = ROOT / "results/training" / game
        last = []
        for weight in ("0", "0.5", "2"):
            lines = (folder / f"weight-{weight}.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            last.append([row for row in rows if row["step"] > 0.9 * rows[-1]["step"]])

        def told(line, values, name=name):
            assert f"| {name}, {line} | {' | '.join(values)} |" in text

        def means(column, last=last):
            return [np.mean([row[column] for row in rows]) for rows in last]

        episodes = [[row["episodes"] for row in rows] for rows in last]
        returns = [
            np.average([row["return"] for row in rows], weights=weights)
            for rows, weights in zip(last, episodes, strict=True)
        ]
        assert returns[0] > max(returns[1:])
        told("return", [f"{value:.0f}" for value in returns])
        told("changed choices", [f"{100 * value:.1f} %" for value in means("inconsistent")])
        told("mean of the largest Q-value", [f"{value:.2f}" for value in means("q_mean")])
        if name == "Gravitar":
            gap, largest = means("action_gap")[0], means("q_mean")[0]
            assert f"the best leads by {gap:.3f} of {largest:.2f}" in text
        found = json.loads((folder / "evaluations.json").read_text())
        for epsilon, sticky, line in (
            (0.001, 0.0, "ε = 0.001"),
            (0.001, 0.25, "ε = 0.001, sticky actions"),
            (0.01, 0.25, "ε = 0.01, sticky actions, as in training"),
        ):
            scores = [
                f"{one['mean']:.0f} ({one['interval'][0]:.0f} to {one['interval'][1]:.0f})"
                for one in found
                if (one["epsilon"], one["sticky"]) == (epsilon, sticky)
            ]
            told(line, scores)


def test_loss_and_rollouts_as_scores_are_told_as_they_came_out():
    claims = runpy.run_path(str(ROOT / "experiments/claims.py"))
    words_of = claims["_scoring"]().found.replace("-", "−")
    lead, times, own = re.search(
        r"is (.*?\)) checkpoints, with (.* times).*first, (.*\))", words_of
    ).groups()
    found = words("results/README.md")
    assert f"The lead of rollouts is {lead} checkpoints over all games, for {times}" in found
    rows = study("minatar_scoring")[0].rows
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "Space Invaders"):
        own_rows = [row for row in rows if row.game == f"MinAtar/{game.replace(' ', '')}"]
        arms = [[r for r in own_rows if r.algorithm == name] for name in ("rollouts", "conqur")]
        assert [len(arm) for arm in arms] == [5, 5]
        lead = claims["against"](*arms)
        words_of = f"{game} {claims['_told'](lead)}".replace("-", "−")
        assert words_of in found
        assert lead.high > 0 or lead.value == 0
        if game == "Freeway":
            assert all(row.gain == 0 for row in own_rows)
            ranked = claims["against"](*(map(claims["by_own_score"], arm) for arm in arms))
            assert f"behind, {claims['_told'](ranked)}".replace("-", "−") in found
    assert f"the lead is {own}, and in Freeway rollouts" in found
    scored = collections.defaultdict(set)
    for row in rows:
        scored[row.network].add(row.checkpoint)
    assert sum(len(scores) > 1 for scores in scored.values()) == 7  # as told


def test_gains_in_the_readme_are_those_of_the_results():
    """Rounded as they are there."""
    text = (ROOT / "README.md").read_text().replace("−", "-")
    found = json.loads((ROOT / "results/tuning/settings.json").read_text())["rows"]
    networks = ("Breakout-0", "Breakout-1", "Asterix-0", "Asterix-1")
    shown = {
        "random, 0.3 gaps": "random perturbations of 0.3 action gaps, kept by rollouts",
        "multi-DQN (independent, λ = 0)": "Q-learning of 16 copies, λ = 0 (multi-DQN)",
        "Boltzmann, λ = 0, rollouts": "Boltzmann children, λ = 0, kept by rollouts",
        "Boltzmann, λ = 1, rollouts": "Boltzmann children, λ = 1, kept by rollouts",
        "paper-16, 20 short levels, λ = 10": "the paper's search, λ = 10, 20 short levels",
    }
    by_settings = {row["settings"]: row["gains"] for row in found}
    for settings, name in shown.items():
        gains = [by_settings[settings][network]["gain"] for network in networks]
        cells = " | ".join(f"{gain:+.1f}" for gain in (*gains, np.mean(gains)))
        assert f"| {name} | {cells} |" in text
    begun = " | ".join(f"{found[0]['gains'][n]['checkpoint']:.1f}" for n in networks)
    assert f"| checkpoint | {begun} | |" in text


def test_the_speed_of_the_search_is_that_of_the_results():
    text = (ROOT / "results/README.md").read_text()
    cpu, gpu = (
        json.loads((ROOT / f"results/search/speed_{kind}.json").read_text())
        for kind in ("cpu", "gpu")
    )

    def by_sixteen(found):
        seconds = found["refining"]["seconds"]
        return np.median(seconds["256"]) / np.median(seconds["16"])

    def row(words, name, form):
        values = (form(found["levels"][name]) for found in (cpu, gpu))
        return f"| {words} | {' | '.join(values)} |"

    for line in (
        row("a level with 16 nodes / with one", "sixteen_by_one", "{:.2f}".format),
        row(
            "a level with 16 nodes / written plainly",
            "sixteen_by_plain",
            lambda ratio: f"1/{1 / ratio:.0f}",
        ),
        row(
            "transitions collected / steps of the emulator alone",
            "collected_by_emulator",
            "{:.2f}".format,
        ),
        "| seconds in which a level refines 1, 8, 16, 64, 256 and 512 nodes | "
        + ", ".join(f"{np.median(times):.2f}" for times in cpu["refining"]["seconds"].values())
        + ", - | "
        + ", ".join(f"{np.median(times):.3f}" for times in gpu["refining"]["seconds"].values()),
        f"| refining 256 nodes / 16, and 512 / 16 | {cpu['refining']['ratio']:.1f}, - | "
        f"{by_sixteen(gpu):.1f}, {gpu['refining']['ratio']:.1f} |",
        f"| memory of 100 levels | {cpu['memory']['gibibytes']:.1f} GiB | - |",
    ):
        assert line in text


def test_the_published_agent_in_the_readme_is_that_of_the_results():
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text()).replace("−", "-")
    found = json.loads((ROOT / "results/tuning/sb3_mountaincar.json").read_text())
    chosen, theirs = found["summary"]["chosen"], found["in_stable_baselines3"]["best.zip"]
    low, high = chosen["gain_interval"]
    assert (
        f"goes from {chosen['checkpoint']:.1f} to {chosen['mean']:.1f} (+{chosen['gain']:.1f}, "
        f"95 % interval {low:.1f} to {high:.1f}, {chosen['episodes']} fresh starts)"
    ) in text
    assert f"scores {theirs['mean']:.1f} over {theirs['episodes']} episodes" in text


def test_scores_of_bundled_networks_in_the_readme_are_those_of_their_cards():
    text = (ROOT / "README.md").read_text()
    for name in ("Breakout", "CrazyClimber", "Krull", "Pong", "Seaquest", "UpNDown"):
        about = card(f"bundled:{name}")
        score, digits = about["score"], 1 if about["score"]["mean"] < 100 else 0
        mean, low, high = (f"{x:,.{digits}f}" for x in (score["mean"], *score["interval"]))
        row = f"| `{name}` | {about['frames'] / 1e6:.1f}M | {mean} ({low} to {high}) |"
        assert row in text


def test_the_run_with_the_paper_s_settings_is_told_as_it_was():
    text = re.sub(r"\s+", " ", (ROOT / "results/README.md").read_text()).replace("−", "-")
    folder = ROOT / "results/tuning/minatar_breakout_paper16"
    found = json.loads((folder / "summary.json").read_text())
    best, chosen, scored = (
        found[name] for name in ("best_of_evaluations", "chosen", "chosen_by_score")
    )
    assert f"node {best['node']} after level {best['level']}, +{best['gain']:.2f} points" in text
    assert best["node"] == chosen["node"]
    for one, words in ((chosen, "+{:.2f} (95 % interval {:.2f} to"), (scored, "{:.2f} ({:.2f} to")):
        assert words.format(one["gain"], one["gain_interval"][0]) in text
    assert f"took {found['seconds'] / 60:.0f} minutes" in text
    assert len((folder / "tree.jsonl").read_text().splitlines()) > 1000


@pytest.mark.parametrize("folder", ["upndown_paper16", "minatar_asterix_default"])
def test_runs_in_the_results_are_told_as_they_were(folder):
    def plain(name):
        return re.sub(r"\s+", " ", (ROOT / name).read_text()).replace("−", "-")

    found = json.loads((ROOT / "results/tuning" / folder / "summary.json").read_text())
    chosen, before = found["chosen"], found["checkpoint"]["mean"]
    low, high = chosen["gain_interval"]
    after, gain = chosen["mean"], chosen["gain"]
    if folder == "upndown_paper16":
        readme = (
            f"goes from {before:,.0f} to {after:,.0f} points in one run of `paper-16` "
            f"(+{gain:,.0f}, 95 % interval {low:,.0f} to {high:,.0f}, {chosen['episodes']} fresh"
        )
        results = (
            f"scores {before:.1f} and node {chosen['node']} {after:.1f}: +{gain:.1f} (95 % "
            f"interval {low:.1f} to {high:.1f}); the node with the best score, "
            f"{found['chosen_by_score']['node']}, leads by +{found['chosen_by_score']['gain']:.1f}"
        )
        assert f"took {found['seconds'] / 60:.0f} minutes" in plain("results/README.md")
    else:
        readme = (
            f"from {before:.1f} to {after:.1f} (+{gain:.1f}, 95 % interval {low:.1f} to "
            f"{high:.1f}, {chosen['episodes']} fresh starts) in {found['seconds']:.0f} seconds"
        )
        results = f"goes from {before:.2f} to {after:.2f}, +{gain:.2f} ({low:.2f} to {high:.2f}, "
    assert readme in plain("README.md")
    assert results in plain("results/README.md")
    told = read_tuned(ROOT / "results/tuning" / folder)
    assert headline(told) in html.unescape(
        (ROOT / "results/tuning" / folder / "report.html").read_text()
    )


def test_appendix_a_is_told_as_it_came_out():
    with (ROOT / "results/appendix_a/ends.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["discount"] == "1.0"]

    def at(value, method, setting):
        own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
        assert len(own) == 121
        return sum(math.isclose(float(row["value"]), value) for row in own)

    found = words("results/README.md")
    low = [at(0.3, "Q-learning", f"ε = {epsilon}") for epsilon in (1, 0.8)]
    high = [at(0.5, "Q-learning", f"ε = {epsilon}") for epsilon in (0.6, 0.4, 0.2)]
    assert "from {} of 121 starts with uniform behaviour (ε = 1), and from {}".format(*low) in found
    assert "ends at 1122 from {}, {} and {}".format(*high) in found
    assert at(0.3, "regression", "") == 121
    for buffer in ("all", "newest"):
        ends = [at(value, "penalised regression", f"λ = 10, {buffer}") for value in (0.5, 0.3, 0)]
        told = "at 1122 from {} of 121 starts, at 0.3 from {}, and at a policy worth 0 from {}."
        assert told.format(*ends) in found


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
    ) in words("results/README.md")
    limit = [row for row in rows if 10 <= row["penalty_weight"] <= 1000]
    assert len(limit) == 15
    assert all(row["broken"] == 0 and row["apart"] < 1e-4 for row in limit)


def test_what_training_commits_to_is_told_as_it_came_out():
    with (ROOT / "results/exactness/unions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    found = words("results/README.md")

    def ends(weight, column, digits):
        shares = [100 * float(r[column]) for r in rows if float(r["penalty_weight"]) == weight]
        return f"{min(shares):.{digits}f} to {max(shares):.{digits}f} %"

    columns = {"broken": 1, "broken_at_least": 3, "broken_at_best_found": 2}
    for weight in (0, 1, 10, 100, 1000):
        cells = [ends(weight, column, digits) for column, digits in columns.items()]
        assert f"| {weight:,} | {' | '.join(cells)} |" in found
    by_game = collections.defaultdict(list)
    for row in rows:
        by_game[row["game"]].append(float(row["broken"]))
        assert float(row["broken_at_least"]) > 0 or row["penalty_weight"] != "0"
    assert all(max(penalised) < plain for plain, *penalised in by_game.values())


@functools.cache
def study(name):
    """What was measured, and the exhibits of it."""
    results = read_results(ROOT / "results/studies" / name)
    return results, {exhibit.key: exhibit for exhibit in study_exhibits(results)}


def test_the_penalty_study_is_told_as_it_came_out():
    results, exhibits = study("minatar_penalty")
    assert len(results.rows) == 5 * 2 * 6 * 10
    found = words("results/README.md")
    table = exhibits["weights"]
    shown = {row[:2]: row[table.head.index("IQM")] for row in table.rows}
    for weight in ("0.25", "0.5", "1", "1.5", "2"):
        told = [
            "{:.2f} ({:.2f} to {:.2f})".format(*shown[name, weight]) for name in ("DQN", "DDQN")
        ]
        assert f"| {weight} | {' | '.join(told)} |" in found
    half = ["{:.2f} ({:.2f} to {:.2f})".format(*shown[name, "0.5"]) for name in ("DQN", "DDQN")]
    told = f"comes to {half[0]} of plain DQN, and to {half[1]} of DDQN"
    assert told in words("README.md")
    scores = collections.defaultdict(list)
    for row in results.rows:
        scores[row.algorithm, row.game, row.penalty_weight].append(row.score)
    above, below = collections.Counter(), collections.Counter()
    for (algorithm, game, weight), values in scores.items():
        low, high = difference(values, scores[algorithm, game, 0.0]).interval
        above[algorithm] += weight > 0 and low > 0
        below[algorithm] += weight > 0 and high < 0
    assert above["dqn"] == 0
    assert f"none is above zero beyond its 95 % interval, {below['dqn']} are below." in found
    assert f"({above['ddqn']} above, {below['ddqn']} below;" in found
    gain = difference(*(scores["ddqn", "MinAtar/Asterix", weight] for weight in (0.25, 0.0)))
    assert "(difference {:.1f} to {:.1f})".format(*gain.interval) in found
    table = exhibits["best-weight"]
    chosen, plain = (table.head.index(name) for name in ("λ chosen on other seeds", "λ = 0"))
    gains = {row[:2]: row[chosen].value - row[plain].value for row in table.rows}
    told = {
        member: f"{gain:+.1f}".replace("+0.0", "0.0").replace("-", "−")
        for member, gain in gains.items()
    }
    for game in ("Asterix", "Seaquest", "Breakout", "Freeway", "Space Invaders"):
        assert f"{game} {told['MinAtar/' + game.replace(' ', ''), 'DDQN']}" in found
    for game in ("Asterix", "Breakout"):
        assert re.search(f"{game} {told[f'MinAtar/{game}', 'DQN']}", found)
    assert [
        told[f"MinAtar/{game}", "DQN"] for game in ("Freeway", "Seaquest", "SpaceInvaders")
    ] == ["0.0"] * 3


def test_the_search_study_is_told_as_it_came_out():
    results, exhibits = study("minatar_search")
    found, readme = words("results/README.md"), words("README.md")
    assert f"{len(results.rows)} runs with the paper's settings, baseline and controls" in readme
    shown = exhibits["algorithms"]
    for name, *cells in shown.rows:
        row = dict(zip(shown.head[1:], cells, strict=True))
        lead = row["lead on multi-DQN"]
        told = ["{:.2f} ({:.2f} to {:.2f})".format(*row[each]) for each in ("IQM", "mean")]
        told.append("–" if lead is None else "{:+.2f} ({:+.2f} to {:+.2f})".format(*lead))
        ours = [r for r in results.rows if str(Arm(r.algorithm, r.penalty_weight)) == name]
        worse = sum(r.gain_high is not None and r.gain_high < 0 for r in ours)
        told += [str(row["handed back"]), str(worse)]
        line = f"| {name} | {row['runs']} | {' | '.join(told)} |".replace("-", "−")
        assert line in found.replace("multi-DQN", "multi−DQN").replace("large-", "large−")
        if name == "ConQUR, λ = 1":
            ends = [-lead.value, -lead.high, -lead.low]
            told = "by {:.2f} checkpoints at λ = 1, 95 % interval {:.2f} to {:.2f}".format(*ends)
            assert told in readme
    shown = exhibits["scores-by-loss"]
    space, freeway = (
        {
            name: f"{cell.value:.1f}"
            for name, cell in zip(shown.head[1:], row[1:], strict=True)
            if cell is not None
        }
        for game in ("MinAtar/SpaceInvaders", "MinAtar/Freeway")
        for row in shown.rows
        if row[0] == game
    )
    start, multi, plain = (
        space[name] for name in ("checkpoint", "multi-DQN", "search without penalty")
    )
    penalised = [f"ConQUR, λ = {weight}" for weight in ("1", "10", "100", "1,000")]
    one, ten, hundred, thousand = (space[name] for name in penalised)
    assert f"goes from {start} to {multi} points (multi-DQN) and {plain} (search)" in found
    assert f"λ = 1, 10, 100 or 1,000 it has {one}, {ten}, {hundred} and {thousand}." in found
    assert f"has {one} points with λ = 1, {multi} without, the checkpoint {start}" in readme
    one, ten, hundred, thousand = (freeway[name] for name in penalised)
    assert f"from {freeway['checkpoint']} to {one}, {ten}, {hundred} and {thousand} with" in found
    without = [freeway[name] for name in ("multi-DQN", "search without penalty")]
    assert f"stay without ({' and '.join(without)})" in found
    ranks = exhibits["ranks"]
    lead = ranks.head.index("lead of ConQUR, λ = 10")
    behind = [-row[lead].value for row in ranks.rows]
    assert f"ranks, by {min(behind):.2f} to {max(behind):.2f} checkpoints" in found
    alone = {row[0]: row for row in shown.rows}["MinAtar/Seaquest"]
    refit = alone[shown.head.index("large-batch refit")].value
    assert f"({refit:.1f} points by the loss, {alone[1].value:.1f} before)" in found
    back = collections.Counter(
        (r.game, r.algorithm in ("multi-dqn", "no-penalty"), r.algorithm == "conqur")
        for r in results.rows
        if r.score == r.checkpoint
    )
    assert back["MinAtar/SpaceInvaders", True, False] == 20
    assert "which they did in all twenty runs without penalty" in found
    assert back["MinAtar/Freeway", False, True] == 40
    assert "rollouts chose the checkpoint in all forty runs" in found
    best = exhibits["best-evaluations"]
    for game in ("SpaceInvaders", "Freeway"):
        row = next(row for row in best.rows if row[0] == f"MinAtar/{game}")
        lead = {
            name: f"{100 * (cell.value / row[1].value - 1):+.0f}".replace("-", "−")
            for name, cell in zip(best.head[2:], row[2:], strict=True)
            if cell is not None
        }
        for names in (penalised, ["multi-DQN", "search without penalty"]):
            parts = {lead[name] for name in names}
            ends = sorted(parts, key=lambda text: float(text.replace("−", "-")))
            assert f"{' to '.join(dict.fromkeys((ends[0], ends[-1])))} % with" in found
    higher = [
        100 * (cell.value / row[1].value - 1)
        for row in best.rows
        if row[0] in ("MinAtar/Asterix", "MinAtar/Breakout", "MinAtar/Seaquest")
        for name, cell in zip(best.head[2:], row[2:], strict=True)
        if cell is not None and name != "large-batch refit"
    ]
    assert f"refit looks {min(higher):.0f} to {max(higher):.0f} % better" in found
    table = exhibits["over-multi-dqn"]
    leads = [row[table.head.index("best evaluations, %")].value for row in table.rows]
    assert f"λ = 10 leads multi-DQN by {statistics.mean(leads):.0f} % on average" in found
    assert sum(lead < 0 for lead in leads) == 4
    asked = {
        job.name for job in read_study(ROOT / "results/studies/minatar_search/study.toml").jobs()
    }
    missing = asked - {row.run for row in results.rows}
    assert len(missing) == 23
    assert all(
        "random-rollouts" in name and name.startswith(("Freeway", "Seaquest", "SpaceInvaders"))
        for name in missing
    )
    page = (ROOT / "results/studies/minatar_search/report.html").read_text()
    assert "; 50 networks; not at its end" in page
    assert "377 of 400 runs" in page


def test_the_preset_tuned_is_told_as_it_came_out():
    results, _ = study("minatar_tuned")
    found, readme = words("results/README.md"), words("README.md")
    held = ("Freeway", "Seaquest", "SpaceInvaders")

    def told(rows):
        shown = {each.key: each for each in study_exhibits(replace(results, rows=tuple(rows)))}
        table = shown["algorithms"]
        return "{:.2f} ({:.2f} to {:.2f})".format(*table.rows[0][table.head.index("mean")])

    def line(name, rows, scores=""):
        better, worse = sum(r.gain_low > 0 for r in rows), sum(r.gain_high < 0 for r in rows)
        assert f"| {name} | {len(rows)} | {scores}{told(rows)} | {better} | {worse} |" in found

    games = collections.defaultdict(list)
    for row in results.rows:
        games[row.game.removeprefix("MinAtar/")].append(row)
    for game, rows in games.items():
        before, after = (
            statistics.mean(getattr(row, name) for row in rows) for name in ("checkpoint", "score")
        )
        name = game.replace("SpaceI", "Space I") + ", held apart" * (game in held)
        line(name, rows, f"{before:.1f} | {after:.1f} | ")
    apart = [row for game in held for row in games[game]]
    line("games held apart", apart, "| | ")
    line("all", results.rows, "| | ")
    told_there = told(results.rows).replace("(", "(95 % interval ")
    assert f"`tuned` comes to {told_there} of the checkpoints' scores" in readme
    assert f"had seen no network, to {told(apart)}" in readme
    assert f"three games that it was not chosen on to {told(apart)} of their scores" in found
    assert (
        f"take {len(apart)} networks of three games that they were not chosen on to {told(apart)}"
        in (readme)
    )
    seconds = statistics.mean(row.seconds for row in results.rows)
    assert f"a run took {seconds:.0f} seconds" in found
    assert {row.network for row in results.rows} == {
        f"networks/{file.name}" for file in (ROOT / "results/networks").glob("*.safetensors")
    }


def test_numbers_of_nodes_are_told_as_they_came_out():
    claims = runpy.run_path(str(ROOT / "experiments/claims.py"))
    results, exhibits = study("minatar_nodes")
    tuned = study("minatar_tuned")[0].rows
    found, readme = words("results/README.md"), words("README.md")

    def told(cell, sign="+"):
        return "{:{s}.2f} ({:{s}.2f} to {:{s}.2f})".format(*cell, s=sign).replace("-", "−")

    arms = {"ConQUR, λ = 10": ("conqur", 10.0), "multi-DQN": ("multi-dqn", 0.0)}
    made = {
        (name, nodes): claims["runs"](results, *arm, nodes)
        for name, arm in arms.items()
        for nodes in (8, 16)
    }
    assert f"{len(results.rows)} runs" in found
    for name in arms:
        cells = []
        for nodes in (8, 16):
            table = exhibits[f"algorithms-paper-{nodes}"]
            row = next(row for row in table.rows if row[0] == name)
            cells.append(told(row[table.head.index("mean")], ""))
        cells.append(told(claims["against"](made[name, 16], made[name, 8])))
        assert f"| {name} | {' | '.join(cells)} |" in found
    growth = re.search(r"a growth of (.*?\))", claims["_nodes"]().found)[1].replace("-", "−")
    assert f"the lead on multi-DQN grows by {growth}" in found
    leads = [claims["against"](*(made[name, nodes] for name in arms)) for nodes in (8, 16)]
    assert f"| lead of ConQUR | {' | '.join(map(told, leads))} | |" in found
    assert all(lead.high < 0 for lead in leads)
    scores = exhibits["scores-paper-8"]
    (row,) = (row for row in scores.rows if row[0] == "MinAtar/SpaceInvaders")
    before, ours, theirs = (cell.value for cell in row[1:4])
    assert f"from {before:.1f} to {ours:.1f} points, and multi-DQN leaves them at {theirs:.1f}" in (
        found
    )
    other = made["multi-DQN", 8]
    same = [row for row in tuned if row.network in {run.network for run in other}]
    ahead = claims["against"](same, other)
    assert ahead.low > 0
    assert f"by {told(ahead, '')} checkpoints more than multi-DQN with 8 nodes" in found
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "Space Invaders"):
        own = f"MinAtar/{game.replace(' ', '')}"
        parts = ([run for run in runs if run.game == own] for runs in (same, other))
        assert f"{game} {told(claims['against'](*parts))}" in found
    scored = collections.defaultdict(set)
    for run in (*made["ConQUR, λ = 10", 8], *other):
        scored[run.network].add(run.checkpoint)
    differ = sum(len(scores) > 1 for scores in scored.values())
    assert f"in {differ} of {len(scored)} networks between arms" in found
    old = claims["runs"](study("minatar_search")[0], "conqur", 10.0)
    for runs in (old, made["ConQUR, λ = 10", 8]):
        gain = claims["_student"](run.gain for run in runs if run.game == "MinAtar/SpaceInvaders")
        assert (
            "{:+.1f}{}, {:.1f} to {:.1f}".format(
                gain.value, " points" if runs is old else "", gain.low, gain.high
            ).replace("-", "−")
            in found
        )
    frames = [statistics.mean(run.frames for run in runs) / 1e6 for runs in (same, other)]
    assert "{:.1f} million frames, multi-DQN {:.1f} million".format(*frames) in found
    assert (
        f"with {frames[0] / frames[1]:.1f} times its frames, they are ahead in Breakout" in readme
    )


def test_many_nodes_are_told_as_they_came_out():
    claims = runpy.run_path(str(ROOT / "experiments/claims.py"))
    found = words("results/README.md")
    before, more, most = (study(f"minatar_nodes{n}")[0] for n in ("", "_64", "_256"))
    assert (more.done, more.runs, most.done, most.runs) == (30, 30, 15, 20)
    names = {"conqur": ("ConQUR, λ = 10,", 10.0), "multi-dqn": ("multi-DQN", 0.0)}

    def few(arms):
        """With 16 nodes, on the same networks."""
        of = {row.network for row in arms["conqur"]}
        return {
            name: [row for row in claims["runs"](before, name, weight) if row.network in of]
            for name, (_, weight) in names.items()
        }

    arms = claims["both"](more, 64)
    assert len(arms["conqur"]) == 15
    cells = {
        f"{told} against its own with 16": claims["against"](arms[name], few(arms)[name])
        for name, (told, _) in names.items()
    }
    cells["lead of ConQUR"] = claims["lead_with"](arms)
    cells["lead of ConQUR with 16 on these networks"] = claims["lead_with"](few(arms))
    for name, cell in cells.items():
        told = claims["_told"](cell).replace("-", "−")
        assert f"| {name} | {told} |" in found
    arms = claims["both"](most, 256)
    for row in arms["conqur"]:
        of_it = [
            next(run for run in part[name] if run.network == row.network)
            for name in names
            for part in (few(arms), arms)
        ]
        game, number = row.network.removeprefix("networks/").removesuffix(".safetensors").split("-")
        scores = " | ".join(f"{run.score:.1f}" for run in of_it)
        assert f"| {game}, network {number} | {row.checkpoint:.1f} | {scores} |" in found
    searches = claims["runs"](most, "conqur", 10.0, 256)
    seconds = [row.seconds for row in searches]
    assert f"took {min(seconds):.0f} to {max(seconds):.0f} seconds" in found
    (alone,) = (row for row in searches if row.game == "MinAtar/SpaceInvaders")
    assert f"{alone.checkpoint:.1f} to {alone.score:.1f}" in found
    times = []
    for name, (_, weight) in names.items():
        old = {row.network: row.frames for row in claims["runs"](before, name, weight)}
        new = claims["runs"](most, name, weight, 256)
        times.append(statistics.mean(row.frames / old[row.network] for row in new))
    assert "{:.1f} times those of 16 nodes with ConQUR, {:.1f} times".format(*times) in found


def test_random_children_are_told_as_they_came_out():
    claims = runpy.run_path(str(ROOT / "experiments/claims.py"))
    found = words("results/README.md")
    results = study("minatar_random")[0]
    assert (results.done, results.runs) == (14, 14)
    for name, gain in claims["random_children"]().items():
        assert f"| {name} | {claims['_told'](gain).replace('-', '−')} |" in found
    ours = {row.network: row.frames for row in results.rows}
    for name, algorithm, words_of in (
        ("scoring", "rollouts", "1.0"),
        ("scoring", "conqur", "3.2"),
        ("nodes", "multi-dqn", "4.0"),
        ("tuned", None, "1.6"),
    ):
        theirs = [
            row.frames
            for row in study(f"minatar_{name}")[0].rows
            if row.network in ours
            and (algorithm is None or (row.algorithm, row.nodes) == (algorithm, 8))
        ]
        assert len(theirs) == 14
        assert f"{statistics.mean(ours.values()) / statistics.mean(theirs):.1f}" == words_of
        assert f"| {words_of} times |" in found


def test_the_first_runs_on_atari_are_told_as_they_came_out():
    results, _ = study("atari_search")
    found = words("results/README.md")
    assert (results.done, results.runs) == (9, 12)
    assert "nine of its twelve runs" in found
    runs = {
        (row.game.removeprefix("ALE/").removesuffix("-v5"), row.algorithm): row
        for row in results.rows
    }
    for game in ("Breakout", "Krull", "Pong", "Seaquest", "UpNDown"):
        rows = [runs.get((game, name)) for name in ("multi-dqn", "conqur")]
        before = dict.fromkeys(f"{row.checkpoint:,.1f}" for row in rows if row)
        cells = [", ".join(before)]
        for row in rows:
            gain = "" if row is None else "0"
            if row is not None and row.gain:
                told = (row.gain, row.gain_low, row.gain_high)
                gain = "{:+,.1f} ({:,.1f} to {:,.1f})".format(*told)
            cells += ["" if row is None else f"{row.score:,.1f}", gain]
        best = ("–" if row is None else f"{row.best_evaluation:,.1f}" for row in rows)
        line = f"| {game} | {' | '.join(cells)} | {', '.join(best)} |".replace("-", "−")
        assert re.sub(" +", " ", line) in found
    ours, multi = (runs["Krull", name] for name in ("conqur", "multi-dqn"))
    told = (ours.checkpoint, ours.score_by_score, multi.score_by_score)
    assert "from {:,.0f} to {:,.0f} points with λ = 10 and to {:,.0f} in".format(*told) in found
    pong = runs["Pong", "multi-dqn"]
    assert f"falls from {pong.checkpoint:.1f} to {pong.score_by_score:.1f}" in found
    told = (runs["UpNDown", name].score for name in ("conqur", "multi-dqn"))
    readme = "comes to {:,.0f}, and multi-DQN, which has no penalty, to {:,.0f}".format(*told)
    assert readme in words("README.md")


def test_the_readme_begins_with_what_was_found():
    told = words("README.md")
    with (ROOT / "results/exactness/unions.csv").open() as file:
        rows = list(csv.DictReader(file))
    for weight, before in (("0", "of which"), ("10", "it is")):
        shares = [100 * float(r["broken"]) for r in rows if r["penalty_weight"] == weight]
        assert f"{before} {min(shares):.1f} to {max(shares):.1f} %" in told
    penalty, search = (study(name)[1] for name in ("minatar_penalty", "minatar_search"))
    table = penalty["weights"]
    for name in ("DQN", "DDQN"):
        row = next(row for row in table.rows if row[:2] == (name, "0.5"))
        cell = row[table.head.index("IQM")]
        assert re.search(rf"{name} (scores )?{cell.value:.2f} \({cell.low:.2f} to", told)
    table = search["algorithms"]
    means = {row[0]: row[table.head.index("mean")] for row in table.rows}
    for name, before in (
        ("multi-DQN", "takes 50 networks to"),
        ("ConQUR, λ = 1", "the search to"),
        ("ConQUR, λ = 10", "λ = 1 and"),
    ):
        assert "{} {:.2f} ({:.2f} to {:.2f})".format(before, *means[name]) in told


def test_the_table_of_claims_is_made_from_the_results():
    made = runpy.run_path(str(ROOT / "experiments/claims.py"))["table"]()
    assert made in (ROOT / "results/README.md").read_text()


def test_the_diagnosis_in_the_readme_is_that_of_the_results():
    """Rounded as it is there."""
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    found = json.loads((ROOT / "results/diagnosis/minatar_breakout.json").read_text())
    plain, penalised, higher = found["plain"], found["penalised"], found["higher_score"]
    broken = "{:.1f} to {:.1f} %".format(*(100 * end for end in plain["broken"]["interval"]))
    less = "{:.1f} to {:.1f}".format(*(-end for end in reversed(higher["interval"])))
    for words in (
        f"Of {plain['choices']:,} choices behind",
        f"breaks {100 * plain['broken']['mean']:.1f} % (95 % interval {broken}); no last layer",
        f"more than {100 * plain['bound']['mean']:.1f} % of them",
        f"was found keeps {100 * plain['found']['mean']:.1f} %.",
        f"(λ = 1) it breaks {100 * penalised['broken']['mean']:.1f} %.",
        f"copy scores {-higher['mean']:.1f} points less than the plain one ({less};",
    ):
        assert words in text


def test_the_readme_s_warning_about_small_weights_is_true():
    problem = conqur.tabular.four_state()
    batches = [conqur.tabular.sample_batch(problem.mdp, k, 1000) for k in range(5)]

    def value(**settings):
        found = conqur.tabular.fitted_q_iteration(
            batches, problem.features, discount=1.0, theta=[-2.0, 0.5], **settings
        )
        return problem.mdp.value(found.policy)

    assert value(penalty_weight=1.0) == 0.3
    assert value(penalty_weight=10.0, margin=0.01) == 0.5
