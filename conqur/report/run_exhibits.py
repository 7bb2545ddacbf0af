"""Exhibits of a tuning run: before and after, the tree, ranked nodes, lineages, levels."""

from conqur import report
from conqur.report.charts import Bar, Reference, Series, number
from conqur.report.exhibits import Estimate, Exhibit, Figure, Gain, shown
from conqur.report.lines import Interval
from conqur.report.search_tree import search_tree
from conqur.report.tuned_run import Node, Played, TunedRun

CHECKPOINT, CHOSEN, OTHER = "var(--muted)", "var(--blue)", "var(--sky)"
MOST_BARS, MOST_LINES = 48, 64

LEVELS = (
    ("Best score (less is better)", "best_score"),
    ("Bellman error", "bellman"),
    ("Consistency penalty", "penalty"),
    ("Choices broken, per cent", "inconsistent"),
    ("Decisions that a level changed, per cent", "churn"),
    ("Action gap", "gap"),
    ("Entropy of assignments", "entropy"),
    ("Mean label", "label"),
    ("Return of episodes that ended while collecting", "return"),
)
"""Of the log: what a panel is called, and the column."""
SHARES = {"inconsistent", "churn"}
OF_LABELS = {"bellman", "penalty", "inconsistent", "entropy", "label"}
"""What means nothing where nothing is learned."""


def run_exhibits(run: TunedRun) -> list[Exhibit]:
    """All that the run's page shows."""
    return [*before_after(run), _tree(run), *others(run)]


def before_after(run: TunedRun) -> list[Exhibit]:
    """Scores on fresh starts; nothing if nothing was played."""
    summary = run.summary
    if summary is None or not (summary.checkpoint and summary.chosen):
        return []
    chosen, by_score = summary.chosen, summary.by_score
    told = [
        ("Checkpoint", summary.checkpoint, CHECKPOINT),
        (f"Node {chosen.node}, chosen by rollouts", chosen, CHOSEN),
    ]
    if by_score and by_score.node != chosen.node:
        told.append((f"Node {by_score.node}, best by its score", by_score, OTHER))
    bars = [
        Bar(name, found.mean, colour, number(found.mean, 2), _whisker(found.interval))
        for name, found, colour in told
    ]
    rows = [
        (
            name,
            Estimate(found.mean, *found.interval),
            Gain(found.gain, *found.gain_interval) if i else None,
        )
        for i, (name, found, _) in enumerate(told)
    ]
    words = (
        f"Mean scores of {chosen.episodes} episodes on fresh starts that played no part in the "
        "search or in the choice, the same for all; lines are 95 % bootstrap intervals of each "
        "mean. Gains are differences on the same starts, with Student's 95 % intervals: they are "
        f"known better than the scores. {_champion(summary.best)}"
    )
    return [
        Exhibit(
            key="before-after",
            title="Before and after",
            paper="",
            words=words.strip(),
            head=("", "Score", "Gain"),
            rows=tuple(rows),
            figures=(Figure("", report.bar_chart(bars, title="Scores before and after")),),
        )
    ]


def _champion(best: Played | None) -> str:
    """What the best of all evaluations says, and what it is worth."""
    if best is None:
        return ""
    if best.gain <= 0:
        return "In no evaluation during the search a node scored more than the checkpoint."
    return (
        f"The best of all evaluations during the search was node {best.node} with "
        f"{number(best.gain, 2)} above the checkpoint on {best.episodes} starts. The best of many "
        "noisy numbers is too good to be true: it took part in the choice, and only the fresh "
        "starts count."
    )


def _whisker(interval: Interval) -> tuple[float, float] | None:
    """An interval of a bar chart, if it is known."""
    low, high = interval
    return None if low is None or high is None else (low, high)


def _tree(run: TunedRun) -> Exhibit:
    """The search tree, with a table of its nodes."""
    return Exhibit(
        key="tree",
        title="The search tree",
        paper="Fig. 1",
        words="All nodes; a score that is not known is empty. The checkpoint is level 0.",
        head=Node._fields,
        rows=tuple(tuple(node) for node in run.nodes.values()),
        figures=(Figure("", search_tree(run)),),
    )


def others(run: TunedRun) -> list[Exhibit]:
    """What the page shows after the tree."""
    found = (_played_again(run), _ranked(run), _lineages(run), _levels(run))
    return [exhibit for exhibit in found if exhibit is not None]


def _played_again(run: TunedRun) -> Exhibit | None:
    """By what the chosen node was chosen."""
    played = run.summary.played_again if run.summary else ()
    if len(played) < 2:
        return None
    ranked = sorted(played, key=lambda found: (-found.episodes, -found.mean, found.node))
    bars = [
        Bar(
            f"node {found.node}",
            found.mean,
            CHOSEN if found.node == run.chosen else OTHER,
            f"{number(found.mean, 2)} ({found.episodes} episodes)",
        )
        for found in ranked[:MOST_BARS]
    ]
    return Exhibit(
        key="played-again",
        title="How the node was chosen",
        paper="",
        words=(
            f"All {len(played)} nodes that were left were played again, on starts that they had in "
            "common; the better half played on, up to twice as long, until one was left. Shown are "
            "mean scores and the number of episodes. The best of many is too good to be true: what "
            "it is worth is above, on starts of its own."
        ),
        head=("Node", "Score", "Episodes"),
        rows=tuple((str(found.node), found.mean, found.episodes) for found in ranked),
        figures=(Figure("", report.bar_chart(bars, title="Nodes that were played again")),),
        folded=True,
    )


