import dataclasses
import json
import math

import pytest

from conqur.config import PRESETS, TrainConfig, train_config
from conqur.environments.atari import PREPROCESSING, LifeLoss


def make(preset="control", **changes):
    """The settings that no preset has, and a preset's."""
    needed = dict(environment="Any-v0", algorithm="dqn", penalty_weights=(0.0,), seeds=(0,))
    return train_config(preset, **(needed | changes))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_whole(preset):
    config = make(preset)
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert fields - set(PRESETS[preset]) == {
        "environment", "algorithm", "penalty_weights", "seeds",
    }  # fmt: skip
    assert set(PRESETS[preset]) <= fields
    assert config.learning_starts + config.epsilon_steps < config.steps
    assert config.log_every <= config.steps / 10


@pytest.mark.parametrize("preset", ["tf-agents", "dopamine"])
def test_settings_of_the_papers_agents(preset):
    """One step is four frames: 80,000 frames at random, then 1,000,000 to bring ε to 0.01."""
    config = make(preset)
    assert config.learning_starts == 80_000 // 4 == 20_000
    assert config.epsilon_steps == 1_000_000 // 4 == 250_000
    assert config.epsilon_final == 0.01
    assert config.update_every == 4
    assert config.target_every == 2_000  # updates, which is 8,000 steps
    assert config.target_every * config.update_every == 8_000
    assert config.batch_size == 32
    assert config.replay_size == 1_000_000
    assert config.learning_rate == 2.5e-4
    assert config.discount == 0.99
    assert config.steps == 200 * 250_000
    assert (config.loss, config.clip_rewards) == ("huber", True)
    assert (config.optimizer, config.optimizer_epsilon) == ("rmsprop", 1e-5)
    assert config.anneal_halfway == 2e6
    assert config.hidden == (512,)
    assert config.preprocessing == "dopamine"  # sticky actions 0.25, no life-loss terminals
    assert config.network == ("nature" if preset == "tf-agents" else "nature-same")


def test_settings_of_natures_agent():
    config = make("nature")
    assert (config.preprocessing, config.network) == ("nature", "nature")
    assert (config.learning_starts, config.epsilon_steps) == (50_000, 1_000_000)
    assert (config.epsilon_final, config.target_every) == (0.1, 10_000)
    assert (config.optimizer_epsilon, config.learning_rate) == (0.01, 2.5e-4)


def test_the_preprocessing_of_presets_is_what_their_names_say():
    papers, natures = (PREPROCESSING[make(name).preprocessing] for name in ("dopamine", "nature"))
    assert (papers.sticky, papers.life_loss) == (0.25, LifeLoss.IGNORED)
    assert natures.sticky == 0.0
    assert natures.life_loss is not LifeLoss.IGNORED


@pytest.mark.parametrize(
    ("num_envs", "update_every", "expected"),
    [(1, 4, (4, 1)), (4, 4, (1, 1)), (8, 4, (1, 2)), (64, 4, (1, 16)), (2, 6, (3, 1)),
     (1, 1, (1, 1)), (5, 1, (1, 5))],
)  # fmt: skip
def test_updates_keep_their_ratio_to_steps(num_envs, update_every, expected):
    config = make(num_envs=num_envs, update_every=update_every)
    times, updates = config.steps_per_update, config.updates_at_once
    assert (times, updates) == expected
    assert updates * update_every == times * num_envs


def test_members_are_all_weights_with_all_seeds():
    config = make(penalty_weights=(0.0, 1.5), seeds=(7, 3))
    assert config.members == ((0.0, 7), (0.0, 3), (1.5, 7), (1.5, 3))


@pytest.mark.parametrize("preset", PRESETS)
def test_json_and_back(preset):
    config = make(preset, penalty_weights=(0.0, 0.1), seeds=(1, 2**31 - 1), hidden=(8, 9))
    text = json.dumps(config.to_json())
    again = TrainConfig.from_json(json.loads(text))
    assert again == config
    assert hash(again) == hash(config)  # lists have become tuples
    assert json.dumps(again.to_json()) == text


def test_settings_of_other_versions_are_refused():
    values = make().to_json()
    with pytest.raises(ValueError, match=r"^config.json: .* they differ in momentum"):
        TrainConfig.from_json(values | {"momentum": 0.9})
    del values["loss"]
    with pytest.raises(ValueError, match="they differ in loss"):
        TrainConfig.from_json(values)


