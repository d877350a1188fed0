"""The Redis of a chaos run: killed, stopped, filled, its clock stepped, and set back to older data."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from crawlproj.redisio.servers import server_for
from tests.chaos.offspring import die_with_parent

_START_S = 30.0
_LOOK_S = 0.2
#: How long an fdatasync takes while it is slow; Redis writes nothing for two seconds of that.
_SLOW_MS = 3000
_ANSWER_S = 1.0
#: The tormentor's own, in a database that the crawl does not use.
_PROBE = "chaos:probe"


@dataclass(frozen=True, slots=True)
class _Look:
    """The append-only file at a moment."""

    at_s: float
    inode: int
    size: int


class RedisUnderTest:
    """A redis-server on a unix socket. *shim*: the compiled shim.c, if there is one."""

    def __init__(self, folder: Path, shim: Path | None, control: Path) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._shim = shim
        self._control = control
        self._process: subprocess.Popen[bytes] | None = None
        self._looks: deque[_Look] = deque(maxlen=3000)
        self._client = Redis(
            unix_socket_path=str(self.socket),
            db=1,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
        )
        self._acknowledged = 0
        #: Set-backs are no older than this: before, there was no run to return to.
        self.floor_s = time.monotonic()

    async def start(self) -> None:
        environment = dict(os.environ)
        if self._shim is not None:
            environment |= {"LD_PRELOAD": str(self._shim), "CHAOS_CONTROL": str(self._control)}
        with (self._folder.parent / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220  # a millisecond
                [
                    server_for(self._folder).path,
                    *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)),
                    *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
                    *("--aof-load-truncated", "yes", "--maxmemory-policy", "noeviction"),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # there are no threads
                start_new_session=True,
            )
        deadline_s = time.monotonic() + _START_S
        while not await self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"redis-server did not start; see {self._folder.parent / 'redis.log'}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"redis-server was not ready in {_START_S:g} s")
            await asyncio.sleep(0.02)

    async def watch(self) -> None:
        """Note how the append-only file grows, and write a counter, so that a set-back can be measured."""
        while True:
            with suppress(OSError):
                status = self._append_only_file().stat()
                self._looks.append(_Look(time.monotonic(), status.st_ino, status.st_size))
            with suppress(RedisError, OSError):
                self._acknowledged = int(await self._client.incr(_PROBE))
            await asyncio.sleep(_LOOK_S)

    def send(self, signum: int) -> None:
        if self._process is not None:
            self._process.send_signal(signum)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # -- older data --

    def restore_older(self, age_s: float) -> float:
        """Cut the append-only file back to what it was *age_s* ago; returns its real age.

        That is what a copy made then would hold, at times without its last bytes. Redis must be dead.
        """
        path = self._append_only_file()
        status = path.stat()
        now_s = time.monotonic()
        same = [look for look in self._looks if look.inode == status.st_ino and look.at_s >= self.floor_s]
        # None since a rewrite, which begins a new file.
        if not same:
            return 0.0
        old = min(same, key=lambda look: abs(now_s - look.at_s - age_s))
        # Now and then in the middle of a command.
        os.truncate(path, max(1, old.size - (old.size % 3 == 0) * 7))
        while self._looks and self._looks[-1].at_s > old.at_s:
            self._looks.pop()
        return now_s - old.at_s

    async def kill_while_syncing(self, after_s: float) -> None:
        """Make fdatasync slow, and kill the server *after_s* (below two seconds) into one of them."""
        self._write_control(1, _SLOW_MS)
        deadline_s = time.monotonic() + 10
        while not self._read_control(2) and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(after_s)
        self.kill()
        self._write_control(1, 0)
        self._write_control(2, 0)

    async def lost_writes(self) -> int:
        """Return how many of the counter's last writes are gone; there are five a second."""
        with suppress(RedisError, OSError):
            return max(0, self._acknowledged - int(await self._client.get(_PROBE) or 0))
        return -1

    # -- clock and memory --

    def step_clock(self, offset_s: float) -> None:
        self._write_control(0, int(offset_s * 1000))

    async def fill(self) -> None:
        """Leave no memory for anything new."""
        used = int((await self._client.info("memory"))["used_memory"])
        await self._client.config_set("maxmemory", used * 9 // 10)

    async def unfill(self) -> None:
        await self._client.config_set("maxmemory", 0)

    async def field(self, key: str, name: str) -> str:
        """Return a field of a hash of the crawl."""
        async with Redis(unix_socket_path=str(self.socket), socket_timeout=_ANSWER_S) as client:
            value = await client.hget(key, name)
            return value.decode() if isinstance(value, bytes) else value or ""

    async def close(self) -> None:
        await self._client.aclose()
        self.send(signal.SIGCONT)
        self.kill()

    async def _answers(self) -> bool:
        try:
            return bool(await self._client.ping())
        except (RedisError, OSError):
            return False

    def _append_only_file(self) -> Path:
        # Redis 7 has a folder of them, of which the last one grows.
        parts = sorted(
            (self._folder / "appendonlydir").glob("*.incr.aof"), key=lambda part: part.stat().st_mtime
        )
        return parts[-1] if parts else self._folder / "appendonly.aof"

    def _write_control(self, index: int, value: int) -> None:
        with self._control.open("r+b") as file:
            file.seek(8 * index)
            file.write(struct.pack("=q", value))

    def _read_control(self, index: int) -> int:
        with self._control.open("rb") as file:
            file.seek(8 * index)
            return int(struct.unpack("=q", file.read(8))[0])
