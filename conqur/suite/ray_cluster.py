"""A Ray cluster to make runs on: connected to, and not before it is seen to be safe and of use.

Whoever may talk to a Ray cluster may run anything on it. So only one is used that asks for a token.
"""

import contextlib
import io
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conqur import __version__
from conqur._messages import printable
from conqur.runs.files import appending

CORES = 2
"""How many cores of a node a run takes, where there are as many."""
ANSWER = 60.0
"""Seconds that the cluster and its nodes have to answer."""
START = "RAY_AUTH_MODE=token ray start --head (see docs/clusters.md)"
"""How a cluster is started."""


class ClusterError(RuntimeError):
    """The cluster cannot be used; the message says why, and what to do."""


@dataclass(frozen=True)
class Place:
    """Where a study is, for all nodes.

    Attributes:
        here: the folder in which relative paths begin.
        study: the study's folder.
        marker: a file that is in it since a moment ago.
        version: of conqur.
    """

    here: Path
    study: Path
    marker: str
    version: str = __version__


@contextlib.contextmanager
def connected(address: str, said: Path) -> Iterator[Any]:
    """Ray, connected to a cluster that takes our token and nobody else's.

    Args:
        address: of the cluster's head, HOST:PORT.
        said: a file for what Ray prints meanwhile, such as which nodes die.

    Raises:
        ClusterError: if there is none, or no Ray.
    """
    if re.fullmatch(r"[^\s/]+:\d{1,5}", address) is None:
        raise ClusterError(f"the Ray cluster's address must be HOST:PORT, got {address}")
    if os.environ.setdefault("RAY_AUTH_MODE", "token").lower() != "token":  # read when imported
        raise ClusterError("RAY_AUTH_MODE must be token: conqur uses no Ray that anybody may use")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise ClusterError("Ray is missing: pip install 'conqur[ray]'") from None
    _check_head(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"this machine must be a node of the Ray cluster at {address}: {told(error)}"
        ) from error
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, before)  # Ray has taken it
    with io.TextIOWrapper(appending(said)) as file, contextlib.redirect_stdout(file):
        try:
            yield ray
        finally:
            ray.shutdown()


def told(error: BaseException) -> str:
    """What went wrong, in one line."""
    cause = getattr(error, "cause", None) or error  # what a task raised, without the traceback
    return printable(str(cause).strip().partition("\n")[0]) or type(cause).__name__


@contextlib.contextmanager
def marked(study: Path) -> Iterator[Place]:
    """Leave a marker in a study's folder, by which nodes see that it is the same."""
    marker = study / "logs" / f".ray-{secrets.token_hex(8)}"
    marker.touch()
    try:
        yield Place(Path.cwd(), study, str(marker.relative_to(study)))
    finally:
        marker.unlink(missing_ok=True)


def needs(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What a run takes: two cores, where a node has as many, and a GPU, where there is any.

    Args:
        nodes: what each of them has.
    """
    cores = max((node.get("CPU", 0) for node in nodes), default=0)
    gpus = float(any(node.get("GPU", 0) >= 1 for node in nodes))
    return {"num_cpus": min(CORES, cores) or CORES, "num_gpus": gpus}


def check_nodes(ray: Any, nodes: Sequence[Any], needed: Mapping[str, float], place: Place) -> None:
    """Refuse a cluster in which a node has room for runs but cannot make them."""
    on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    look = ray.remote(complaint)
    asked = {
        node["NodeManagerAddress"]: look.options(
            num_cpus=0, scheduling_strategy=on(node["NodeID"], soft=False)
        ).remote(place)
        for node in nodes
        if node["Resources"].get("CPU", 0) >= needed["num_cpus"]
        and node["Resources"].get("GPU", 0) >= needed["num_gpus"]
    }
    for name, task in asked.items():
        try:
            wrong = ray.get(task, timeout=ANSWER)
        except ray.exceptions.GetTimeoutError:
            wrong = f"it did not answer in {ANSWER:.0f} seconds"
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue  # it is gone
        except (ray.exceptions.RayError, RuntimeError) as error:  # the latter: no conqur there
            wrong = told(error)
        if wrong:
            raise ClusterError(f"the Ray node {name} cannot make runs: {wrong}")


def complaint(place: Place) -> str:
    """What is wrong with this node, if anything is. From then on, paths are as for the driver."""
    if __version__ != place.version:
        return f"it has conqur {__version__}, and not {place.version}"
    try:
        os.chdir(place.here)
    except OSError:
        return f"it does not see {place.here}, and all nodes must share the folder you are in"
    if not (place.study / place.marker).is_file():
        return f"it does not see {place.study}, and all nodes must share the study's folder"
    return ""


def _check_head(address: str) -> None:
    """Refuse a cluster that does not answer, does not take our token, or takes any."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"nothing answers at {address} ({printable(str(error))}); to start Ray: {START}"
        ) from None
    asked = [_ask(address, mode) for mode in ("token", "disabled")]
    (status, said), (status_for_all, _) = [_answer(process) for process in asked]
    if "InvalidAuthToken" in said:
        raise ClusterError(
            f"the Ray cluster at {address} does not take this token: the one that its head was "
            "started with must be in ~/.ray/auth_token, or in a file that RAY_AUTH_TOKEN_PATH names"
        )
    if re.search("authentication token|RAY_AUTH_TOKEN", said):
        raise ClusterError(
            "there is no token for the Ray cluster: the one that its head was started with must be "
            "in ~/.ray/auth_token, or in a file that RAY_AUTH_TOKEN_PATH names"
        )
    if status:
        words = said.strip().splitlines() or ["it does not say why"]
        raise ClusterError(f"there is no Ray to use at {address}: {printable(words[-1])}")
    if not status_for_all:
        raise ClusterError(f"the Ray at {address} lets everybody in; start it by {START}")


def _ask(address: str, mode: str) -> "subprocess.Popen[str]":
    """Ask a head how it is, with a token or without one, in a process of its own.

    In this one Ray would try for long and say much, and how it shows itself is settled only once.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RAY_AUTH_MODE": mode},
    )


def _answer(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """A process's exit status, and what it complained about."""
    with process:
        try:
            _, said = process.communicate(timeout=ANSWER)
        except subprocess.TimeoutExpired:
            process.kill()
            return 1, f"no answer in {ANSWER:.0f} seconds"
    return process.returncode, said
