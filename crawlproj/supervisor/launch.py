"""The processes of a run as jobs on scrapyd servers: scheduled round-robin, listed, cancelled."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from crawlproj.config import Config
from crawlproj.config.rules import RULES
from crawlproj.errors import BadArgument
from crawlproj.model.secrets import SECRET_NAME
from crawlproj.supervisor.scrapyd import Job, ScrapydError, ScrapydServer, is_local

#: The id names the run: scrapyd reports nothing else about a running job.
_JOB_ID = re.compile(r"(?P<run>.+)\.(?P<role>shard|parser)-(?P<number>\d+)\.[0-9a-f]{8}")
_POLL_S = 0.5
#: How long a server takes to start a job it has a slot for: its poll_interval is 5 s by default.
_START_S = 8.0
#: Values with a secret: a password in a URL, or a member of a JSON object.
_SECRET_VALUE = re.compile(
    r"""://[^/@\s]*:[^/@\s]+@|["'][^"']*(passw|secret|token|api_?key|authorization|cookie)[^"']*["']\s*:""",
    re.IGNORECASE,
)
#: Settings of `scrapy serve`, tokens among them.
OF_SERVER = ("CRAWL_API_", "CRAWL_JOBS_")
#: How long a job may take beyond its time to drain.
_GRACE_S = 15.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    server: ScrapydServer
    spider: str
    #: For people: shard 0.
    title: str
    id: str
    arguments: Mapping[str, str]


def plan_jobs(
    run: str, shards: int, parsers: int, servers: Sequence[ScrapydServer], running: Collection[str] = ()
) -> list[PlannedJob]:
    """Assign shards, then parsers, to the servers in turn; not those that are *running*: ``shard-0``."""
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
        if role not in running
    ]


def job_settings(
    config: Config, given: Mapping[str, str], servers: Sequence[ScrapydServer]
) -> dict[str, str]:
    """Return the settings of each job: those *given*, plus the data directory and Redis.

    Not the rules: the run has them, and they may change before the job starts.

    scrapyd shows the settings of its jobs to anyone. So a REDIS_URL with credentials is left out unless it
    was *given*: then, as for any other secret, BadArgument is raised, as it is when a server cannot reach the
    Redis of this crawl.
    """
    _refuse_secrets(config, given)
    settings = {
        name: value for name, value in given.items() if name not in RULES and not name.startswith(OF_SERVER)
    }
    settings.pop("REDIS_URL", None)
    host = urlsplit(config.redis_url).hostname if config.redis_url else None
    remote = [server.name for server in servers if not is_local(server.host)]
    if remote and (host is None or is_local(host)):
        raise BadArgument(
            f"The Redis of this crawl is local to this machine, and {remote[0]} is elsewhere. Set "
            "REDIS_URL to one that all servers can reach, for example redis://host:6379/0."
        )
    if config.redis_url is None:
        # Empty, to override a REDIS_URL in scrapyd's environment.
        settings |= {"CRAWL_DATA": str(config.data.absolute()), "REDIS_URL": ""}
    elif not has_credentials(config.redis_url):
        settings["REDIS_URL"] = config.redis_url
    return settings


