"""Tells the figures of this process to whoever asks over HTTP, and writes them down, in a thread of its own.

What is told was written before, so that the process that takes the place of one that was killed goes on from
there. The thread reads memory; no loop waits for it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from crawlproj.config import Config
from crawlproj.observe.ledger import (
    MOST_NUMBERS,
    Place,
    Told,
    forget_others,
    read_all,
    take_place,
    try_lock,
)
from crawlproj.observe.metrics import Metrics

logger = logging.getLogger(__name__)

#: Where the ports of each kind begin, counted from the first; the last ones are for who finds its own taken.
FIRST_PORTS = {"shard": 0, "parser": MOST_NUMBERS, "supervisor": 2 * MOST_NUMBERS}
_SPARE_PORTS = range(3 * MOST_NUMBERS, 3 * MOST_NUMBERS + 20)
#: How long somebody who connected may take to ask.
_ASK_S = 5.0
_CLOSE_S = 2.0
#: How soon it is tried again to let somebody in who could not be, as no descriptor was left.
_LET_IN_S = 0.1
#: A process that wrote nothing for so many intervals is frozen; a busy one may be late by some seconds.
_LIVE_INTERVALS = 3
_LEAST_LIVE_S = 3.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Telling:
    """Where and how figures are told. ``port`` is the first of those in `FIRST_PORTS`."""

    #: Of the run and this host; see `observe.ledger`.
    folder: Path
    run: str
    host: str
    port: int
    #: One endpoint for all processes of the run on this host, not one for each.
    is_shared: bool
    every_s: float


def open_endpoint(
    config: Config, run: str, metrics: Metrics, kind: str, number: int | None = None
) -> Endpoint | None:
    """Tell *metrics* as the settings say; None when they say not to."""
    if not config.metrics_port:
        return None
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())
    folder = config.data / "runs" / run / "metrics" / host
    forget_others(folder)
    telling = Telling(
        folder,
        run,
        config.metrics_host,
        config.metrics_port,
        config.metrics_shared,
        config.figures_seconds,
    )
    return Endpoint(telling, metrics, kind, number)


class Endpoint:
    """Tells *metrics* from when it is made until `close`. *number* None: the first that is free.

    Trouble with the port or the disk is a warning: a crawl does not stop because nobody can watch it.
    """

    def __init__(self, telling: Telling, metrics: Metrics, kind: str, number: int | None = None) -> None:
        self._telling = telling
        self._metrics = metrics
        self._kind = kind
        self._place = self._take_place(number)
        self.number = number or 0
        if self._place is not None:
            self.number = self._place.number
            metrics.earlier = self._place.load() or metrics.earlier
        #: Where this process, or the one that tells for it, can be asked; '' for nowhere.
        self.url = ""
        self._server: _Server | None = None
        self._server_lock: int | None = None
        self._has_failed = False
        self._is_closing = threading.Event()
        if not telling.is_shared:
            self._serve(FIRST_PORTS[kind] + self.number)
        self._report()
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last figures and leave."""
        self._is_closing.set()
        if self._server is not None:
            self._server.wake()
        self._thread.join(_CLOSE_S)
        self._save()
        if self._server is not None:
            self._server.server_close()
        if self._server_lock is not None:
            os.close(self._server_lock)
        if self._place is not None:
            self._place.leave()

    def descriptors(self) -> Mapping[str, int]:
        """Return how many sockets this has open, as `Descriptors.tell_by` wants it."""
        return {"prometheus": self._server.open_sockets if self._server else 0}

    def _take_place(self, number: int | None) -> Place | None:
        try:
            place = take_place(self._telling.folder, self._kind, number)
            trouble = "another process has its place"
        except OSError as exc:
            place, trouble = None, str(exc)
        if place is None:
            logger.warning("counters of this process begin at 0, as %s", trouble)
        return place

    # -- the thread --

    def _work(self) -> None:
        # Here and not at module level: few processes are asked, and it takes a while to import.
        import crawlproj.observe.exposition  # noqa: F401

        next_s = time.monotonic() + self._telling.every_s
        while not self._is_closing.is_set():
            wait_s = max(0.0, next_s - time.monotonic())
            if self._server is not None:
                self._server.answer_one(wait_s)
            else:
                self._is_closing.wait(wait_s)
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._telling.every_s
                self._report()

    def _report(self) -> None:
        self._save()
        if self._telling.is_shared:
            self._tell_for_all()

    def _save(self) -> Told:
        """Write the figures down; returns them. Tells when that begins to fail, and when it works again."""
        told = Told(self._kind, self.number, self._metrics.snapshot(), is_live=True)
        if self._place is None:
            return told
        try:
            self._place.save(told.snapshot)
        except OSError as exc:
            if not self._has_failed:
                logger.warning("counters cannot be written: %s", exc)
            self._has_failed = True
        else:
            if self._has_failed:
                logger.warning("counters can be written again")
            self._has_failed = False
        return told

    def _tell_for_all(self) -> None:
        """Be the one endpoint of this host if nobody is; else learn where that is."""
        if self._server is not None:
            return
        notice = self._telling.folder / "endpoint.lock"
        try:
            self._server_lock = self._server_lock or try_lock(notice)
            if self._server_lock is None:
                self.url = notice.read_text()
                return
            self._serve(0)
            os.ftruncate(self._server_lock, 0)
            os.pwrite(self._server_lock, self.url.encode(), 0)
        except OSError as exc:
            logger.warning("no endpoint for all processes of this host: %s", exc)

    # -- the server --

    def _serve(self, offset: int) -> None:
        telling = self._telling
        wanted = telling.port + offset
        for port in (wanted, *(telling.port + spare for spare in _SPARE_PORTS)):
            try:
                self._server = _Server((telling.host, port), self._answer)
            except OSError as exc:
                trouble = exc
                continue
            break
        else:
            logger.warning("no port for metrics at %s:%d: %s", telling.host, wanted, trouble)
            return
        if port != wanted:
            logger.warning("port %d for metrics is taken; they are at %d", wanted, port)
        self.url = f"http://{_in_url(telling.host)}:{port}/metrics"

    def _answer(self) -> bytes:
        from crawlproj.observe.exposition import exposition

        told = self._save()
        if not self._telling.is_shared:
            return exposition(self._telling.run, [told])
        live_s = max(_LIVE_INTERVALS * self._telling.every_s, _LEAST_LIVE_S)
        others = [
            other
            for other in read_all(self._telling.folder, live_s)
            if (other.kind, other.number) != (told.kind, told.number)
        ]
        return exposition(self._telling.run, [told, *others])


class _Server(TCPServer):
    """One answer at a time: whoever asks too slowly keeps only others who ask waiting.

    No HTTPServer: that asks name servers for the name of its address, and a shard would wait for them.
    """

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], answer: Callable[[], bytes]) -> None:
        self.answer = answer
        self.open_sockets = 1
        self._is_woken = threading.Event()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def answer_one(self, within_s: float) -> None:
        self.timeout = within_s
        self.handle_request()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            # Or the thread would ask again and again, just when the process is in trouble.
            self._is_woken.wait(_LET_IN_S)
            raise

    def wake(self) -> None:
        """Have `answer_one` return."""
        self._is_woken.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_sockets += 1
        try:
            super().process_request(request, client_address)
        finally:
            self.open_sockets -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a scrape failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = _ASK_S
    server: _Server

    def do_GET(self) -> None:  # the name http.server calls
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404)
            return
        text = self.server.answer()
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """A scrape is no news."""


def _in_url(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        # All of this machine: others ask it by its name.
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
