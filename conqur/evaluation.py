"""Scores of policies: several at once, on the same starts, by the paper's protocol.

An episode is known by its number: the environment's seed and the random numbers of ε-greedy play
come from `seed` and that number alone. So episode i of one policy and episode i of another begin
alike (common random numbers; compare them with `statistics.paired_difference`), and neither the
other policies nor the number of copies of the environment change a policy's scores. (Up to
rounding: a network's last bits may differ between batch sizes, and turn a tie.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur import _checks, statistics
from conqur.environments.interface import JaxEnvironment, Spec, VectorEnvironment, push
from conqur.environments.jax_env import HostedJax, begin_games, step_games

PATIENCE = 27_000
"""The most steps of an episode, where no time limit ends it before: the paper's 108,000 frames."""
REPORT_EVERY = 100
"""Steps between two reports of progress."""
AT_ONCE = 32
"""Steps in one dispatch where games compile; the next episode of a copy begins after it."""
FEW = 16
"""So many games are not worth another compiled program for fewer."""


@dataclass(frozen=True)
class Evaluation:
    """What one policy scored.

    Attributes:
        scores: the undiscounted, unclipped return of each episode, by the episode's number.
        lengths: the episodes' steps (decisions).
        frames: of the game, in all these episodes.
        finished: whether all of them came to their end; those that were broken off after `PATIENCE`
            steps count with what they had reached.
    """

    scores: tuple[float, ...]
    lengths: tuple[int, ...]
    frames: int
    finished: bool = True

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def median(self) -> float:
        """The median score."""
        return float(np.median(self.scores))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean score; NaN for a single episode."""
        return statistics.standard_error(self.scores)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean score, see `statistics.bootstrap_interval`."""
        return statistics.bootstrap_interval(self.scores)

    def to_json(self, *, human_normalised: float | None = None) -> dict[str, Any]:
        """As a JSON object, where null stands for what is not known.

        Args:
            human_normalised: the mean score on the scale of an Atari game's human score, if any.
        """
        return {
            "mean": self.mean,
            "median": self.median,
            "standard_error": _known(self.standard_error),
            "interval": [_known(bound) for bound in self.interval],
            "human_normalised": human_normalised,
            "frames": self.frames,
            "finished": self.finished,
            "episodes": list(self.scores),
            "lengths": list(self.lengths),
        }


def evaluate(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    *,
    policies: int = 1,
    episodes: int | None = None,
    frames: int | None = None,
    frame_skip: int = 1,
    epsilon: float = 0.001,
    seed: int = 0,
    on_progress: Callable[[float], None] = lambda done: None,
) -> tuple[Evaluation, ...]:
    """Play `policies` ε-greedy policies beside one another; one `Evaluation` for each.

    Episodes are played in rounds: all copies begin together and those that are done rest until all
    are; where games compile, a copy that is done begins its policy's next episode. Which episodes
    count is a matter of their numbers, so none is counted because it was short. With `frames`, a
    policy plays its episodes 0, 1, 2, … until their frames come to that many, and the one that
    crosses the line is played to its end and counted, as in Dopamine: leaving it out would leave
    out the long ones. No-op starts and time limits are the environment's; without such a limit an
    episode is broken off after `PATIENCE` steps, and counted.

    Args:
        q: from observations [K, E, *observation_shape] to Q-values [K, E, A], in JAX: policy k
            answers for [k]. As an equinox module or a `jax.tree_util.Partial` with arrays as
            arguments it is compiled once for all calls; a plain function anew for each function.
        environment: of K·E copies, with any E; all are reset, and again between rounds. Where games
            compile, it is not touched: they are played inside of a program.
        policies: K.
        episodes: how many each policy plays.
        frames: how many each policy plays, if `episodes` do not end it before. At least one of the
            two has to be given; the paper's 500,000 are 125,000 steps of Atari games.
        frame_skip: how many frames of the game a step is: 4 in Atari games.
        epsilon: the probability of a random action.
        seed: of the episodes.
        on_progress: told now and then how much is done, from 0 to 1.
    """
    _checks.count("policies", policies)
    _checks.number("epsilon", epsilon, at_least=0, at_most=1)
    _checks.count("seed", seed, at_least=0)
    budget = _Budget.of(episodes, frames, frame_skip)
    if environment.num_envs % policies:
        raise ValueError(
            f"environment has {environment.num_envs} copies, which {policies} policies cannot "
            f"share evenly: make it with a multiple of {policies}"
        )
    if isinstance(environment, HostedJax):
        play = _play_compiled(q, environment, policies, budget, epsilon, seed, on_progress)
    else:
        play = _Play.nothing(policies)
        while not budget.spent(play):
            play = _play_round(q, environment, play, budget, epsilon, seed, on_progress)
    on_progress(1.0)
    return _evaluations(play, budget, frame_skip)


