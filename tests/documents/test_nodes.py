"""What results/search.md says of presets and numbers of nodes is what came out."""

import collections
import re
import statistics

import claims
import measured
from measured import study
from told import ROOT, words

HELD = ("Freeway", "Seaquest", "SpaceInvaders")
"""Games that presets were not chosen on."""


def in_parts(rows):
    return "{:.2f} ({:.2f} to {:.2f})".format(*(1 + end for end in measured.gain(rows)))


def preset_told(preset):
    """The runs of a preset whose table is told, all and of the games that were held apart."""
    rows = study(f"minatar_{preset}")[0].rows
    games = {game: measured.own_game(rows, game) for game in measured.GAMES}
    apart = [row for game in HELD for row in games[game]]
    own = {
        game.replace("SpaceI", "Space I") + ", held apart" * (game in HELD): runs
        for game, runs in games.items()
    }
    for name, runs in (own | {"games held apart": apart, "all": rows}).items():
        before, after = (
            f"{statistics.mean(getattr(row, which) for row in runs):.1f}" if name in own else ""
            for which in ("checkpoint", "score")
        )
        better, worse = sum(r.gain_low > 0 for r in runs), sum(r.gain_high < 0 for r in runs)
        line = f"| {len(runs)} | {before} | {after} | {in_parts(runs)} | {better} | {worse} |"
        assert f"| {name} {line}".replace("|  |", "| |").replace("|  |", "| |") in words("results")
    handed_back = (
        in_parts(row._replace(gain=row.handed_back_gain) for row in own) for own in (rows, apart)
    )
    assert "comes to {}, in the games held apart to {}".format(*handed_back) in words("results")
    assert {row.network for row in rows} == {
        f"networks/{file.name}" for file in (ROOT / "results/networks").glob("*.safetensors")
    }
    return rows, apart


def test_the_preset_tuned_is_told_as_it_came_out():
    rows, apart = preset_told("tuned")
    found, readme = words("results"), words("README.md")
    assert f"; with `tuned` to {in_parts(rows)}." in readme
    assert f"three games that it was not chosen on to {in_parts(apart)}" in found
    told = f"three games on which the presets were not chosen to {in_parts(apart)} with the preset"
    assert f"take {len(apart)} networks of {told} `tuned`" in readme
    back = in_parts(row._replace(gain=row.handed_back_gain) for row in apart)
    assert f"then handed back to {back}" in readme
    assert f"a run took {statistics.mean(row.seconds for row in rows):.0f} seconds" in found


def test_the_preset_quick_is_told_as_it_came_out():
    rows, apart = preset_told("quick")
    longer = study("minatar_tuned")[0].rows
    found, readme = words("results"), words("README.md")
    frames, more = (statistics.mean(row.frames for row in own) / 1e6 for own in (rows, longer))
    assert f"With {frames:.1f} million frames a run, where `tuned` has {more:.1f}" in found
    assert 0.3 < frames / more < 0.37  # "with a third"
    difference = "{:.2f} ({:.2f} to {:+.2f})".format(*measured.against(longer, rows))
    assert f"the difference is {difference} checkpoints".replace("-", "−") in found
    seconds = statistics.mean(row.seconds for row in rows)
    assert f"on one core of a CPU, {seconds:.0f} seconds on average" in found
    all_, held = (
        (
            in_parts(own),
            in_parts(row._replace(gain=row.handed_back_gain) for row in own),
        )
        for own in (rows, apart)
    )
    told = "the default, `quick`, and a third of the frames to {} and {}."
    assert told.format(*held) in readme
    told = "come to {} of the checkpoints' scores, and what is handed back to {}"
    assert told.format(all_[0].replace("(", "(95 % interval "), all_[1]) in readme
    multi = measured.runs(study("minatar_nodes")[0], "multi-dqn", nodes=16)
    same = [row for row in rows if row.network in {run.network for run in multi}]
    times = statistics.mean(r.frames for r in same) / statistics.mean(r.frames for r in multi)
    ahead = "{:.2f} ({:.2f} to {:.2f})".format(*measured.against(same, multi)).replace("-", "−")
    assert f"`quick` by {ahead}, with {times:.1f} times its frames." in readme


