"""A page that follows a run: a real server, asked by real clients and by a real browser."""

import contextlib
import html
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from conqur.report.run_page import render_run_page
from conqur.report.tuned_run import read_tuned
from conqur.report.watching import fingerprint, serving, watch
from conqur.runs import RunError
from conqur.search.config import tune_config

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def line(number, parent, level):
    """A node, as a line of `tree.jsonl`."""
    about = {"id": number, "parent": parent, "level": level, "status": "frontier"}
    told = {"kind": "dive", "assigned_how": "max", "score": 1.0, "calibrated": 1.0}
    return json.dumps(about | told | {"penalty": 0.1, "bellman": 0.5}) + "\n"


def write_run(folder):
    folder.mkdir()
    config = tune_config("paper-16", environment="CartPole-v1", checkpoint="", preprocessing="")
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    (folder / "tree.jsonl").write_text(line(0, None, 0) + line(1, 0, 1) + line(2, 0, 1))
    return folder


class Told:
    """Something to watch: words that change, and may be impossible to tell."""

    def __init__(self, words):
        self.words, self.made = words, 0

    def render(self):
        self.made += 1
        if isinstance(self.words, Exception):
            raise self.words
        return f"<html><body><h1>{self.words}</h1></body></html>"

    def serving(self, **options):
        return serving(self.render, lambda: self.words, **options)


def get(address, path="", **headers):
    request = urllib.request.Request(address + path, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def status(address, method, path, **headers):
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_page_is_made_once_for_each_change():
    told = Told("one")
    with told.serving() as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        page, version = get(address), get(address, "changed")
        assert "<h1>one</h1>" in page
        assert version in page  # what the page asks for
        assert get(address) == page
        assert told.made == 1
        told.words = "two"
        assert get(address, "changed") != version
        assert "<h1>two</h1>" in get(address)
        assert told.made == 2
        told.words = "one"
        assert get(address, "changed") == version  # the same page needs no loading
    with pytest.raises(urllib.error.URLError):
        get(address)


def test_nothing_is_kept_by_anybody_and_nothing_is_loaded():
    with (
        Told("one").serving() as address,
        urllib.request.urlopen(address, timeout=10) as answer,
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_page_that_cannot_be_made_leaves_the_last_one_with_a_sentence():
    told = Told(RunError("nothing <yet>"))
    with told.serving() as address:
        page = get(address)
        assert "There is nothing to show yet" in page
        assert "nothing &lt;yet&gt;" in page
        told.words = "one"
        assert "<h1>one</h1>" in get(address)
        told.words = OSError("</script>half\nwritten")
        page = get(address)
        assert "<h1>one</h1>" in page
        assert r'"Not up to date: \u003c/script>half written"' in page
        made = told.made
        assert get(address, "changed") in page
        assert told.made == made + 1  # tried again, whether or not anything changed
        told.words = "two"
        page = get(address)
        assert "<h1>two</h1>" in page
        assert "Not up to date" not in page


@pytest.fixture(scope="module")
def address():
    with Told("one").serving() as address:
        yield address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:9", "127.0.0.1:80", "[::1]"])
def test_this_machine_may_be_called_by_its_names(address, host):
    assert "<h1>one</h1>" in get(address, Host=host)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", ":80", "127.0.0.1:x"]
)
def test_another_name_is_refused(address, host):
    for path in ("/", "/changed", "/other"):
        code, words = status(address, "GET", path, Host=host)
        assert code == 403
        assert words == "This page is for this machine: ask for it by 127.0.0.1.\n"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/config.json", "/../", "/?x", "/changed/", "*")),
        *((method, "/") for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE")),
    ],
)
def test_everything_else_is_not_there(address, method, path):
    assert status(address, method, path)[0] == 404


def test_heads_are_without_bodies(address):
    assert status(address, "HEAD", "/") == (200, "")
    assert status(address, "HEAD", "/other") == (404, "")


def test_who_says_nothing_or_nonsense_or_leaves_is_in_nobodys_way(capfd):
    with Told("x" * 10_000_000).serving() as address, contextlib.ExitStack() as hanging:
        where = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
        for said in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0\r\n\r\n"):
            client = hanging.enter_context(socket.create_connection(where, timeout=10))
            client.sendall(said)  # and never listens
        with socket.create_connection(where, timeout=10) as gone:
            gone.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        begun = time.monotonic()
        assert len(get(address)) > 10_000_000
        assert time.monotonic() - begun < 5
        begun = time.monotonic()
    assert time.monotonic() - begun < 5  # nor of its end
    assert capfd.readouterr() == ("", "")


