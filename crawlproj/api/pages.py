"""What a job has found: its pages, domains and dead letters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, Response

from crawlproj.api import actions
from crawlproj.api.answers import DeadLetterList, DomainList, Page, PageList, Replayed
from crawlproj.api.exports import MEDIA_TYPES, PARTS, export
from crawlproj.api.problems import Refused, bad_field
from crawlproj.api.requests import ReplayRequest
from crawlproj.api.service import JobId, Served, answer, service_of
from crawlproj.api.view import iso_time
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.pages.deadletters import DeadLetters
from crawlproj.redisio import keys
from crawlproj.storage.browse import PageFilter, browse, find_page

router = APIRouter(prefix="/api/jobs/{job}", tags=["pages"])

Limit = Annotated[int, Query(ge=1, le=200)]
Moment = Annotated[str, Query(max_length=40, pattern=r"^(\d{4}-\d\d-\d\d.*)?$", examples=["2026-01-31"])]
Cursor = Annotated[str, Query(max_length=300)]


@router.get("/pages", response_model=PageList)
async def list_pages(
    job: JobId,
    served: Served,
    domain: Annotated[str, Query(max_length=300)] = "",
    status: Annotated[int | None, Query(ge=0, le=999)] = None,
    q: Annotated[str, Query(max_length=200, description="In the URL, title or text.")] = "",
    since: Moment = "",
    until: Moment = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> Response:
    """List stored pages, the newest first. It searches for a moment, then `next` continues from there."""
    await served.run_of(job)
    wanted = PageFilter(domain.strip().lower(), status, q, _moment("since", since), _moment("until", until))
    directory = RunPaths(served.config.data, job).pages
    try:
        async with served.searching:
            found = await asyncio.to_thread(browse, directory, wanted, limit, cursor)
    except BadArgument as exc:
        raise bad_field("cursor", cursor, str(exc)) from exc
    total = await served.client.command("HGET", keys.page_counters(job), "stored")
    return answer(
        {
            "pages": found.lines,
            "next": found.cursor or None,
            "searched_pages": found.searched,
            "total_pages": int(total or 0),
        }
    )


@router.get("/pages/{page}", response_model=Page)
async def show_page(
    job: JobId, page: Annotated[str, PathParameter(max_length=300)], served: Served
) -> Response:
    """Show a stored page with its text."""
    await served.run_of(job)
    async with served.searching:
        row = await asyncio.to_thread(find_page, RunPaths(served.config.data, job).pages, page)
    if row is None:
        raise Refused(404, f"Job {job!r} has no page {page[:100]!r}.")
    return answer({"id": page, **row})


@router.get(
    "/export",
    response_class=FileResponse,
    responses={
        200: {"content": {media: {} for media in MEDIA_TYPES.values()}},
        206: {"description": "A part.", "content": {media: {} for media in (*MEDIA_TYPES.values(), PARTS)}},
        416: {"description": "The file is shorter."},
    },
)
async def export_pages(
    job: JobId,
    request: Request,
    form: Annotated[Literal["parquet", "jsonl", "csv", "warc"], Query(alias="format")] = "parquet",
) -> Response:
    """Export all stored pages as one file. A download can be resumed: Range, If-Range and ETag."""
    service = service_of(request.app)
    await service.run_of(job)
    file = await export(RunPaths(service.config.data, job), form, service.exporting)
    if file is None:
        raise Refused(404, f"Job {job!r} has no stored pages yet.")
    return FileResponse(file, media_type=MEDIA_TYPES[form], filename=file.name)


@router.get("/domains", response_model=DomainList)
async def list_domains(
    job: JobId,
    served: Served,
    sort: Literal["fetched", "delay", "failures"] = "fetched",
    q: Annotated[str, Query(max_length=300, description="Part of the name.")] = "",
    parked: Annotated[bool, Query(description="Only those that are parked.")] = False,
    limit: Limit = 50,
    cursor: Annotated[str, Query(pattern="^[0-9]{0,6}$")] = "",
) -> Response:
    """List the domains of a job, those with the highest value first; of a very large job only a sample."""
    run = await served.run_of(job)
    if run is None:
        return answer({"domains": [], "sample": False, "next": None})
    start = int(cursor or 0)
    lines, is_sample = await served.domains.read(run, sort)
    if q or parked:
        part = q.strip().lower()
        lines = [line for line in lines if part in line["domain"] and (line["parked"] or not parked)]
    following = str(start + limit) if start + limit < len(lines) else None
    return answer({"domains": lines[start : start + limit], "sample": is_sample, "next": following})


@router.get("/deadletters", response_model=DeadLetterList)
async def list_dead_letters(
    job: JobId,
    served: Served,
    limit: Limit = 50,
    cursor: Annotated[str, Query(pattern="^[0-9]{0,9}$")] = "",
) -> Response:
    """List pages that could not be parsed, the oldest first."""
    await served.run_of(job)
    letters = await _letters(served, job).list()
    start = int(cursor or 0)
    shown = [
        {
            "page": letter.page,
            "url": letter.url,
            "error": letter.error,
            "parser": letter.parser,
            "at": iso_time(letter.at_ms),
        }
        for letter in letters[start : start + limit]
    ]
    following = str(start + limit) if start + limit < len(letters) else None
    return answer({"deadletters": shown, "total": len(letters), "next": following})


@router.post("/deadletters/replay", response_model=Replayed)
async def replay_dead_letters(
    job: JobId, served: Served, request: Annotated[ReplayRequest | None, Body()] = None
) -> Response:
    """Parse dead letters again; without ids, all of them."""
    run = await served.run_of(job)
    if run is None:
        return answer({"replayed": 0})
    letters = _letters(served, job)
    chosen = (
        request.ids if request and request.ids is not None else [one.page for one in await letters.list()]
    )
    async with run.adding():
        replayed = await letters.replay(*chosen)
    if replayed:
        await actions.reopen(served, run)
    served.views.forget(job)
    return answer({"replayed": replayed})


def _letters(served: Served, job: str) -> DeadLetters:
    return DeadLetters(served.client, job, RunPaths(served.config.data, job).deadletters)


def _moment(field: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        wrong = f"{field}={text!r} is not a time."
        raise bad_field(field, text, wrong, "Use ISO 8601: 2026-01-31T12:00:00Z.") from None
