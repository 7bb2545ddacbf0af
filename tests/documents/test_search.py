"""What results/search.md says of studies in MinAtar is what came out."""

import collections
import csv
import re
import statistics
from xml.etree import ElementTree

import claims
import measured
import picture
from measured import study
from told import ROOT, text, words

from conqur.statistics import student_interval
from conqur.suite import read_study


def test_loss_and_rollouts_as_scores_are_told_as_they_came_out():
    words_of = claims._scoring().found.replace("-", "−")
    lead, times, own = re.search(
        r"is (.*?\)) checkpoints, with (.* times).*first, (.*\))", words_of
    ).groups()
    found = words("results")
    assert f"The lead of rollouts is {lead} checkpoints over all games, for {times}" in found
    rows = study("minatar_scoring")[0].rows
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "Space Invaders"):
        own_rows = [row for row in rows if row.game == f"MinAtar/{game.replace(' ', '')}"]
        arms = [[r for r in own_rows if r.algorithm == name] for name in ("rollouts", "conqur")]
        assert [len(arm) for arm in arms] == [5, 5]
        lead = measured.against(*arms)
        words_of = f"{game} {measured.told(lead)}".replace("-", "−")
        assert words_of in found
        assert lead.high > 0 or lead.value == 0
        if game == "Freeway":
            assert all(row.gain == 0 for row in own_rows)
            ranked = measured.against(*(map(measured.by_own_score, arm) for arm in arms))
            assert f"behind, {measured.told(ranked)}".replace("-", "−") in found
    assert f"the lead is {own}, and in Freeway rollouts" in found
    scored = collections.defaultdict(set)
    for row in rows:
        scored[row.network].add(row.checkpoint)
    assert sum(len(scores) > 1 for scores in scored.values()) == 7  # as told


def test_the_search_study_is_told_as_it_came_out():
    results, exhibits = study("minatar_search")
    found, readme = words("results"), words("README.md")
    assert f"{len(results.rows)} runs with the paper's settings, baseline and controls" in readme
    assert measured.search_table() in text("results")
    arms = measured.arms_of(results)
    lead, with_one = measured.lead_of("ConQUR, λ = 10"), measured.lead_of("ConQUR, λ = 1")
    shown = [-with_one["play"].value, -with_one["play"].high, -with_one["play"].low]
    assert "behind by {:.2f} ({:.2f} to {:.2f}) checkpoints with λ = 1".format(*shown) in found
    shown = [-lead["play"].value, -lead["play"].high, -lead["play"].low]
    assert "and by {:.2f} ({:.2f} to {:.2f}) with λ = 10".format(*shown) in found
    assert with_one["loss"].low < 0 < with_one["loss"].high  # "level on average"
    assert lead["loss"].high < 0
    by_play = (
        f"{1 + measured.gain(arms[name]).value:.2f}"
        for name in ("search without penalty", "ConQUR, λ = 1", "ConQUR, λ = 10")
    )
    assert "to {} without the penalty, {} with λ = 1 and {} with".format(*by_play) in found
    space = (
        measured.gain(measured.own_game(measured.chosen_by(arms[name], "loss"), "SpaceInvaders"))
        for name in ("multi-DQN", "ConQUR, λ = 1", "ConQUR, λ = 10")
    )
    cells = ("{:.2f} ({:.2f} to {:.2f})".format(*(1 + end for end in each)) for each in space)
    expected = "multi-DQN falls to {}; the search has {} with λ = 1 and {} with λ = 10."
    assert expected.format(*cells) in found
    handed = (
        measured.gain(row._replace(gain=row.handed_back_gain) for row in arms[name])
        for name in ("multi-DQN", "search without penalty", "ConQUR, λ = 1", "ConQUR, λ = 10")
    )
    cells = ["{:.2f} ({:.2f} to {:.2f})".format(*(1 + end for end in each)) for each in handed]
    cells_of_multi = cells[0]
    expected = "comes to {} (multi-DQN), {} (without penalty), {} (λ = 1) and {} (λ = 10)."
    assert expected.format(*cells) in found
    for game in {row.game for row in results.rows}:
        ours, theirs = (
            [row for row in arms[name] if row.game == game]
            for name in ("ConQUR, λ = 10", "multi-DQN")
        )
        one = [row for row in arms["ConQUR, λ = 1"] if row.game == game]
        assert measured.against(ours, theirs).low < 0  # by rollouts ahead beyond chance in none
        assert measured.against(one, theirs).low < 0
        by_loss = measured.against(*(map(measured.by_own_score, rows) for rows in (ours, theirs)))
        assert (by_loss.value > 0) == (game == "MinAtar/SpaceInvaders")
        if game == "MinAtar/SpaceInvaders":
            assert all(row.gain_by_score / row.checkpoint < -0.4 for row in theirs)  # ruined
    games = [
        measured.against(*([r for r in arms[n] if r.game == game] for n in names)).value
        for names in [("ConQUR, λ = 10", "multi-DQN")]
        for game in sorted({row.game for row in results.rows})
    ]
    told = "{:.2f} ({:.2f} to {:+.2f})".format(statistics.mean(games), *student_interval(games))
    assert (
        f"the lead of λ = 10 on multi-DQN would be {told}".replace("-", "−").replace(
            "multi−DQN", "multi-DQN"
        )
        in found
    )
    chosen = [measured.gain(measured.chosen_by(arms["multi-DQN"], by)) for by in ("play", "loss")]
    told = ["{:.2f} ({:.2f} to {:.2f})".format(*(1 + end for end in each)) for each in chosen]
    assert f"comes to {told[0]} if rollouts choose among its 16 heads" in found
    assert f"what is handed back comes to {cells_of_multi}. If its loss chooses, it comes" in found
    assert f"chooses, it comes to {told[1]} (" in found
    noise = measured.lead_of("random children by rollouts")["play"]
    shown = "behind multi-DQN by {:.2f} ({:.2f} to {:.2f}) on the 27 networks".format(
        *(-end for end in (noise.value, noise.high, noise.low))
    )
    assert len(arms["random children by rollouts"]) == 27
    assert shown in found
    assert shown.replace("DQN by", "DQN, by") in readme
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
    one, ten, hundred, thousand = (freeway[name] for name in penalised)
    assert f"from {freeway['checkpoint']} to {one}, {ten}, {hundred} and {thousand} with" in found
    without = [freeway[name] for name in ("multi-DQN", "search without penalty")]
    assert f"stay without ({' and '.join(without)})" in found
    seaquest = [
        1 + measured.gain(row for row in by_loss if "Seaquest" in row.game).value
        for by_loss in (measured.chosen_by(arms[name], "loss") for name in penalised)
    ]
    assert seaquest[0] > 1
    assert "lower them, too, to {:.2f}, {:.2f} and {:.2f} of the".format(*seaquest[1:]) in found
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


