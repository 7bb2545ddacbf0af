"""The measurements of a diagnosis: counted by hand, by brute force, or known in theory."""

import math
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conqur.diagnosis import play as diagnosis_play
from conqur.diagnosis.averages import Balance, Copy, Findings, Leads
from conqur.diagnosis.diagnosing import played
from conqur.diagnosis.learning import DiagnosisConfig, learn
from conqur.diagnosis.measures import NOISES, Breaks, Churn, Gaps, breaks, churn, gaps, greedy
from conqur.diagnosis.play import Episode, Record, Worth, episode, horizon, play, returns, worth
from conqur.diagnosis.satisfiable import satisfiable
from conqur.diagnosis.values import Estimate, over_episodes, over_repetitions, share
from conqur.environments.interface import Spec, Step, VectorEnvironment
from conqur.exact import Consistency
from conqur.pretrained.playing import arena
from conqur.regressor import Dense
from conqur.report import diagnosis_page
from conqur.tuning import fresh_network

ACTIONS = np.array([[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]])
"""Greedy actions in four states: the checkpoint's, and those after each of two levels."""


def head(weight, bias) -> Dense:
    return Dense(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32))


def line(places) -> np.ndarray:
    """States with one feature."""
    return np.array(places, np.float32)[:, None]


INDIFFERENT = head([[0.0, 0.0]], [0.0, 0.0])
"""Makes no choice, since nothing is ahead."""

END = np.array([False, True])


def test_breaks_are_counted_among_the_choices_made_so_far():
    assigned, level = np.array([0, 0, 1, 0]), np.array([0, 0, 1, 1])
    found = breaks(ACTIONS, assigned, level)
    # After level 0 the head takes 0 and 1 where 0 and 0 were committed; in the end the choices
    # 0, 0 | 1, 0 meet the actions 1, 1 | 1, 0.
    assert found.after_levels.tolist() == [0.5, 0.5]
    assert found.of_levels.tolist() == [1.0, 0.0]
    assert (found.choices, found.share) == (4, 0.5)


def test_churn_is_counted_from_head_to_head_and_from_the_checkpoint():
    found = churn(ACTIONS)
    assert found.between.tolist() == [0.5, 0.25]
    assert found.since_start.tolist() == [0.5, 0.75]
    assert found.mean == 0.375


def test_estimates_over_repetitions_are_student_s():
    # mean 0.2, standard error 0.1 / √4, Student's quantile 3.18245 with 3 degrees of freedom
    error = math.sqrt(0.04 / 3) / 2
    expected = (0.2 - 3.18245 * error, 0.2 + 3.18245 * error)
    found = over_repetitions([0.1, 0.1, 0.3, math.nan, 0.3])  # one did not measure it
    assert found.mean == pytest.approx(0.2)
    assert found.interval == pytest.approx(expected, abs=1e-5)
    assert share(Estimate(0.5, (-0.1, 1.1))).interval == (0.0, 1.0)
    for values in ([0.5], []):
        alone = over_repetitions(values)
        assert all(math.isnan(end) for end in share(alone).interval)
    assert math.isnan(over_repetitions([]).mean)
    assert math.isnan(over_episodes([]).mean)
    low, high = over_episodes([1.0, 2.0, 3.0, 4.0]).interval
    assert 1 < low < 2.5 < high < 4


def repetition(broken: float, scores: tuple[float, ...]) -> Findings:
    can = satisfiable(line([-1, 0, 1]), np.array([0, 0, 1]), [INDIFFERENT])
    levels = np.array([broken, 0.0])
    return Findings(
        Breaks(4, broken, levels, levels),
        can,
        Churn(levels, levels),
        (1.0, 2.0 + broken),
        Worth((2.0,), (1.0 + broken,), scores, 1),
    )


