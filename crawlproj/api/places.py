"""The scrapyd servers that jobs run on (CRAWL_JOBS_ON), and what they said of each job last."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping

from crawlproj.config import Config
from crawlproj.model.run import RunState
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord
from crawlproj.supervisor.launch import (
    PlannedJob,
    all_jobs,
    job_settings,
    plan_jobs,
    role_of,
    run_of,
    schedule_jobs,
)
from crawlproj.supervisor.scrapyd import Job, ScrapydError, ScrapydServer

logger = logging.getLogger(__name__)

#: How old an answer may be.
_FRESH_S = 2.0


class Places:
    """Without servers (False) jobs run on this machine. Raises BadArgument for a setting that is a secret."""

    def __init__(self, config: Config, given: Mapping[str, str]) -> None:
        self.servers = [ScrapydServer(address) for address in config.jobs_on]
        self._settings = job_settings(config, given, self.servers) if self.servers else {}
        self._jobs: dict[str, list[tuple[ScrapydServer, Job]]] = {}
        self._read_s = float("-inf")
        #: Why a server cannot be used.
        self.errors: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.servers)

    async def refresh(self) -> None:
        """Ask all servers what they run, unless they were asked a moment ago."""
        if not self.servers or time.monotonic() - self._read_s < _FRESH_S:
            return
        answers = await all_jobs(self.servers)
        self._read_s = time.monotonic()
        self.errors = [str(answer) for answer in answers if isinstance(answer, ScrapydError)]
        self._jobs = defaultdict(list)
        for server, answer in zip(self.servers, answers, strict=True):
            for job in () if isinstance(answer, ScrapydError) else answer:
                if job.state != "finished" and (run := run_of(job.id)):
                    self._jobs[run].append((server, job))

    def has(self, run: str) -> bool:
        """Whether jobs of *run* wait or run there, as far as is known."""
        return bool(self._jobs.get(run))

    def look_again(self) -> None:
        """Ask anew at the next `refresh`: something was scheduled or cancelled."""
        self._read_s = float("-inf")

    async def missing(self, run: Run, record: JobRecord) -> list[PlannedJob]:
        """Return the shards and parsers that do not run: they have died, or more are wanted."""
        running = {role_of(job.id) for _, job in self._jobs.get(run.name, ())}
        run_map = await run.read_map()
        # Read after the jobs: those that ended with the run are not missing.
        if self.errors or run_map.state != RunState.RUNNING:
            return []
        return plan_jobs(run.name, run_map.shards, parsers_wanted(record), self.servers, running)

    async def complete(self, run: Run, record: JobRecord) -> str:
        """Schedule what is missing. Returns why that failed, '' if it did not."""
        self.look_again()
        await self.refresh()
        jobs = await self.missing(run, record)
        failed = await schedule_jobs(jobs, self._settings | own_settings(record), "")
        for why in dict.fromkeys(failed.values()):
            logger.warning("cannot schedule a job: %s", why, extra={"run": run.name})
        self.look_again()
        return next(iter(failed.values()), "")

    async def cancel_waiting(self, run: str) -> None:
        """Cancel the jobs of *run* that have not begun; they would resume it."""
        self.look_again()
        await self.refresh()
        for server, job in self._jobs.get(run, ()):
            if job.state == "pending":
                await server.cancel(job.id)
        self.look_again()


def own_settings(record: JobRecord) -> dict[str, str]:
    """Return the settings of the shards: without parsers they parse."""
    return {} if parsers_wanted(record) else {"CRAWL_PARSE": "inline"}


def parsers_wanted(record: JobRecord) -> int:
    """Return the number of parsers: of a range the larger, as nobody scales them there."""
    least, _, most = str(record.request.get("parsers", "")).partition("..")
    return int(most or least or 1)