@eqx.filter_jit
def act(
    q: Callable[[Any], Any],
    spec: Spec,
    observations: Array,
    frames: Any,
    reset: Any,
    keys: Key[Array, "K E"],
    time: Any,
    epsilon: Any,
) -> tuple[Array, Int[Array, " N"], Float[Array, "K E A"]]:
    """See the newest frames and choose: one dispatch for K policies in E environments each.

    Args:
        q: from observations [K, E, *observation_shape] to Q-values [K, E, A].
        spec: of the environment.
        observations: before the step, [K, E, *observation_shape].
        frames: the newest, [N, ...] with N = K·E.
        reset: where a new episode began, [N].
        keys: of the episodes.
        time: how many times each of them acted before, one number or [K, E].
        epsilon: the probability of a random action.

    Returns:
        The observations, the actions (−1 where a Q-value is NaN) and the Q-values.
    """
    rows = observations.shape[:2]
    frames = jnp.reshape(frames, (*rows, *spec.frame_shape))
    observations = push(spec, observations, frames, jnp.reshape(reset, rows))
    q_values = q(observations)
    wanted = (*rows, len(spec.actions))
    if q_values.shape != wanted:
        raise ValueError(
            f"q must give Q-values of shape {list(wanted)}, one for each of the "
            f"{wanted[-1]} actions of {spec.name}, got {list(q_values.shape)}"
        )
    options = (0, 0, None, None)
    explorations = jax.vmap(jax.vmap(_exploration, options), options)
    explore, at_random = explorations(keys, jnp.broadcast_to(time, rows), epsilon, wanted[-1])
    actions = jnp.where(explore, at_random, jnp.argmax(q_values, axis=-1))
    actions = jnp.where(jnp.isnan(q_values).any(axis=-1), -1, actions)
    return observations, jnp.ravel(actions), q_values


def episode_seeds(seed: int, numbers: Sequence[int]) -> tuple[list[int], Key[Array, " E"]]:
    """The environment's seeds of episodes, by their numbers, and the keys of ε-greedy play."""
    draws = [np.random.SeedSequence((seed, number)).generate_state(2) for number in numbers]
    seeds, words = np.transpose(draws)
    return [int(word >> 1) for word in seeds], jax.vmap(jax.random.key)(words)  # 31 bits suit all


class _Play(NamedTuple):
    """The episodes of K policies by their numbers, so far."""

    scores: Float[np.ndarray, "K I"]
    lengths: Int[np.ndarray, "K I"]
    finished: Bool[np.ndarray, "K I"]

    @classmethod
    def nothing(cls, policies: int, episodes: int = 0) -> "_Play":
        shape = (policies, episodes)
        return cls(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool))

    @property
    def over(self) -> Bool[np.ndarray, "K I"]:
        """Which came to their end or were broken off."""
        return self.finished | (self.lengths >= PATIENCE)

    def after(
        self, rewards: Float[np.ndarray, "T N"], game_over: Bool[np.ndarray, "T N"]
    ) -> "_Play":
        """After T steps, of which those after a game's end do not count."""
        rewards, game_over = (x.reshape(-1, *self.scores.shape) for x in (rewards, game_over))
        ended = np.logical_or.accumulate(game_over, axis=0)
        earlier = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
        times = self.lengths + np.arange(len(rewards)).reshape(-1, 1, 1)
        counts = ~(self.finished | earlier) & (times < PATIENCE)
        return _Play(
            scores=self.scores + np.where(counts, rewards, 0.0).sum(axis=0, dtype=np.float64),
            lengths=self.lengths + counts.sum(axis=0),
            finished=self.finished | (game_over & counts).any(axis=0),
        )

    def of(self, numbers: Int[np.ndarray, "K E"]) -> "_Play":
        """Some episodes of each policy."""
        return _Play(*(np.take_along_axis(values, numbers, axis=1) for values in self))

    def put(self, numbers: Int[np.ndarray, "K E"], some: "_Play") -> None:
        """Write down some episodes of each policy."""
        for values, others in zip(self, some, strict=True):
            np.put_along_axis(values, numbers, others, axis=1)

    def followed_by(self, later: "_Play") -> "_Play":
        return _Play(*(np.concatenate(both, axis=1) for both in zip(self, later, strict=True)))


