"""Jobs: create, list, look at, change, delete."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from crawlproj.api import actions
from crawlproj.api.answers import Job, JobHistory, JobList, Released, SeedsAdded, State
from crawlproj.api.listing import list_jobs
from crawlproj.api.problems import Refused, bad_field
from crawlproj.api.requests import (
    JobRequest,
    LimitsRequest,
    Plan,
    ReleaseRequest,
    SeedsRequest,
    ShardsRequest,
)
from crawlproj.api.service import ANSWER_S, JobId, Served, answer, service_of
from crawlproj.api.view import iso_time, summary_of
from crawlproj.checks import disk_problems
from crawlproj.errors import Problem
from crawlproj.redisio.clock import server_ms
from crawlproj.runs.history import read_history
from crawlproj.runs.jobs import KeyReused, NameTaken, TooManyJobs, name_for

router = APIRouter(prefix="/api/jobs", tags=["jobs"])

IdempotencyKey = Annotated[
    str | None,
    Header(max_length=200, description="The same key, again within a day, returns the same job."),
]


@router.post("", status_code=201, response_model=Job, responses={200: {"model": Job}})
async def create(request: JobRequest, served: Served, idempotency_key: IdempotencyKey = None) -> Response:
    """Create a job: domains or URLs to crawl, with scope and limits. It starts when there is a place."""
    plan = await asyncio.to_thread(Plan, request, served.config, served.settings)
    key = hashlib.sha256(idempotency_key.encode()).hexdigest() if idempotency_key else ""
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
    name = request.name or name_for(plan.first_url)
    if problems := await asyncio.to_thread(lambda: list(disk_problems(served.config, name))):
        raise Refused(503, "The server cannot store pages.", problems)
    try:
        job, is_new = await served.records.create(
            name, plan.options, plan.seeds, is_stem=not request.name, key=key, digest=digest
        )
    except NameTaken:
        wrong = f"There is a job or run {name!r} already."
        raise Refused(
            409, wrong, [Problem("name", name, wrong, "Choose another name, or leave it out.")]
        ) from None
    except KeyReused:
        raise Refused(409, "This Idempotency-Key was used for a different request. Use a new key.") from None
    except TooManyJobs:
        most = served.config.jobs_waiting
        raise Refused(
            429,
            f"{most:,} jobs are open, the most allowed (CRAWL_JOBS_WAITING). Stop some, or try again later.",
            headers={"Retry-After": "60"},
        ) from None
    view = await served.changed(job)
    return answer(view, 201 if is_new else 200, {"Location": view["links"]["self"]})


@router.get("", response_model=JobList)
async def list_all(
    served: Served,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """List the jobs, the newest first: also runs that were started in a terminal."""
    names, following = await list_jobs(served.client, served.records, state, limit, cursor)
    views = await asyncio.gather(*(served.views.get(name, 2.0) for name in names))
    return answer({"jobs": [summary_of(view) for view in views if view], "next": following})


@router.get("/{job}", response_model=Job)
async def show(job: JobId, served: Served) -> Response:
    """Show a job: state, counts, rates, time left, processes, and what is wrong."""
    return answer(await served.view(job))


@router.get("/{job}/history", response_model=JobHistory)
async def history(job: JobId, served: Served) -> Response:
    """Show the past of a job: at most 300 points, further apart the longer it has been running."""
    run = await served.run_of(job)
    points = await read_history(run) if run else []
    return answer(
        {
            "now": iso_time(await server_ms(served.client)),
            "points": [
                {"at": iso_time(one.at_ms), "fetched": one.fetched, "parsed": one.parsed} for one in points
            ],
        }
    )


@router.get(
    "/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(job: JobId, request: Request) -> Response:
    """Follow a job: server-sent events named `job`, at most one per second; `gone` when it is deleted."""
    # Not `Served`: that limits the time until the answer has ended.
    service = service_of(request.app)
    async with asyncio.timeout(ANSWER_S):
        await service.view(job)
    service.views.check_room()
    return StreamingResponse(
        service.views.events(job),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


@router.post("/{job}/pause", status_code=202, response_model=Job)
async def pause(job: JobId, served: Served) -> Response:
    """Fetch nothing more until it is resumed; what was fetched is stored."""
    await actions.pause(served, job)
    return answer(await served.changed(job), 202)


@router.post("/{job}/resume", status_code=202, response_model=Job)
async def resume(
    job: JobId, served: Served, limits: Annotated[LimitsRequest | None, Body()] = None
) -> Response:
    """Continue a job that was paused, stopped, failed, or has reached a limit, which must then be raised."""
    await actions.resume(served, job, limits or LimitsRequest())
    return answer(await served.changed(job), 202)


@router.post("/{job}/stop", status_code=202, response_model=Job)
async def stop(job: JobId, served: Served) -> Response:
    """Stop a job; it can be resumed."""
    await actions.stop(served, job)
    return answer(await served.changed(job), 202)


@router.post("/{job}/seeds", response_model=SeedsAdded)
async def add_seeds(job: JobId, request: SeedsRequest, served: Served) -> Response:
    """Add seeds, also while it runs. Invalid ones are returned, the others added."""
    added = await actions.add_seeds(served, job, request)
    served.views.forget(job)
    return answer(added)


@router.post("/{job}/shards", response_model=Job)
async def set_shards(job: JobId, request: ShardsRequest, served: Served) -> Response:
    """Change the number of shards, also while it runs."""
    await actions.set_shards(served, job, request.shards)
    return answer(await served.changed(job))


@router.post("/{job}/release", response_model=Released)
async def release(job: JobId, request: ReleaseRequest, served: Served) -> Response:
    """Release parked domains and trapped URLs: they are fetched again."""
    if not (request.domains or request.reason or request.all):
        raise bad_field("domains", "", "Nothing is chosen.", "Give domains, a reason, or all.")
    released = await actions.release(served, job, request)
    served.views.forget(job)
    return answer(released)


@router.delete("/{job}", status_code=204, response_class=Response)
async def delete(job: JobId, served: Served, pages: Literal["true", "false"] = "false") -> Response:
    """Delete a job that does not run; with `pages=true` also its stored pages."""
    await actions.delete(served, job, pages=pages == "true")
    served.views.forget(job)
    return Response(status_code=204)
