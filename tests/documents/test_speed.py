"""What results/speed.md says is what was measured."""

import collections
import csv
import json

import numpy as np
from told import ROOT, text, words


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
    readme, results = words("README.md"), words("results")
    assert f"at {min(atari.values()):.2f} to {max(atari.values()):.2f} of the emulator" in readme
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
        assert f"| {name} | {' | '.join(cells)} |" in words("results")
    ours, *theirs = (np.median(values) for values in rates[0].values())
    times = [ours / rate for rate in theirs]
    told = f"{min(times):.2f} to {max(times):.2f} times"
    assert f"in the others: {told}" in words("results")
    assert f"trains {told} as fast as there" in words("README.md")


def test_the_speed_beside_peers_on_a_gpu_is_that_of_the_results():
    found = json.loads((ROOT / "results/training/peers_gpu.json").read_text())
    rates = found["Breakout"]["steps_per_second"]
    ours = np.median(rates["conqur"])
    for name, values in rates.items():
        low, rate, high = (f(values) for f in (min, np.median, max))
        cells = f"{rate:,.0f} ({low:,.0f} to {high:,.0f}) | {ours / rate:.1f}"
        assert f"| {name} | {cells} |" in words("results")
    alone, together, cleanrl = (ours / np.median(rates[name]) for name in list(rates)[1:])
    text = f"{together:.0f} to {alone:.0f} times as fast as Stable-Baselines3 and {cleanrl:.0f}"
    assert f"{text} times as fast as CleanRL" in words("README.md")


def test_the_speed_of_the_search_is_that_of_the_results():
    told = text("results")
    cpu, gpu = (
        json.loads((ROOT / f"results/search/speed_{kind}.json").read_text())
        for kind in ("cpu", "gpu")
    )

    def refining(found, name, digits):
        return {n: f"{np.median(t):.{digits}f}" for n, t in found[name]["seconds"].items()}

    ways = ("refining", "refining_shared")
    speed = words("results/speed.md")
    for found, words_for in (
        (cpu, "take {} times as long to refine on the CPU as with shared ones"),
        (gpu, "and {} times on the H200: rows are gathered"),
    ):
        own, shared = ({n: np.median(t) for n, t in found[way]["seconds"].items()} for way in ways)
        times = [own[n] / shared[n] for n in own]
        assert words_for.format(f"{min(times):.1f} to {max(times):.1f}") in speed
        if found is cpu:
            one, many = (np.median(cpu["levels"]["seconds_of_a_level"][n]) for n in ("1", "16"))
            slower = f"takes {many - one:.1f} seconds longer than one with one node"
            more = own["16"] - shared["16"]
            assert f"{slower}, of which minibatches of their own cost {more:.1f};" in speed
    of_level = gpu["levels"]["parts"]["16"]
    part = np.median(of_level["collect"]) / np.median(gpu["levels"]["seconds_of_a_level"]["16"])
    assert gpu["levels"]["sixteen_by_one"] <= 1
    assert round(10 * part) == 9
    assert "takes no longer that could be told, as collecting is nine tenths of it" in speed
    assert list(cpu["refining"]["seconds"]) == ["1", "8", "16", "64"]

    def seconds(way):
        few = ", ".join(refining(cpu, way, 2).values())
        *many, wide, widest = refining(gpu, way, 3).values()
        return f"{few} | {', '.join(many)}; 256 and 512 nodes {wide}, {widest}"

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
        "| seconds in which a level refines 1, 8, 16 and 64 nodes with minibatches of their own | "
        f"{seconds('refining')} |",
        f"| the same with shared ones | {seconds('refining_shared')} |",
        f"| memory of 100 levels | {cpu['memory']['gibibytes']:.1f} GiB | - |",
    ):
        assert line in told


def test_searches_beside_one_another_are_told_as_fast_as_they_were():
    with (ROOT / "results/search/together_gpu.csv").open() as file:
        rows = list(csv.DictReader(file))
    at = collections.defaultdict(dict)
    for row in rows:
        at[row["run"]][int(row["seconds"])] = int(row["level"])
    first, last = 121, 482
    levels = {run: found[last] - found[first] for run, found in at.items()}
    assert len(levels) == 14
    speed = words("results/speed.md")
    assert f"Between {first} and {last} seconds" in speed
    rate = sum(levels.values()) * 10_000 / (last - first)
    assert f"collected {round(rate, -2):,.0f} transitions a second" in speed
    each = {run: 60 * count / (last - first) for run, count in levels.items()}
    up, krull = (
        next(rate for run, rate in each.items() if run.startswith(game))
        for game in ("UpNDown", "Krull")
    )
    others = [rate for run, rate in each.items() if not run.startswith(("UpNDown", "Krull"))]
    told = "{:.1f} levels a minute in UpNDown, {:.1f} in Krull, {:.1f} to {:.1f} in the other games"
    assert told.format(up, krull, min(others), max(others)) in speed
    busy = [int(row["busy_cores_percent"]) for row in rows]
    assert f"The cores were {min(busy)} to {max(busy)} % busy" in speed
