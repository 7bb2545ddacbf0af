"""What results/penalty.md says is what came out."""

import collections
import json
import re

import numpy as np
from measured import study
from told import ROOT, words

from conqur.config import train_config
from conqur.regression import annealed_penalty_weight
from conqur.statistics import difference


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
    assert "two hold zero (Asterix' scores, Breakout's returns while training)" in words("results")
    assert "in Asterix the difference cannot be told from zero" in words("README.md")


def test_settings_in_the_list_of_results_are_those_of_the_runs():
    text = words("results")
    for name in ("cartpole", "lunarlander", "minatar_breakout"):
        results = json.loads((ROOT / "results/training" / name / "results.json").read_text())
        command = results["runs"][0]["manifest"]["command"].partition(" --run-dir")[0]
        assert f"| `{name}` | `{command}`" in text


def test_the_penalty_on_atari_games_is_told_as_it_came_out():
    text = words("results")
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


def test_the_penalty_study_is_told_as_it_came_out():
    results, exhibits = study("minatar_penalty")
    assert len(results.rows) == 5 * 2 * 6 * 10
    found = words("results")
    table = exhibits["weights"]
    shown = {row[:2]: row[table.head.index("IQM")] for row in table.rows}
    for weight in ("0.25", "0.5", "1", "1.5", "2"):
        told = [
            "{:.2f} ({:.2f} to {:.2f})".format(*shown[name, weight]) for name in ("DQN", "DDQN")
        ]
        assert f"| {weight} | {' | '.join(told)} |" in found
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


def test_what_lambda_comes_to_in_the_long_runs_is_told():
    """5M steps of MinAtar, an update every fourth, with the paper's annealing."""
    settings = train_config(
        "minatar",
        environment="MinAtar/Breakout",
        algorithm="dqn",
        penalty_weights=(0.5,),
        seeds=(0,),
    )
    updates = 5_000_000 / settings.update_every
    end = float(annealed_penalty_weight(0.5, updates, halfway=settings.anneal_halfway))
    assert f"has come to {end:.2f} when MinAtar's runs end" in words("README.md")
    for document in ("README.md", "results/README.md"):
        assert f"in which λ comes to {end:.2f} at the end" in words(document)
