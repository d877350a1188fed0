"""The HTTP/1.1 server of a simulated web: one process answers for every host of 127.0.0.0/8.

It listens on all interfaces, since no other way covers a whole /8, and aborts any connection that did not
arrive on a loopback address.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import math
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple, cast

import httptools

from crawlproj.simweb.accesslog import AccessLog, Request
from crawlproj.simweb.answers import Answers, head
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.graph import World
from crawlproj.simweb.hostile import End, Script
from crawlproj.simweb.sites import Site
from crawlproj.simweb.spec import WorldSpec

#: Asked of the host 127.0.0.1, which no world contains: write the log now. Not logged itself.
FLUSH_PATH = "/-/flush"
_CONTROL_HOST = "127.0.0.1"
_FLUSH_EVERY_S = 0.1
_IDLE_S = 75.0
_SLOW_PIECES = 4
_MAX_QUEUED = 8
#: SO_LINGER on, 0 seconds: the next close is a RST.
_NO_LINGER = struct.pack("ii", 1, 0)
#: Where Linux' struct tcp_info has tcpi_last_ack_recv, in ms.
_LAST_ACK_RECEIVED = 56

_started = time.time() - time.monotonic()


def now_ms() -> float:
    return (_started + time.monotonic()) * 1000


def is_loopback(address: str) -> bool:
    return address.startswith("127.")


class _Asked(NamedTuple):
    start_ms: float
    method: str
    host: str
    target: str
    accept: bytes
    keep_alive: bool


def _last_heard_ms(connection: socket.socket) -> int:
    """Return how long ago the other side last acknowledged anything, as the kernel saw it."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK_RECEIVED + 4)
    return int.from_bytes(info[_LAST_ACK_RECEIVED:], sys.byteorder)


