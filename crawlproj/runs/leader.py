"""The leader of a run: one of its processes, who sees that it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from crawlproj.redisio import keys
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs.figures import Figures
from crawlproj.runs.processes import live_processes
from crawlproj.runs.record import Limits, Run, RunMap, RunState

logger = logging.getLogger(__name__)

#: A parser on another machine that was silent for so long counts as dead: none reads one page for longer.
_SILENT_S = 120.0


@dataclass(slots=True)
class Leader:
    """Holds the leader's name when nobody else does, and then ends the run when it is over.

    The run is over when nothing is waiting, lent, queued or being parsed, nor any shard still starting; or
    when a limit is reached. The figures are read one after the other, so they are read twice: what only grows
    did not grow, so at the moment between the two readings all of it was zero at once.
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

    async def lead(self) -> bool:
        """Take or keep the leadership; returns whether it is ours."""
        key = keys.leader(self.run.name)
        return await hold_name(self.run.door, key, self.process, self.ttl_ms) is None

    async def step(self) -> bool:
        """Look at the run, and end it if it is over. Returns whether it was ended.

        Call it again soon: it takes two readings to be sure that nothing is left.
        """
        # The map first: a shard that says it has started has admitted its seeds, so the figures show them.
        run_map = await self.run.read_map()
        if run_map.state == RunState.CREATED:
            # Opened again before we heard that it had ended: as long as we are here, it goes on.
            await self.run.begin(is_first=False)
        if run_map.state != RunState.RUNNING:
            self._quiet_since_s = None
            return False
        figures = await self.run.figures()
        reached = limit_reached(run_map.limits, figures, run_map.ran_s)
        if reached:
            return await self.run.end(RunState.STOPPED, reached)
        await self._mend_promises(run_map.limits, figures)
        if not await self._is_over(run_map, figures) or self.never_seeded:
            return False
        # In the morning people should see that sites are missing: perhaps all, as our network was away.
        return await self.run.end(RunState.FINISHED, "parked" if figures.counts["parked"] else "")

    async def _mend_promises(self, limits: Limits, figures: Figures) -> None:
        """Give back the pages that were promised to processes which died.

        Only when the others can do nothing without them: until then somebody may be about to lease.
        """
        lost = figures.fetched < limits.pages <= figures.promised and not figures.leased
        steps = (*figures.steps(), figures.granted)
        if lost and self._lost_at == steps:
            await self.run.mend_promises(figures)
        self._lost_at = steps if lost else None

    async def _is_over(self, run_map: RunMap, figures: Figures) -> bool:
        if figures.outstanding:
            self._quiet_since_s = None
            if figures.outstanding == sum(figures.taken.values()):
                await self.run.ask_to_commit()
            # All that is left, or as many as there may be: nothing more is fetched.
            if figures.unstored and not figures.leased and not self._warned:
                await self._miss_parser(figures.unstored)
            return False
        now_s = self.clock()
        if self._quiet_since_s is None or self._quiet_steps != figures.steps():
            self._quiet_since_s, self._quiet_steps = now_s, figures.steps()
            return False
        if any(holder.starting for holder in run_map.alive.values()):
            return False
        return now_s - self._quiet_since_s >= self.idle_before_close_s

    async def _miss_parser(self, pages: int) -> None:
        """Complain that nobody reads the pages, which are all that is left; a dead parser may hold them."""
        alive = await live_processes(self.run, _SILENT_S)
        if not any(name.startswith("parser") for name in alive):
            self._warned = True
            logger.warning(
                "%d pages wait and no parser runs; start one: scrapy parser --run %s", pages, self.run.name
            )

    @property
    def never_seeded(self) -> bool:
        return self._quiet_since_s is not None and self._quiet_steps[0] == 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was outstanding when last looked."""
        return self._quiet_since_s is not None

    async def step_down(self) -> None:
        await drop_name(self.run.door, keys.leader(self.run.name), self.process.instance)


def limit_reached(limits: Limits, figures: Figures, ran_s: float) -> str:
    """Return which limit ends the run now, '' for none.

    Pages are promised before they are lent, so nothing is on its way beyond the limit; what is on its way
    below it still counts.
    """
    if limits.pages and figures.fetched >= limits.pages and not figures.leased:
        return "max_pages"
    if limits.seconds and ran_s >= limits.seconds:
        return "max_seconds"
    if limits.bytes and figures.counts["bytes"] >= limits.bytes:
        return "max_bytes"
    return ""


def limit_ratio(limits: Limits, figures: Figures, ran_s: float) -> float:
    """Return how far it is to the limit that is nearest: 1 when it is reached, 0 when there is none."""
    ways = (
        (figures.fetched, limits.pages),
        (ran_s, limits.seconds),
        (figures.counts["bytes"], limits.bytes),
    )
    return max((done / limit for done, limit in ways if limit), default=0.0)
