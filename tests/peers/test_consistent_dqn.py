"""DQN(λ) in Stable-Baselines3: its own DQN is the referee without the penalty, ours with it."""

import csv
import json
import zipfile
from dataclasses import replace

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import conqur
from conqur.dqn import DQN as Ours
from conqur.environments import Transitions

torch = pytest.importorskip("torch")
stable_baselines3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

from conqur import sb3  # noqa: E402
from conqur.sb3 import ConsistentDQN  # noqa: E402

DQN = stable_baselines3.DQN
B, A, SIZE = 6, 4, 5


@pytest.fixture(autouse=True)
def one_thread():
    """Networks of this size only wait for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Noise(gymnasium.Env):
    """Random observations, rewards for actions that fit them, and one end in ten."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(A)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        reward = float(self.observation[action])
        return self._observe(), reward, bool(self.np_random.random() < 0.1), False, {}

    def _observe(self):
        self.observation = self.np_random.normal(size=SIZE).astype(np.float32)
        return self.observation


class Unsteady(BaseFeaturesExtractor):
    """Batch normalisation learns in every pass, and dropout draws random numbers."""

    def __init__(self, observation_space):
        super().__init__(observation_space, SIZE)
        self.layers = torch.nn.Sequential(torch.nn.BatchNorm1d(SIZE), torch.nn.Dropout(0.2))

    def forward(self, observations):
        return self.layers(observations)


SETTINGS = {
    "learning_rate": 1e-2,
    "learning_starts": 20,
    "batch_size": 16,
    "buffer_size": 500,
    "train_freq": 2,
    "gradient_steps": 2,
    "target_update_interval": 50,
    "seed": 3,
    "device": "cpu",
}


def made(algorithm=ConsistentDQN, **options):
    return algorithm("MlpPolicy", Noise(), **(SETTINGS | options))


def logged(model, folder, steps=300):
    model.set_logger(configure(str(folder), ["csv"]))
    model.learn(steps, log_interval=1)
    model.logger.close()
    with (folder / "progress.csv").open() as file:
        return [
            {name: text for name, text in row.items() if not name.startswith("time/")}
            for row in csv.DictReader(file)
        ]


def numbers(rows, name):
    return [float(row[name]) for row in rows if row[name]]


@pytest.mark.parametrize(
    "policy_kwargs", [{}, {"features_extractor_class": Unsteady}], ids=["plain", "unsteady"]
)
def test_without_weight_it_is_dqn_to_the_last_bit(tmp_path, policy_kwargs):
    plain = made(DQN, policy_kwargs=policy_kwargs)  # one after the other: they seed globally
    rows = logged(plain, tmp_path / "plain")
    ours = made(policy_kwargs=policy_kwargs, penalty_weight=0.0, committed_batches=3)
    our_rows = logged(ours, tmp_path / "ours")
    new = {"train/consistency_penalty", "train/penalty_weight"}
    assert [{n: row[n] for n in row.keys() - new} for row in our_rows] == rows
    assert max(numbers(our_rows, "train/consistency_penalty")) > 0
    assert plain._n_updates == ours._n_updates == 280
    wanted, found = plain.get_parameters(), ours.get_parameters()
    assert found["policy"].keys() == wanted["policy"].keys()
    for name, tensor in wanted["policy"].items():
        assert torch.equal(found["policy"][name], tensor), name
    states = (p["policy.optimizer"]["state"] for p in (wanted, found))
    for one, other in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def given_batch(model, monkeypatch):
    """A minibatch that the replay buffer is made to answer with."""
    rng = np.random.default_rng(0)
    states, successors = rng.normal(size=(2, B, SIZE)).astype(np.float32)
    batch = Transitions(
        states,
        rng.integers(0, A, B),
        np.array([0.5, -2.5, 0.0, 0.3, 4.0, -1.0], np.float32),
        successors,
        np.array([False, True, False, False, True, False]),
    )
    s, a, r, successor, terminal = (torch.tensor(array) for array in batch)
    sample = ReplayBufferSamples(s, a[:, None], successor, terminal.float()[:, None], r[:, None])
    monkeypatch.setattr(model.replay_buffer, "sample", lambda size, env: sample)
    return Transitions(*map(jnp.asarray, batch))


