"""What callers do with a job. A job that waits has no run yet: then its record is changed."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from crawlproj.api.problems import Refused, bad_field
from crawlproj.api.requests import MOST_SEEDS, LimitsRequest, ReleaseRequest, SeedsRequest, split_seeds
from crawlproj.api.service import Service
from crawlproj.checks import judge_all
from crawlproj.errors import BadArgument, BadUrl, Problem
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.parking import DOMAIN_REASONS, URL_REASONS, Choice, Parking
from crawlproj.frontier.scope import Sites
from crawlproj.frontier.seeds import SeedLines, admit_seeds, judge_seeds
from crawlproj.model.records import Candidate
from crawlproj.model.run import RunPaths, RunState
from crawlproj.model.urls import domain_named
from crawlproj.redisio import keys
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Run, processes
from crawlproj.runs.jobs import JobRecord
from crawlproj.runs.membership import read_members
from crawlproj.runs.processes import live_processes, parser_silence_s
from crawlproj.runs.rules import read_rules
from crawlproj.storage.aside import leftovers, remove_stored, remove_working_files, set_aside

#: How long the processes of a job that has ended may take to exit.
_EXIT_S = 6.0
#: How long no server may start a job whose deletion has begun, should this one die.
_DELETE_MS = 15_000
_POLL_S = 0.2
#: How long a request waits for a job that is being started.
_START_S = 7.0
#: More invalid seeds are counted, not returned.
_MOST_INVALID = 100


async def pause(service: Service, job: str) -> None:
    run = await service.run_of(job)
    if run is None or await _begins(service, run):
        await service.records.update(job, held="paused")
    else:
        await run.change(RunState.PAUSED)


async def stop(service: Service, job: str) -> None:
    run = await service.run_of(job)
    await service.places.cancel_waiting(job)
    if run is None or await _begins(service, run):
        await service.records.update(job, held="stopped")
    elif not await run.is_over():
        await run.change(RunState.STOPPED, "asked")


async def resume(service: Service, job: str, asked: LimitsRequest) -> None:
    run = await service.run_of(job)
    if run is not None:
        await _resume_run(service, run, asked)
    else:
        record = await _record(service, job)
        given = asked.model_dump(exclude_none=True)
        await service.records.update(job, request=json.dumps(record.request | given))
    await service.records.adopt(job)


async def _resume_run(service: Service, run: Run, asked: LimitsRequest) -> None:
    before = await run.read_map()
    given = {"pages": asked.max_pages, "seconds": asked.max_seconds, "bytes": asked.max_bytes}
    limits = replace(before.limits, **{name: value for name, value in given.items() if value is not None})
    reached = before.reason.removeprefix("max_")
    is_raised = reached not in given or not 0 < getattr(limits, reached) <= getattr(before.limits, reached)
    if before.state.is_end and not is_raised:
        raise Refused(
            409,
            f"Job {run.name!r} has reached its limit {before.reason}. Give a higher one: "
            f'{{"{before.reason}": N}}; 0 means no limit.',
        )
    if limits != before.limits:
        await run.set_limits(limits)
    await processes.resume(run, service.config, before.state)


async def add_seeds(service: Service, job: str, request: SeedsRequest) -> dict[str, Any]:
    run = await service.run_of(job)
    lines = list(split_seeds(request.seeds))
    if not lines or len(lines) > MOST_SEEDS:
        raise bad_field("seeds", "", f"{len(lines):,} seeds were given.", f"Give 1 to {MOST_SEEDS:,}.")
    known_rules = await read_rules(run) if run else None
    config = known_rules.obeyed_by(service.config) if known_rules else service.config
    judged = await asyncio.to_thread(lambda: list(judge_all(config, SeedLines(lines))))
    urls = [one.url for one in judged if isinstance(one, Candidate)]
    problems = [one for one in judged if isinstance(one, Problem)]
    if len(problems) > _MOST_INVALID:
        more = f"... and {len(problems) - _MOST_INVALID:,} more invalid seeds."
        problems = [*problems[:_MOST_INVALID], Problem("seeds", "", more)]
    invalid = [
        {"field": "seeds", "value": one.value[:200], "problem": one.wrong, "remedy": one.remedy}
        for one in problems
    ]
    if run is None:
        seeds = await service.records.read_seeds(job)
        known = {one.url for one in judge_seeds(SeedLines(seeds)) if isinstance(one, Candidate)}
        new = await service.records.add_seeds(job, [url for url in urls if url not in known])
        run = await _started(service, job)
        if run is None:
            return {"new": new, "known": len(urls) - new, "invalid": invalid}
    rules, _ = await asyncio.to_thread(load_rules, config)
    frontier = Frontier.of(run, config)
    # Of a run without rules they are recorded in any case: its rules may say that they count.
    sites = Sites(run.client, run.name, run.partitions)
    frontier.sites = Sites.of(run, config) if known_rules else sites
    count = await admit_seeds(frontier, [SeedLines(urls)], rules, lambda text: None, run.adding)
    if count.new:
        await reopen(service, run)
    return {"new": count.new, "known": count.given - count.new, "invalid": invalid}


async def set_shards(service: Service, job: str, shards: int) -> None:
    run = await service.run_of(job)
    if run is None:
        await _note_shards(service, job, shards)
        run = await _started(service, job)
    if run is not None:
        try:
            await run.set_shards(shards)
        except BadArgument as exc:
            raise bad_field("shards", shards, str(exc)) from exc
        await _note_shards(service, job, shards)


async def _note_shards(service: Service, job: str, shards: int) -> None:
    record = await service.records.find(job)
    if record is not None:
        await service.records.update(job, request=json.dumps(record.request | {"shards": shards}))


async def release(service: Service, job: str, request: ReleaseRequest) -> dict[str, int]:
    reasons = (*DOMAIN_REASONS, *URL_REASONS)
    if request.reason and request.reason not in reasons:
        wrong = f"reason={request.reason!r} is unknown."
        raise bad_field("reason", request.reason, wrong, f"Use one of: {', '.join(reasons)}.")
    choice = Choice(frozenset(map(_domain, request.domains)), request.reason)
    run = await service.run_of(job)
    if run is None:
        return {"domains": 0, "urls": 0}
    async with run.adding():
        domains, urls = await Parking(run.client, run.name, run.partitions).release(choice)
    if domains or urls.new:
        await reopen(service, run)
    return {"domains": domains, "urls": urls.new}


async def delete(service: Service, job: str, *, pages: bool) -> None:
    run = await service.run_of(job)
    has_ended = run is not None and await run.is_over()
    deadline_s = time.monotonic() + (_EXIT_S if has_ended else 0.0)
    # In the starter's place: whoever looks for jobs meanwhile would start it.
    key, deleter = keys.job_starter(job), ProcessName.of_this()
    # A start whose run has ended meanwhile is given up in a moment.
    while (holder := await hold_name(service.client, key, deleter, _DELETE_MS)) is not None:
        if holder.process.is_dead():
            await drop_name(service.client, key, holder.process.instance)
        elif time.monotonic() >= deadline_s:
            raise Refused(409, f"Job {job!r} is being started; stop it first.")
        else:
            await asyncio.sleep(_POLL_S)
    try:
        await service.places.cancel_waiting(job)
        if (run := await service.run_of(job)) is not None:
            await _wait_until_unused(service, run, deadline_s)
        await service.records.delete(job)
        if run is not None:
            await run.delete()
    finally:
        await drop_name(service.client, key, deleter.instance)
    await asyncio.to_thread(_delete_files, service, job, pages=pages)


async def _wait_until_unused(service: Service, run: Run, deadline_s: float) -> None:
    """Wait for the processes of a run that has ended. Raises Refused if some are still there."""
    while True:
        alive = await live_processes(run, parser_silence_s(service.config))
        if not alive and not await read_members(run):
            return
        if time.monotonic() >= deadline_s:
            who = ", ".join(alive) or "its supervisor"
            raise Refused(409, f"Job {run.name!r} is in use: {who}. Stop it, and wait for them.")
        await asyncio.sleep(_POLL_S)


def _delete_files(service: Service, job: str, *, pages: bool) -> None:
    paths = RunPaths(service.config.data, job)
    for place in leftovers(service.config.data, job) if pages else ():
        remove_stored(place)
    set_aside(paths)
    remove_working_files(paths)


async def reopen(service: Service, run: Run) -> None:
    """Set a run that has ended going again, since there is work."""
    has_ended = await run.is_over()
    await run.reopen()
    if has_ended:
        await service.records.adopt(run.name)


async def _begins(service: Service, run: Run) -> bool:
    """Whether *run* is about to be set running; what is held is then paused or stopped by the starter."""
    if await run.state() != RunState.CREATED or await service.records.find(run.name) is None:
        return False
    return await service.records.is_starting(run.name) or bool(await read_members(run))


async def _started(service: Service, job: str) -> Run | None:
    """Return the run of a job once that is started; None if it waits. Raises Refused if it takes too long."""
    deadline_s = time.monotonic() + _START_S
    while (run := await service.run_of(job)) is None and await service.records.is_starting(job):
        if time.monotonic() >= deadline_s:
            wrong = f"Job {job!r} is being started. Try again in a moment."
            raise Refused(409, wrong, headers={"Retry-After": "5"})
        await asyncio.sleep(_POLL_S)
    return run


async def _record(service: Service, job: str) -> JobRecord:
    record = await service.records.find(job)
    assert record is not None
    return record


def _domain(name: str) -> str:
    try:
        return domain_named(name)
    except BadUrl as exc:
        raise bad_field("domains", name, f"{name[:100]!r} is not a domain.", "Use: example.org.") from exc