def test_what_means_over_games_hide_is_told():
    arms = measured.arms_of(study("minatar_search")[0])
    apart = measured.arms_of(study("minatar_no_search")[0])
    found = words("results")
    multi, one = arms["multi-DQN"], arms["ConQUR, λ = 1"]

    def told(cell):
        return measured.with_minus(f" {measured.told(cell)}").strip()

    def by_loss(rows, game=None):
        rows = measured.chosen_by(rows, "loss")
        return rows if game is None else measured.own_game(rows, game)

    def elsewhere(rows):
        return [row for row in rows if row.game != "MinAtar/SpaceInvaders"]

    sides = {
        game: measured.against(by_loss(one, game), by_loss(multi, game)) for game in measured.GAMES
    }
    rest = measured.against(elsewhere(by_loss(one)), elsewhere(by_loss(multi)))
    line = ", ".join(f"{game.replace('SpaceI', 'Space I')} {told(s)}" for game, s in sides.items())
    assert f"{line}; without Space Invaders {told(rest)}." in found
    for rows in (one, arms["ConQUR, λ = 10"]):  # "both are far ahead in ..., and behind in ..."
        there = measured.against(by_loss(rows, "SpaceInvaders"), by_loss(multi, "SpaceInvaders"))
        others = measured.against(elsewhere(by_loss(rows)), elsewhere(by_loss(multi)))
        assert others.high < 0 < 0.7 < there.low
    assert all(sides[game].high < 0 for game in ("Asterix", "Breakout", "Freeway"))
    play, loss = (
        measured.gain(elsewhere(measured.chosen_by(multi, by))) for by in ("play", "loss")
    )
    assert f"gains {told(play)} if rollouts choose, and {told(loss)} if the loss does" in found
    ruined = collections.Counter(
        row.game.removeprefix("MinAtar/")
        for row in by_loss(arms["large-batch refit"])
        if row.gain < -0.4 * row.checkpoint
    )
    assert ruined == {"Seaquest": 10, "SpaceInvaders": 10, "Asterix": 7, "Breakout": 1}  # as told
    kept, lowered = [], []
    for name, rows in [*arms.items(), *apart.items()]:
        parts = [1 + row.gain / row.checkpoint for row in by_loss(rows, "Freeway")]
        if name.startswith("ConQUR"):
            lowered.append(statistics.mean(parts))
            assert max(parts) < 0.9
        elif name in ("multi-DQN", "search without penalty"):
            kept += parts
    with (ROOT / "results/holding/runs.csv").open() as file:
        for row in csv.DictReader(file):
            part = float(row["score"]) / float(row["checkpoint"])
            if "Freeway" in row["network"] and (row["arm"], row["weight"]) != ("λ", "10.0"):
                kept.append(part)
    assert f"to {min(lowered):.2f} to {max(lowered):.2f} of the checkpoint" in found
    assert 0.97 < min(kept) < 1
    for document in ("results", "README.md"):
        assert "with few sampled choices lose 3 % at most" in words(document)
    penalised = by_loss(apart["penalty without search, λ = 1"], "Freeway")
    lost = [-row.gain / row.checkpoint for row in penalised if row.gain < 0]
    assert (len(lost), round(100 * max(lost))) == (3, 1)  # as told
    space = {
        name: by_loss(apart[name], "SpaceInvaders")
        for name in ("ConQUR, λ = 1", "penalty without search, λ = 1")
    }
    assert [sum(row.gain > 0 for row in rows) for rows in space.values()] == [5, 1]  # as told
    assert f"if the loss does by {told(measured.against(*space.values()))}." in found
    pair = apart["ConQUR, λ = 1"], apart["multi-DQN"]
    assert f"its lead is {told(measured.against(*pair))} over all games" in found
    even, others = (
        measured.against(*(by_loss([r for r in rows if of(r)]) for rows in pair))
        for of in (lambda row: True, lambda row: "SpaceInvaders" not in row.game)
    )
    shown = (f"{{:{sign}.2f}} ({{:{sign}.2f}} to {{:+.2f}})" for sign in ("", ""))
    shown = [words_of.format(*cell) for words_of, cell in zip(shown, (even, others), strict=True)]
    shown[1] = shown[1].replace("+", "")
    line = "If the loss does, it is {}: far ahead in Space Invaders, and {} in the other"
    assert line.format(*shown).replace("-", "−") in found


