"""One page on this machine alone, made anew whenever what it tells of has changed."""

import contextlib
import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import Signals
from socketserver import TCPServer
from typing import Any, NamedTuple

from conqur import report
from conqur._messages import printable
from conqur.report.pages import filled
from conqur.runs import stop_requested

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""What this machine is called by itself. Any other name may be one that a stranger's page has made
to lead here, in order to read ours."""
INTERVAL = 2.0
"""Seconds between the questions of a browser."""
PATIENCE = 20.0
"""Seconds that a browser may take to ask or to listen."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def watch(
    render: Callable[[], str],
    changed: Callable[[], object],
    *,
    port: int = 0,
    announce: Callable[[str], None] = lambda address: print(address, flush=True),
) -> Signals | None:
    """Serve a page until this process is asked to stop, and return the signal that asked.

    Args:
        render: makes the page, which has a `</body>`. If it fails, the last good page stays, with
            what is wrong.
        changed: something cheap that differs whenever the page might, see `fingerprint`.
        port: where to listen; 0 for any that is free.
        announce: told the address once somebody listens.

    Raises:
        ValueError: if the port cannot be had.
    """
    with stop_requested() as stop, serving(render, changed, port=port) as address:
        announce(address)
        while not stop:
            time.sleep(0.1)
    return stop.signal


@contextlib.contextmanager
def serving(
    render: Callable[[], str],
    changed: Callable[[], object],
    *,
    port: int = 0,
    interval: float = INTERVAL,
) -> Iterator[str]:
    """Serve a page in the background; yields its address. For the arguments see `watch`.

    Args:
        render: makes the page.
        changed: differs whenever the page might.
        port: where to listen; 0 for any that is free.
        interval: seconds between the questions of a browser.
    """
    server = _listening(port, _Pages(render, changed, interval))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://{ADDRESS}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fingerprint(*folders: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of the files in folders: different if any was written."""
    found = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    about = entry.stat()
                    found.append((entry.path, about.st_mtime_ns, about.st_size))
    return tuple(sorted(found))


class _Page(NamedTuple):
    """What is served, and what says whether it is still the same."""

    html: str
    version: str


class _Pages:
    """The page as of now; of many that ask at a time, one makes it and the others wait."""

    def __init__(
        self, render: Callable[[], str], changed: Callable[[], object], interval: float
    ) -> None:
        self._render, self._changed, self._interval = render, changed, interval
        self._lock = threading.Lock()
        self._seen: object = self  # equal to nothing that `changed` returns
        self._good = ""
        self._page = _Page("", "")

    def newest(self) -> _Page:
        with self._lock:
            trouble = ""
            try:
                seen = self._changed()  # before the page is made: what changes meanwhile is next
                if seen == self._seen:
                    return self._page
                self._seen = seen
                self._good = self._render()
            except Exception as error:  # a file that is half written, or anything else
                trouble = printable(str(error)) or type(error).__name__
                self._seen = self  # it may be better the next time, whatever the files say
            self._page = self._served(trouble)
            return self._page

    def _served(self, trouble: str) -> _Page:
        """The last good page, with what keeps it up to date."""
        whole = self._good or _nothing_yet(trouble)
        notice = f"Not up to date: {trouble}" if trouble and self._good else ""
        version = hashlib.sha256(f"{whole}\0{notice}".encode("utf-8", "replace")).hexdigest()
        slots = {
            "version": version,
            "trouble": json.dumps(notice).replace("<", "\\u003c"),
            "interval": f"{1000 * self._interval:.0f}",
        }
        before, end, after = whole.rpartition("</body>")
        return _Page(f"{before}{filled('watching.html', slots)}{end}{after}", version)


def _nothing_yet(trouble: str) -> str:
    return (
        f'<!DOCTYPE html><html lang="en-GB"><head><meta charset="utf-8"><title>Nothing yet</title>'
        f"<style>{report.style()}</style></head><body><h1>There is nothing to show yet</h1>"
        f'<p class="lede">{escape(trouble)}</p></body></html>'
    )


class _Server(ThreadingHTTPServer):
    """One thread for each that asks; none of them keeps the process from ending."""

    daemon_threads = True

    def __init__(self, port: int, pages: _Pages) -> None:
        self.pages = pages
        super().__init__((ADDRESS, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's would ask the network for this machine's name
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: whoever asked has gone away, and asks again if it matters."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE

    def do_GET(self) -> None:
        if not self._is_for_us():
            self._answer(403, "This page is for this machine: ask for it by 127.0.0.1.\n")
        elif self.path == "/":
            self._answer(200, self.server.pages.newest().html, kind="text/html")
        elif self.path == "/changed":
            self._answer(200, self.server.pages.newest().version)
        else:
            self._answer(404, "There is nothing here but the page itself, at /.\n")

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As the base class calls it; a method that there is not is as good as a wrong path."""
        self._answer(404 if code == 501 else code, f"{message or 'no such thing'}\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: who asks is nobody's business."""

    def _is_for_us(self) -> bool:
        host = self.headers.get("Host", "")
        name, colon, number = host.rpartition(":")
        return (name if colon and number.isdigit() else host).lower() in HOSTS

    def _answer(self, status: int, text: str, *, kind: str = "text/plain") -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _listening(port: int, pages: _Pages) -> _Server:
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    try:
        return _Server(port, pages)
    except OSError as error:
        taken, denied = error.errno == errno.EADDRINUSE, error.errno == errno.EACCES
        reason = "is in use" if taken else "is not allowed" if denied else f"({error.strerror})"
        raise ValueError(f"port {port} {reason}: name another, or none") from error
