"""Runs: their records, their figures, and the leader who decides that one is over."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door, pairs
from crawlproj.redisio.names import Holder, ProcessName, drop_name, hold_name, read_holders

logger = logging.getLogger(__name__)

#: Version of the keys of a run. A run of another version is refused, not guessed at.
KEYS_VERSION = 2


@dataclass(slots=True)
class RunMap:
    """Which shards a run should have, and which are alive."""

    shards: int
    state: str
    alive: dict[int, Holder]


@dataclass(slots=True)
class Figures:
    """Figures of a run, summed over its partitions. ``counts`` has every counter by name."""

    counts: Counter[str]
    owned: int
    queue_pages: int
    taken: dict[str, int]
    stored: int

    @property
    def waiting(self) -> int:
        return self.counts["waiting"]

    @property
    def leased(self) -> int:
        """Every lease has a number, and ends in one of these ways."""
        ended = ("done", "failed", "skipped", "trapped", "retry", "returned", "reclaimed")
        return self.counts["number"] - sum(self.counts[name] for name in ended)

    @property
    def admitted(self) -> int:
        return self.counts["admitted"]

    @property
    def outstanding(self) -> int:
        """URLs and pages that still want something done."""
        return self.waiting + self.leased + self.queue_pages + sum(self.taken.values())

    def steps(self) -> tuple[int, ...]:
        """Figures that only ever grow: equal twice means nothing happened in between."""
        return (
            self.admitted,
            self.counts["number"],
            self.counts["done"] + self.counts["failed"] + self.counts["skipped"] + self.counts["trapped"],
            self.counts["retry"] + self.counts["returned"] + self.counts["reclaimed"],
            self.counts["pages"],
            self.stored,
        )


class Run:
    """A run as its record in Redis tells it."""

    def __init__(self, door: Door, name: str, partitions: int) -> None:
        self.door = door
        self.name = name
        self.partitions = partitions

    @classmethod
    async def open(cls, door: Door, name: str, *, partitions: int, shards: int | None = None) -> Run:
        """Open the run, creating it if there is none. Raises RunMismatch when it was created otherwise."""
        keys.check_run_name(name)
        record = keys.run_record(name)
        fields: dict[str, str | int] = {
            "version": KEYS_VERSION,
            "partitions": partitions,
            "shards": shards or 1,
            "created_ms": _now_ms(),
            "state": "running",
        }
        # At once: nobody may find half a record.
        await door.pipeline(
            [
                *(("HSETNX", record, field_name, value) for field_name, value in fields.items()),
                ("SADD", keys.runs(), name),
            ],
            transaction=True,
        )
        stored = await _read_record(door, name)
        if int(stored["version"]) != KEYS_VERSION:
            raise RunMismatch(
                f"Run {name!r} has keys of version {stored['version']}, this program writes version "
                f"{KEYS_VERSION}. Use the program that made it, or another run name."
            )
        if int(stored["partitions"]) != partitions:
            raise RunMismatch(
                f"Run {name!r} was created with CRAWL_PARTITIONS={stored['partitions']}, not {partitions}. "
                f"Set CRAWL_PARTITIONS={stored['partitions']}, or use another run name."
            )
        return cls(door, name, partitions)

    @classmethod
    async def find(cls, door: Door, name: str) -> Run:
        """Open a run that must exist. Raises BadArgument, naming those there are."""
        keys.check_run_name(name)
        stored = await _read_record(door, name)
        if "partitions" not in stored:
            known = sorted(run.decode() for run in await door.command("SMEMBERS", keys.runs()))
            raise BadArgument(f"There is no run {name!r} here; there are: {', '.join(known) or 'none'}.")
        return await cls.open(door, name, partitions=int(stored["partitions"]))

    async def read_map(self) -> RunMap:
        """Read which shards there should be and are. Raises RunMismatch when the run was deleted."""
        stored = await _read_record(self.door, self.name)
        if "shards" not in stored:
            raise RunMismatch(
                f"Run {self.name!r} was deleted while in use. SCHEDULER_PERSIST=False does that at the "
                "end, SCHEDULER_FLUSH_ON_START=True at the start: leave them out, or use another run name."
            )
        shards = int(stored["shards"])
        holders = await read_holders(self.door, [keys.shard(self.name, number) for number in range(shards)])
        alive = {number: holder for number, holder in enumerate(holders) if holder}
        return RunMap(shards, stored["state"], alive)

    async def set_shards(self, shards: int) -> None:
        """Change the number of shards; those alive learn of it at once."""
        if not 1 <= shards <= self.partitions:
            raise BadArgument(
                f"{shards} shards: choose 1 to {self.partitions}, the number of partitions of the run."
            )
        await self.door.command("HSET", keys.run_record(self.name), "shards", shards)
        await self.door.command("PUBLISH", keys.wake_channel(self.name), "map")

    async def set_state(self, state: str) -> None:
        await self.door.command("HSET", keys.run_record(self.name), "state", state, f"{state}_ms", _now_ms())
        await self.door.command("PUBLISH", keys.wake_channel(self.name), "map")

    async def state(self) -> str:
        value = await self.door.command("HGET", keys.run_record(self.name), "state")
        return value.decode() if value else ""

    async def ask_to_commit(self) -> None:
        """Have parsers commit their open segments: nothing else is left of the run."""
        await self.door.command("HINCRBY", keys.run_record(self.name), "commits_asked", 1)

    async def commits_asked(self) -> int:
        """Return a number that grows when parsers are asked to commit."""
        return int(await self.door.command("HGET", keys.run_record(self.name), "commits_asked") or 0)

    async def figures(self) -> Figures:
        """Read all figures, in one round trip but not in one instant."""
        everywhere = range(self.partitions)
        parsers = [name.decode() for name in await self.door.command("HKEYS", keys.parsers(self.name))]
        answers = await self.door.pipeline(
            [
                *(("HGETALL", keys.meta(self.name, p)) for p in everywhere),
                *(("LLEN", keys.pages_taken(self.name, parser)) for parser in parsers),
                ("LLEN", keys.pages(self.name)),
                ("HGET", keys.page_counters(self.name), "stored"),
            ]
        )
        counts: Counter[str] = Counter()
        owned = 0
        now_ms = _now_ms()
        for meta in answers[: self.partitions]:
            for name, value in pairs(meta):
                if name == "until":
                    owned += int(value) > now_ms
                elif name not in {"owner", "epoch", "sleep"}:
                    counts[name] += int(value)
        taken = dict(zip(parsers, answers[self.partitions : -2], strict=True))
        return Figures(counts, owned, int(answers[-2]), taken, int(answers[-1] or 0))

    async def delete(self) -> None:
        """Delete every key of the run, a batch at a time."""
        for pattern in (f"{keys.run_record(self.name).rpartition(':')[0]}:*", _partition_pattern(self.name)):
            cursor: bytes | int = b"0"
            while True:
                cursor, found = await self.door.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                if found:
                    await self.door.command("UNLINK", *found)
                if cursor in (b"0", 0):
                    break
        await self.door.command("SREM", keys.runs(), self.name)


@dataclass(slots=True)
class Leader:
    """Holds the leader's name when nobody else does, and then tells when the run is over.

    The run is over when nothing is waiting, lent, queued or being parsed, nor any shard still starting.
    The figures are read one after the other, so they are read twice: what only grows did not grow, so at
    the moment between the two readings all of it was zero at once.
    """

    run: Run
    process: ProcessName
    ttl_ms: int
    idle_before_close_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _quiet_since_s: float | None = None
    _quiet_steps: tuple[int, ...] = ()
    _warned: bool = field(default=False)

    async def lead(self) -> bool:
        """Take or keep the leadership; returns whether it is ours."""
        return await hold_name(self.run.door, keys.leader(self.run.name), self.process, self.ttl_ms) is None

    async def is_over(self) -> bool:
        """Whether the run has ended. Call it again soon: it takes two readings to be sure."""
        # The map first: a shard that says it has started has admitted its seeds, so the figures show them.
        run_map = await self.run.read_map()
        figures = await self.run.figures()
        if figures.outstanding:
            self._quiet_since_s = None
            if figures.outstanding == sum(figures.taken.values()):
                await self.run.ask_to_commit()
            if not figures.waiting and not figures.leased and not figures.taken and not self._warned:
                self._warned = True
                logger.warning(
                    "%d pages wait and no parser runs; start one: scrapy parser --run %s",
                    figures.queue_pages,
                    self.run.name,
                )
            return False
        now_s = self.clock()
        if self._quiet_since_s is None or self._quiet_steps != figures.steps():
            self._quiet_since_s, self._quiet_steps = now_s, figures.steps()
            return False
        if any(holder.starting for holder in run_map.alive.values()):
            return False
        return now_s - self._quiet_since_s >= self.idle_before_close_s

    @property
    def never_seeded(self) -> bool:
        return self._quiet_since_s is not None and self._quiet_steps[0] == 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was outstanding when last looked."""
        return self._quiet_since_s is not None

    async def step_down(self) -> None:
        await drop_name(self.run.door, keys.leader(self.run.name), self.process.instance)