def test_how_far_checkpoints_score_differently_is_told():
    scores = collections.defaultdict(set)
    for name in ("search", "nodes", "scoring", "random", "no_search"):
        for row in study(f"minatar_{name}")[0].rows:
            scores[row.network].add(row.checkpoint)
    network, (low, high) = max(
        ((name, (min(own), max(own))) for name, own in scores.items()),
        key=lambda found: 1 - found[1][0] / found[1][1],
    )
    assert network == "networks/SpaceInvaders-4.safetensors"
    told = f"by up to {100 * (1 - low / high):.0f} %: Space Invaders, network 4, "
    assert f"{told}{high:.1f} and {low:.1f} points" in words("results")


def test_random_children_are_told_as_they_came_out():
    found = words("results")
    results = study("minatar_random")[0]
    assert (results.done, results.runs) == (28, 28)
    for name, gain in measured.random_children().items():
        assert f"| {name} | {measured.told(gain).replace('-', '−')} |" in found
    ours = {row.network: row.frames for row in measured.runs(results, "random-rollouts", nodes=8)}
    for name, algorithm, words_of in (
        ("scoring", "rollouts", "1.0"),
        ("random", "rollouts", "1.0"),
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
    by_game = {
        (row.algorithm, row.game): [
            run.gain for run in results.rows if run[1:3] == (row.game, row.algorithm)
        ]
        for row in results.rows
    }
    for game, ahead in (("SpaceInvaders", True), ("Asterix", False), ("Seaquest", False)):
        random, learned = (
            statistics.mean(by_game[name, f"MinAtar/{game}"])
            for name in ("random-rollouts", "rollouts")
        )
        assert (random > learned) == ahead


def test_both_kinds_of_minibatches_are_told_as_they_came_out():
    results, _ = study("minatar_minibatches")
    assert results.done == results.runs == 100
    assert measured.minibatch_table() in text("results")
    found, arms = words("results"), measured.arms_of(results)
    pairs, multi = measured.minibatch_arms(), arms["multi-DQN"]

    def told(ours, theirs, by):
        lead = measured.against(*(measured.chosen_by(rows, by) for rows in (ours, theirs)))
        return measured.told(lead).replace("-", "−"), lead

    plain, one, ten = (told(arms[name], multi, "play") for name in pairs)
    assert plain[1].low < 0 < plain[1].high
    assert f"(a lead of {plain[0]} checkpoints if rollouts choose)" in found
    changes = [
        told(pairs[f"ConQUR, λ = {weight}"]["own"], pairs[f"ConQUR, λ = {weight}"]["shared"], by)
        for by in ("play", "loss")
        for weight in (1, 10)
    ]
    shown = "{} with λ = 1 and {} with λ = 10 if rollouts choose, {} and {} if the loss does."
    assert shown.format(*(change for change, _ in changes)) in found
    free = pairs["search without penalty"]
    without = [told(free["own"], free["shared"], by) for by in ("play", "loss")]
    shown = "their own make {} checkpoints of difference, if the loss does {}."
    assert shown.format(*(change for change, _ in without)) in found
    assert all(change.low < 0 < change.high for _, change in (*changes, *without))  # as told
    shared = study("minatar_no_search")[0]
    spreads = (
        measured.spread(*each)
        for each in ((shared, free["shared"]), (results, free["own"]), (results, multi))
    )
    shown = "spread {:.2f}, with their own {:.2f}, about as multi-DQN's ({:.2f})."
    assert shown.format(*spreads) in found
    here, there = (
        {row.network: row.checkpoint for row in rows} for rows in pairs["ConQUR, λ = 10"].values()
    )
    differ = sum(here[network] != there[network] for network in here)
    assert f"({differ} of {len(here)} checkpoints score differently there)" in found
    by_loss = [told(arms[f"ConQUR, λ = {weight}"], multi, "loss")[1] for weight in (1, 10)]
    assert by_loss[0].low < 0 < by_loss[0].high
    assert by_loss[1].high < 0
    assert max(one[1].high, ten[1].high) < 0
    games = (
        f"{game.replace('SpaceI', 'Space I')} "
        + told(*(measured.own_game(rows, game) for rows in (arms["ConQUR, λ = 1"], multi)), "loss")[
            0
        ]
        for game in measured.GAMES
    )
    assert f"with λ = 1, {', '.join(games)}." in found
    leads = f"leads of {one[0]} with λ = 1 and {ten[0]} with λ = 10, and {plain[0]} without"
    assert leads in words("results/README.md")
    readme = f"its leads on multi-DQN are {one[0]} and {ten[0]}, and {plain[0]} without penalty"
    assert readme in words("README.md")
    again = [told(pairs["ConQUR, λ = 1"]["shared"], multi, by)[1].value for by in ("play", "loss")]
    elsewhere = "which was made again, it is {:.2f} and {:.2f}.)".format(*again)
    assert elsewhere.replace("-", "−") in found
    alone = measured.arms_of(study("minatar_no_search")[0])["penalty without search, λ = 10"]
    _, behind = told(alone, arms["ConQUR, λ = 10"], "loss")
    assert f"by {behind.value:.2f} ({behind.low:.2f} to {behind.high:.2f}), and cannot" in found


def test_the_search_that_never_goes_back_is_told_as_it_came_out():
    results, _ = study("minatar_no_backtracking")
    assert results.done == results.runs == 25
    arms = measured.arms_of(study("minatar_minibatches")[0])
    for other, shown in (
        ("ConQUR, λ = 1", "it gains {} checkpoints if rollouts choose, and {} if the loss does;"),
        ("multi-DQN", "its leads on multi-DQN are {} and {}."),
    ):
        leads = [
            measured.against(
                *(measured.chosen_by(rows, by) for rows in (results.rows, arms[other]))
            )
            for by in ("play", "loss")
        ]
        told = (measured.told(lead).replace("-", "−") for lead in leads)
        assert shown.format(*told) in words("results/search.md")
        assert (leads[0].low < 0 < leads[0].high) == (other != "multi-DQN")


def test_the_penalty_without_the_search_is_told_as_it_came_out():
    found = words("results")
    results, _ = study("minatar_no_search")
    assert results.done == results.runs == 150
    for table in measured.apart_tables():
        assert table in text("results")
    arms = measured.arms_of(results)
    one, ten = (arms[f"penalty without search, λ = {weight}"] for weight in (1, 10))
    for rows in (one, ten):
        parts = [100 * row.gain_by_score / row.checkpoint for row in rows]
        assert f"{min(parts):.0f} to {max(parts):+.0f} %".replace("-", "−") in found
        freeway = [row for row in rows if row.game == "MinAtar/Freeway"]
        assert all(row.gain_by_score / row.checkpoint > -0.05 for row in freeway)
    space = {
        name: [row for row in rows if row.game == "MinAtar/SpaceInvaders"]
        for name, rows in arms.items()
    }
    alone, search = (space[name] for name in ("penalty without search, λ = 1", "ConQUR, λ = 1"))
    assert sum(row.gain_by_score / row.checkpoint < -0.4 for row in alone) == 2
    assert all(row.gain_by_score > 0 for row in search)
    told = measured.told(measured.gain(measured.chosen_by(search, "loss")))
    assert f"loss chooses gains {told}, on each of the five networks" in found
    told = measured.told(measured.against(search, alone))
    assert f"the search leads the penalty without it by {told}" in found
    more = measured.arms_of(study("minatar_search")[0])["ConQUR, λ = 1"]
    more = [row for row in measured.chosen_by(more, "loss") if "SpaceInvaders" in row.game]
    told = measured.with_minus(measured.told(measured.gain(more)))
    assert f"the same arm gains {told} by the loss" in found
    for rows in (one, ten):
        behind = measured.against(arms["multi-DQN"], rows)
        assert f"{behind.value:.2f} ({behind.low:.2f} to {behind.high:.2f})" in found


def test_the_table_of_claims_is_made_from_the_results():
    for made in (claims.table(), claims.table_of_asked()):
        assert made in text("results")


def test_the_picture_of_the_search_shows_what_came_out():
    results, _ = study("minatar_search")
    assert picture.picture(measured.arms_of(results)) == (ROOT / "results/search.svg").read_text()
    marks = iter(
        ElementTree.parse(ROOT / "results/search.svg").iterfind(".//{*}circle[{*}title]"),
    )
    shown = collections.defaultdict(dict)
    for number, game in enumerate((*measured.GAMES, "all five")):
        for name in picture.ARMS:
            for by in picture.CHOSEN:
                mark = next(marks)
                label, mean = re.fullmatch(
                    r"(.*): ([0-9.]*) \(.*\)", mark.findtext("{*}title")
                ).groups()
                assert label == picture.CHOSEN[by][0]
                # A panel is 220 wide, from 0 to 1.75, and 24 from the next.
                left = 104 + number % 3 * 244
                assert abs((float(mark.get("cx")) - left) / 220 * 1.75 - float(mean)) < 0.006
                shown[game][name, by] = float(mean)
    assert next(marks, None) is None
    with (ROOT / "results/studies/minatar_search/results.csv").open() as file:
        freeway = [
            row
            for row in csv.DictReader(file)
            if (row["game"], row["algorithm"], row["penalty_weight"])
            == ("MinAtar/Freeway", "conqur", "10.0")
        ]
    before, after = (
        statistics.mean(float(row[column]) for row in freeway)
        for column in ("checkpoint", "score_by_score")
    )
    assert len(freeway) == 10
    assert abs(after / before - shown["Freeway"]["ConQUR, λ = 10", "loss"]) < 0.006
    told = words("README.md")
    for game in ("Asterix", "Breakout", "Seaquest"):
        for by in picture.CHOSEN:
            scores = [shown[game][name, by] for name in list(picture.ARMS)[1:]]
            assert scores == sorted(scores, reverse=True)
    falls = (shown["Freeway"][f"ConQUR, λ = {weight}", "loss"] for weight in (1, 10))
    assert "falls to {:g} and {:g} where its loss chooses".format(*falls) in told
    without = [shown["SpaceInvaders"][name, "loss"] for name in list(picture.ARMS)[:2]]
    assert {round(score, 1) for score in without} == {0.2}
    assert min(shown["SpaceInvaders"][f"ConQUR, λ = {w}", "loss"] for w in (1, 10)) > 1
