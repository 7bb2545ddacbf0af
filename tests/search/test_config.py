"""Settings of searches."""

import pytest

from conqur.consistency import Decay, Everything, Subsample, Widening, Window
from conqur.search.config import PRESETS, TuneConfig, population, tune_config
from conqur.tuning import _regression

BASIS = {"environment": "CartPole-v1", "checkpoint": "", "preprocessing": ""}


def test_the_paper_s_tables():
    """Tab. 5 and 6, and the 8 nodes of Appendix D."""
    common = {
        "dive_levels": 9,
        "boltzmann_every": 5,
        "target_every": 5,
        "evaluate_every": 10,
        "learning_rate": 2.5e-6,
        "transitions": 10_000,
        "updates": 10_000 // 4,
        "batch_size": 32,
        "epsilon": 0.01,
        "calibration": 2.5,
        "temperature": 1.0,
        "adapt_temperature": True,
        "discount": 0.99,
        "levels": 100,
        "clip_rewards": True,
        "buffer": "all",
        "scoring": "loss",
        "children": "boltzmann",
        "search": "beam",
        "units": "q",
        "penalty_weight": 10.0,
    }
    nodes = ("nodes", "splitting_factor", "expanded", "pool")
    for name, sizes in (("paper-16", (16, 4, 4, 46)), ("paper-8", (8, 2, 2, 38))):
        preset = PRESETS[name]
        assert {key: preset[key] for key in common} == common
        assert tuple(preset[key] for key in nodes) == sizes


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_possible_and_survive_json(name):
    config = tune_config(name, **BASIS)
    assert TuneConfig.from_json(config.to_json()) == config
    assert tune_config(name, **BASIS, levels=3, seed=None).levels == 3


def test_populations_by_name():
    assert population("all") == Everything()
    assert population("window:5") == Window(5)
    assert population("decay:0.9") == Decay(0.9)
    assert population("subsample:0.1") == Subsample(0.1)
    assert population("widening:0.5") == Widening(0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"search": "wide"}, "search must be one of beam"),
        ({"levels": 0}, "levels must be"),
        ({"splitting_factor": 0}, "splitting_factor must be"),
        ({"penalty_weight": -1.0}, "penalty_weight must be"),
        ({"penalty_weight": float("nan")}, "penalty_weight must be"),
        ({"expanded": 47}, "expanded .47. must be at most pool"),
        ({"nodes": 47}, "nodes .47. must be at most pool"),
        ({"expanded": 5}, "nodes .16. must be at least 20: 5 nodes are expanded, each"),
        ({"buffer": "decay:2"}, "buffer 'decay:2' is not possible"),
        ({"buffer": "window:x"}, "buffer 'window:x' is not possible"),
        ({"discount": 1.5}, "discount must be"),
        ({"final_episodes": 1}, "final_episodes must be"),
        ({"seed": 2**31}, "seed must be below"),
        ({"refit": "lbfgs", "approximator": "network"}, "refit lbfgs is for a linear head"),
        ({"scoring": "training-loss", "updates": 0}, "scoring training-loss needs updates"),
        ({"scoring": "initial-label", "environment": "d.npz"}, "needs first states of episodes"),
    ],
)
def test_what_is_not_possible_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        tune_config("paper-16", **BASIS | changes)


def test_searches_without_a_pool_may_have_more_nodes_than_it_holds():
    assert tune_config("paper-16", **BASIS, search="independent", nodes=64).nodes == 64
    with pytest.raises(ValueError, match=r"nodes \(64\) must be at most pool"):
        tune_config("paper-16", **BASIS, search="best-first", nodes=64)


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, True),
        ({"minibatches": "shared"}, False),
        ({"search": "independent", "minibatches": "shared"}, True),
    ],
)
def test_nodes_draw_their_own_minibatches(changes, own):
    assert _regression(tune_config("paper-16", **BASIS, **changes)).own_minibatches is own


def test_presets_have_names():
    with pytest.raises(ValueError, match="preset must be one of quick"):
        tune_config("slow", **BASIS)