def test_copies_are_averaged_over_repetitions():
    copy = Copy((repetition(0.25, (1.0, 3.0)), repetition(0.75, (4.0, 8.0))))
    assert copy.choices == 8
    assert copy.broken.mean == copy.kept.mean == 0.5
    assert copy.churn.mean == 0.25
    assert copy.curve(lambda found: found.labels).tolist() == [1.0, 2.5]
    balance = copy.balance
    assert (balance.earned.mean, balance.excess.mean, balance.score.mean) == (1.5, 0.5, 4.0)
    # excesses 0.75 and 0.25: standard error 0.25, quantile 12.7062 with one degree of freedom
    reach = 0.25 * 12.7062
    assert balance.excess.interval == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-4)
    assert (balance.episodes, balance.cut) == (4, 2)


def test_gaps_of_repetitions_have_medians_in_their_own_units():
    flips = np.tile([[0.0, 0.5]], (len(NOISES), 1))
    one, two = Gaps(np.array([1.0, 2.0, 9.0]), 4.0, flips), Gaps(np.array([3.0]), 2.0, 1 - flips)
    leads = Leads.repeated([one, two])
    assert leads.median.mean == (2 / 4 + 3 / 2) / 2
    assert leads.gaps.tolist() == [1, 2, 9, 3]
    assert [found.mean for found in leads.flipped] == [0.5] * len(NOISES)
    assert Leads.of_draws(one).flipped[0] == share(over_repetitions([0.0, 0.5]))
    assert math.isnan(Leads.of_draws(one).median.interval[0])


def test_contradictory_choices_bound_what_one_head_makes():
    # Of 0, 0, 1 in one state two can be made; the other state agrees with itself.
    features, assigned = line([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    found = satisfiable(features, assigned, [INDIFFERENT])
    assert (found.distinct, found.rank, found.contradictory) == (2, 2, 1)
    assert found.found == found.any_policy == 4 / 5
    assert found.resolved is Consistency.CONSISTENT
    assert found.union is Consistency.INCONSISTENT
    assert not found.telling


def test_choices_that_no_line_separates():
    features, assigned = line([-1, 0, 1]), np.array([0, 1, 0])
    found = satisfiable(features, assigned, [INDIFFERENT])
    assert found.contradictory == 0
    assert found.resolved is found.union is Consistency.INCONSISTENT
    assert (found.found, found.any_policy) == (2 / 3, 1.0)  # one choice at least has to go


def test_a_tie_between_choices_leaves_open_which_is_made():
    # The first of the middle state's choices contradicts the others, but its second one does not.
    features, assigned = line([-1, 0, 0, 1]), np.array([1, 0, 1, 1])
    found = satisfiable(features, assigned, [INDIFFERENT])
    assert found.resolved is Consistency.CONSISTENT  # by the head that was found
    assert found.found == found.any_policy == 3 / 4
    # With or without the tie, the three on the left contradict each other.
    features, assigned = line([-3, -2, -1, 0, 0, 1]), np.array([0, 1, 0, 0, 1, 1])
    found = satisfiable(features, assigned, [INDIFFERENT])
    assert found.resolved is Consistency.INCONSISTENT
    assert (found.found, found.any_policy) == (4 / 6, 5 / 6)
    # Nothing but ties: the first actions hold together.
    found = satisfiable(line([0, 0, 1, 1]), np.array([0, 1, 0, 1]), [INDIFFERENT])
    assert found.resolved is Consistency.CONSISTENT
    assert found.found == found.any_policy == 1 / 2


def test_consistent_choices_and_heads_that_are_too_large_to_test():
    features, assigned = line([-1, 0, 1]), np.array([0, 0, 1])
    assert satisfiable(features, assigned, [INDIFFERENT]).union is Consistency.CONSISTENT
    untested = satisfiable(features, assigned, [INDIFFERENT], most_unknowns=3)
    assert untested.resolved is untested.union is Consistency.CONSISTENT  # it was found
    features, assigned = line([-1, 0, 1]), np.array([0, 1, 0])
    untested = satisfiable(features, assigned, [INDIFFERENT], most_unknowns=3)
    assert untested.union is Consistency.UNDECIDED
    assert (untested.found, untested.any_policy) == (2 / 3, 1.0)
    assert satisfiable(features, assigned, [INDIFFERENT], most_unknowns=4).resolved is not None


def most_by_brute_force(places, assigned) -> int:
    """With two actions on a line, a head takes one action below a threshold, the other above."""
    places, assigned = np.array(places), np.array(assigned)
    best = 0
    for threshold in [-10.0, *(place + 0.5 for place in places)]:
        right = int(np.sum((places > threshold) == assigned))
        best = max(best, right, len(places) - right)
    return best


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=9))
def test_the_most_that_one_head_makes_lies_between_found_and_bound(choices):
    places, assigned = zip(*choices, strict=True)
    found = satisfiable(line(places), np.array(assigned), [INDIFFERENT])
    most = most_by_brute_force(places, assigned) / len(places)
    assert found.found <= most <= found.any_policy
    if found.resolved is not Consistency.UNDECIDED:
        assert (most == found.any_policy) == (found.resolved is Consistency.CONSISTENT)
    assert found.found >= 0.5
    assert (found.union is Consistency.CONSISTENT) == (most == 1)


