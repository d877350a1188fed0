"""The record of a run: its fixed properties, number of shards, state and limits."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from crawlproj.errors import BadArgument, RunMismatch, RunReplaced
from crawlproj.model.run import RunState
from crawlproj.observe.crashpoints import passed
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import Holder, read_holders
from crawlproj.runs.counters import RunCounters, read_counters
from crawlproj.runs.jobs import JobRecords

#: Version of a run's keys and values in Redis. A run of another version is refused.
KEYS_VERSION = 4

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
    """When a run stops although URLs are left; 0: no limit. Seconds count only while it is running."""

    pages: int = 0
    seconds: float = 0.0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.pages or self.seconds or self.bytes)


@dataclass(slots=True)
class RunMap:
    """How many shards a run should have, which are alive, and its state and limits."""

    shards: int
    state: RunState
    alive: dict[int, Holder]
    reason: str = ""
    limits: Limits = Limits()
    #: Seconds it has been running so far.
    ran_s: float = 0.0
    created_ms: int = 0
    #: How often work was added from outside, or began to be.
    additions: int = 0
    #: As `config.rules` writes them; '': no process has set them yet.
    rules: str = ""


class Run:
    """A run, by its record in Redis."""

    def __init__(
        self, client: RedisClient, name: str, partitions: int, created_ms: int = 0, server: str = ""
    ) -> None:
        self.client = client
        self.name = name
        self.partitions = partitions
        #: When it was created: another one for an earlier run of the same name.
        self.created_ms = created_ms
        #: The run id of the Redis it was created in: as long as that is the same, it can have lost nothing.
        self.server = server
        # A running total of promises returned, so that a repeated call changes nothing.
        self._instance = secrets.token_hex(6)
        self._taken_back = 0

    @classmethod
    async def open(
        cls,
        client: RedisClient,
        name: str,
        *,
        partitions: int,
        shards: int | None = None,
        strict: bool = True,
        creates: bool = True,
    ) -> Run:
        """Open the run. Raises RunMismatch; for other partitions only if *strict*.

        *creates*: a run that does not exist is created; else that is a RunMismatch, too.
        """
        keys.check_run_name(name)
        record = keys.run_record(name)
        fields: dict[str, str | int] = {
            "version": KEYS_VERSION,
            "partitions": partitions,
            "shards": shards or 1,
            "created_ms": await server_ms(client),
            "server": client.server,
            "state": RunState.CREATED.value,
        }
        stored = await _read_record(client, name)
        # Nothing is written for a run that exists: its parsers must be able to start on a full Redis.
        if not fields.keys() <= stored.keys():
            if not creates:
                raise _gone(name)
            # First, so that each run that is there is in the list.
            await client.command("SADD", keys.runs(), name)
            # In one transaction: no process may read half a record.
            await client.pipeline(
                [("HSETNX", record, field_name, value) for field_name, value in fields.items()],
                transaction=True,
            )
            stored = await _read_record(client, name)
        _check_version(name, int(stored["version"]))
        if int(stored["partitions"]) != partitions and strict:
            raise RunMismatch(
                f"Run {name!r} was created with CRAWL_PARTITIONS={stored['partitions']}, not {partitions}. "
                f"Set CRAWL_PARTITIONS={stored['partitions']}, or use another run name."
            )
        return cls(client, name, int(stored["partitions"]), int(stored["created_ms"]), stored["server"])

    def watch(self) -> None:
        """Notice when Redis is set back; for processes that keep what they read from it."""
        self.client.watch(keys.witness(self.name), *(keys.witness(self.name, k) for k in self.client.stripes))

    @staticmethod
    async def names(client: RedisClient) -> list[str]:
        return sorted(name.decode() for name in await client.command("SMEMBERS", keys.runs()))

    @classmethod
    async def find(cls, client: RedisClient, name: str, *, any_version: bool = False) -> Run:
        """Open an existing run. Raises BadArgument, naming those that exist.

        Raises RunMismatch for another version; *any_version* is for deleting it.
        """
        if (run := await cls.look_up(client, name, any_version=any_version)) is not None:
            return run
        known = await cls.names(client)
        raise BadArgument(f"There is no run {name!r} here; there are: {', '.join(known) or 'none'}.")

    @classmethod
    async def look_up(cls, client: RedisClient, name: str, *, any_version: bool = False) -> Run | None:
        """Open a run that may not exist; returns None then. Raises RunMismatch as `find`."""
        keys.check_run_name(name)
        stored = await _read_record(client, name)
        if "partitions" not in stored:
            return None
        if not any_version:
            _check_version(name, int(stored["version"]))
        return cls(client, name, int(stored["partitions"]), int(stored["created_ms"]))

    async def read_map(self) -> RunMap:
        """Read the record and which shards are alive. Raises RunMismatch if it is gone, or another run's."""
        stored = await _read_record(self.client, self.name)
        if "shards" not in stored:
            raise _gone(self.name)
        self.check_created(int(stored["created_ms"]))
        shards = int(stored["shards"])
        holders = await read_holders(self.client, [keys.shard(self.name, number) for number in range(shards)])
        alive = {number: holder for number, holder in enumerate(holders) if holder}
        ran_ms = int(stored.get("ran_ms", 0))
        if stored["state"] == RunState.RUNNING:
            now_ms = await server_ms(self.client)
            ran_ms += max(0, now_ms - int(stored.get("since_ms", now_ms)))
        return RunMap(
            shards,
            RunState(stored["state"]),
            alive,
            stored.get("reason", ""),
            _limits(stored),
            ran_ms / 1000,
            int(stored["created_ms"]),
            int(stored.get("additions", 0)),
            stored.get("rules", ""),
        )

    def check_created(self, created_ms: int) -> None:
        """Raise RunReplaced if this is not when the run was created that we know."""
        if self.created_ms not in (0, created_ms):
            raise RunReplaced(self.name)

    async def set_shards(self, shards: int) -> None:
        """Change the number of shards, and notify those alive."""
        if not 1 <= shards <= self.partitions:
            raise BadArgument(
                f"{shards} shards: choose 1 to {self.partitions}, the number of partitions of the run."
            )
        await self.update(shards=shards, asked=shards)

    async def set_limits(self, limits: Limits) -> None:
        """Change when the run stops, and notify its processes.

        If there was no limit of pages before, what is leased at this moment comes on top of the new one.
        """
        stored = await _read_record(self.client, self.name)
        if limits.pages and not _limits(stored).pages:
            # Without a limit nothing was promised: count what has been fetched and leased so far.
            counters = await self.read_counters()
            promised = counters.fetched + counters.leased
            await self.client.run("write_fields", [keys.promises(self.name)], ["promised", promised])
        await self.update(**{f"max_{name}": value for name, value in asdict(limits).items()})

    async def update(self, **fields: float | str) -> None:
        """Set *fields* of the record, and notify all processes."""
        words = [word for field in fields.items() for word in field]
        await self.client.run("write_fields", [keys.run_record(self.name)], words)
        await self.client.command("PUBLISH", keys.wake_channel(self.name), "map")

    async def change(self, state: RunState, reason: str = "") -> bool:
        """Set the state and notify all processes. Returns whether it changed.

        Raises BadArgument if *state* cannot be reached from the current one.
        """
        was = await self._change_from(_BEFORE[state], state, reason)
        if was not in _BEFORE[state]:
            raise BadArgument(f"Run {self.name!r} is {was or 'deleted'}, so it cannot become {state.value}.")
        return was != state.value

    async def end(
        self,
        state: RunState,
        reason: str = "",
        additions: int | None = None,
        generation: int | None = None,
    ) -> bool:
        """Set the state if the run is still running, and no work was added since *additions*.

        Returns whether it did. Raises SetBack if *generation* is given and over.
        """
        was = await self._change_from((RunState.RUNNING,), state, reason, additions, generation)
        if was != RunState.RUNNING:
            return False
        passed("run_ended")
        return True

    @asynccontextmanager
    async def adding(self) -> AsyncIterator[None]:
        """Add URLs or pages from outside the run's processes; then `reopen` it.

        It is counted before and after: a leader that has looked in between does not end the run, and one
        that ended it before is undone by `reopen`.
        """
        count = ("HINCRBY", keys.run_record(self.name), "additions", 1)
        await self.client.command(*count)
        try:
            yield
        finally:
            await self.client.command(*count)

    async def begin(self, *, is_first: bool) -> None:
        """Set the run running, unless it is paused. *is_first*: no other process is working on it."""
        others = tuple(state for state in RunState if state is not RunState.PAUSED)
        was = await self._change_from(others, RunState.RUNNING)
        if was == RunState.RUNNING and is_first:
            # Its processes were killed; the time since their last point of history does not count.
            points = await self.client.command("HKEYS", keys.history(self.name))
            before_ms = int(await self.client.command("HGET", keys.run_record(self.name), "ran_ms") or 0)
            ran_ms = max([before_ms, *(1000 * int(ran_s) for ran_s in points)])
            fields = ("since_ms", await server_ms(self.client), "ran_ms", ran_ms)
            await self.client.run("write_fields", [keys.run_record(self.name)], fields)

    async def reopen(self) -> None:
        """Set a run that has ended back to created, since there are URLs to fetch again."""
        await self._change_from(tuple(state for state in RunState if state.is_end), RunState.CREATED)

    async def _change_from(
        self,
        before: tuple[RunState, ...],
        state: RunState,
        reason: str = "",
        additions: int | None = None,
        generation: int | None = None,
    ) -> str:
        """Set *state* if the current one is in *before*. Returns the current one, '' for a deleted run.

        Nothing is changed, and 'added' returned, if work was added since *additions*.
        """
        known = "" if additions is None else additions
        was = await self.client.run(
            "change_state",
            [keys.run_record(self.name)],
            [state.value, reason, 0, keys.wake_channel(self.name), known, *before],
            generation=generation,
        )
        return str(was.decode())

    async def state(self) -> str:
        value = await self.client.command("HGET", keys.run_record(self.name), "state")
        return value.decode() if value else ""

    async def is_over(self) -> bool:
        """Whether the run has ended or was deleted."""
        state = await self.state()
        return not state or RunState(state).is_end

    async def has_ended(self) -> bool:
        """Whether parsers will get no more pages: the run has ended or was deleted, and no shard is alive."""
        state = await self.state()
        if not state:
            return True
        if not RunState(state).is_end:
            return False
        # Including numbers beyond the current number of shards: a retired shard may still push pages.
        names = [keys.shard(self.name, number) for number in range(self.partitions)]
        return not any(await read_holders(self.client, names))

    async def promise_pages(self, wanted: int, most: int) -> int:
        """Reserve up to *wanted* of the pages the run may still fetch, *most* in all; returns how many."""
        return int(await self.client.run("promise_pages", [keys.promises(self.name)], [wanted, most]))

    async def return_promises(self, count: int, generation: int | None = None) -> None:
        """Return promised pages that were not fetched. Raises SetBack if *generation* is given and over."""
        self._taken_back += count
        await self.client.run(
            "return_promises",
            [keys.promises(self.name)],
            [self._instance, self._taken_back],
            generation=generation,
        )

    def forget_returned(self) -> None:
        """Start a new total of promises returned: Redis may have lost part of the old one."""
        self._instance, self._taken_back = secrets.token_hex(6), 0

    async def reclaim_promises(self, counters: RunCounters) -> bool:
        """Free the pages that were promised to killed processes; *counters* must show that nothing is leased.

        Returns whether it was done: not if pages were promised or returned since *counters* were read.
        """
        seen = [counters.promised, counters.granted, counters.fetched]
        return bool(await self.client.run("reclaim_promises", [keys.promises(self.name)], seen))

    async def ask_to_commit(self) -> None:
        """Ask parsers to commit their open segments, the last thing a run waits for."""
        asked_ms = await server_ms(self.client)
        await self.client.run("write_fields", [keys.run_record(self.name)], ["commits_asked", asked_ms])

    async def commits_asked(self) -> int:
        """Return when parsers were last asked to commit (ms); 0: never."""
        return int(await self.client.command("HGET", keys.run_record(self.name), "commits_asked") or 0)

    async def read_counters(self) -> RunCounters:
        """Read all counters, in two round trips; not one atomic snapshot."""
        return await read_counters(self.client, self.name, self.partitions)

    async def delete(self) -> None:
        """Delete every key of the run, a batch at a time.

        The records of its segments go last: without them, as long as the run is there, they look lost.
        """
        # It would be written again.
        self.client.stop_watching()
        segments = {keys.segments(self.name, stripe).encode() for stripe in self.client.stripes}
        for pattern in keys.patterns(self.name):
            async for found in self.client.scan(pattern):
                for key in found:
                    if key not in segments:
                        await self.client.command("UNLINK", key)
        for key in segments:
            await self.client.command("UNLINK", key)
        await self.client.run("announce_run", [keys.fetching()], [self.name, "", ""])
        await JobRecords(self.client).delete(self.name)


async def _read_record(client: RedisClient, name: str) -> dict[str, str]:
    return dict(pairs(await client.command("HGETALL", keys.run_record(name))))


def _gone(name: str) -> RunMismatch:
    return RunMismatch(
        f"Run {name!r} is gone from Redis. If Redis was restarted, it does not keep its data "
        "(docs/operations.md). Else it was deleted: SCHEDULER_PERSIST=False does so at "
        "the end, SCHEDULER_FLUSH_ON_START=True at the start: unset them, or use another run name."
    )


def _check_version(name: str, version: int) -> None:
    used = f"(keyspace version {version}; this release uses {KEYS_VERSION})"
    if version < KEYS_VERSION:
        raise RunMismatch(
            f"Run {name!r} was created by an earlier release {used}. Finish it with that release, or "
            f"delete it: scrapy runs --delete {name}; stored pages are kept."
        )
    if version > KEYS_VERSION:
        raise RunMismatch(
            f"Run {name!r} was created by a later release {used}. Use that release, or another run name."
        )


def _limits(stored: dict[str, str]) -> Limits:
    return Limits(
        int(stored.get("max_pages", 0)), float(stored.get("max_seconds", 0)), int(stored.get("max_bytes", 0))
    )
