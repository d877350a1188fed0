"""The record of a run: what is fixed, which shards it has, its state and its limits."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum

from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door, pairs
from crawlproj.redisio.names import Holder, read_holders
from crawlproj.runs.figures import Figures

#: Version of the keys of a run. A run of another version is refused, not guessed at.
KEYS_VERSION = 2


class RunState(StrEnum):
    """Where a run stands. It can be resumed from each of the last three."""

    CREATED = "created"
    RUNNING = "running"
    #: Nothing is fetched; what was fetched is stored.
    PAUSED = "paused"
    #: Nothing was left to do.
    FINISHED = "finished"
    #: A limit was reached, or somebody said so; the rest waits.
    STOPPED = "stopped"
    #: Its processes could not go on.
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        return self in (RunState.FINISHED, RunState.STOPPED, RunState.FAILED)


#: From which states each can be reached.
_BEFORE = {
    RunState.CREATED: tuple(RunState),
    RunState.RUNNING: tuple(RunState),
    RunState.PAUSED: (RunState.CREATED, RunState.RUNNING, RunState.PAUSED),
    RunState.FINISHED: (RunState.RUNNING, RunState.FINISHED),
    RunState.STOPPED: (RunState.CREATED, RunState.RUNNING, RunState.PAUSED, RunState.STOPPED),
    RunState.FAILED: (RunState.CREATED, RunState.RUNNING, RunState.PAUSED, RunState.FAILED),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run stops although there is more to do; 0: no limit. Seconds count while it runs."""

    pages: int = 0
    seconds: float = 0.0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.pages or self.seconds or self.bytes)


@dataclass(slots=True)
class RunMap:
    """Which shards a run should have, and which are alive; its state and limits."""

    shards: int
    state: str
    alive: dict[int, Holder]
    reason: str = ""
    limits: Limits = Limits()
    #: Seconds it has been running, as of this reading.
    ran_s: float = 0.0
    created_ms: int = 0