def test_a_head_that_is_given_counts():
    # Three actions in two dimensions: random choices, and the head that makes 200 of 230.
    rng = np.random.default_rng(0)
    features = rng.standard_normal((230, 2)).astype(np.float32)
    good = head(rng.standard_normal((2, 3)), rng.standard_normal(3))
    assigned = np.array(greedy(good, features))
    assigned[200:] = (assigned[200:] + 1) % 3
    assert satisfiable(features, assigned, [good]).found >= 200 / 230
    # The search finds as good a one by itself.
    nothing = head(np.zeros((2, 3)), np.zeros(3))
    assert satisfiable(features, assigned, [nothing]).found >= 195 / 230


def test_gaps_are_leads_over_the_second_best():
    three = head([[1.0, 0.0, -2.0]], [0.0, 0.5, 0.0])
    found = gaps(three, line([1.0, 0.25, -1.0]), draws=2, seed=0)
    # Q-values 1, 0.5, −2; 0.25, 0.5, −0.5; −1, 0.5, 2.
    assert found.gaps.tolist() == [0.5, 0.25, 1.5]
    assert found.scale == pytest.approx((1 + 0.5 + 2) / 3)
    assert found.flipped.shape == (len(NOISES), 2)


def test_noise_flips_as_many_decisions_as_theory_says():
    two = head([[10.0, -10.0], [5.0, 5.0]], [1.0, 0.0])
    state = np.array([[0.3, -0.4]], np.float32)
    draws = 300
    found = gaps(two, state, draws=draws, seed=3)
    unit, lead, length = math.sqrt(250 / 4), 7.0, math.sqrt(2 * (1 + 0.25))
    flips = found.flipped.mean(axis=1)
    for noise, flipped in zip(NOISES, flips, strict=True):
        expected = math.erfc(lead / (noise * unit * length) / math.sqrt(2)) / 2
        error = math.sqrt(expected * (1 - expected) / draws)
        assert abs(flipped - expected) <= 4 * error + 1e-12
    assert flips[0] == 0 < flips[-1]
    assert (gaps(two, state, draws=draws, seed=3).flipped == found.flipped).all()
    assert (gaps(two, state, draws=draws, seed=4).flipped != found.flipped).any()


def test_returns_and_horizon():
    rewards, on, over = np.array([1.0, 0.0, 4.0]), np.zeros(3, bool), np.array([False, False, True])
    assert returns(rewards, over, 0.5, beyond=8.0).tolist() == [2.0, 2.0, 4.0]
    assert returns(rewards, on, 0.5, beyond=8.0).tolist() == [3.0, 4.0, 8.0]
    assert returns(rewards, over[::-1], 0.5, beyond=8.0).tolist() == [1.0, 4.0, 8.0]
    assert horizon(0.5) == 5  # 0.5⁵ = 0.031 is below 0.05, 0.5⁴ = 0.0625 is not
    assert horizon(0.0) == 1
    assert horizon(1.0) > 10**9