def test_many_ask_at_a_time_and_one_page_is_made():
    told, pages = Told("one"), []
    with told.serving() as address:
        clients = [
            threading.Thread(target=lambda: pages.append(get(address, "changed")))
            for _ in range(16)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert len(pages) == 16
    assert len(set(pages)) == 1
    assert told.made == 1


def test_a_port_that_cannot_be_had_is_one_sentence(conqur, tmp_path):
    told, folder = Told("one"), write_run(tmp_path / "run")
    with told.serving() as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with pytest.raises(ValueError, match=f"^port {port} is in use"):
            watch(told.render, lambda: 0, port=port)
        code, out, err = conqur("report", folder, "--watch", "--port", port)
        assert (code, out) == (2, "")
        assert err == f"conqur: --port {port} is in use: name another, or none\n"
    for wrong in (-1, 65536):
        assert "--port must be from 0" in conqur("report", folder, "--watch", "--port", wrong)[2]
    assert "give both" in conqur("report", folder, "--port", "8000")[2]
    assert "leave --output" in conqur("report", folder, "--watch", "--output", "a.html")[2]
    assert "is not there" in conqur("report", tmp_path / "nowhere", "--watch")[2]


def test_a_fingerprint_is_another_when_anything_is_written(tmp_path):
    seen = [fingerprint(tmp_path), fingerprint(tmp_path / "nowhere")]
    assert seen == [(), ()]
    (tmp_path / "log").write_text("1")
    (tmp_path / "link").symlink_to("nowhere")
    seen.append(fingerprint(tmp_path))
    (tmp_path / "log").write_text("12")
    seen.append(fingerprint(tmp_path, tmp_path))
    assert len(set(seen)) == 3
    assert len(seen[-1]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_follows_a_run_from_before_its_first_checkpoint(tmp_path, number):
    folder = write_run(tmp_path / "run")
    (folder / "tree.jsonl").rename(tmp_path / "later")
    command = [sys.executable, "-m", "conqur", "report", str(folder), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        address = re.search(r"http://\S+", it.stdout.readline())[0]
        assert "has no tree.jsonl yet" in get(address)
        (tmp_path / "later").rename(folder / "tree.jsonl")
        assert "CartPole-v1: level 1 of 100" in get(address)
        it.send_signal(number)
        assert it.wait(10) == 128 + number
        assert it.stderr.read() == ""
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "tree.jsonl"]


PROBE = """<script>
  if (sessionStorage.getItem("seen") === null) {
    document.querySelector("details").open = true;
    document.getElementById("n1").dispatchEvent(new MouseEvent("click", {bubbles: true}));
    document.getElementById("tree").focus({preventScroll: true});
    scrollTo(0, 345);
    sessionStorage.setItem("seen", "once");
  } else {
    setTimeout(() => {
      document.body.innerHTML = JSON.stringify([
        scrollY, document.activeElement.id, document.getElementById("node").textContent,
        document.querySelector("details").open, document.getElementById("n3") !== null,
        document.getElementById("live").textContent, document.getElementById("live").dataset.live,
      ]);
    }, 500);
  }
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser_the_page_loads_what_is_new_and_stays_where_it_was(tmp_path):
    folder = write_run(tmp_path / "run")
    asked = []

    def changed():
        """The run goes on as soon as the browser has asked once whether it has."""
        asked.append(0)
        if len(asked) == 3:
            with (folder / "tree.jsonl").open("a") as file:
                file.write(line(3, 2, 2))
        return fingerprint(folder)

    def render():
        return render_run_page(read_tuned(folder), "").replace("</body>", PROBE)

    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000")
    with serving(render, changed) as address:
        dom = subprocess.run(
            [
                *(CHROMIUM, *options, "--window-size=800,600", "--dump-dom"),
                *(f"--user-data-dir={tmp_path / 'profile'}", address),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    found = json.loads(html.unescape(re.search(r"<body[^>]*>(.*)</body>", dom, re.DOTALL)[1]))
    assert found == [
        *(345, "tree", "Node 1, made from node 0", True, True),
        *("Live: what is new appears by itself.", "yes"),
    ]