class Run:
    """A run as its record in Redis tells it."""

    def __init__(self, door: Door, name: str, partitions: int) -> None:
        self.door = door
        self.name = name
        self.partitions = partitions
        # How many promises this object has given back in all: to say that twice is harmless.
        self._instance = secrets.token_hex(6)
        self._taken_back = 0

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
            "state": RunState.CREATED.value,
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

    @staticmethod
    async def names(door: Door) -> list[str]:
        return sorted(name.decode() for name in await door.command("SMEMBERS", keys.runs()))

    @classmethod
    async def find(cls, door: Door, name: str) -> Run:
        """Open a run that must exist. Raises BadArgument, naming those there are."""
        keys.check_run_name(name)
        stored = await _read_record(door, name)
        if "partitions" not in stored:
            known = await cls.names(door)
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
        ran_ms = int(stored.get("ran_ms", 0))
        if stored["state"] == RunState.RUNNING:
            ran_ms += max(0, _now_ms() - int(stored.get("since_ms", _now_ms())))
        return RunMap(
            shards,
            stored["state"],
            alive,
            stored.get("reason", ""),
            _limits(stored),
            ran_ms / 1000,
            int(stored["created_ms"]),
        )

    async def set_shards(self, shards: int) -> None:
        """Change the number of shards; those alive learn of it at once."""
        if not 1 <= shards <= self.partitions:
            raise BadArgument(
                f"{shards} shards: choose 1 to {self.partitions}, the number of partitions of the run."
            )
        await self.door.command("HSET", keys.run_record(self.name), "shards", shards)
        await self.door.command("PUBLISH", keys.wake_channel(self.name), "map")

    async def set_limits(self, limits: Limits) -> None:
        """Change when the run stops; processes at work learn of it at once.

        Where they had no limit of pages before, what they lease in this moment comes on top of the new one.
        """
        stored = await _read_record(self.door, self.name)
        if limits.pages and not _limits(stored).pages:
            # Without a limit nothing was promised: what is fetched and lent by now counts.
            figures = await self.figures()
            await self.door.command(
                "HSET", keys.page_counters(self.name), "promised", figures.fetched + figures.leased
            )
        fields = [(f"max_{name}", value) for name, value in asdict(limits).items()]
        await self.door.command(
            "HSET", keys.run_record(self.name), *(part for pair in fields for part in pair)
        )
        await self.door.command("PUBLISH", keys.wake_channel(self.name), "map")

    async def change(self, state: RunState, reason: str = "") -> bool:
        """Bring the run into *state*, and all who wait for it with it. Returns whether it was in another.

        Raises BadArgument when there is no way from where it is.
        """
        was = await self._change_from(_BEFORE[state], state, reason)
        if was not in _BEFORE[state]:
            raise BadArgument(f"Run {self.name!r} is {was or 'deleted'}, so it cannot become {state.value}.")
        return was != state.value

    async def end(self, state: RunState, reason: str = "") -> bool:
        """Bring the run into *state* if it is still running. Returns whether it was."""
        return await self._change_from((RunState.RUNNING,), state, reason) == RunState.RUNNING

    async def begin(self, *, is_first: bool) -> None:
        """Have the run go on, unless it is paused. *is_first* says that no other process is at work."""
        others = tuple(state for state in RunState if state is not RunState.PAUSED)
        was = await self._change_from(others, RunState.RUNNING)
        if was == RunState.RUNNING and is_first:
            # Its processes were killed: the time since then does not count.
            await self.door.command("HSET", keys.run_record(self.name), "since_ms", _now_ms())

    async def reopen(self) -> None:
        """Have a run that had ended wait for processes: there is something to do again."""
        await self._change_from(tuple(state for state in RunState if state.is_end), RunState.CREATED)

    async def _change_from(self, before: tuple[RunState, ...], state: RunState, reason: str = "") -> str:
        """Bring the run into *state* if it is in one of *before*. Returns where it was, '' if it is gone."""
        was = await self.door.run(
            "change_state",
            [keys.run_record(self.name)],
            [state.value, reason, _now_ms(), keys.wake_channel(self.name), *before],
        )
        return str(was.decode())

    async def state(self) -> str:
        value = await self.door.command("HGET", keys.run_record(self.name), "state")
        return value.decode() if value else ""

    async def has_ended(self) -> bool:
        """Whether nothing more will come for parsers: the run has ended, or is gone, and no shard is left."""
        state = await self.state()
        if not state:
            return True
        if not RunState(state).is_end:
            return False
        # Also those beyond the number of shards there should be: one that is given up may still bring pages.
        names = [keys.shard(self.name, number) for number in range(self.partitions)]
        return not any(await read_holders(self.door, names))

    async def promise_pages(self, wanted: int, most: int) -> int:
        """Take up to *wanted* of the pages the run may still fetch, *most* in all; returns how many."""
        return int(await self.door.run("promise_pages", [keys.page_counters(self.name)], [wanted, most]))

    async def take_back_promises(self, count: int) -> None:
        """Give back promised pages that were not fetched."""
        self._taken_back += count
        await self.door.run(
            "return_promises", [keys.page_counters(self.name)], [self._instance, self._taken_back]
        )

    async def mend_promises(self, figures: Figures) -> bool:
        """Set right what processes that were killed took with them; *figures* show that nothing is lent.

        Returns whether it was done: not if something was promised or given back since *figures* were read.
        """
        seen = [figures.promised, figures.granted, figures.fetched]
        return bool(await self.door.run("mend_promises", [keys.page_counters(self.name)], seen))

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
                # Before those a parser has taken: a page that is taken meanwhile counts twice, not never.
                ("LLEN", keys.pages(self.name)),
                *(("LLEN", keys.pages_taken(self.name, parser)) for parser in parsers),
                ("HMGET", keys.page_counters(self.name), "stored", "cut", "promised", "granted"),
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
        queued, *lengths = answers[self.partitions : -1]
        taken = dict(zip(parsers, lengths, strict=True))
        stored, cut, promised, granted = (int(value or 0) for value in answers[-1])
        return Figures(counts, owned, queued, taken, stored, promised, granted, cut)

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


async def _read_record(door: Door, name: str) -> dict[str, str]:
    return dict(pairs(await door.command("HGETALL", keys.run_record(name))))


def _limits(stored: dict[str, str]) -> Limits:
    return Limits(
        int(stored.get("max_pages", 0)), float(stored.get("max_seconds", 0)), int(stored.get("max_bytes", 0))
    )


def _partition_pattern(run: str) -> str:
    # With the colon and the brace, which no run's name has: 'exp01' is not taken for its partition 0.
    return keys.meta(run, 0).replace(":p0}:meta", ":p*}:*")


def _now_ms() -> int:
    return int(time.time() * 1000)