def _ranked(run: TunedRun) -> Exhibit | None:
    """Nodes of the last evaluation, best first, against the checkpoint."""
    last = max((row.level for row in run.played), default=0)
    played = sorted((r for r in run.played if r.level == last), key=lambda r: (-r.mean, r.node))
    if last and played:
        found: list[tuple[int, Estimate]]
        found = [(row.node, Estimate(row.mean, *row.interval)) for row in played]
        references = [Reference("checkpoint", played[0].checkpoint)]
        head = ("Node", "Score")
        words = (
            f"Scores of the nodes of level {last}, {played[0].episodes} episodes each on common "
            "starts, with bootstrap intervals over episodes."
        )
    elif run.by_rollouts:
        left = [n for n in run.nodes.values() if n.status == "frontier" and n.score is not None]
        gains = sorted((n.score or 0.0, n.id) for n in left)
        found = [(node, Gain(-score)) for score, node in gains]
        references = []
        head = ("Node", "Gain")
        words = (
            f"Gains on the checkpoint of the nodes of the last level, "
            f"{run.config.rollout_episodes} episodes each on common starts. These chose the nodes, "
            "so the best are too good to be true."
        )
    else:
        return None
    if len(found) > MOST_BARS:
        words += f" No more than {MOST_BARS} are drawn."
    bars = [
        Bar(
            f"node {node}",
            value.value,
            CHOSEN if node == run.chosen else OTHER,
            shown(value),
            value.interval,
        )
        for node, value in found[:MOST_BARS]
    ]
    chart = report.bar_chart(bars, title="Nodes, best first", references=references)
    return Exhibit(
        key="ranked",
        title="Nodes, best first",
        paper="Fig. 3",
        words=words,
        head=head,
        rows=tuple((str(node), value) for node, value in found),
        figures=(Figure("", chart),),
        folded=True,
    )


def _lineages(run: TunedRun) -> Exhibit | None:
    """Of every lineage that is left: what it scored when it was evaluated."""
    gains = run.by_rollouts and len({row.level for row in run.played}) < 2
    ends = [n for n in run.nodes.values() if n.status == "frontier" or n.id == run.chosen]
    ends = sorted(ends, key=lambda node: node.id != run.chosen)[:MOST_LINES]
    lines = []
    for node in ends:
        at, values = _course(run, node, gains)
        colour = CHOSEN if node.id == run.chosen else OTHER
        lines.append(Series(f"to node {node.id}", values, colour, at))
    lines.sort(key=lambda line: line.colour == CHOSEN)  # above the others
    lines = [line for line in lines if len(line.values) > 1]
    if not lines:
        return None
    y_label = "gain" if gains else "score"
    if not gains:
        known = {float(row.level): row.checkpoint for row in run.played}
        lines.append(Series("checkpoint", list(known.values()), "var(--ink)", list(known)))
    chart = report.line_chart(
        lines, title="Lineages of the last level", x_label="level", y_label=y_label
    )
    words = (
        "What the ancestors of nodes of the last level scored. Siblings share their past; a "
        "lineage that waited has no points in between. "
        + ("The checkpoint is at 0." if gains else "The checkpoint, on the same starts, is black.")
    )
    if any(line.colour == CHOSEN for line in lines):
        words += " The node that was chosen is in dark blue."
    rows = [(line.name, int(at), value) for line in lines for at, value in line.points()]
    return Exhibit(
        key="lineages",
        title="Lineages",
        paper="Fig. 4",
        words=words,
        head=("Lineage", "level", y_label),
        rows=tuple(rows),
        figures=(Figure("", chart),),
        folded=True,
    )


def _course(run: TunedRun, node: Node, gains: bool) -> tuple[list[float], list[float]]:
    """Levels at which a lineage was evaluated, or scored by rollouts, and what it scored."""
    ancestors = {ancestor.id: ancestor for ancestor in run.lineage(node.id)}
    rows = [(float(row.level), row.mean) for row in run.played if row.node in ancestors]
    if gains:
        rows = [
            (float(ancestor.level), -ancestor.score)
            for ancestor in ancestors.values()
            if ancestor.score is not None
        ]
    return [level for level, _ in rows], [value for _, value in rows]


def _levels(run: TunedRun) -> Exhibit | None:
    """Small charts of what levels were like; none of a run with a single one."""
    figures: list[Figure] = []
    told: dict[str, dict[float, float]] = {}
    for title, column in LEVELS:
        if column in OF_LABELS and not run.config.updates:
            continue
        known = [(float(row["step"]), row[column]) for row in run.levels if column in row]
        if len(known) < 2 or not any(value for _, value in known):
            continue
        turned = column == "best_score" and run.by_rollouts
        factor = 100.0 if column in SHARES else -1.0 if turned else 1.0
        name = "Best gain on the checkpoint" if turned else title
        told[name] = {level: factor * value for level, value in known}
        line = Series(name, list(told[name].values()), CHOSEN, list(told[name]))
        chart = report.line_chart([line], title=name, x_label="level", y_label="")
        figures.append(Figure(name, chart))
    if not figures:
        return None
    every = sorted({level for values in told.values() for level in values})
    return Exhibit(
        key="levels",
        title="Level by level",
        paper="",
        words="Numbers of the log, level by level; those of nodes are means over the level's.",
        head=("level", *told),
        rows=tuple((int(at), *(values.get(at) for values in told.values())) for at in every),
        figures=tuple(figures),
        folded=True,
    )