async def status_of(run: Run) -> dict[str, Any]:
    """Return what `scrapy status` shows; its JSON form is an interface, so names only ever get added."""
    figures, run_map = await run.figures(), await run.read_map()
    counts = figures.counts
    reasons = {name[7:]: count for name, count in sorted(counts.items()) if name.startswith("reason:")}
    aside = await _set_aside(run)
    return {
        "run": run.name,
        "state": run_map.state,
        "waiting": figures.waiting,
        "leased": figures.leased,
        "fetched": counts["done"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "trapped": counts["trapped"],
        "parked": counts["parked"],
        "retried": counts["retry"],
        "returned": counts["returned"],
        "reclaimed": counts["reclaimed"],
        "admitted": figures.admitted,
        "by_reason": reasons,
        "filtered": aside.filtered,
        "parked_domains": aside.parked_domains,
        "trapped_kept": aside.trapped_urls,
        "pages_queued": figures.queue_pages,
        "pages_being_parsed": sum(figures.taken.values()),
        "pages_stored": figures.stored,
        "partitions": run.partitions,
        "partitions_owned": figures.owned,
        "shards": run_map.shards,
        "shards_alive": {
            str(number): f"{holder.process.host}:{holder.process.pid}"
            for number, holder in run_map.alive.items()
        },
        "parsers": figures.taken,
    }


@dataclass(frozen=True, slots=True)
class _Aside:
    """What is not crawled for now, or never was admitted."""

    parked_domains: int
    trapped_urls: int
    filtered: dict[str, int]


async def _set_aside(run: Run) -> _Aside:
    everywhere = range(run.partitions)
    counters, *sizes = await run.door.pipeline(
        [
            ("HGETALL", keys.page_counters(run.name)),
            *(("ZCARD", keys.parked(run.name, p)) for p in everywhere),
            *(("ZCARD", keys.trapped(run.name, p)) for p in everywhere),
        ]
    )
    filtered = {
        name.removeprefix("filtered:"): int(count)
        for name, count in sorted(pairs(counters))
        if name.startswith("filtered:")
    }
    return _Aside(sum(sizes[: run.partitions]), sum(sizes[run.partitions :]), filtered)


async def _read_record(door: Door, name: str) -> dict[str, str]:
    return dict(pairs(await door.command("HGETALL", keys.run_record(name))))


def _partition_pattern(run: str) -> str:
    # With the colon and the brace, which no run's name has: 'exp01' is not taken for its partition 0.
    return keys.meta(run, 0).replace(":p0}:meta", ":p*}:*")


def _now_ms() -> int:
    return int(time.time() * 1000)
