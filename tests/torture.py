"""Kill training runs again and again, and see that they end as if nobody had.

    python tests/torture.py --kills 200

Every kind of run is trained once in peace. Others of its kind are killed with SIGKILL, at random
instants or in the middle of writing, and resumed, until each has come to its end; then their logs,
networks and last checkpoints have to be the same, byte for byte. Exit status 1 if any is not.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conqur.runs import RunDirectory

TINY = (
    *("--num-envs", "4", "--replay-size", "600", "--learning-starts", "100", "--batch-size", "4"),
    *("--log-every", "200", "--steps", "900", "--save-every", "0.2"),
)
# On a compiled environment, about 389 updates are made before the host is heard.
COMPILED = ("MinAtar/Breakout", *TINY, "--update-every", "1", "--steps", "2700")

KINDS: dict[str, tuple[str, ...]] = {
    "cartpole": ("CartPole-v1", *TINY),
    "cartpole-ddqn": ("CartPole-v1", *TINY, "--algorithm", "ddqn", "--penalty-weight", "0.5"),
    "minatar": (*COMPILED, "--seeds", "2", "--penalty-weight", "0", "0.5"),
    "minatar-ddqn": (*COMPILED, "--algorithm", "ddqn", "--penalty-weight", "0.5"),
    "atari": ("ALE/Breakout-v5", *TINY),
}
"""The runs, each with the arguments of `conqur train`."""

PATIENCE = 600.0
"""Seconds after which a process hangs."""


@dataclass(frozen=True)
class Moment:
    """When to kill.

    Attributes:
        words: for people.
        has_come: told the run's folder and the seconds since the process was started.
    """

    words: str
    has_come: Callable[[Path, float], bool]


def after(seconds: float) -> Moment:
    """At an instant, whatever happens then."""
    return Moment(f"after {seconds:.2f} s", lambda folder, elapsed: elapsed >= seconds)


def writing(number: int, part: str) -> Moment:
    """While a file is written: the `number`-th such sight in a part of the run's folder."""
    seen: set[tuple[str, int]] = set()

    def has_come(folder: Path, elapsed: float) -> bool:
        seen.update(_partial_files(folder / part))
        return len(seen) >= number

    return Moment(f"while it writes file {number} in {part}", has_come)


def saved(number: int, folder: Path) -> Moment:
    """As soon as there are `number` checkpoints more than at the start."""
    before = _steps(folder)

    def has_come(folder: Path, elapsed: float) -> bool:
        seen.update(_steps(folder) - before)
        return len(seen) >= number

    seen: set[str] = set()
    return Moment(f"with checkpoint {number}", has_come)


def train(arguments: tuple[str, ...], folder: Path, **options: object) -> "subprocess.Popen[str]":
    """Start a process that begins the run or, if it has begun, goes on with it."""
    begun = (folder / "config.json").exists()
    given = ("--resume", "--save-every", "0.2") if begun else arguments
    command = [sys.executable, "-m", "conqur", "train", *given, "--run-dir", str(folder)]
    return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]


def trained(arguments: tuple[str, ...], folder: Path, environment: dict[str, str]) -> str:
    """Let the run come to its end; what it said on stderr."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = train(arguments, folder, env=environment, **quiet)
    _, words = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(f"{folder.name} ended with status {process.returncode}: {words}")
    return words


def killed(
    arguments: tuple[str, ...], folder: Path, moment: Moment, environment: dict[str, str]
) -> bool:
    """Let the run go on until a moment, then kill it; False if it came to its end before."""
    process = train(
        arguments, folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        came = wait_for(moment, process, folder)
    finally:
        process.kill()
        process.wait()
    if not came and process.returncode:
        raise RuntimeError(f"{folder.name} ended with status {process.returncode}")
    return came


def wait_for(moment: Moment, process: "subprocess.Popen[str]", folder: Path) -> bool:
    """Wait for a moment of the run; False if the process ends before."""
    started = time.monotonic()
    while process.poll() is None:
        elapsed = time.monotonic() - started
        if moment.has_come(folder, elapsed):
            return True
        if elapsed > PATIENCE:
            raise RuntimeError(f"{folder.name} hangs")
        time.sleep(0.0005)
    return False


def differences(one: Path, other: Path) -> list[str]:
    """In what two runs that came to their end differ; nothing, if all is well.

    Compared are the log and the networks, and from the last checkpoint the state, which holds the
    optimizer, the target network, DDQN's buffer, the tally of the log and the environments'
    journal, all as bytes, and the replay.
    """
    files = {path: result_files(path) for path in (one, other)}
    found = [
        f"{name}: {'other bytes' if name in files[one] and name in files[other] else 'only in one'}"
        for name in sorted(files[one].keys() | files[other].keys())
        if files[one].get(name) != files[other].get(name)
    ]
    replays = [replay(path) for path in (one, other)]
    for name in sorted(replays[0].keys() | replays[1].keys()):
        if not all(name in replay for replay in replays) or not np.array_equal(
            replays[0][name], replays[1][name]
        ):
            found.append(f"replay: other {name}")
    return found


def last_state(folder: Path) -> Path:
    """The file of the newest checkpoint's state."""
    return max((folder / "checkpoints").glob("state-*"))


