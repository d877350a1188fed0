"""Hurts a crawl as its schedule says, and mends it again."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from redis.exceptions import RedisError

from crawlproj.redisio import keys
from tests.chaos import disks
from tests.chaos.crawl import LEASE_S, RUN, Crawl
from tests.chaos.proxy import Proxy
from tests.chaos.redis import RedisUnderTest
from tests.chaos.schedule import Fault, Kind
from tests.processes import PARSER, SHARD

_POLL_S = 0.1
#: Faults come even when nothing is fetched any more: the crawl may be waiting for the next one to wake it.
_LONGEST_WAIT_S = 20.0
_SHORTEST_GAP_S = 1.0
_LATEST_KILL_S = 1.8
_SLOW_S = 0.05
_LEAVE_S = 30.0
#: Another machine: its own boot id (a file), and its own hostname.
_ELSEWHERE = """mount --bind "$1" /proc/sys/kernel/random/boot_id; hostname "$2"; shift 2; exec "$@" """


class Tormentor:
    """*elapsed_s* is the time since the run began; *log* takes a line about each fault."""

    def __init__(
        self,
        crawl: Crawl,
        redis: RedisUnderTest,
        proxy: Proxy,
        redis_folder: Path,
        log: Callable[[str], None],
    ) -> None:
        self._crawl = crawl
        self._redis = redis
        self._proxy = proxy
        self._folders = {"data": crawl.paths.data, "redis": redis_folder}
        self._log = log
        self.done: Counter[Kind] = Counter()
        #: The writes of the probe that each set-back lost.
        self.set_back: list[int] = []
        self.errors: list[str] = []
        # Faults of one thing wait for each other; those of different things overlap.
        self._locks = {name: asyncio.Lock() for name in ("redis", "supervisor", "commands")}

    async def torment(self, faults: Sequence[Fault]) -> None:
        """Carry out *faults* as the crawl proceeds; returns when the last one is over."""
        running: list[asyncio.Task[None]] = []
        for fault in faults:
            due_s = time.monotonic() + _SHORTEST_GAP_S
            latest_s = time.monotonic() + _LONGEST_WAIT_S
            while time.monotonic() < due_s or self._crawl.requests < fault.at_pages:
                if time.monotonic() > latest_s and running:
                    break
                await asyncio.sleep(_POLL_S)
            running.append(asyncio.create_task(self._strike(fault)))
        await asyncio.gather(*running)

    async def _strike(self, fault: Fault) -> None:
        method: Callable[[Fault], Awaitable[None]] = getattr(self, f"_{fault.kind.name.lower()}")
        try:
            await method(fault)
            self.done[fault.kind] += 1
        except (OSError, RuntimeError, RedisError) as exc:
            # The harness itself failed, or had no victim: said at the end, so that nobody counts on it.
            self.errors.append(f"{fault}: {exc}")
            self._log(f"{fault} failed: {exc}")

    # -- processes --

    async def _kill(self, fault: Fault) -> None:
        if fault.how == "redis":
            async with self._locks["redis"]:
                self._log(str(fault))
                self._redis.kill()
                await asyncio.sleep(fault.lasts_s)
                await self._redis.start()
        elif fault.how == "supervisor":
            async with self._locks["supervisor"]:
                self._log(str(fault))
                self._crawl.kill_supervisor()
                await asyncio.sleep(fault.lasts_s)
                self._crawl.start()
                self._crawl.keep_dead = False
        else:
            pid = await self._victim(fault)
            self._log(f"{fault}: process {pid}")
            os.kill(pid, signal.SIGKILL)

    async def _stop(self, fault: Fault) -> None:
        if fault.how == "redis":
            async with self._locks["redis"]:
                self._log(str(fault))
                self._redis.send(signal.SIGSTOP)
                await asyncio.sleep(fault.lasts_s)
                self._redis.send(signal.SIGCONT)
        elif fault.how == "supervisor":
            async with self._locks["supervisor"]:
                await self._freeze(fault, await self._victim(fault))
        else:
            await self._freeze(fault, await self._victim(fault))

    async def _freeze(self, fault: Fault, pid: int) -> None:
        self._log(f"{fault}: process {pid}")
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(fault.lasts_s)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    async def _victim(self, fault: Fault) -> int:
        """Return the process that *fault* strikes; waits while there is none."""
        for _ in range(200):
            if fault.how == "supervisor":
                found = [pid for pid in [self._crawl.supervisor] if pid is not None]
            else:
                found = self._crawl.processes(SHARD if fault.how == "shard" else PARSER)
            if found:
                return found[fault.pick % len(found)]
            await asyncio.sleep(_POLL_S)
        raise RuntimeError(f"there is no {fault.how}")

    # -- Redis --

    async def _set_back(self, fault: Fault) -> None:
        async with self._locks["redis"]:
            if fault.how == "slow fsync":
                await self._redis.kill_while_syncing(min(fault.lasts_s, _LATEST_KILL_S))
                self._log(str(fault))
            else:
                self._redis.kill()
                age_s = self._redis.restore_older(-fault.step_s)
                self._log(f"{fault}: to {age_s:.1f} s ago")
            await self._redis.start()
            lost = await self._redis.lost_writes()
            self.set_back.append(lost)
            self._log(f"set back by {lost} writes of the probe")
        # The command of a person that was lost is given again.
        async with self._locks["commands"]:
            while await self._state() == "paused":
                await self._crawl.command("resume")

    async def _network(self, fault: Fault) -> None:
        async with self._locks["redis"]:
            self._log(str(fault))
            if fault.how == "cut":
                self._proxy.cut()
            elif fault.how == "lost answers":
                self._proxy.drop_answers()
            elif fault.how == "stall":
                self._proxy.stall()
            else:
                self._proxy.slow(_SLOW_S)
            await asyncio.sleep(fault.lasts_s)
            self._proxy.mend()

    async def _memory(self, fault: Fault) -> None:
        async with self._locks["redis"]:
            self._log(str(fault))
            await self._redis.fill()
            await asyncio.sleep(fault.lasts_s)
            await self._redis.unfill()

    async def _disk(self, fault: Fault) -> None:
        folder = self._folders[fault.how]
        async with self._locks["redis"]:
            self._log(str(fault))
            disks.fill(folder)
            await asyncio.sleep(fault.lasts_s)
            disks.unfill(folder)

    async def _clock(self, fault: Fault) -> None:
        if fault.how == "redis":
            async with self._locks["redis"]:
                self._log(str(fault))
                self._redis.step_clock(fault.step_s)
                await asyncio.sleep(fault.lasts_s)
                self._redis.step_clock(0)
            return
        pid = await self._victim(fault)
        self._log(f"{fault}: process {pid}")
        self._crawl.step_clock(pid, fault.step_s)
        await asyncio.sleep(fault.lasts_s)
        self._crawl.step_clock(pid, 0)

    async def _state(self) -> str:
        with suppress(RedisError, OSError):
            return await self._redis.field(keys.run_record(RUN), "state")
        return ""

    # -- what operators do --

    async def _resize(self, fault: Fault) -> None:
        async with self._locks["commands"]:
            self._log(str(fault))
            await self._crawl.command("shards", str(fault.shards))

    async def _pause(self, fault: Fault) -> None:
        async with self._locks["commands"]:
            self._log(str(fault))
            await self._crawl.command("pause")
            await asyncio.sleep(fault.lasts_s)
            while await self._state() == "paused":
                await self._crawl.command("resume")

    async def _machine(self, fault: Fault) -> None:
        """A shard and a parser join from another machine, and leave or die."""
        async with self._locks["commands"]:
            boot = self._crawl.folder / "boot_id"
            boot.write_text(f"{uuid.UUID(int=fault.pick)}\n")
            name = socket.gethostname() if fault.how == "same hostname" else "elsewhere"
            self._log(str(fault))
            self._crawl.joined_until_s = math.inf
            joined = self._crawl.scrapy(
                *("run", "--join", "--run", RUN, "--shards", "1", "--parsers", "1"),
                f"--set=LOG_FILE={self._crawl.folder / 'elsewhere' / 'supervisor.log'}",
                log="elsewhere",
                prefix=("unshare", "-u", "-m", "sh", "-c", _ELSEWHERE, "sh", str(boot), name),
            )
            await asyncio.sleep(fault.lasts_s)
            if fault.pick % 3 == 0:
                joined.kill()
            elif joined.poll() is None:
                joined.send_signal(signal.SIGINT)
            latest_s = time.monotonic() + _LEAVE_S
            while joined.poll() is None and time.monotonic() < latest_s:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
            if joined.poll() is None:
                self.errors.append(f"{fault}: the joined supervisor did not leave in {_LEAVE_S:g} s")
                joined.kill()
            joined.wait()
            self._crawl.joined_until_s = time.monotonic() + LEASE_S
