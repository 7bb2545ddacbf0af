import numpy as np
import pytest

from conqur.environments import Spec, Step, VectorEnvironment, journal, make
from conqur.environments.atari import PREPROCESSING
from conqur.environments.jax_env import HostedJax
from conqur.environments.journal import Journal
from conqur.runs import flatten


class Script(VectorEnvironment):
    """Every number it gives follows from the seed and all actions since; it ends now and then."""

    def __init__(self, num_envs):
        self.spec = Spec("Script", (2,), "float32", ("a", "b", "c"))
        self.num_envs = num_envs
        self.seen_seeds, self.sent = [], 0

    def reset(self, seeds):
        self.seen_seeds.append(list(seeds))
        self.streams = [np.random.default_rng(seed) for seed in seeds]
        self.over = np.zeros(self.num_envs, bool)
        return self._frames()

    def _frames(self):
        return np.stack([stream.normal(size=2) for stream in self.streams]).astype(np.float32)

    def send(self, actions):
        self.sent += 1
        for stream, action in zip(self.streams, actions, strict=True):
            stream.random(int(action))
        reset, self.over = self.over, ~self.over & (self._frames()[:, 0] > 1)
        frames = self._frames()
        self.answer = Step(frames, frames[:, 1], self.over, self.over, reset)

    def receive(self):
        return self.answer


class Forgetful(Script):
    """Not deterministic: every reset draws from a stream that goes on."""

    noise = np.random.default_rng(0)

    def reset(self, seeds):
        super().reset(seeds)
        self.streams = [np.random.default_rng(self.noise.integers(2**31)) for _ in seeds]
        return self._frames()


def atari(num_envs):
    return make("ALE/Breakout-v5", num_envs, preprocessing="dopamine")  # sticky actions


MAKERS = {
    "script": Script,
    "cartpole": lambda num_envs: make("CartPole-v1", num_envs),
    "minatar": lambda num_envs: make("MinAtar/Breakout", num_envs),
    "atari": atari,
}


def actions_of(count, num_envs, num_actions):
    return np.random.default_rng(1).integers(0, num_actions, (count, num_envs))


def go_on(kept, actions):
    steps = []
    for row in actions:
        kept.send(row)
        step = kept.receive()
        steps.append(Step(*(np.array(part) for part in step)))
    return steps


def same(left, right):
    return all(
        np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype
        for a, b in zip(left, right, strict=True)
        for one, other in zip(a, b, strict=True)
    )


def through_a_file(state):
    """As a checkpoint keeps it."""
    return {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in
            flatten(state).items()}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
def test_restored_environments_go_on_as_if_nothing_had_been(kind, monkeypatch):
    """After any number of steps: none, within an epoch, at its end, and across several."""
    epoch, total = 9, 32
    monkeypatch.setattr(journal, "EPOCH", epoch)
    kept, other = (Journal(MAKERS[kind](2), (3, 4)) for _ in range(2))
    actions = actions_of(total, 2, len(kept.spec.actions))
    kept.begin()
    states, steps = [through_a_file(kept.state())], []
    for row in actions:
        steps += go_on(kept, [row])
        states.append(through_a_file(kept.state()))
    resets = [time for time, step in enumerate(steps) if step.reset.all()]
    assert {9, 19, 29} <= set(resets)  # every tenth step resets everything
    for time in (1, 9, 17) if kind == "atari" else (0, 1, 8, 9, 10, 17, 29, 31):
        other.begin()
        go_on(other, actions[:3])  # it has been elsewhere
        assert other.restore(states[time])
        assert same(go_on(other, actions[time:]), steps[time:])
    kept.close()
    other.close()


def test_a_long_game_of_atari_comes_back():
    """So long that lives are lost and sticky actions have had their say."""
    kept, other = (Journal(atari(2), (0, 1)) for _ in range(2))
    actions = actions_of(260, 2, 4)
    kept.begin()
    go_on(kept, actions[:220])
    state = through_a_file(kept.state())
    other.begin()
    assert other.restore(state)
    future = go_on(kept, actions[220:])
    assert same(go_on(other, actions[220:]), future)
    assert len({step.frame.tobytes() for step in future}) > 20
    kept.close()
    other.close()


def test_it_is_only_ever_played_again_from_the_last_reset(monkeypatch):
    monkeypatch.setattr(journal, "EPOCH", 9)
    kept, other = (Journal(Script(1), (0,)) for _ in range(2))
    kept.begin()
    go_on(kept, actions_of(34, 1, 3))
    assert kept.environment.sent == 34 - 3  # three of them were resets
    state = kept.state()
    assert state["actions"].shape == (4, 1)
    assert state["epoch"] == 3
    other.begin()
    other.restore(state)
    assert other.environment.sent == 4