def _refuse_secrets(config: Config, given: Mapping[str, str]) -> None:
    has_secret = {
        name
        for name, value in given.items()
        # Ours are no secrets, and their patterns may look like some.
        if not name.startswith("CRAWL_") and (SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }
    if config.redis_url and has_credentials(config.redis_url):
        has_secret |= {"REDIS_URL"} & given.keys()
    if any("password" in name or "username" in name for name in config.redis_params):
        has_secret |= {"REDIS_PARAMS"} & given.keys()
    for name in sorted(has_secret):
        remedy = (
            "Set REDIS_URL in the environment of each scrapyd and here, or put the password into a file on "
            "each machine and name it with REDIS_PASSWORD_FILE, in the environment or with -s"
            if name.startswith("REDIS_")
            else "Set it in crawlproj/settings.py of each server, from the environment of scrapyd"
        )
        raise BadArgument(
            f"-s {name} has a secret, and scrapyd shows the settings of its jobs to everybody. {remedy}."
        )


def has_credentials(redis_url: str) -> bool:
    return re.search(r"@|[?&](username|password)=", unquote(redis_url)) is not None


async def check_servers(servers: Sequence[ScrapydServer], spiders: set[str], version: str) -> None:
    """Raise ScrapydError, with one line per server, unless all would take our jobs."""
    checks = (server.check(spiders, version) for server in servers)
    errors = [error for error in await _gather(checks) if isinstance(error, ScrapydError)]
    if errors:
        raise ScrapydError("nothing was scheduled.\n" + "\n".join(map(str, errors)))


async def schedule_jobs(
    jobs: Sequence[PlannedJob], settings: Mapping[str, str], version: str
) -> dict[str, str]:
    """Schedule *jobs* in order; returns why some failed, by id. A server that failed gets no more jobs."""
    failed: dict[str, str] = {}
    unscheduled = {}
    for job in jobs:
        if job.server.name not in failed:
            try:
                await job.server.schedule(job.spider, job.id, job.arguments, settings, version)
                continue
            except ScrapydError as exc:
                failed[job.server.name] = str(exc)
        unscheduled[job.id] = failed[job.server.name]
    return unscheduled


async def all_jobs(servers: Sequence[ScrapydServer]) -> list[list[Job] | ScrapydError]:
    """Return the jobs of all runs on each server, or the error it answered with."""
    return await _gather(server.jobs() for server in servers)


async def jobs_of(run: str, servers: Sequence[ScrapydServer]) -> dict[str, list[Job] | ScrapydError]:
    """Return the jobs of *run* on each server, shards first, or the error it answered with."""
    answers = await all_jobs(servers)
    return {
        server.name: answer
        if isinstance(answer, ScrapydError)
        else sorted((job for job in answer if run_of(job.id) == run), key=_order)
        for server, answer in zip(servers, answers, strict=True)
    }


def run_of(job_id: str) -> str:
    """Return the run of one of our jobs; empty for other jobs."""
    match = _JOB_ID.fullmatch(job_id)
    return match["run"] if match else ""


def role_of(job_id: str) -> str:
    """Return what one of our jobs is: ``shard-0``."""
    match = _JOB_ID.fullmatch(job_id)
    return f"{match['role']}-{match['number']}" if match else ""


async def pending_after_start(jobs: Sequence[PlannedJob]) -> dict[str, list[str]]:
    """Return, by server, the titles of *jobs* still pending after the time a server needs to start them."""
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
        await asyncio.sleep(_POLL_S)


async def cancel_jobs(run: str, servers: Sequence[ScrapydServer], drain_s: float) -> tuple[int, list[str]]:
    """Cancel every job of *run* and wait until it ends. Returns how many ended, and the errors.

    Pending jobs go first, or they would start in the slots that become free; then shards, then parsers, so
    that fewer fetched pages are left unparsed.
    """
    errors: list[str] = []
    ended = 0
    for state, spider in (("pending", ""), ("running", "web"), ("running", "parser")):
        chosen: list[tuple[ScrapydServer, str]] = []
        for server, jobs in zip(servers, (await jobs_of(run, servers)).values(), strict=True):
            if isinstance(jobs, ScrapydError):
                errors.append(str(jobs))
            else:
                chosen += [
                    (server, job.id) for job in jobs if job.state == state and spider in ("", job.spider)
                ]
        answers = await _gather(server.cancel(job) for server, job in chosen)
        errors += [str(answer) for answer in answers if isinstance(answer, ScrapydError)]
        left = await _left_after(chosen, drain_s + _GRACE_S)
        errors += [f"Job {job} on {server.name} did not end in time." for server, job in left]
        ended += len(chosen) - len(left)
    # An unreachable server adds the same error at every step.
    return ended, list(dict.fromkeys(errors))


async def _left_after(
    chosen: Sequence[tuple[ScrapydServer, str]], within_s: float
) -> list[tuple[ScrapydServer, str]]:
    """Wait until all of *chosen* have ended; returns those that have not, or whose state is unknown."""
    deadline_s = time.monotonic() + within_s
    servers = list({server.name: server for server, _ in chosen}.values())
    while True:
        over: set[tuple[str, str]] = set()
        for server, jobs in zip(servers, await _gather(server.jobs() for server in servers), strict=True):
            if not isinstance(jobs, ScrapydError):
                alive = {job.id for job in jobs if job.state != "finished"}
                over |= {(server.name, job) for at, job in chosen if at is server and job not in alive}
        left = [(server, job) for server, job in chosen if (server.name, job) not in over]
        if not left or time.monotonic() > deadline_s:
            return left
        await asyncio.sleep(_POLL_S)


def _order(job: Job) -> tuple[bool, int]:
    match = _JOB_ID.fullmatch(job.id)
    assert match is not None
    return match["role"] == "parser", int(match["number"])


async def _gather(calls: Iterable[Awaitable[_Answer]]) -> list[_Answer | ScrapydError]:
    """Await all of *calls* concurrently; a ScrapydError is returned as the answer."""

    async def answer(call: Awaitable[_Answer]) -> _Answer | ScrapydError:
        try:
            return await call
        except ScrapydError as exc:
            return exc

    return list(await asyncio.gather(*(answer(call) for call in calls)))
