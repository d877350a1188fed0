"""Starts scrapy commands from a Python that has already imported what they import, all but our own code.

On two cores the tests would spend most of their time on imports. A command is forked from one server per
worker; from there on it is a process of its own, with its own session, environment, directory and output,
and it imports `crawlproj` itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import scrapy.cmdline
import scrapy.commands

_IMPORTS = (
    *("lxml.html", "parsel", "prometheus_client", "pyarrow.compute", "pyarrow.parquet", "redis.asyncio"),
    *("ada_url", "isal.isal_zlib", "itemadapter", "msgspec", "publicsuffixlist", "zstandard"),
    *("resiliparse.extract.html2text", "resiliparse.parse.encoding", "scrapy_redis.scheduler"),
    *("twisted.internet.asyncioreactor", "twisted.internet.ssl", "twisted.web.client", "twisted.web.http"),
    *("scrapy.core.downloader.middleware", "scrapy.core.engine", "scrapy.crawler", "scrapy.spiders"),
    # Every command imports those of all others.
    *(f"scrapy.commands.{module.name}" for module in iter_modules(scrapy.commands.__path__)),
)
_MOST_BYTES = 1_000_000


class WarmProcess:
    """One command, with what the tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, server: WarmPython) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        self._server.read_ends(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (3600.0 if timeout is None else timeout)
        while self.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired("scrapy", timeout or 0)
            self._server.read_ends(left_s)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        # Not to another process that has got its number.
        if self.poll() is None:
            # The server may have reaped it, and not yet said so.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmPython:
    """The server of one worker, started when it is first needed."""

    def __init__(self) -> None:
        self._started: dict[int, WarmProcess] = {}
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], output: int
    ) -> WarmProcess:
        """Start ``scrapy`` with *arguments*; *output* is where it prints."""
        job = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        try:
            pid = self._fork(json.dumps(job).encode(), output)
        except OSError:
            # It was killed with all that a failed test had started.
            self.close()
            pid = self._fork(json.dumps(job).encode(), output)
        process = self._started[pid] = WarmProcess(pid, self)
        return process

    def _fork(self, job: bytes, output: int) -> int:
        server = self._connected()
        socket.send_fds(server, [job], [output])
        while text := server.recv(_MOST_BYTES):
            answer = json.loads(text)
            if "pid" in answer:
                return int(answer["pid"])
            self._note(answer)
        raise ConnectionResetError

    def read_ends(self, within_s: float) -> None:
        """Note which processes have ended; waits up to *within_s* for the first."""
        if self._socket is not None and select.select([self._socket], [], [], within_s)[0]:
            if text := self._socket.recv(_MOST_BYTES):
                self._note(json.loads(text))
            else:
                self.close()

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
            self._socket = self._process = None
            for process in self._started.values():
                process.returncode = -signal.SIGKILL
            self._started.clear()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._socket

    def _note(self, answer: dict[str, Any]) -> None:
        if process := self._started.pop(answer["ended"], None):
            process.returncode = answer["code"]


def serve(channel: socket.socket) -> None:
    """Fork a process per job; say when one has ended."""
    for name in _IMPORTS:
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    assert not any(name.partition(".")[0] == "crawlproj" for name in sys.modules)
    # A collection in a child would copy the pages it shares with us.
    gc.freeze()
    assert threading.active_count() == 1
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([channel, waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            for pid, status in _ended():
                channel.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
        if channel in ready:
            text, outputs, _, _ = socket.recv_fds(channel, _MOST_BYTES, 1)
            if not text:
                return
            is_set, sets = os.pipe()
            pid = os.fork()
            if pid == 0:
                _become(json.loads(text), *outputs)
            os.close(sets)
            os.close(*outputs)
            # Until it has closed its end: from then on it is the leader of its group, which may be killed.
            os.read(is_set, 1)
            os.close(is_set)
            channel.send(json.dumps({"pid": pid}).encode())


def _ended() -> list[tuple[int, int]]:
    ended = []
    with suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(one)
    return ended


def _become(job: dict[str, Any], output: int) -> None:
    """Run the command of *job* in this process, which was forked for it, and exit."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for fd in (1, 2):
        os.dup2(output, fd)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    sys.path[0] = job["cwd"]
    scrapy.cmdline.execute(["scrapy", *job["arguments"]])
    # Never back into the loop of the server.
    sys.exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
