"""What is asked of a Ray cluster before it is used. A real one is in tests/peers/test_ray.py."""

import socket
import sys
from pathlib import Path

import pytest

from conqur import cli
from conqur.suite import ray_cluster
from conqur.suite.ray_cluster import ClusterError, Place, complaint, connected, marked, needs

STUDY = 'command = "train"\ngames = ["CartPole-v1"]\nseeds = 1\n'


@pytest.fixture
def port():
    """One that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--engine", "ray"),
            "needs --address HOST:PORT; to start Ray: RAY_AUTH_MODE=token",
        ),
        (("--address", "head:6379"), "--address is of a Ray cluster: --engine ray"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(
    tmp_path, monkeypatch, capsys, options, words
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(STUDY)
    assert cli.run(["suite", "run", "small.toml", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not Path("studies").exists()


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "auto", "head:port", ""])
def test_addresses(tmp_path, monkeypatch, address):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ClusterError, match="must be HOST:PORT"), connected(address, tmp_path):
        pass


def test_ray_must_be_there_and_ask_for_a_token(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    missing = pytest.raises(ClusterError, match=r"pip install 'conqur\[ray\]'")
    with missing, connected("127.0.0.1:1", tmp_path):
        pass
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    wrong = pytest.raises(ClusterError, match="RAY_AUTH_MODE must be token")
    with wrong, connected("127.0.0.1:1", tmp_path):
        pass


REFUSED = (1, "...\nray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: missing")


@pytest.mark.parametrize(
    ("with_token", "without", "words"),
    [
        (REFUSED, REFUSED, "does not take this token"),
        ((1, "Ray couldn't find an authentication token."), REFUSED, "there is no token"),
        ((1, "RAY_AUTH_TOKEN_PATH is set but"), REFUSED, "there is no token"),
        ((1, "one\nno answer in 60 seconds\n"), REFUSED, "no Ray to use at .*: no answer in 60"),
        ((1, ""), REFUSED, "it does not say why"),
        ((0, ""), (0, ""), "lets everybody in; start it by RAY_AUTH_MODE=token"),
        ((0, ""), REFUSED, None),
    ],
)
def test_heads(monkeypatch, port, with_token, without, words):
    answers = {"token": with_token, "disabled": without}
    monkeypatch.setattr(ray_cluster, "_ask", lambda address, mode: mode)
    monkeypatch.setattr(ray_cluster, "_answer", lambda process: answers[process])
    address = f"127.0.0.1:{port}"
    if words is None:
        ray_cluster._check_head(address)
        return
    with pytest.raises(ClusterError, match=words) as error:
        ray_cluster._check_head(address)
    assert "\n" not in str(error.value)


def test_a_head_that_is_not_there(port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    for address in (f"127.0.0.1:{free}", "127.0.0.1:99999"):
        with pytest.raises(ClusterError, match=r"nothing answers at .*ray start --head"):
            ray_cluster._check_head(address)


def test_what_a_run_takes():
    small, large, gpu = {"CPU": 1.0}, {"CPU": 64.0}, {"CPU": 8.0, "GPU": 2.0}
    assert needs([small]) == {"num_cpus": 1, "num_gpus": 0}
    assert needs([small, large]) == {"num_cpus": 2, "num_gpus": 0}
    assert needs([{}, large, gpu]) == {"num_cpus": 2, "num_gpus": 1}
    assert needs([{}]) == needs([]) == {"num_cpus": 2, "num_gpus": 0}  # more may join


def test_nodes_must_see_the_same_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = Path("studies/small")
    (study / "logs").mkdir(parents=True)
    with marked(study) as place:
        assert complaint(place) == ""
        monkeypatch.chdir("/")
        assert complaint(place) == ""  # paths are as where the study was begun
        assert Path.cwd() == tmp_path
        for other, words in (
            (Place(tmp_path / "none", study, place.marker), "share the folder you are in"),
            (Place(tmp_path, Path("other"), place.marker), "share the study's folder"),
            (Place(tmp_path, study, place.marker, version="0"), "and not 0"),
        ):
            assert words in complaint(other)
    assert "share the study's folder" in complaint(place)  # the marker is gone
    assert list((study / "logs").iterdir()) == []
