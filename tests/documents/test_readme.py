"""What README.md says was measured is what the files in results/ say."""

import csv
import json
import re

import numpy as np
import pytest
from measured import study
from told import ROOT, words

import conqur
from conqur.diagnosis.words import at_least, at_most
from conqur.pretrained import card
from conqur.report.charts import number
from conqur.statistics import difference


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
    assert f"the same network scores {sticky:.1f}" in words("results")


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
    frames = [
        sum(by_settings[name][network]["frames_played"] for network in networks)
        for name in ("random, 0.3 gaps", "multi-DQN (independent, λ = 0)")
    ]
    assert f"with {frames[0] / frames[1]:.1f} times the frames of multi-DQN" in words("README.md")
    begun = " | ".join(f"{found[0]['gains'][n]['checkpoint']:.1f}" for n in networks)
    assert f"| checkpoint | {begun} | |" in text


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


def test_how_long_an_atari_game_takes_is_told_as_it_was():
    found = json.loads((ROOT / "results/tuning/krull_default.json").read_text())["summary"]
    chosen, told = found["chosen"], words("results")
    assert f"how long an Atari game takes: {found['seconds']:.0f} seconds" in told
    low, high = (f"{end:.1f}".replace("-", "−") for end in chosen["gain_interval"])
    ahead = f"{chosen['gain']:.1f} points ahead of {chosen['checkpoint']:,.1f}"
    assert f"{ahead} (95 % interval {low} to {high})" in told
    assert found["handed_back"] == "checkpoint"
    game = f"(an Atari game: {found['seconds'] / 60:.0f} minutes, or much more if games are long)"
    assert game in words("README.md")


def test_the_diagnosis_in_the_readme_is_that_of_the_results():
    """Rounded as it is there."""
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    found = json.loads((ROOT / "results/diagnosis/minatar_breakout.json").read_text())
    plain, penalised, higher = found["plain"], found["penalised"], found["higher_score"]
    broken = "{:.1f} to {:.1f} %".format(*(100 * end for end in plain["broken"]["interval"]))
    proved = sum(r["satisfiable"]["resolved"] == "inconsistent" for r in plain["repetitions"])
    less = "{:.1f} to {:.1f}".format(*(-end for end in reversed(higher["interval"])))
    for said in (
        f"Of {plain['choices']:,} choices behind",
        f"breaks {100 * plain['broken']['mean']:.1f} % (95 % interval {broken}). No policy of any",
        f"more than {at_most(plain['any_policy']['mean'])} of them, as some",
        f"was found keeps {at_least(plain['found']['mean'])}; in {proved} of 10 repetitions it is",
        f"(λ = 1) its own policy breaks {100 * penalised['broken']['mean']:.1f} %.",
        f"copy scores {-higher['mean']:.1f} points less than the plain one ({less};",
    ):
        assert said in text


def test_the_readme_s_warning_about_ties_is_true():
    """Values, not the policy: rounding decides that, and is not the same on all machines."""
    problem = conqur.tabular.four_state()
    batches = [conqur.tabular.sample_batch(problem.mdp, k, 1000) for k in range(5)]

    def lead_of_a2_in_s4(**settings):
        found = conqur.tabular.fitted_q_iteration(
            batches, problem.features, discount=1.0, theta=[-2.0, 0.5], **settings
        )
        q_values = problem.features[3] @ np.asarray(found.theta)
        return q_values[1] - q_values[0]

    assert abs(lead_of_a2_in_s4(penalty_weight=1.0)) < 1e-9
    assert abs(lead_of_a2_in_s4(penalty_weight=10.0)) < 1e-9
    assert lead_of_a2_in_s4(penalty_weight=10.0, margin=0.01) == pytest.approx(0.01)


def test_the_readme_begins_with_what_was_found():
    told = words("README.md")
    with (ROOT / "results/exactness/unions.csv").open() as file:
        rows = list(csv.DictReader(file))
    for weight, before in (("0", "own final policy breaks"), ("10", "with λ = 10 it is")):
        shares = [100 * float(r["broken"]) for r in rows if r["penalty_weight"] == weight]
        assert f"{before} {min(shares):.1f} to {max(shares):.1f} %" in told
    plain = [row for row in rows if row["penalty_weight"] == "0"]
    proved, times = (sum(int(r[name]) for r in plain) for name in ("inconsistent", "repetitions"))
    shares = [100 * float(row["broken_at_best_found"]) for row in plain]
    assert min(int(row["inconsistent"]) for row in plain) == 2  # "at least two in every game"
    assert not any(int(row["inconsistent"]) for row in rows if row["penalty_weight"] == "10")
    open_ = sum(int(row["undecided"]) for row in rows if row["penalty_weight"] == "10")
    for document in ("README.md", "results/README.md"):
        had = f"such a last layer can be had in {times - open_} of {times}, and {open_} are open"
        assert had in words(document)
        assert f"it is proved in {proved} of {times} repetitions" in words(document)
        assert f"breaks {min(shares):.1f} to {max(shares):.1f} %" in words(document)
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