def test_worth_of_an_episode_that_ended():
    ended = Episode(np.array([1.0, 3.0]), END, np.array([9.0, 2.0, 7.0]), cut=False, score=4.0)
    found = worth([ended], discount=0.5, clip_rewards=False)
    # Labels 1 + 0.5·2 and 3; returns 1 + 0.5·3 and 3.
    assert (found.promised, found.earned, found.excess) == (2.5, 2.75, -0.25)
    assert (found.score, found.cut, len(found.promises)) == (4.0, 0, 1)
    clipped = worth([ended], discount=0.5, clip_rewards=True)
    assert (clipped.promised, clipped.earned, clipped.score) == (1.5, 1.25, 4.0)


def test_worth_counts_states_alike_and_completes_returns_that_were_cut():
    ended = Episode(np.ones(1), END[-1:], np.array([0.0, 5.0]), cut=False, score=1.0)
    best = np.array([*[4.0] * 7, 6.0])
    cut = Episode(np.ones(7), np.zeros(7, bool), best, cut=True, score=7.0)
    found = worth([ended, cut], discount=0.5, clip_rewards=False)
    # Two states of the second count: labels 1 + 0.5·4; returns 2 − 2⁻⁶ and 2 − 2⁻⁵, and what the
    # head expects after the cut, 6 · 2⁻⁷ and 6 · 2⁻⁶. The cut weighs 2⁻⁵ in the third at least.
    returned = (2 - 2**-6 + 6 * 2**-7, 2 - 2**-5 + 6 * 2**-6)
    assert found.promised == pytest.approx((1 + 3 + 3) / 3)
    assert found.earned == pytest.approx((1 + sum(returned)) / 3)
    assert found.excess == pytest.approx(found.promised - found.earned)
    assert (found.cut, len(found.promises), found.scores) == (1, 2, (1.0, 7.0))
    balance = Balance.of_episodes(found)
    assert balance.excess.mean == pytest.approx(found.excess)
    low, high = balance.excess.interval
    assert low <= found.excess <= high


def test_a_head_that_is_right_promises_no_more_than_it_earns_however_early_it_is_cut():
    # A reward of 1 in every step is worth 1 / (1 − γ) forever.
    discount = 0.9
    true = np.full(61, 1 / (1 - discount))
    on = np.zeros(60, bool)
    right = Episode(np.ones(60), on, true, cut=True, score=60.0)
    found = worth([right] * 3, discount=discount, clip_rewards=False)
    assert found.excess == pytest.approx(0, abs=1e-12)
    # One that is 3 too high everywhere is seen to be so, but for what the cut hides. A label has
    # γ·3 of it, and the return from t on of T steps has γ^(T − t)·3.
    high = worth([right._replace(best=true + 3)], discount=discount, clip_rewards=False)
    weights = [discount ** (60 - t) for t in range(60 - horizon(discount))]
    assert high.excess == pytest.approx(3 * discount - 3 * np.mean(weights))
    assert max(weights) <= diagnosis_play.CUT


def test_heads_play_by_the_rules_of_their_training(monkeypatch):
    network = fresh_network("CartPole-v1", 0)
    place = arena([network])

    class Learned:
        def make(self, copies):
            raise NotImplementedError(f"{copies} copies")

    monkeypatch.setattr(type(place), "as_learned", lambda self: Learned())
    heads = (network.regressor.head,) * 2
    about = {"episodes": 3, "discount": 0.9, "clip_rewards": False, "seed": 0, "announce": print}
    with pytest.raises(NotImplementedError, match="6 copies"):
        played(network, place, heads, **about)


