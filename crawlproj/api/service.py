"""What the routes share: the Redis client, the views and the starter of one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import msgspec
from fastapi import Depends, FastAPI, Path, Request
from starlette.responses import Response

from crawlproj.api.domains import Domains
from crawlproj.api.exports import Exports
from crawlproj.api.lead import Lead
from crawlproj.api.links import Links
from crawlproj.api.places import Places
from crawlproj.api.problems import no_job
from crawlproj.api.starter import Starter
from crawlproj.api.views import FRESH_S, JobViews
from crawlproj.config import RUN_NAME, Config
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecords

#: How long a request may wait for Redis.
ANSWER_S = 10.0


class Service:
    """One server. *settings* are all settings, *given* those that a person gave it."""

    def __init__(
        self, config: Config, settings: Mapping[str, Any], given: Mapping[str, str], links: Links
    ) -> None:
        self.config = config
        self.settings = settings
        self.given = given
        self.links = links
        self.client: RedisClient
        self.views: JobViews
        self.starter: Starter
        self.domains = Domains()
        self.places = Places(config, given)
        self.lead = Lead(config.data)
        #: Searches in stored pages at once: each may hold some ten megabytes.
        self.searching = asyncio.Semaphore(4)
        self.exports = Exports()
        #: Runs that are over and whose processes have all left.
        self.left: set[str] = set()
        #: What was done at the last look, and when that was new (ms).
        self.progress = (0, 0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.client = await RedisClient.connect(self.config)
        self.views = JobViews(self.client, self.config)
        self.starter = Starter(self.client, self.config, self.given, self.places, self.lead)
        task = asyncio.create_task(self.starter.run(), name="starter")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.views.close()
            await self.client.close()

    @property
    def records(self) -> JobRecords:
        return JobRecords(self.client, self.config.jobs_waiting)

    async def view(self, job: str, max_age_s: float = FRESH_S) -> dict[str, Any]:
        """Return the view of a job. Raises Refused if there is none."""
        view = await self.views.get(job, max_age_s)
        if view is None:
            raise no_job(job)
        return view

    async def changed(self, job: str) -> dict[str, Any]:
        """Return the view of a job that was just changed."""
        self.views.forget(job)
        return await self.view(job, 0)

    async def run_of(self, job: str) -> Run | None:
        """Return the run of a job; None if it waits. Raises Refused if there is neither."""
        run = await Run.look_up(self.client, job)
        if run is None and await self.records.find(job) is None:
            raise no_job(job)
        return run


async def _service(request: Request) -> AsyncIterator[Service]:
    async with asyncio.timeout(ANSWER_S):
        yield service_of(request.app)


def service_of(app: FastAPI) -> Service:
    return cast(Service, app.state.service)


#: The service, for a request that is answered in time or not at all.
Served = Annotated[Service, Depends(_service)]
JobId = Annotated[str, Path(pattern=f"^{RUN_NAME.pattern}$", description="The job: the name of its run.")]


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")