class Connection(asyncio.Protocol):
    """One keep-alive connection. Requests are answered one after the other, also pipelined ones."""

    def __init__(
        self,
        answers: Answers,
        log: AccessLog,
        open_connections: set[Connection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._answers = answers
        self._log = log
        self._open = open_connections
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[_Asked] = deque()
        self._current: _Asked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._give_up: asyncio.TimerHandle | None = None
        self._script: Script | None = None
        self._dead: Site | None = None
        self._paused = False
        self._handed_ms = 0.0
        self._left_ms = 0.0
        self._when_drained: Callable[[], None] | None = None
        self.last_used_s = loop.time()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("sockname")[0]
        if not is_loopback(address):
            self._transport.abort()
            return
        self._address: str = address
        self._peer_port: int = transport.get_extra_info("peername")[1]
        # Low water 0: resume_writing then means that the last byte went to the socket.
        self._transport.set_write_buffer_limits(high=16_384, low=0)
        self._open.add(self)
        self._dead = self._answers.dead_site(address)
        if self._dead is not None:
            self._die(self._dead)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if self._paused:
            # The client left in the midst of an answer. We learn of it late on a busy machine; the kernel
            # does not.
            self._left_ms = now_ms() - _last_heard_ms(self._transport.get_extra_info("socket"))
        self._record_end()

    def _record_end(self) -> None:
        if self._dead is not None:
            self._log_death(self._dead)
        elif self._current is not None:
            self._end(complete=False)

    def data_received(self, data: bytes) -> None:
        if self._dead is not None:
            return
        self._received_ms = now_ms()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(head(400, 0))
            self._transport.close()
            return
        if self._current is None:
            self._next()
        elif len(self._waiting) >= _MAX_QUEUED:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._handed_ms = now_ms()
        if self._when_drained is not None:
            self._when_drained()

    def is_idle_since(self, moment_s: float) -> bool:
        return self._current is None and self.last_used_s < moment_s

    def close(self) -> None:
        """Cut the connection; a request in flight gets its record at once."""
        self._record_end()
        self._transport.abort()

    # -- dying at once

    def _die(self, site: Site) -> None:
        self._start_ms = now_ms()
        if site.spec.dead == "reset":
            self._reset()
        else:
            self._give_up = self._loop.call_later(site.spec.hostile_s, self._transport.abort)

    def _log_death(self, site: Site) -> None:
        self._dead = None
        if self._give_up is not None:
            self._give_up.cancel()
        times = (self._start_ms, now_ms())
        # Nobody listened, so nobody knows which URL it was.
        self._log.add(
            Request(*times, site.domain, site.domain, "", 0, 0, Fault.DEAD, self._peer_port, "", False)
        )

    def _reset(self) -> None:
        self._record_end()
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    # -- httptools

    def on_message_begin(self) -> None:
        self._start_ms = self._received_ms
        self._url = b""
        self._host = b""
        self._accept = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name)
        if size == 4 and name.lower() == b"host":
            self._host = value
        elif size == 15 and name.lower() == b"accept-encoding":
            self._accept = value

    def on_message_complete(self) -> None:
        host = self._host.decode("latin-1").partition(":")[0].lower() or self._address
        self._waiting.append(
            _Asked(
                self._start_ms,
                self._parser.get_method().decode("latin-1"),
                host,
                self._url.decode("latin-1"),
                self._accept,
                self._parser.should_keep_alive(),
            )
        )

    # -- answering

    def _next(self) -> None:
        while self._waiting and self._current is None and not self._transport.is_closing():
            self._current = self._waiting.popleft()
            self._sent = 0
            self._answer(self._current)
        if not self._waiting:
            self._transport.resume_reading()

    def _answer(self, asked: _Asked) -> None:
        if asked.host == _CONTROL_HOST and asked.target == FLUSH_PATH:
            self._log.flush()
            self._current = None
            self._transport.write(head(204, 0))
            return
        self._answered = answer = self._answers.get(asked.host, asked.target, asked.accept)
        self._status = answer.status
        self._fault = self._answers.fault(answer)
        self._quiet_until_ms = 0.0
        if self._answered.spec.latency_ms:
            self._timer = self._loop.call_later(self._answered.spec.latency_ms / 1000, self._respond)
        else:
            self._respond()

    def _respond(self) -> None:
        asked, answer, fault = self._current, self._answered, self._fault
        assert asked is not None
        body = b"" if asked.method == "HEAD" else answer.body
        if fault is Fault.NONE and answer.hostile:
            self._play(self._answers.script(answer))
        elif fault is Fault.NONE:
            self._write(answer.head + body)
            self._finish()
        elif fault is Fault.ERROR:
            self._status = answer.error_status
            self._write(head(self._status, 0))
            self._finish()
        elif fault is Fault.THROTTLE:
            self._status = 429
            self._write(head(429, 0, "text/html", f"Retry-After: {self._answered.spec.retry_after_s}"))
            self._finish()
        elif fault is Fault.THROTTLED:
            self._throttle()
        elif fault is Fault.DEAD:
            self._status = 0
            if answer.spec.dead == "reset":
                self._reset()
            else:
                self._timer = self._loop.call_later(answer.spec.hostile_s, self._cut)
        elif fault is Fault.SLOW:
            self._write(answer.head)
            self._dribble(body, max(1, len(body) // _SLOW_PIECES))
        elif fault is Fault.HANG:
            self._status = 0
            self._timer = self._loop.call_later(self._answered.spec.hang_s, self._cut)
        elif fault is Fault.DROP:
            self._status = 0
            self._write(answer.head[:40])
            self._cut()
        else:
            self._write(answer.head + body[: len(body) // 2])
            self._cut()

    def _write(self, data: bytes) -> None:
        self._sent += len(data)
        # Before, not after: the client may have it, and act on it, before we are given the processor again.
        self._handed_ms = now_ms()
        self._transport.write(data)

    def _throttle(self) -> None:
        spec = self._answered.spec
        self._status = spec.throttle_all
        headers = []
        if spec.throttle_retry_after:
            until_s = now_ms() / 1000 + spec.retry_after_s
            # A date has no fractions: rounded up, it is never less than was meant.
            until_s = math.ceil(until_s) if spec.throttle_retry_after == "date" else until_s
            date = formatdate(until_s, usegmt=True)
            headers.append(
                f"Retry-After: {date if spec.throttle_retry_after == 'date' else spec.retry_after_s}"
            )
            self._quiet_until_ms = until_s * 1000
        self._write(head(self._status, 0, "text/html", *headers))
        self._finish()

    # -- hostile answers

    def _play(self, script: Script) -> None:
        self._status, self._script = script.status, script
        self._give_up = self._loop.call_later(self._answered.spec.hostile_s, self._reset)
        self._step()

    def _step(self) -> None:
        if self._paused:
            self._when_drained = self._step
            return
        self._when_drained = None
        assert self._script is not None
        step = next(self._script.steps, None)
        if step is None and self._script.end is End.FINISH:
            self._finish()
        elif step is None and self._script.end is End.CLOSE:
            self._cut()
        elif step is None or self._sent > self._answered.spec.hostile_bytes:
            self._reset()
        else:
            if step.data:
                self._write(step.data)
            self._timer = self._loop.call_later(step.wait_s, self._step)

    def _dribble(self, body: bytes, size: int) -> None:
        if not body:
            self._finish()
            return

        def more() -> None:
            self._write(body[:size])
            self._dribble(body[size:], size)

        self._timer = self._loop.call_later(self._answered.spec.slow_ms / 1000 / _SLOW_PIECES, more)

    def _finish(self) -> None:
        if self._paused:
            self._when_drained = self._finish
            return
        self._when_drained = None
        assert self._current is not None
        keep_alive = self._current.keep_alive
        self._end(complete=True)
        if not keep_alive:
            self._transport.close()
        elif self._waiting:
            # Not by recursion: a client may pipeline thousands.
            self._loop.call_soon(self._next)

    def _cut(self) -> None:
        self._end(complete=False)
        self._transport.close()

    def _end(self, *, complete: bool) -> None:
        asked, answer = self._current, self._answered
        assert asked is not None
        for timer in (self._timer, self._give_up):
            if timer is not None:
                timer.cancel()
        self._current = self._timer = self._give_up = self._script = self._when_drained = None
        self.last_used_s = self._loop.time()
        self._log.add(
            Request(
                asked.start_ms,
                self._handed_ms if complete else self._left_ms or now_ms(),
                answer.domain,
                asked.host,
                answer.url,
                self._status,
                self._sent,
                self._fault or answer.hostile,
                self._peer_port,
                asked.method,
                complete,
                self._quiet_until_ms,
            )
        )


async def serve(
    spec: WorldSpec, log_path: Path, ready: Callable[[World], None], *, with_parent: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT, or, *with_parent*, until the parent process is gone.

    *ready* gets the world with its real port once connections are taken.
    """
    parent = os.getppid()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _raise_file_limit()
    # Pages are made of many small objects that live long; the defaults would walk them all the time.
    gc.set_threshold(100_000, 20, 50)
    listener = socket.create_server(("0.0.0.0", spec.port), backlog=4096)
    world = World(dataclasses.replace(spec, port=listener.getsockname()[1]))
    log = AccessLog(log_path)
    answers = Answers(world)
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(answers, log, connections, loop), sock=listener, backlog=4096
    )
    ready(world)
    while not stop.is_set():
        try:
            async with asyncio.timeout(_FLUSH_EVERY_S):
                await stop.wait()
        except TimeoutError:
            log.flush()
            if with_parent and os.getppid() != parent:
                stop.set()
            for connection in [c for c in connections if c.is_idle_since(loop.time() - _IDLE_S)]:
                connection.close()
    server.close()
    for connection in list(connections):
        connection.close()
    log.close()


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