class _Budget(NamedTuple):
    """How many episodes and how many steps a policy plays; infinity where it does not matter."""

    episodes: float
    steps: float

    @classmethod
    def of(cls, episodes: int | None, frames: int | None, frame_skip: int) -> "_Budget":
        _checks.count("frame_skip", frame_skip)
        if episodes is None and frames is None:
            raise ValueError("episodes or frames must say how much to play")
        return cls(
            episodes=math.inf if episodes is None else _checks.count("episodes", episodes),
            steps=math.inf if frames is None else _checks.count("frames", frames) / frame_skip,
        )

    def needed(self, play: _Play) -> Bool[np.ndarray, "K I"]:
        """Which episodes count: they do if those before them left something of the budget."""
        steps_before = np.cumsum(play.lengths, axis=1) - play.lengths
        return (np.arange(play.lengths.shape[1]) < self.episodes) & (steps_before < self.steps)

    def pending(self, play: _Play) -> Bool[np.ndarray, "K I"]:
        """Which episodes have to go on."""
        return self.needed(play) & ~play.over

    def goes_on(self, policy: int, number: int, play: _Play) -> bool:
        """Whether a policy plays an episode after those it began, its first `number`."""
        return number < self.episodes and int(play.lengths[policy].sum()) < self.steps

    def progress(self, play: _Play) -> Float[np.ndarray, " K"]:
        """How much of the budget each policy used."""
        episodes = (self.needed(play) & play.over).sum(axis=1) / self.episodes
        steps = play.lengths.sum(axis=1) / self.steps
        return np.minimum(1.0, np.maximum(episodes, steps))

    def spent(self, play: _Play) -> bool:
        """Whether all policies used their budget."""
        return bool((self.progress(play) == 1).all())