def regressor(model, folder):
    """The online network, as this library reads it from the file."""
    model.save(folder / "model")
    return conqur.load(folder / "model.zip").regressor


@pytest.mark.parametrize("halfway", [None, 30.0])
def test_a_gradient_step_is_that_of_our_own(tmp_path, monkeypatch, halfway):
    descent = {"optimizer_class": torch.optim.SGD, "net_arch": [8, 8]}
    options = {"policy_kwargs": descent, "learning_rate": 0.25, "max_grad_norm": 1e9}
    other = made(DQN, seed=8, **options)
    model = made(penalty_weight=2.0, anneal_halfway=halfway, **options)
    model.q_net_target.load_state_dict(other.q_net.state_dict())
    model._n_updates = 10
    batch = given_batch(model, monkeypatch)

    algorithm = Ours(
        optimizer=optax.sgd(0.25),
        double=False,
        batch_size=B,
        discount=0.99,
        huber=1.0,
        clip_rewards=False,
        target_every=1000,
        halfway=30.0 if halfway else 1e-9,
        penalised=True,
    )
    agent = algorithm.begin(regressor(model, tmp_path), jnp.zeros(SIZE))
    agent = eqx.tree_at(
        lambda agent: (agent.target, agent.updates),
        agent,
        (regressor(other, tmp_path), jnp.array(10)),
    )
    measured = algorithm.diagnose(agent, batch, jax.random.key(0)).penalty
    update = jax.jit(algorithm.update)
    after, loss = update(agent, batch, jax.random.key(0), penalty_weight=2.0)
    unpenalised, _ = update(agent, batch, jax.random.key(0), penalty_weight=0.0)

    model.set_logger(configure(str(tmp_path), []))
    model.train(1, B)
    records = model.logger.name_to_value
    weight = 0.5 if halfway else 2.0  # λ·10/(10 + 30)
    assert records["train/consistency_penalty"] == pytest.approx(float(measured), rel=1e-5)
    total = records["train/loss"] + weight * records["train/consistency_penalty"]
    assert total == pytest.approx(float(loss), rel=1e-5)
    assert model._n_updates == 11
    found = jax.tree.leaves(regressor(model, tmp_path))
    for theta, expected, without in zip(
        found, jax.tree.leaves(after.theta), jax.tree.leaves(unpenalised.theta), strict=True
    ):
        np.testing.assert_allclose(theta, expected, rtol=1e-4, atol=1e-6)
        assert np.abs(expected - without).max() > 1e-3


@pytest.mark.parametrize("over_actions", ["sum", "mean"])
def test_the_penalty_is_that_of_jax(over_actions):
    model = made(over_actions=over_actions)
    rng = np.random.default_rng(1)
    successors = rng.normal(size=(40, SIZE)).astype(np.float32)
    assigned, terminal = rng.integers(0, A, 40), rng.random(40) < 0.3
    model._commitments.append(
        (torch.tensor(successors), torch.tensor(assigned), torch.tensor(terminal).float())
    )
    q_values = model.q_net(torch.tensor(successors)).detach().numpy()
    expected = conqur.penalty(
        jnp.asarray(q_values[~terminal]),
        jnp.asarray(assigned[~terminal]),
        over_actions=over_actions,
    )
    assert expected.mean() > 0.05
    np.testing.assert_allclose(model._inconsistency().item(), expected.mean(), atol=1e-6)


def test_a_batch_of_terminal_states_costs_nothing(tmp_path):
    model = made(anneal_halfway=None)
    nothing = torch.zeros(3, SIZE), torch.zeros(3, dtype=torch.int64), torch.ones(3)
    model._commitments.append(nothing)
    assert model._inconsistency().item() == 0