def cached(folder: Path) -> dict[str, str]:
    """The environment of processes that share what they compile: most of their time."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def torture(name: str, kills: int, folder: Path, dice: random.Random) -> Iterator[str]:
    """Kill runs of a kind so many times; what was done and found, line by line."""
    arguments, environment = KINDS[name], cached(folder / "cache")
    whole = folder / f"{name}-whole"
    started = time.monotonic()
    trained(arguments, whole, environment)
    yield f"{name}: in peace, {time.monotonic() - started:.1f} s"
    started = time.monotonic()
    trained(arguments, folder / f"{name}-again", environment)
    seconds = time.monotonic() - started  # without compiling
    victim = 0
    while kills > 0:
        victim += 1
        run = folder / f"{name}-{victim}"
        for _ in range(min(kills, dice.randint(4, 12))):
            moment = _any_moment(run, seconds, dice)
            if not killed(arguments, run, moment, environment):
                break
            kills -= 1
            at = max(_steps(run), default="none")
            yield f"{name} {victim}: killed {moment.words}; last checkpoint: {at}"
        trained(arguments, run, environment)
        found = differences(whole, run)
        yield f"{name} {victim}: {'DIFFERS: ' + '; '.join(found) if found else 'the same'}"


def main() -> int:
    """Torture every kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many, shared by all kinds")
    parser.add_argument("--environments", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where to leave the runs")
    given = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(given.environments):
            share = len(range(number, given.kills, len(given.environments)))
            folder = given.folder or Path(temporary)
            for line in torture(name, share, folder, random.Random(f"{given.seed} {name}")):
                print(line, flush=True)
                failures += "DIFFERS" in line
    print(f"{given.kills} kills, {failures} runs that differ")
    return 1 if failures else 0


def _any_moment(folder: Path, seconds: float, dice: random.Random) -> Moment:
    return dice.choice(
        [
            after(dice.uniform(0, 1.1 * seconds)),
            writing(dice.randint(1, 8), "checkpoints"),
            writing(dice.randint(1, 3), "networks"),
            saved(dice.randint(1, 3), folder),
        ]
    )


def _partial_files(folder: Path) -> Iterator[tuple[str, int]]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".partial"):
                    yield entry.name, entry.inode()


def _steps(folder: Path) -> set[str]:
    return {path.stem[-6:] for path in (folder / "checkpoints").glob("checkpoint-*.json")}


def result_files(folder: Path) -> dict[str, bytes]:
    """The files of a run that are compared, by name."""
    paths = [folder / "log.jsonl", *(folder / "networks").iterdir(), last_state(folder)]
    return {path.name: path.read_bytes() for path in paths}


def replay(folder: Path) -> dict[str, np.ndarray]:
    """The replay of a run's last checkpoint: rings of rows, by name."""
    with RunDirectory.open(folder, warn=_unexpected) as run:
        checkpoint = run.load()
        if checkpoint is None:
            raise RuntimeError(f"{folder.name} has no checkpoint")
        capacity = run.config["replay_size"] // run.config["num_envs"]
        newest = checkpoint.total_rows % capacity  # a row that is still to be written
        rings = checkpoint.rings(capacity)
        return {name: np.delete(ring, newest, axis=0) for name, ring in rings.items()}


def _unexpected(line: str) -> None:
    raise RuntimeError(line)


if __name__ == "__main__":
    sys.exit(main())