def test_numbers_of_nodes_are_told_as_they_came_out():
    results, exhibits = study("minatar_nodes")
    tuned = study("minatar_tuned")[0].rows
    found, readme = words("results"), words("README.md")

    def told(cell, sign="+"):
        return "{:{s}.2f} ({:{s}.2f} to {:{s}.2f})".format(*cell, s=sign).replace("-", "−")

    arms = {"ConQUR, λ = 10": ("conqur", 10.0), "multi-DQN": ("multi-dqn", 0.0)}
    made = {
        (name, nodes): measured.runs(results, *arm, nodes)
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
        cells.append(told(measured.against(made[name, 16], made[name, 8])))
        assert f"| {name} | {' | '.join(cells)} |" in found
    growth = re.search(r"a growth of (.*?\))", claims._nodes().found)[1].replace("-", "−")
    assert f"the lead on multi-DQN grows by {growth}" in found
    leads = [measured.against(*(made[name, nodes] for name in arms)) for nodes in (8, 16)]
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
    ahead = measured.against(same, other)
    assert ahead.low > 0
    assert f"by {told(ahead, '')} checkpoints more than multi-DQN with 8 nodes" in found
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "Space Invaders"):
        own = f"MinAtar/{game.replace(' ', '')}"
        parts = ([run for run in runs if run.game == own] for runs in (same, other))
        assert f"{game} {told(measured.against(*parts))}" in found
    scored = collections.defaultdict(set)
    for run in (*made["ConQUR, λ = 10", 8], *other):
        scored[run.network].add(run.checkpoint)
    differ = sum(len(scores) > 1 for scores in scored.values())
    assert f"in {differ} of {len(scored)} networks their checkpoints" in found
    old = measured.runs(study("minatar_search")[0], "conqur", 10.0)
    for runs in (old, made["ConQUR, λ = 10", 8]):
        gain = measured.student(run.gain for run in runs if run.game == "MinAtar/SpaceInvaders")
        assert (
            "{:+.1f}{}, {:.1f} to {:.1f}".format(
                gain.value, " points" if runs is old else "", gain.low, gain.high
            ).replace("-", "−")
            in found
        )
    frames = [statistics.mean(run.frames for run in runs) / 1e6 for runs in (same, other)]
    assert "{:.1f} million frames, multi-DQN {:.1f} million".format(*frames) in found
    other = made["multi-DQN", 16]
    ahead = measured.against(same, other)
    times = statistics.mean(run.frames for run in same) / statistics.mean(r.frames for r in other)
    parts = (
        f"{game.replace('SpaceI', 'Space I')} "
        + told(measured.against(*(measured.own_game(runs, game) for runs in (same, other))))
        for game in measured.GAMES
    )
    expected = (
        f"with 16 it is {told(ahead)}, with {times:.1f} times the frames: {', '.join(parts)}."
    )
    assert expected in found
    expected = f"as many nodes, 16, by {told(ahead, '')}, with {times:.1f} times its frames,"
    assert expected in readme
    alone = {
        game: measured.against(*(measured.own_game(runs, game) for runs in (same, other)))
        for game in measured.GAMES
    }
    assert [game for game, found in alone.items() if found.low > 0] == ["SpaceInvaders"]  # as told
    eight, sixteen = (
        told(measured.against(*(measured.own_game(made[n, nodes], "SpaceInvaders") for n in arms)))
        for nodes in (8, 16)
    )
    assert f"(a lead of {eight} checkpoints; with 16 nodes {sixteen})" in found


def test_many_nodes_are_told_as_they_came_out():
    found = words("results")
    before, more, most = (study(f"minatar_nodes{n}")[0] for n in ("", "_64", "_256"))
    assert (more.done, more.runs, most.done, most.runs) == (30, 30, 20, 20)
    names = {"conqur": ("ConQUR, λ = 10,", 10.0), "multi-dqn": ("multi-DQN", 0.0)}

    def few(arms):
        """With 16 nodes, on the same networks."""
        of = {row.network for row in arms["conqur"]}
        return {
            name: [row for row in measured.runs(before, name, weight) if row.network in of]
            for name, (_, weight) in names.items()
        }

    wider, widest = measured.both(more, 64), measured.both(most, 256)
    assert [len(arms["conqur"]) for arms in (wider, widest)] == [15, 10]

    def cells(arms):
        for name, (told, _) in names.items():
            yield f"{told} against its own with 16", measured.against(arms[name], few(arms)[name])
        yield "lead of ConQUR", measured.lead_with(arms)
        yield "lead of ConQUR with 16 on these networks", measured.lead_with(few(arms))

    for (name, with_64), (_, with_256) in zip(cells(wider), cells(widest), strict=True):
        told = f"{measured.told(with_64)} | {measured.told(with_256)}".replace("-", "−")
        assert f"| {name} | {told} |" in found
    arms = widest
    for row in arms["conqur"]:
        gains = [
            next(run for run in part[name] if run.network == row.network).gain
            for name in names
            for part in (few(arms), arms)
        ]
        game, number = row.network.removeprefix("networks/").removesuffix(".safetensors").split("-")
        shown = " | ".join("0" if gain == 0 else f"{gain:+.1f}" for gain in gains)
        assert f"| {game}, network {number} | {shown} |".replace("-", "−") in found
    searches = measured.runs(most, "conqur", 10.0, 256)
    seconds = [row.seconds for row in searches]
    assert f"took {min(seconds):.0f} to {max(seconds):.0f} seconds" in found
    for name, better in (("conqur", 3), ("multi-dqn", 8)):
        narrow = {row.network: row.gain for row in few(arms)[name]}
        assert sum(row.gain > narrow[row.network] for row in arms[name]) == better
    (one, other), pair = (measured.own_game(arms[n], "SpaceInvaders") for n in names)
    ends = (one.checkpoint, one.score, other.checkpoint, other.score)
    assert "from {:.1f} to {:.1f} and from {:.1f} to {:.1f};".format(*ends) in found
    told = " and ".join(f"{row.checkpoint:.1f}" for row in pair)
    assert f"from {told} to {pair[0].score:.1f}, the checkpoint, and {pair[1].score:.1f}" in found
    times = []
    for name, (_, weight) in names.items():
        old = {row.network: row.frames for row in measured.runs(before, name, weight)}
        new = measured.runs(most, name, weight, 256)
        times.append(sum(row.frames for row in new) / sum(old[row.network] for row in new))
    assert "{:.1f} times those of 16 nodes with ConQUR, {:.1f} times".format(*times) in found