def test_all_ages_of_remembered_choices_have_their_turn(monkeypatch):
    """The newest has age 0."""
    model = made(committed_batches=3, gradient_steps=1)
    ages = []

    def noting(q_values, assigned, **options):
        remembered = [choices for _, choices, _ in model._commitments]
        ages.append([choices is assigned for choices in reversed(remembered)].index(True))
        return conqur.penalty(q_values, assigned, **options)

    monkeypatch.setattr(sb3, "penalty", noting)
    model.learn(50)
    assert len(ages) == 15
    assert ages[0] == 0
    assert sorted(ages[3:6]) == sorted(ages[6:9]) == sorted(ages[12:15]) == [0, 1, 2]


def test_a_strong_penalty_keeps_the_choices(tmp_path):
    costs = []
    for weight in (0.0, 5.0):
        model = made(penalty_weight=weight, anneal_halfway=None)
        rows = logged(model, tmp_path / str(weight))
        costs.append(np.mean(numbers(rows, "train/consistency_penalty")))
        assert set(numbers(rows, "train/penalty_weight")) == {weight}
    assert costs[1] < costs[0] / 2


def test_what_was_saved_is_loaded_and_goes_on(tmp_path):
    model = made(penalty_weight=1.5, anneal_halfway=100.0, committed_batches=4).learn(120)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert "_commitments" not in json.loads(archive.read("data"))
    loaded = ConsistentDQN.load(tmp_path / "model", env=Noise(), device="cpu")
    assert (loaded.penalty_weight, loaded.anneal_halfway) == (1.5, 100.0)
    assert loaded._n_updates == model._n_updates == 100
    assert loaded._weight() == pytest.approx(0.75)
    assert loaded._commitments.maxlen == 4
    for name, tensor in model.policy.state_dict().items():
        assert torch.equal(loaded.policy.state_dict()[name], tensor), name
    loaded.learn(60, reset_num_timesteps=False)
    assert loaded.num_timesteps == 180
    assert loaded._n_updates > 100
    again = ConsistentDQN.load(tmp_path / "model", penalty_weight=0.25)
    assert again.penalty_weight == 0.25


def test_each_class_loads_the_files_of_the_other(tmp_path):
    made(DQN).learn(60).save(tmp_path / "plain")
    model = ConsistentDQN.load(tmp_path / "plain", env=Noise(), penalty_weight=2.0)
    assert (model.penalty_weight, model.anneal_halfway, model._n_updates) == (2.0, 2e4, 40)
    model.learn(60).save(tmp_path / "penalised")
    plain = DQN.load(tmp_path / "penalised", env=Noise())
    for name, tensor in model.policy.state_dict().items():
        assert torch.equal(plain.policy.state_dict()[name], tensor), name
    assert plain.learn(60)._n_updates > model._n_updates


def test_this_library_reads_and_writes_its_files(tmp_path):
    model = made().learn(60)
    model.save(tmp_path / "model")
    network = conqur.load(tmp_path / "model.zip")
    states = np.random.default_rng(2).normal(size=(20, SIZE)).astype(np.float32)
    with torch.no_grad():
        expected = model.q_net(torch.tensor(states)).numpy()
    np.testing.assert_allclose(
        network.regressor(jnp.asarray(states)), expected, rtol=1e-4, atol=1e-5
    )
    head = network.regressor.head
    shifted = eqx.tree_at(lambda theta: theta.head.bias, network.regressor, head.bias + 1)
    written = conqur.write_like(replace(network, regressor=shifted), tmp_path / "model.zip")
    (tmp_path / "shifted.zip").write_bytes(written)
    loaded = ConsistentDQN.load(tmp_path / "shifted.zip", device="cpu")
    with torch.no_grad():
        np.testing.assert_allclose(
            loaded.q_net(torch.tensor(states)), expected + 1, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"penalty_weight": -1}, "penalty_weight must be a number of at least 0, got -1"),
        ({"penalty_weight": float("nan")}, "penalty_weight must be a number of at least 0"),
        ({"anneal_halfway": 0}, "anneal_halfway must be a number above 0, got 0"),
        ({"committed_batches": 0}, "committed_batches must be a whole number of at least 1, got 0"),
        ({"over_actions": "max"}, "over_actions must be 'sum' or 'mean', got 'max'"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        made(**options)
    made().save(tmp_path / "model")
    with pytest.raises(ValueError, match=told):
        ConsistentDQN.load(tmp_path / "model", **options)