def test_a_reset_at_the_end_of_an_epoch_is_a_step_like_any_other_reset(monkeypatch):
    monkeypatch.setattr(journal, "EPOCH", 2)
    kept = Journal(Script(3), (0,))
    first = kept.begin()
    actions = actions_of(4, 3, 3)
    go_on(kept, actions[:2])
    assert not kept.cut
    (last,) = go_on(kept, actions[2:3])
    assert kept.cut
    assert last.reset.all()
    for part in (last.terminal, last.game_over, last.reward):
        assert not part.any()
    assert last.frame.dtype == first.dtype
    assert not (last.frame == first).any()  # another episode, with another seed
    go_on(kept, actions[3:])
    assert not kept.cut


def test_what_does_not_come_back_is_noticed_and_begins_anew():
    kept = Journal(Forgetful(2), (0,))
    kept.begin()
    actions = actions_of(12, 2, 3)
    go_on(kept, actions[:5])
    state = through_a_file(kept.state())
    assert not kept.restore(state)
    again = through_a_file(kept.state())  # saved once more before anything else happened
    sent = kept.environment.sent
    first, *later = go_on(kept, actions[5:])
    assert first.reset.all()
    assert not first.reward.any()
    assert kept.environment.sent == sent + len(later)
    assert not any(step.reset.all() for step in later[:1])
    assert kept.state()["epoch"] == 1
    other = Journal(Forgetful(2), (0,))
    other.begin()
    assert not other.restore(again)
    assert go_on(other, actions[:1])[0].reset.all()


def test_a_pending_new_beginning_survives_a_checkpoint():
    """The environments did not come back; before the next step the run was killed again."""
    kept, other = Journal(Script(2), (0,)), Journal(Script(2), (0,))
    kept.begin()
    actions = actions_of(6, 2, 3)
    go_on(kept, actions[:3])
    state = through_a_file(kept.state())
    assert not kept.restore(state | {"checksum": state["checksum"] + 1})
    pending = through_a_file(kept.state())
    other.begin()
    other.restore(pending)
    future = go_on(kept, actions[3:])
    assert future[0].reset.all()
    assert same(go_on(other, actions[3:]), future)


def test_a_pending_new_beginning_is_forgotten_where_another_state_is_restored():
    kept, other = Journal(Script(2), (0,)), Journal(Script(2), (0,))
    kept.begin()
    actions = actions_of(6, 2, 3)
    go_on(kept, actions[:3])
    state = through_a_file(kept.state())
    other.begin()
    assert not other.restore(state | {"checksum": state["checksum"] + 1})
    assert other.restore(state)  # and not played from the middle of a reset
    assert same(go_on(other, actions[3:]), go_on(kept, actions[3:]))


def test_an_epoch_is_longer_than_any_game_of_atari():
    assert all(made.max_frames / made.frame_skip < journal.EPOCH for made in PREPROCESSING.values())


def seeds_of(num_envs, seeds, epochs=1):
    """The seeds of every copy, in the given number of epochs."""
    kept = Journal(Script(num_envs), seeds)
    kept.begin()
    go_on(kept, np.zeros((epochs * (journal.EPOCH + 1) - 1, num_envs), int))
    assert len(kept.environment.seen_seeds) == epochs
    return kept.environment.seen_seeds


def test_every_copy_of_every_member_has_its_own_seed_in_every_epoch(monkeypatch):
    monkeypatch.setattr(journal, "EPOCH", 1)
    seen = seeds_of(6, (0, 1, 7), epochs=4)
    flat = [seed for row in seen for seed in row]
    assert len(set(flat)) == 4 * 6
    assert all(0 <= seed < 2**31 for seed in flat)


def test_seeds_of_a_member_do_not_depend_on_the_others(monkeypatch):
    monkeypatch.setattr(journal, "EPOCH", 1)
    together, alone = seeds_of(6, (0, 1, 7), epochs=2), seeds_of(2, (7,), epochs=2)
    assert [row[4:] for row in together] == alone
    # Members that differ in the penalty weight alone meet the same games.
    (twice,) = seeds_of(4, (7, 7))
    assert twice[:2] == twice[2:] == alone[0]


def test_hosted_environments_take_a_journals_seeds():
    from conqur.environments import make_jax

    kept = Journal(HostedJax(make_jax("MinAtar/Breakout"), 2), (2**31 - 1,))
    assert kept.begin().shape == (2, 10, 10, 4)