def test_a_head_that_knows_lives_only_is_judged_by_lives():
    # Two lives of four steps, one reward a step, of a head that is right about each; then the game
    # is cut two steps into the third, of which nothing can be counted.
    discount = 0.9
    left = np.array([sum(discount**k for k in range(steps)) for steps in (4, 3, 2, 1)])
    best = np.concatenate([left, left, left[:3]])
    terminal = np.array([*[False] * 3, True] * 2 + [False] * 2)
    lives = Episode(np.ones(10), terminal, best, cut=True, score=10.0)
    for high in (0.0, 20.0):
        found = worth([lives._replace(best=best + high)], discount=discount, clip_rewards=False)
        assert found.earned == pytest.approx(left.mean())
        assert found.excess == pytest.approx(0.75 * discount * high)  # not in terminal steps
        assert (found.score, found.cut) == (10.0, 1)


def test_steps_that_begin_a_new_life_belong_to_none():
    # A life of two steps, a step that begins the next, which has two again, and one of another
    # game. Q-values are numbered. What is earned in between counts as score only.
    record = Record(
        rewards=np.array([[1.0, 2.0, 0.5, 4.0, 8.0, 16.0]]).T,
        terminal=np.array([[0, 1, 0, 0, 1, 0]], bool).T,
        over=np.array([[0, 0, 0, 0, 1, 0]], bool).T,
        reset=np.array([[0, 0, 1, 0, 0, 1]], bool).T,
        best=np.arange(7.0)[:, None],
    )
    found = episode(record, 0)
    assert (found.rewards.tolist(), found.score) == ([1, 2, 4, 8], 15.5)
    assert found.terminal.tolist() == [False, True, False, True]
    assert found.best[[0, 1, 3]].tolist() == [0, 1, 4]  # what follows lives does not count
    assert not found.cut
    earlier = Record(*(part[:4] for part in record[:4]), record.best[:5])
    found = episode(earlier, 0)
    assert (found.rewards.tolist(), found.best[[0, 1, 3]].tolist()) == ([1, 2, 4], [0, 1, 4])
    assert found.cut
    timed = record._replace(terminal=np.zeros((6, 1), bool))  # over, but by a limit
    assert episode(timed, 0).cut


def test_worth_is_not_known_where_everything_is_cut():
    cut = Episode(np.ones(3), np.zeros(3, bool), np.ones(4), cut=True, score=3.0)
    found = worth([cut] * 2, discount=0.99, clip_rewards=False)
    assert found.promises == found.earnings == ()
    assert all(math.isnan(v) for v in (found.promised, found.earned, found.excess))
    assert found.score == 3.0
    assert not Balance.of_episodes(found).known
    assert not Balance.repeated([found]).known


