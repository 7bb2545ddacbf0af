"""All results of a study as one tidy table: a row for each network that was trained or tuned."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conqur.runs.files import read_json
from conqur.suite.jobs import Job, State, state

TRAINED = (
    *("game", "algorithm", "preset", "penalty_weight", "seed", "score", "score_low", "score_high"),
    *("human_normalised", "episodes", "run"),
)
TUNED = (
    *("network", "game", "algorithm", "preset", "penalty_weight", "seed", "checkpoint", "score"),
    *("gain", "gain_low", "gain_high", "handed_back_gain", "score_by_score", "gain_by_score"),
    *("best_evaluation", "best_evaluation_checkpoint", "episodes", "frames", "seconds", "run"),
)


def collect(jobs: Sequence[Job], study: Path) -> list[dict[str, Any]]:
    """A row for each network of the runs that are done."""
    rows: list[dict[str, Any]] = []
    for job in jobs:
        if state(job, study) is State.DONE:
            found = read_json(job.result(study))
            rows += _trained(job, found) if job.episodes is not None else [_tuned(job, found)]
    return rows


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The table as CSV; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """The table as Parquet. This needs pyarrow."""
    import pyarrow
    import pyarrow.parquet

    target = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), target)
    return bytes(target.getvalue().to_pybytes())


def _trained(job: Job, found: dict[str, Any]) -> list[dict[str, Any]]:
    networks = found.get("networks", [found])
    rows = []
    for network in networks:
        low, high = network["interval"]
        values = {
            **{name: job.about[name] for name in ("game", "algorithm", "preset")},
            "penalty_weight": network["network"]["penalty_weight"],
            "seed": network["network"]["seed"],
            "score": network["mean"],
            "score_low": low,
            "score_high": high,
            "human_normalised": network["human_normalised"],
            "episodes": len(network["episodes"]),
            "run": job.name,
        }
        rows.append({name: values[name] for name in TRAINED})
    return rows


def _tuned(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    chosen, by_score = found.get("chosen") or {}, found.get("chosen_by_score") or {}
    best = found.get("best_of_evaluations") or {}
    low, high = chosen.get("gain_interval") or (None, None)
    handed = 0.0 if found.get("handed_back") == "checkpoint" else chosen.get("gain")
    values = job.about | {
        "game": found.get("environment"),
        "checkpoint": (found.get("checkpoint") or {}).get("mean"),
        "score": chosen.get("mean"),
        "gain": chosen.get("gain"),
        "gain_low": low,
        "gain_high": high,
        "handed_back_gain": handed,
        "score_by_score": by_score.get("mean"),
        "gain_by_score": by_score.get("gain"),
        "best_evaluation": best.get("mean"),
        "best_evaluation_checkpoint": best.get("checkpoint"),
        "episodes": chosen.get("episodes"),
        "frames": found.get("frames", 0) + found.get("played_frames", 0),
        "seconds": found.get("seconds"),
        "run": job.name,
    }
    return {name: values[name] for name in TUNED}
