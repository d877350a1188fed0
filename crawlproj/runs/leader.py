"""The leader of a run: the one process that ends it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crawlproj.errors import NoSeeds, SetBack
from crawlproj.model.run import RunState
from crawlproj.observe.crashpoints import passed
from crawlproj.redisio import keys
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs.counters import RunCounters
from crawlproj.runs.history import History
from crawlproj.runs.processes import live_processes
from crawlproj.runs.record import Limits, Run, RunMap

logger = logging.getLogger(__name__)

#: A parser on another machine silent for this long counts as dead: no page takes longer.
_SILENT_S = 120.0
#: And how long there may be none before that is said: one may be starting.
_WITHOUT_PARSER_S = 10.0
#: How long a run without seeds waits for one.
SEED_GRACE_S = 10.0


@dataclass(slots=True)
class Leader:
    """Holds the leader's name if no other process does, and then ends the run when it is over.

    The run is over when nothing is waiting, leased, queued, being parsed or spilled, and no shard is still
    starting; or when a limit is reached. The counters cannot be read all at once, so they are read twice: if
    those that only grow did not grow, then between the two readings all the others were zero at once.
    """

    run: Run
    process: ProcessName
    ttl_ms: int
    idle_before_close_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _quiet_since_s: float | None = None
    _quiet_steps: tuple[int, ...] = ()
    _lost_at: tuple[int, ...] | None = None
    _warned: bool = False
    #: Since when only parsers are needed and none is alive.
    _unparsed_since_s: float | None = None
    #: Whether only parsers were left to wait for at the last step.
    awaits_parsers: bool = False
    _history: History = field(init=False)

    def __post_init__(self) -> None:
        self._history = History(self.run)

    async def lead(self) -> bool:
        """Take or keep the leadership; returns whether we have it."""
        key = keys.leader(self.run.name)
        if await hold_name(self.run.client, key, self.process, self.ttl_ms) is not None:
            return False
        passed("lead_taken")
        return True

    async def step(self) -> bool:
        """End the run if it is over; returns whether it did.

        Call it again soon: it takes two readings to be sure that nothing is left.
        """
        generation = self.run.client.generation
        # The map first: a shard that has started has admitted its seeds, so the counters include them, and
        # work added after it is noticed at the end.
        run_map = await self.run.read_map()
        if run_map.state == RunState.CREATED:
            # Reopened before we noticed its end: it continues as long as we are here.
            await self.run.begin(is_first=False)
        if run_map.state != RunState.RUNNING:
            self._quiet_since_s = None
            return False
        counters = await self.run.read_counters()
        passed("counters_read")
        await self._history.note(run_map.ran_s, counters)
        reached = limit_reached(run_map.limits, counters, run_map.ran_s)
        if reached:
            return await self._end(RunState.STOPPED, reached, None, generation)
        await self._reclaim_promises(run_map.limits, counters)
        if not await self._is_over(run_map, counters) or self.never_seeded:
            return False
        # The reason shows that sites are missing: perhaps all of them, if our network was down.
        reason = "parked" if counters.counts["parked"] else ""
        return await self._end(RunState.FINISHED, reason, run_map.additions, generation)

    async def _end(self, state: RunState, reason: str, additions: int | None, generation: int) -> bool:
        try:
            return await self.run.end(state, reason, additions, generation)
        except SetBack:
            # It was over in what Redis has lost.
            self._quiet_since_s = None
            return False

    async def _reclaim_promises(self, limits: Limits, counters: RunCounters) -> None:
        """Take back the pages promised to processes that died.

        Only when no progress is possible without them: until then a shard may be about to lease.
        """
        lost = counters.fetched < limits.pages <= counters.promised and not counters.leased
        steps = (*counters.steps(), counters.granted)
        if lost and self._lost_at == steps:
            await self.run.reclaim_promises(counters)
        self._lost_at = steps if lost else None

    async def _is_over(self, run_map: RunMap, counters: RunCounters) -> bool:
        if counters.outstanding:
            self._quiet_since_s = None
            taken = sum(counters.taken.values())
            self.awaits_parsers = not (counters.waiting or counters.leased)
            if taken and counters.outstanding == taken + counters.spilled:
                await self.run.ask_to_commit()
                passed("commit_asked")
            # Nothing more is fetched: only pages or links are left, or the queue is full.
            if not counters.leased and not self._warned:
                await self._warn_without_parser(counters)
            return False
        self.awaits_parsers = False
        now_s = self.clock()
        if self._quiet_since_s is None or self._quiet_steps != counters.steps():
            self._quiet_since_s, self._quiet_steps = now_s, counters.steps()
            return False
        if any(holder.starting for holder in run_map.alive.values()):
            return False
        return now_s - self._quiet_since_s >= self.idle_before_close_s

    async def _warn_without_parser(self, counters: RunCounters) -> None:
        for count, what in ((counters.unstored, "pages are queued"), (counters.spilled, "links are spilled")):
            if not count or self._warned:
                continue
            alive = await live_processes(self.run, _SILENT_S)
            if any(name.startswith("parser") for name in alive):
                self._unparsed_since_s = None
                continue
            self._unparsed_since_s = self._unparsed_since_s or self.clock()
            if self.clock() - self._unparsed_since_s >= _WITHOUT_PARSER_S:
                self._warned = True
                logger.warning(
                    "%d %s and no parser is running; start one: scrapy parser --run %s",
                    count,
                    what,
                    self.run.name,
                )

    @property
    def never_seeded(self) -> bool:
        return self._quiet_since_s is not None and self._quiet_steps[0] == 0

    def check_seeded(self) -> None:
        """Raise NoSeeds when the run has had no URL for a while: its spider yielded none."""
        if self.never_seeded and self.clock() - (self._quiet_since_s or 0.0) >= SEED_GRACE_S:
            name = self.run.name
            raise NoSeeds(f"Run {name!r} has no seeds. Add some: scrapy seed --run {name} FILE-OR-URL")

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was outstanding at the last step."""
        return self._quiet_since_s is not None

    async def step_down(self) -> None:
        await drop_name(self.run.client, keys.leader(self.run.name), self.process.instance)


def limit_reached(limits: Limits, counters: RunCounters, ran_s: float) -> str:
    """Return which limit ends the run now, '' for none.

    Pages are promised before they are leased, so nothing in flight exceeds the limit; what is in flight below
    it is waited for.
    """
    if limits.pages and counters.fetched >= limits.pages and not counters.leased:
        return "max_pages"
    if limits.seconds and ran_s >= limits.seconds:
        return "max_seconds"
    if limits.bytes and counters.counts["bytes"] >= limits.bytes:
        return "max_bytes"
    return ""


def limit_ratio(limits: Limits, counters: RunCounters, ran_s: float) -> float:
    """Return the progress to the nearest limit: 1 when it is reached, 0 without limits."""
    ways = (
        (counters.fetched, limits.pages),
        (ran_s, limits.seconds),
        (counters.counts["bytes"], limits.bytes),
    )
    return max((done / limit for done, limit in ways if limit), default=0.0)