class Countdown(VectorEnvironment):
    """Frames count steps; a step of copy i earns its action, and its game ends after i + 1."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.spec = Spec("countdown", (1,), "float32", ("nothing", "one"))

    def reset(self, seeds):
        self._time = np.zeros(self.num_envs)
        return self._frames()

    def send(self, actions):
        self._actions = actions

    def receive(self):
        over_before = self._time > np.arange(self.num_envs) % 3
        self._time = np.where(over_before, 0, self._time + 1)
        over = self._time > np.arange(self.num_envs) % 3
        reward = np.where(over_before, 0.0, self._actions)
        return Step(self._frames(), reward, over, over, over_before)

    def _frames(self):
        return self._time.astype(np.float32)[:, None]


def test_play_records_each_policy_s_own_episodes():
    def q(observations):  # policy 0 does nothing, policy 1 always gets one; they promise time
        time = observations[..., 0]
        best = jnp.stack([time, time - 1], axis=-1)
        return jnp.stack([best[0], best[1, ..., ::-1]])

    options = {"policies": 2, "discount": 0.5, "clip_rewards": False, "seed": 0, "epsilon": 0.0}
    idle, busy = play(q, Countdown(6), **options)
    assert (idle.scores, busy.scores) == ((0.0, 0.0, 0.0), (1.0, 2.0, 3.0))
    assert (idle.cut, busy.cut) == (0, 0)
    assert busy.earned == pytest.approx((1 + 1.5 + 1 + 1.75 + 1.5 + 1) / 6)
    # max Q(s') is 1, 2, … along an episode and nothing follows its end.
    assert busy.promised == pytest.approx((1 + 1.5 + 1 + 1.5 + 2 + 1) / 6)
    cut = play(q, Countdown(6), **options, most_steps=2)
    assert (cut[1].scores, cut[1].cut) == ((1.0, 2.0, 2.0), 1)


def test_games_that_are_over_may_rest():
    class Watched(Countdown):
        resting = ()

        def rest(self, resting):
            self.resting = (*self.resting, tuple(np.flatnonzero(resting)))

    environment = Watched(3)
    play(
        lambda seen: jnp.zeros((*seen.shape[:2], 2)),
        environment,
        policies=1,
        discount=0.5,
        clip_rewards=False,
        seed=0,
    )
    assert environment.resting == ((0,), (0, 1), (0, 1, 2))


def test_the_horizon_of_a_cut_is_the_one_in_the_page():
    page = Path(diagnosis_page.__file__).with_name("diagnosis_worth.html").read_text()
    assert f"more than {100 * diagnosis_play.CUT:.0f}&nbsp;% in a return" in page
    assert f"at most {100 * diagnosis_play.CUT:.0f}&nbsp;% of what" in page


@pytest.fixture(scope="module")
def learned():
    network = fresh_network("CartPole-v1", 0)
    config = DiagnosisConfig(
        levels=3,
        transitions=200,
        updates=30,
        batch_size=8,
        target_every=2,
        num_envs=4,
        learning_rate=0.01,
        penalty_weight=5.0,
    )
    return learn(network, arena([network]), config, seed=0, clip_rewards=False)


def test_choices_are_the_greedy_ones_of_the_target_of_then(learned):
    for lineage in (learned.plain, learned.penalised):
        assert len(lineage.heads) == 4
        for level, target in enumerate((0, 0, 2)):
            mine = learned.level == level
            actions = greedy(lineage.heads[target], learned.features[mine])
            assert (lineage.assigned[mine] == actions).all()


def test_both_copies_learn_from_the_same_batches_with_and_without_the_penalty(learned):
    plain, penalised = learned.plain, learned.penalised
    assert plain.labels[:2] == penalised.labels[:2]  # the same target and the same data
    # Every step earns 1, and a choice follows unless the pole fell: 200 transitions in a level.
    mine = learned.features[learned.level == 0]
    best = np.max(mine @ plain.heads[0].weight + plain.heads[0].bias, axis=1)
    assert plain.labels[0] == pytest.approx(1 + 0.99 * best.sum() / 200, rel=1e-5)
    first = learned.level < 2
    assert (plain.assigned[first] == penalised.assigned[first]).all()
    for before, after in pairwise(plain.heads):
        assert (before.weight != after.weight).any()
    assert (plain.heads[1].weight != penalised.heads[1].weight).any()


def test_choices_that_end_episodes_are_left_out(learned):
    assert len(learned.level) == len(learned.features) == len(learned.plain.assigned)
    assert 500 < len(learned.level) < 600  # poles fall within 150 steps


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"levels": 5}, "levels must be more than target_every, 5, got 5"),
        ({"levels": 0}, "levels must be a whole number of at least 1"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1"),
        ({"updates": 0}, "updates must be"),
        ({"penalty_weight": 0.0}, "penalty_weight must be a number above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be"),
        ({"units": "volts"}, "units must be q or gap"),
        ({"discount": 1.5}, "discount must be"),
        ({"seed": 2**31 - 2}, "seed and all that follow must be below"),
    ],
)
def test_impossible_settings(changes, words):
    with pytest.raises(ValueError, match=words):
        DiagnosisConfig(**changes)
