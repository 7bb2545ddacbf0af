"""Agents of Stable-Baselines3 as it saves, loads and plays them itself."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stable_baselines3
import torch

from conqur.pretrained.format import Content
from conqur.pretrained.sb3 import StableBaselines3
from conqur.regressor import Architecture

SB3 = StableBaselines3()
Box, Discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete
VECTOR = Box(-np.inf, np.inf, (5,), np.float32)
TABLE = Box(-1, 1, (2, 3), np.float64)
IMAGE = Box(0, 255, (52, 44, 3), np.uint8)


class Nowhere(gymnasium.Env):
    """Has spaces, and nothing happens in it."""

    def __init__(self, observation_space, actions=4):
        self.observation_space = observation_space
        self.action_space = Discrete(actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def agent(policy, space, algorithm=stable_baselines3.DQN, **policy_kwargs):
    options = {"buffer_size": 50} if algorithm is stable_baselines3.DQN else {}
    return algorithm(
        policy, Nowhere(space), seed=1, device="cpu", policy_kwargs=policy_kwargs, **options
    )


def saved(tmp_path, agent, name="agent"):
    agent.save(tmp_path / name)
    return Content(tmp_path / f"{name}.zip")


def observations(space, count=64):
    space.seed(0)
    return np.stack([space.sample() for _ in range(count)])


def theirs(agent, seen):
    with torch.no_grad():
        return agent.q_net(agent.policy.obs_to_tensor(seen)[0]).numpy()


q_values = jax.jit(lambda regressor, seen: regressor(seen))


def changed(regressor, seen):
    """Another network, with about the same mean value of each action, so that all are chosen."""
    rng = np.random.default_rng(1)
    noisy = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.02 * rng.normal(size=leaf.shape), jnp.float32), regressor
    )
    means = q_values(noisy, seen).mean(0)
    return eqx.tree_at(lambda r: r.head.bias, noisy, noisy.head.bias - means)


CASES = [
    ("MlpPolicy", VECTOR, {}, Architecture("mlp", (5,), 4, (64, 64))),
    ("MlpPolicy", VECTOR, {"net_arch": []}, Architecture("mlp", (5,), 4, ())),
    ("MlpPolicy", TABLE, {"net_arch": [7, 6, 5]}, Architecture("mlp", (2, 3), 4, (7, 6, 5))),
    (
        "MlpPolicy",
        VECTOR,
        {"activation_fn": torch.nn.ReLU, "optimizer_class": torch.optim.RMSprop},
        Architecture("mlp", (5,), 4, (64, 64)),
    ),
    ("CnnPolicy", IMAGE, {}, Architecture("nature", (52, 44, 3), 4, (512,))),
    (
        "CnnPolicy",
        IMAGE,
        {"net_arch": [16], "features_extractor_kwargs": {"features_dim": 32}},
        Architecture("nature", (52, 44, 3), 4, (32, 16)),
    ),
]


@pytest.mark.parametrize(("policy", "space", "options", "architecture"), CASES)
def test_the_same_values_there_and_back(tmp_path, policy, space, options, architecture):
    made = agent(policy, space, **options)
    file = saved(tmp_path, made)
    assert SB3.recognises(file)
    network = SB3.read(file)
    assert network.architecture == architecture
    seen = observations(space)
    found = np.asarray(q_values(network.regressor, jnp.asarray(seen)))
    np.testing.assert_allclose(found, theirs(made, seen), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), made.predict(seen, deterministic=True)[0])
    assert SB3.write(file, network.regressor) == file.data

    other = changed(network.regressor, jnp.asarray(seen))
    (tmp_path / "written.zip").write_bytes(SB3.write(file, other))
    loaded = stable_baselines3.DQN.load(tmp_path / "written.zip", device="cpu")
    ours = np.asarray(q_values(other, jnp.asarray(seen)))
    assert len(set(ours.argmax(1))) > 1
    np.testing.assert_allclose(theirs(loaded, seen), ours, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(loaded.predict(seen, deterministic=True)[0], ours.argmax(1))
    for name, value in made.q_net_target.state_dict().items():
        assert torch.equal(value, loaded.q_net_target.state_dict()[name])


def test_an_agent_that_has_learned_goes_on_learning(tmp_path):
    made = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", learning_starts=20, train_freq=2, buffer_size=100, seed=0
    ).learn(100)
    file = saved(tmp_path, made)
    network = SB3.read(file)
    assert network.origin["step"] == 100
    assert network.origin["saved_by"] == f"stable-baselines3 {stable_baselines3.__version__}"
    seen = observations(Box(-0.2, 0.2, (4,)))
    np.testing.assert_allclose(
        q_values(network.regressor, jnp.asarray(seen)), theirs(made, seen), rtol=1e-5, atol=1e-5
    )
    other = changed(network.regressor, jnp.asarray(seen))
    (tmp_path / "other.zip").write_bytes(SB3.write(file, other))
    loaded = stable_baselines3.DQN.load(tmp_path / "other.zip", env=made.get_env())
    before = made.policy.optimizer.state_dict()["state"]
    after = loaded.policy.optimizer.state_dict()["state"]
    assert all(torch.equal(before[i]["exp_avg"], after[i]["exp_avg"]) for i in before)
    loaded.learn(50, reset_num_timesteps=False)
    assert loaded.num_timesteps == 150


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agent("MlpPolicy", VECTOR, algorithm=stable_baselines3.PPO), "only those of DQN"),
        (lambda: agent("MlpPolicy", VECTOR, activation_fn=torch.nn.Tanh), "Tanh"),
        (
            lambda: agent(
                "CnnPolicy",
                Box(0, 1, (3, 36, 36), np.float32),
                normalize_images=False,
                features_extractor_kwargs={"normalized_image": True},
            ),
            "normalize_images = False",
        ),
        (
            lambda: agent("MultiInputPolicy", gymnasium.spaces.Dict({"a": VECTOR, "b": VECTOR})),
            "spaces.dict.Dict",
        ),
        (lambda: agent("MlpPolicy", Discrete(6)), "spaces.discrete.Discrete"),
        (lambda: agent("MlpPolicy", Box(0, 255, (128,), np.uint8)), "bytes"),
    ],
    ids=["ppo", "tanh", "unscaled", "dict", "one-hot", "bytes"],
)
def test_what_computes_something_else(tmp_path, make, message):
    file = saved(tmp_path, make())
    assert SB3.recognises(file)
    with pytest.raises(ValueError, match=message):
        SB3.read(file)
