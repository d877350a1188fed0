"""Serves the metrics of this process over HTTP and saves them to disk, in a thread of its own.

Metrics are saved before they are served, so that counters never fall when a process is replaced. The thread
only reads memory; no event loop waits for it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.slots import (
    MOST_NUMBERS,
    ProcessMetrics,
    Slot,
    claim_slot,
    read_processes,
    remove_stale_hosts,
    try_lock,
)

logger = logging.getLogger(__name__)

#: Offsets from the configured port, by kind; the spare ones are for processes whose own port is taken.
FIRST_PORTS = {"shard": 0, "parser": MOST_NUMBERS, "supervisor": 2 * MOST_NUMBERS}
_SPARE_PORTS = range(3 * MOST_NUMBERS, 3 * MOST_NUMBERS + 20)
#: How long a client may take to send its request.
_REQUEST_S = 5.0
_CLOSE_S = 2.0
#: How long to wait after accept() failed, for lack of descriptors.
_ACCEPT_RETRY_S = 0.1
#: A process that saved nothing for this many intervals is frozen; a busy one may be late by some seconds.
_LIVE_INTERVALS = 3
_LEAST_LIVE_S = 3.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Serves *metrics* from construction until `close`. *number* None: the first that is free.

    A failing port or disk is a warning: a crawl does not stop because it cannot be monitored.
    """

    def __init__(self, config: Config, run: str, metrics: Metrics, kind: str, number: int | None) -> None:
        self._config = config
        self._run = run
        host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())
        #: Of the run and this host; see `observe.slots`.
        self._folder = RunPaths(config.data, run).metrics / host
        remove_stale_hosts(self._folder)
        self._metrics = metrics
        self._kind = kind
        self._slot = self._claim_slot(number)
        self.number = number or 0
        if self._slot is not None:
            self.number = self._slot.number
            metrics.earlier = self._slot.load() or metrics.earlier
        #: The address of the endpoint that serves these metrics; '' for none.
        self.url = ""
        self._server: _Server | None = None
        self._server_lock: int | None = None
        self._has_failed = False
        self._is_closing = threading.Event()
        if not config.metrics_shared:
            self._serve(FIRST_PORTS[kind] + self.number)
        self._report()
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Save the last metrics and stop serving."""
        self._is_closing.set()
        if self._server is not None:
            self._server.wake()
        self._thread.join(_CLOSE_S)
        self._save()
        if self._server is not None:
            self._server.server_close()
        if self._server_lock is not None:
            os.close(self._server_lock)
        if self._slot is not None:
            self._slot.release()

    def descriptors(self) -> Mapping[str, int]:
        """Return the count of open sockets, for `Descriptors.add_source`."""
        return {"prometheus": self._server.open_sockets if self._server else 0}

    def _claim_slot(self, number: int | None) -> Slot | None:
        try:
            slot = claim_slot(self._folder, self._kind, number)
            reason = "another process has its slot"
        except OSError as exc:
            slot, reason = None, str(exc)
        if slot is None:
            logger.warning("counters of this process start at 0: %s", reason)
        return slot

    # -- the thread --

    def _work(self) -> None:
        # Imported here: it is slow, and must not delay the start of the process.
        import crawlproj.observe.exposition  # noqa: F401

        next_s = time.monotonic() + self._config.figures_seconds
        while not self._is_closing.is_set():
            wait_s = max(0.0, next_s - time.monotonic())
            if self._server is not None:
                self._server.timeout = wait_s
                self._server.handle_request()
            else:
                self._is_closing.wait(wait_s)
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._config.figures_seconds
                self._report()

    def _report(self) -> None:
        self._save()
        if self._config.metrics_shared:
            self._serve_shared()

    def _save(self) -> ProcessMetrics:
        """Save the metrics and return them. Logs when that begins to fail, and when it works again."""
        own = ProcessMetrics(self._kind, self.number, self._metrics.snapshot(), is_live=True)
        if self._slot is None:
            return own
        try:
            self._slot.save(own.snapshot)
        except OSError as exc:
            if not self._has_failed:
                logger.warning("cannot save counters: %s", exc)
            self._has_failed = True
        else:
            if self._has_failed:
                logger.warning("counters are saved again")
            self._has_failed = False
        return own

    def _serve_shared(self) -> None:
        """Become the endpoint of this host if there is none; else read its address."""
        if self._server is not None:
            return
        lock_file = self._folder / "endpoint.lock"
        try:
            self._server_lock = self._server_lock or try_lock(lock_file)
            if self._server_lock is None:
                self.url = lock_file.read_text()
                return
            self._serve(0)
            os.ftruncate(self._server_lock, 0)
            os.pwrite(self._server_lock, self.url.encode(), 0)
        except OSError as exc:
            logger.warning("cannot open the shared metrics endpoint of this host: %s", exc)

    # -- the server --

    def _serve(self, offset: int) -> None:
        host, first = self._config.metrics_host, self._config.metrics_port
        wanted = first + offset
        for port in (wanted, *(first + spare for spare in _SPARE_PORTS)):
            try:
                self._server = _Server((host, port), self._answer)
            except OSError as exc:
                reason = exc
                continue
            break
        else:
            logger.warning("no free port for metrics at %s:%d: %s", host, wanted, reason)
            return
        if port != wanted:
            logger.warning("metrics port %d is taken; using %d", wanted, port)
        if host in ("", "0.0.0.0", "::"):
            # Bound to all addresses: show the machine's name.
            host = socket.gethostname()
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def _answer(self) -> bytes:
        from crawlproj.observe.exposition import exposition

        own = self._save()
        if not self._config.metrics_shared:
            return exposition(self._run, [own])
        live_s = max(_LIVE_INTERVALS * self._config.figures_seconds, _LEAST_LIVE_S)
        others = [
            other
            for other in read_processes(self._folder, live_s)
            if (other.kind, other.number) != (own.kind, own.number)
        ]
        return exposition(self._run, [own, *others])


class _Server(TCPServer):
    """Answers one request at a time: a slow client delays only other clients.

    Not an HTTPServer, which looks up its own name in DNS, and a shard would wait for that.
    """

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], answer: Callable[[], bytes]) -> None:
        self.answer = answer
        self.open_sockets = 1
        self._is_woken = threading.Event()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            # Do not spin while the process has no descriptors left.
            self._is_woken.wait(_ACCEPT_RETRY_S)
            raise

    def wake(self) -> None:
        """Make `handle_request` return."""
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
    timeout = _REQUEST_S
    server: _Server

    def do_GET(self) -> None:  # the name http.server calls
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404)
            return
        text = self.server.answer()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Do not log scrapes."""
