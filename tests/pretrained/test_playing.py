"""Where networks play: as they were trained to see, and nowhere they do not fit."""

import jax
import numpy as np
import pytest

from conqur.environments.atari import PREPROCESSING, LifeLoss
from conqur.pretrained import Pretrained
from conqur.pretrained.playing import arena
from conqur.regressor import Architecture, initial_regressor


def network(environment="CartPole-v1", shape=(4,), actions=2, preprocessing="", body="mlp"):
    architecture = Architecture(body, shape, actions, (4,))
    regressor = initial_regressor(jax.random.key(0), architecture)
    return Pretrained(regressor, architecture, environment, preprocessing, {})


def atari(preprocessing="dopamine", environment="ALE/Pong-v5"):
    return network(environment, (84, 84, 4), 6, preprocessing, "nature")


def test_where_it_was_trained():
    place = arena([network(), network()])
    assert (place.name, place.is_atari, place.frame_skip) == ("CartPole-v1", False, 1)
    assert place.preprocessing_name is None
    assert place.normalised(100.0) is None
    environment = place.make(3)
    assert (environment.num_envs, environment.spec.name) == (3, "CartPole-v1")
    environment.close()


@pytest.mark.parametrize("name", PREPROCESSING)
def test_atari_games_are_seen_as_in_training_and_played_by_the_papers_rules(name):
    place = arena([atari(name)], sticky=0.25)
    trained = PREPROCESSING[name]
    for same in ("picture", "frame_skip", "stack", "pad_with_first"):
        assert getattr(place.preprocessing, same) == getattr(trained, same), same
    assert place.preprocessing_name == name
    assert place.preprocessing.sticky == 0.25
    assert place.preprocessing.life_loss is LifeLoss.IGNORED
    assert place.preprocessing.no_ops[1] == 30
    assert place.frame_skip == 4
    assert arena([atari(name)]).preprocessing.sticky == 0


@pytest.mark.parametrize(
    ("name", "sticky", "terminals"),
    [("conqur", 0, 1), ("dopamine", 0.25, 1), ("nature", 0, 5), ("sb3", 0, 5), ("dqn_zoo", 0, 5)],
)
def test_what_labels_knew_in_training_is_known_where_they_are_compared(name, sticky, terminals):
    trained = network("ALE/Breakout-v5", (84, 84, 4), 4, name, "nature")
    place = arena([trained]).as_learned()
    assert place.preprocessing.sticky == sticky
    assert place.preprocessing.no_ops == arena([trained]).preprocessing.no_ops
    environment, rng, found = place.make(1), np.random.default_rng(0), 0
    environment.reset([0])
    over = False
    while not over:
        step = environment.step(rng.integers(4, size=1))
        found, over = found + bool(step.terminal[0]), bool(step.game_over[0])
    environment.close()
    assert found == terminals  # there are five lives
    elsewhere = arena([network()])
    assert elsewhere.as_learned() is elsewhere


def test_preprocessing_can_be_another():
    place = arena([atari("dopamine"), atari("cleanrl")], preprocessing="sb3")
    assert place.preprocessing_name == "sb3"
    picture = place.preprocessing.picture
    assert picture == PREPROCESSING["sb3"].picture != PREPROCESSING["dopamine"].picture


def test_scores_of_games_are_compared_with_those_of_people():
    place = arena([atari()])  # random play scores -20.7 in Pong, people 14.6
    assert place.normalised(-20.7) == pytest.approx(0)
    assert place.normalised(14.6) == pytest.approx(1)


@pytest.mark.parametrize(
    ("networks", "options", "words"),
    [
        ([network(), network(actions=3)], {}, "are not all of the same architecture"),
        ([network(), network("Acrobot-v1")], {}, "several environments: name one with --env"),
        ([atari("sb3"), atari()], {}, "preprocessings dopamine, sb3: evaluate them apart"),
        ([network()], {"sticky": 0.25}, "are for Atari games, and CartPole-v1 is none"),
        ([network()], {"preprocessing": "sb3"}, "are for Atari games, and CartPole-v1 is none"),
        ([atari()], {"preprocessing": "mine"}, "there is no preprocessing 'mine'"),
        ([atari()], {"sticky": 1.5}, "sticky must be a number of at least 0 and below 1"),
        ([network("played.npz")], {}, "played.npz is a data set: name the environment to play in"),
    ],
)
def test_what_cannot_be_meant(networks, options, words):
    with pytest.raises(ValueError, match=words):
        arena(networks, **options)


@pytest.mark.parametrize("name", ["jax:os:abort", "antigravity:Game-v0"])
def test_a_file_does_not_decide_what_code_is_run(name):
    with pytest.raises(ValueError, match=r"is code to be loaded: if you trust it, .* --env"):
        arena([network(name)])


def test_environments_that_do_not_fit_are_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(
        "conqur.environments.gymnasium_env.GymnasiumEnvironment.close",
        lambda self: closed.append(self.spec.name),
    )
    for name, shape, words in (
        ("Acrobot-v1", (4,), "chooses among 2 actions, but Acrobot-v1 has 3: it was trained on"),
        ("CartPole-v1", (5,), r"takes observations of shape \[5\], but those of CartPole-v1"),
    ):
        with pytest.raises(ValueError, match=words):
            arena([network(shape=shape)], name).make(1)
        assert closed.pop() == name