RIGHT = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}
OTHER_TYPES = [
    (name, value)
    for name, kind in TrainConfig.__annotations__.items()
    for value in (None, "0.5", True, 5, 0.5, ["x"], [[1]], {}, "x" * 999)
    if type(value) not in RIGHT.get(kind, ())
]


@pytest.mark.parametrize(("name", "value"), OTHER_TYPES)
def test_files_with_other_types_are_refused_in_a_sentence(name, value):
    with pytest.raises(ValueError, match=rf"^config\.json: {name} cannot be ") as caught:
        TrainConfig.from_json(make().to_json() | {name: value})
    assert len(str(caught.value)) < 150


def test_files_with_impossible_numbers_are_named():
    with pytest.raises(ValueError, match=r"^config\.json: num_envs must be a whole number"):
        TrainConfig.from_json(make().to_json() | {"num_envs": 0})


def test_changes_that_are_none_keep_the_presets_value():
    config = make(learning_rate=None, batch_size=16, clip_rewards=False, epsilon_final=0.0)
    assert config.learning_rate == PRESETS["control"]["learning_rate"]
    assert (config.batch_size, config.clip_rewards, config.epsilon_final) == (16, False, 0.0)


def test_presets_share_nothing_that_changes():
    before = json.dumps(PRESETS)
    make("nature", steps=1_000_000_000, hidden=(1,))
    assert json.dumps(PRESETS) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "atari"}, "preset must be one of tf-agents, dopamine, .* got 'atari'"),
        ({"algorithm": "sarsa"}, "algorithm must be one of dqn, ddqn, got 'sarsa'"),
        ({"optimizer": "sgd"}, "optimizer must be one of rmsprop, adam, got 'sgd'"),
        ({"loss": "l1"}, "loss must be one of huber, squared, got 'l1'"),
        ({"network": "resnet"}, "network must be one of nature, .* got 'resnet'"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0, got 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a number above 0, got nan"),
        ({"optimizer_epsilon": -1e-5}, "optimizer_epsilon must be a number above 0"),
        ({"anneal_halfway": 0.0}, "anneal_halfway must be a number above 0"),
        ({"discount": 1.01}, "discount must be a number of at least 0 and of at most 1"),
        ({"discount": -0.1}, "discount must be a number"),
        ({"epsilon_final": 2.0}, "epsilon_final must be a number of at least 0 and of at most 1"),
        ({"penalty_weights": ()}, "penalty_weights and seeds must each name at least one"),
        ({"seeds": ()}, "penalty_weights and seeds must each name at least one"),
        ({"penalty_weights": (-1.0,)}, "penalty_weights must be a number of at least 0"),
        ({"penalty_weights": (math.inf,)}, "penalty_weights must be a number of at least 0"),
        ({"penalty_weights": (1.0, 1.0)}, "must not repeat a value"),
        ({"seeds": (4, 4)}, "must not repeat a value"),
        ({"seeds": (-1,)}, "seeds must be a whole number of at least 0, got -1"),
        ({"seeds": (2**31,)}, "seeds must be below 2³¹, got 2147483648"),
        ({"num_envs": 6, "update_every": 4}, r"num_envs \(6\) must be a multiple .* \(4\)"),
        ({"replay_size": 63, "learning_starts": 0, "batch_size": 64}, "batch_size .* at most"),
        ({"replay_size": 900, "learning_starts": 901}, r"learning_starts \(901\) must be at most"),
        ({"replay_size": 998, "learning_starts": 0, "num_envs": 333, "update_every": 333},
         r"replay_size \(998\) must be at least three times num_envs \(333\)"),
    ]
    + [
        ({name: 0}, f"{name} must be a whole number of at least 1, got 0")
        for name in ("steps", "num_envs", "batch_size", "replay_size", "update_every",
                     "target_every", "log_every")
    ]
    + [
        ({name: 2**31}, f"{name} must be below 2³¹, got 2147483648")
        for name in ("steps", "num_envs", "batch_size", "replay_size", "update_every",
                     "target_every", "log_every", "learning_starts", "epsilon_steps")
    ]
    + [
        ({name: -1}, f"{name} must be a whole number of at least 0, got -1")
        for name in ("learning_starts", "epsilon_steps")
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_settings_at_their_limits():
    make(discount=0.0, epsilon_final=0.0, learning_starts=0, epsilon_steps=0)
    make(discount=1.0, epsilon_final=1.0, seeds=(0, 2**31 - 1), penalty_weights=(0.0, 1e6))
