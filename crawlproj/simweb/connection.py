"""A connection to the server of a simulated web: parses requests, responds well or badly, logs both."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import NamedTuple, cast

import httptools

from crawlproj.simweb.accesslog import AccessLog, Request
from crawlproj.simweb.answers import Answers, head
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.hostile import End, Script

#: Requested from 127.0.0.1, which is in no world: write the log now. Not logged itself.
FLUSH_PATH = "/-/flush"
_CONTROL_HOST = "127.0.0.1"
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


class _Request(NamedTuple):
    start_ms: float
    method: str
    host: str
    target: str
    accept: bytes
    keep_alive: bool


def _last_ack_ms(connection: socket.socket) -> int:
    """Return how long ago the peer last acknowledged anything, according to the kernel."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK_RECEIVED + 4)
    return int.from_bytes(info[_LAST_ACK_RECEIVED:], sys.byteorder)


class Connection(asyncio.Protocol):
    """Requests are answered one after the other, also pipelined ones."""

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
        self._waiting: deque[_Request] = deque()
        self._current: _Request | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._give_up: asyncio.TimerHandle | None = None
        self._script: Script | None = None
        self._paused = False
        self._handed_ms = 0.0
        self._left_ms = 0.0
        self._when_drained: Callable[[], None] | None = None
        self.last_used_s = loop.time()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address, peer = transport.get_extra_info("sockname")[0], transport.get_extra_info("peername")
        # Without a peer: it has left already.
        if not is_loopback(address) or peer is None:
            self._transport.abort()
            return
        self._address: str = address
        self._peer_port: int = peer[1]
        # Low water 0: resume_writing then means that the last byte went to the socket.
        self._transport.set_write_buffer_limits(high=16_384, low=0)
        self._open.add(self)
        if (dead := self._answers.of_dead(address)) is not None:
            self._current = _Request(now_ms(), "", dead.domain, "", b"", keep_alive=False)
            self._answered = dead
            self._fault = Fault.DEAD
            self._sent = 0
            self._quiet_until_ms = 0.0
            self._respond()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if self._paused or (self._current is not None and exc is None):
            # The client left in the middle of a response. On a busy machine we notice late, but the kernel
            # does not. After a reset it knows only if the client was still to take more.
            self._left_ms = now_ms() - _last_ack_ms(self._transport.get_extra_info("socket"))
        self._end(complete=False, left=True)

    def data_received(self, data: bytes) -> None:
        if self._current is not None and not self._current.target:
            # A dead domain reads nothing.
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
        """Abort the connection; a request in flight is logged at once."""
        self._end(complete=False)
        self._transport.abort()

    def _reset(self) -> None:
        self._end(complete=False)
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
            _Request(
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

    def _answer(self, request: _Request) -> None:
        if request.host == _CONTROL_HOST and request.target == FLUSH_PATH:
            self._log.flush()
            self._current = None
            self._transport.write(head(204, 0))
            return
        self._answered = answer = self._answers.get(request.host, request.target, request.accept)
        self._status = answer.status
        self._fault = self._answers.fault(answer)
        self._quiet_until_ms = 0.0
        if self._answered.spec.latency_ms:
            self._timer = self._loop.call_later(self._answered.spec.latency_ms / 1000, self._respond)
        else:
            self._respond()

    def _respond(self) -> None:
        request, answer, fault = self._current, self._answered, self._fault
        assert request is not None
        body = b"" if request.method == "HEAD" else answer.body
        if fault is Fault.NONE and answer.hostile:
            self._play(self._answers.script(answer))
        elif fault is Fault.NONE:
            self._write(answer.head + body)
            self._finish()
        elif fault is Fault.ERROR:
            self._status = 503 if answer.is_robots else 500
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
        # Before, not after: the client may have it, and act on it, before we are scheduled again.
        self._handed_ms = now_ms()
        self._transport.write(data)

    def _throttle(self) -> None:
        spec = self._answered.spec
        self._status = spec.throttle_all
        headers = []
        if spec.throttle_retry_after:
            until_s = now_ms() / 1000 + spec.retry_after_s
            after = str(spec.retry_after_s)
            if spec.throttle_retry_after == "date":
                # It has no fractions: rounded up, it is never too early.
                until_s = math.ceil(until_s)
                after = formatdate(until_s, usegmt=True)
            headers.append(f"Retry-After: {after}")
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

    def _end(self, *, complete: bool, left: bool = False) -> None:
        request = self._current
        if request is None:
            return
        answer = self._answered
        for timer in (self._timer, self._give_up):
            if timer is not None:
                timer.cancel()
        self._current = self._timer = self._give_up = self._script = self._when_drained = None
        self.last_used_s = self._loop.time()
        self._log.add(
            Request(
                request.start_ms,
                self._handed_ms if complete else self._left_ms or now_ms(),
                answer.domain,
                request.host,
                answer.url,
                self._status,
                self._sent,
                self._fault or answer.hostile,
                self._peer_port,
                request.method,
                complete,
                left,
                self._quiet_until_ms,
            )
        )