class _Table(NamedTuple):
    """The games that are looked at: as many of every policy."""

    copies: Int[np.ndarray, "K E"]
    """Their places in the environment."""
    observations: Array
    """[K, E, *observation_shape]."""
    keys: Key[Array, "K E"]

    def smaller(self, going_on: Bool[np.ndarray, "K C"]) -> "_Table":
        """A quarter of it, if all games that go on have room there.

        Args:
            going_on: which of all copies have to go on.
        """
        policies, size = self.copies.shape
        wanted = np.ravel(going_on)[self.copies]
        quarter = -(-size // 4)
        full = wanted.sum(axis=1).max() > quarter
        if full or quarter == size or policies * size <= FEW:
            return self
        kept = np.argsort(~wanted, axis=1, kind="stable")[:, :quarter]
        places = (np.arange(policies)[:, None], kept)
        return _Table(self.copies[places], self.observations[places], self.keys[places])


def _play_round(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    earlier: _Play,
    budget: _Budget,
    epsilon: float,
    seed: int,
    on_progress: Callable[[float], None],
) -> _Play:
    """Play the next E episodes of each policy, and add them to the earlier ones."""
    spec = environment.spec
    policies, first = earlier.lengths.shape
    copies = environment.num_envs // policies
    seeds, keys = episode_seeds(seed, range(first, first + copies))
    frames, reset = environment.reset(seeds * policies), np.ones(environment.num_envs, bool)
    table = _Table(
        copies=np.arange(environment.num_envs).reshape(policies, copies),
        observations=jnp.zeros((policies, copies, *spec.observation_shape), spec.frame_dtype),
        keys=jnp.broadcast_to(keys, (policies, copies)),
    )
    now = _Play.nothing(policies, copies)
    play = earlier.followed_by(now)
    actions = np.zeros(environment.num_envs, np.int32)
    time = 0
    while (going_on := budget.pending(play)[:, first:]).any():
        environment.rest(np.ravel(~going_on))
        table = table.smaller(going_on)
        everything = table.copies.size == environment.num_envs
        seen = slice(None) if everything else np.ravel(table.copies)
        observations, chosen, _ = act(
            q,
            spec,
            table.observations,
            frames[seen],
            reset[seen],
            table.keys,
            np.int32(time),
            np.float32(epsilon),
        )
        table = table._replace(observations=observations)
        actions[seen] = checked_actions(chosen)
        step = environment.step(actions)
        frames, reset = step.frame, step.reset
        now = now.after(step.reward[None], step.game_over[None])
        play = earlier.followed_by(now)
        if time % REPORT_EVERY == 0:
            on_progress(float(budget.progress(play).mean()))
        time += 1
    return play


class _Games(NamedTuple):
    """The games that are played inside of a program, one in each copy."""

    observations: Array
    """[N, *observation_shape], before the newest frames."""
    episodes: Any
    frames: Array
    reset: Bool[Array, " N"]
    time: Int[Array, " N"]
    """How many steps each has had."""


def _play_compiled(
    q: Callable[[Any], Any],
    environment: HostedJax,
    policies: int,
    budget: _Budget,
    epsilon: float,
    seed: int,
    on_progress: Callable[[float], None],
) -> _Play:
    """Play the episodes of games that compile: a copy begins its policy's next one after another.

    What is over is played on until the end of its dispatch, and not counted.
    """
    game = environment.environment
    shape = (policies, environment.num_envs // policies)
    numbers = np.tile(np.arange(shape[1]), (policies, 1))
    begun = [shape[1]] * policies
    play = _Play.nothing(*shape)
    keys = _keys(seed, numbers)
    games = _begin(game, keys)
    while budget.pending(play).any():
        games, (chosen, rewards, game_over) = _many_steps(q, game, keys, games, np.float32(epsilon))
        checked_actions(chosen)
        now = play.of(numbers).after(np.asarray(rewards), np.asarray(game_over))
        play.put(numbers, now)
        fresh = np.zeros(shape, bool)
        for policy, copy in np.argwhere(now.over).tolist():
            if budget.goes_on(policy, begun[policy], play):
                numbers[policy, copy] = begun[policy]
                begun[policy] += 1
                fresh[policy, copy] = True
        if fresh.any():
            play = play.followed_by(_Play.nothing(policies, max(begun) - play.scores.shape[1]))
            keys = _keys(seed, numbers)
            games = _where(np.ravel(fresh), _begin(game, keys), games)
        on_progress(float(budget.progress(play).mean()))
    return play


class _Keys(NamedTuple):
    """Of the episodes that are played: of ε-greedy play, and of the games."""

    acting: Key[Array, "K E"]
    playing: Key[Array, " N"]


def _keys(seed: int, numbers: Int[np.ndarray, "K E"]) -> _Keys:
    different, places = np.unique(numbers, return_inverse=True)
    seeds, acting = episode_seeds(seed, different.tolist())
    playing = jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
    return _Keys(acting[places.reshape(numbers.shape)], playing[np.ravel(places)])


@eqx.filter_jit
def _begin(environment: JaxEnvironment[Any], keys: _Keys) -> _Games:
    """New episodes, by their keys."""
    copies, spec = keys.playing.shape[0], environment.spec
    episodes, frames = begin_games(environment, keys.playing)
    return _Games(
        observations=jnp.zeros((copies, *spec.observation_shape), spec.frame_dtype),
        episodes=episodes,
        frames=frames,
        reset=jnp.ones(copies, bool),
        time=jnp.zeros(copies, jnp.int32),
    )


@jax.jit
@jax.vmap
def _where(fresh: Bool[Array, ""], new: _Games, old: _Games) -> _Games:
    return jax.tree.map(partial(jnp.where, fresh), new, old)


@eqx.filter_jit
def _many_steps(
    q: Callable[[Any], Any],
    environment: JaxEnvironment[Any],
    keys: _Keys,
    games: _Games,
    epsilon: Any,
) -> tuple[_Games, tuple[Int[Array, "T N"], Float[Array, "T N"], Bool[Array, "T N"]]]:
    """`AT_ONCE` steps of all games: where they are then; actions, rewards, games over."""
    rows, spec = keys.acting.shape, environment.spec

    def step(games: _Games, nothing: None) -> Any:
        before = games.observations.reshape(*rows, *spec.observation_shape)
        time = games.time.reshape(rows)
        seen, actions, _ = act(
            q, spec, before, games.frames, games.reset, keys.acting, time, epsilon
        )
        now = games.time + 1
        episodes, found = step_games(environment, keys.playing, now, games.episodes, actions)
        observations = seen.reshape(games.observations.shape)
        games = _Games(observations, episodes, found.frame, found.reset, now)
        return games, (actions, found.reward, found.game_over)

    return jax.lax.scan(step, games, length=AT_ONCE)


def checked_actions(chosen: Int[Array, "*T N"]) -> Int[np.ndarray, "*T N"]:
    """The actions of `act` on the host, if all Q-values behind them were numbers."""
    actions = np.array(chosen)
    if (actions < 0).any():
        raise ValueError("q gave NaN: the network's weights or its observations hold some")
    return actions


def _exploration(
    key: Key[Array, ""], time: Any, epsilon: Any, num_actions: int
) -> tuple[Bool[Array, ""], Int[Array, ""]]:
    """Whether to act at random at that time of an episode, and how."""
    whether, which = jax.random.split(jax.random.fold_in(key, time))
    return jax.random.uniform(whether) < epsilon, jax.random.randint(which, (), 0, num_actions)


def _evaluations(play: _Play, budget: _Budget, frame_skip: int) -> tuple[Evaluation, ...]:
    evaluations = []
    for scores, lengths, needed, finished in zip(
        play.scores, play.lengths, budget.needed(play), play.finished, strict=True
    ):
        evaluations.append(
            Evaluation(
                scores=tuple(scores[needed].tolist()),
                lengths=tuple(lengths[needed].tolist()),
                frames=int(lengths[needed].sum()) * frame_skip,
                finished=bool(finished[needed].all()),
            )
        )
    return tuple(evaluations)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
