"""Studies: many runs that are planned, made, watched and collected together."""

from conqur.suite.collecting import collect, collect_curves, collect_nodes
from conqur.suite.jobs import Job, State, state
from conqur.suite.local import run_locally
from conqur.suite.study import Study, read_study

__all__ = [
    "Job",
    "State",
    "Study",
    "collect",
    "collect_curves",
    "collect_nodes",
    "read_study",
    "run_locally",
    "state",
]
