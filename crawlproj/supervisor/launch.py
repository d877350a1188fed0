"""The processes of a run as jobs on scrapyd servers: spread round robin, listed, drained."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from crawlproj.config import Config
from crawlproj.errors import BadArgument
from crawlproj.supervisor.scrapyd import Job, ScrapydServer, ScrapydTrouble, is_here

#: A job's number tells its run: of a job at work scrapyd tells nothing else.
_JOB_ID = re.compile(r"(?P<run>.+)\.(?P<role>shard|parser)-(?P<number>\d+)\.[0-9a-f]{8}")
_LOOK_EVERY_S = 0.5
#: How long a server takes to start what it has a place for: its poll_interval is 5 s unless set.
_START_S = 8.0
#: How long after its time to drain a job may still take.
_GRACE_S = 15.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    server: ScrapydServer
    spider: str
    #: What a person calls it: shard 0.
    title: str
    id: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unscheduled:
    job: PlannedJob
    reason: str


def plan_jobs(run: str, shards: int, parsers: int, servers: Sequence[ScrapydServer]) -> list[PlannedJob]:
    """Deal shards, then parsers, to the servers in turn."""
    launch = secrets.token_hex(4)
    wanted = [
        ("web", f"shard-{n}", {"run": run, "shard": str(n), "shards": str(shards)}) for n in range(shards)
    ]
    wanted += [("parser", f"parser-{n}", {"run": run}) for n in range(parsers)]
    return [
        PlannedJob(
            servers[place % len(servers)],
            spider,
            role.replace("-", " "),
            f"{run}.{role}.{launch}",
            arguments,
        )
        for place, (spider, role, arguments) in enumerate(wanted)
    ]


def handed_on(config: Config, given: Mapping[str, str], servers: Sequence[ScrapydServer]) -> dict[str, str]:
    """Return the settings of each job: those *given*, and those without which it would be another crawl.

    A REDIS_URL with a password stays here, as scrapyd shows the settings of its jobs to everybody. Raises
    BadArgument when a server cannot reach the Redis of this crawl.
    """
    settings = dict(given)
    settings.pop("REDIS_URL", None)
    if config.contact:
        settings["CRAWL_CONTACT"] = config.contact
    host = urlsplit(config.redis_url).hostname if config.redis_url else None
    elsewhere = [server.name for server in servers if not server.is_here]
    if elsewhere and (host is None or is_here(host)):
        raise BadArgument(
            f"The Redis of this crawl is for this machine only, and {elsewhere[0]} is not on it. Set "
            "REDIS_URL to one that all of them reach, as in redis://host:6379/0."
        )
    if config.redis_url is None:
        # Empty: should scrapyd have a REDIS_URL in its environment, it is not meant here.
        settings |= {"CRAWL_DATA": str(config.data.absolute()), "REDIS_URL": ""}
    elif not has_password(config.redis_url):
        settings["REDIS_URL"] = config.redis_url
    return settings


def has_password(redis_url: str) -> bool:
    return bool(urlsplit(redis_url).password) or "password=" in redis_url


async def check_servers(servers: Sequence[ScrapydServer], spiders: set[str], version: str) -> None:
    """Raise ScrapydTrouble, saying of each what is wrong, unless all would take our jobs."""
    checks = (server.check(spiders, version) for server in servers)
    troubles = [trouble for trouble in await _each(checks) if isinstance(trouble, ScrapydTrouble)]
    if troubles:
        raise ScrapydTrouble("nothing was scheduled.\n" + "\n".join(str(trouble) for trouble in troubles))


async def schedule_jobs(
    jobs: Sequence[PlannedJob], settings: Mapping[str, str], version: str
) -> list[Unscheduled]:
    """Schedule *jobs*, in order; returns those that could not be. A server that failed once gets no more."""
    failed: dict[str, str] = {}
    unscheduled = []
    for job in jobs:
        if job.server.name not in failed:
            try:
                await job.server.schedule(job.spider, job.id, job.arguments, settings, version)
                continue
            except ScrapydTrouble as trouble:
                failed[job.server.name] = str(trouble)
        unscheduled.append(Unscheduled(job, failed[job.server.name]))
    return unscheduled


async def jobs_of(run: str, servers: Sequence[ScrapydServer]) -> dict[str, list[Job] | ScrapydTrouble]:
    """Return by server which jobs of *run* it has, shards first, or why it does not say."""
    answers = await _each(server.jobs() for server in servers)
    return {
        server.name: answer
        if isinstance(answer, ScrapydTrouble)
        else sorted((job for job in answer if run_of(job.id) == run), key=_order)
        for server, answer in zip(servers, answers, strict=True)
    }


def run_of(job_id: str) -> str:
    """Return the run a job of ours is of; empty for jobs that somebody else scheduled."""
    match = _JOB_ID.fullmatch(job_id)
    return match["run"] if match else ""


async def pending_after_start(jobs: Sequence[PlannedJob]) -> dict[str, list[str]]:
    """Return by server the titles of *jobs* that still wait when the server had time to start them."""
    deadline_s = time.monotonic() + _START_S
    while True:
        waiting: dict[str, list[str]] = {}
        for server in {job.server.name: job.server for job in jobs}.values():
            pending = {job.id for job in await server.jobs() if job.state == "pending"}
            titles = [job.title for job in jobs if job.server is server and job.id in pending]
            if titles:
                waiting[server.name] = titles
        if not waiting or time.monotonic() > deadline_s:
            return waiting
        await asyncio.sleep(_LOOK_EVERY_S)


async def cancel_jobs(run: str, servers: Sequence[ScrapydServer], drain_s: float) -> tuple[int, list[str]]:
    """Drain every job of *run* and wait for its end. Returns how many ended, and what went wrong.

    Those that wait go first, or they would take the places of those that end; then shards, and parsers when
    the shards are gone, so that less is left unread.
    """
    troubles: list[str] = []
    ended = 0
    for state, spider in (("pending", ""), ("running", "web"), ("running", "parser")):
        chosen: list[tuple[ScrapydServer, str]] = []
        for server, jobs in zip(servers, (await jobs_of(run, servers)).values(), strict=True):
            if isinstance(jobs, ScrapydTrouble):
                troubles.append(str(jobs))
            else:
                chosen += [
                    (server, job.id) for job in jobs if job.state == state and spider in ("", job.spider)
                ]
        refused = await _each(server.cancel(job) for server, job in chosen)
        troubles += [str(trouble) for trouble in refused if isinstance(trouble, ScrapydTrouble)]
        left = await _left_after(chosen, drain_s + _GRACE_S)
        troubles += [f"Job {job} on {server.name} was not seen to end." for server, job in left]
        ended += len(chosen) - len(left)
    # A server that is away says so at every step.
    return ended, list(dict.fromkeys(troubles))


async def _left_after(
    chosen: Sequence[tuple[ScrapydServer, str]], within_s: float
) -> list[tuple[ScrapydServer, str]]:
    """Wait until none of *chosen* waits or runs; returns those that still do, or of which nobody tells."""
    deadline_s = time.monotonic() + within_s
    servers = list({server.name: server for server, _ in chosen}.values())
    while True:
        over: set[tuple[str, str]] = set()
        for server, jobs in zip(servers, await _each(server.jobs() for server in servers), strict=True):
            if not isinstance(jobs, ScrapydTrouble):
                alive = {job.id for job in jobs if job.state != "finished"}
                over |= {(server.name, job) for at, job in chosen if at is server and job not in alive}
        left = [(server, job) for server, job in chosen if (server.name, job) not in over]
        if not left or time.monotonic() > deadline_s:
            return left
        await asyncio.sleep(_LOOK_EVERY_S)


def _order(job: Job) -> tuple[bool, int]:
    match = _JOB_ID.fullmatch(job.id)
    assert match is not None
    return match["role"] == "parser", int(match["number"])


async def _each(calls: Iterable[Awaitable[_Answer]]) -> list[_Answer | ScrapydTrouble]:
    """Await all of *calls* at once; the trouble of one is its answer."""

    async def answer(call: Awaitable[_Answer]) -> _Answer | ScrapydTrouble:
        try:
            return await call
        except ScrapydTrouble as trouble:
            return trouble

    return list(await asyncio.gather(*(answer(call) for call in calls)))
