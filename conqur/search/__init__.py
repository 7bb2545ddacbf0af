"""ConQUR's search over Q-regressors (Sec. 3.3 to 3.5, Algorithm 2)."""

from conqur.search.algorithms import (
    World,
    beam_search,
    best_first_search,
    depth_first_search,
    independent_search,
    local_search,
)
from conqur.search.approximator import (
    Approximator,
    LinearTuning,
    StateActionFeatures,
    WholeNetwork,
)
from conqur.search.batches import Batch, Batches, DataCollector
from conqur.search.collecting import Collector
from conqur.search.growing import Grower, Growing
from conqur.search.node import Kind, Node, Tree
from conqur.search.refining import Regression
from conqur.search.rollouts import Rollouts

__all__ = [
    "Approximator",
    "Batch",
    "Batches",
    "Collector",
    "DataCollector",
    "Grower",
    "Growing",
    "Kind",
    "LinearTuning",
    "Node",
    "Regression",
    "Rollouts",
    "StateActionFeatures",
    "Tree",
    "WholeNetwork",
    "World",
    "beam_search",
    "best_first_search",
    "depth_first_search",
    "independent_search",
    "local_search",
]
