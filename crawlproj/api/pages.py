"""What a job has found: its pages, domains and dead letters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import (
    FileResponse,
    MalformedRangeHeader,
    RangeNotSatisfiable,
    Response,
    StreamingResponse,
)

from crawlproj.api import actions
from crawlproj.api.answers import DeadLetterList, DomainList, ExportLink, Page, PageList, Replayed
from crawlproj.api.domains import add_robots
from crawlproj.api.exports import MEDIA_TYPES, PARTS
from crawlproj.api.links import VALID_S
from crawlproj.api.problems import Refused, bad_field
from crawlproj.api.requests import ExportRequest, ReplayRequest
from crawlproj.api.service import JobId, Served, answer, service_of
from crawlproj.api.view import iso_time
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.pages.deadletters import DeadLetters
from crawlproj.redisio import keys
from crawlproj.redisio.stripes import read_page_counters
from crawlproj.storage.browse import PageFilter, browse, find_page
from crawlproj.storage.places import places_of

router = APIRouter(prefix="/api/jobs/{job}", tags=["pages"])

#: A used link is remembered for longer than it is valid: clocks of several servers differ.
_MEMORY = 10

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
    directory = places_of(RunPaths(served.config.data, job))[0].pages
    try:
        async with served.searching:
            found = await asyncio.to_thread(browse, directory, wanted, limit, cursor)
    except BadArgument as exc:
        raise bad_field("cursor", cursor, str(exc)) from exc
    counters = await read_page_counters(served.client, job)
    return answer(
        {
            "pages": found.lines,
            "next": found.cursor or None,
            "searched_pages": found.searched,
            "total_pages": counters["stored"],
        }
    )


@router.get("/pages/{page}", response_model=Page)
async def show_page(
    job: JobId, page: Annotated[str, PathParameter(max_length=300)], served: Served
) -> Response:
    """Show a stored page with its text."""
    await served.run_of(job)
    async with served.searching:
        row = await asyncio.to_thread(find_page, places_of(RunPaths(served.config.data, job))[0].pages, page)
    if row is None:
        raise Refused(404, f"Job {job!r} has no page {page[:100]!r}.")
    return answer({"id": page, **row})


@router.get(
    "/export",
    response_class=FileResponse,
    responses={
        200: {"content": {media: {} for media in MEDIA_TYPES.values()}},
        403: {"description": "The link has expired, or is not one of ours."},
        206: {"description": "A part.", "content": {media: {} for media in (*MEDIA_TYPES.values(), PARTS)}},
        410: {"description": "The link was used."},
        416: {"description": "The file is shorter."},
    },
)
async def export_pages(
    job: JobId,
    request: Request,
    form: Annotated[Literal["parquet", "jsonl", "csv", "warc"], Query(alias="format")] = "parquet",
    items: Annotated[bool, Query(description="What a spider has scraped, instead of the pages.")] = False,
    once: Annotated[str, Query(pattern="^([0-9a-f]{32})?$", description="Of a link to a download.")] = "",
) -> Response:
    """Export all stored pages as one file, sent as it is written.

    A download can be resumed: Range, If-Range and ETag.
    """
    service = service_of(request.app)
    await service.run_of(job)
    if once and not await service.client.command(
        "SET", keys.used_link(once), "", "NX", "PX", _MEMORY * VALID_S * 1000
    ):
        raise Refused(410, "This link was used. Ask for another one.")
    paths, kind = RunPaths(service.config.data, job), MEDIA_TYPES[form]
    if "Range" in request.headers:
        file, growing = await service.exports.file(paths, form, items=items), None
    else:
        file, growing = await service.exports.begin(paths, form, items=items)
    # The name says which segments are in it.
    headers = {"ETag": f'"{file.name}"', "Content-Disposition": f'attachment; filename="{file.name}"'}
    if growing is not None:
        return StreamingResponse(growing, media_type=kind, headers=headers)
    return _Download(file, media_type=kind, headers=headers)


@router.post("/export-link", status_code=201, response_model=ExportLink)
async def make_export_link(job: JobId, wanted: ExportRequest, request: Request) -> Response:
    """Prepare an export; returns a link to it for a browser, which cannot send a token with a link."""
    service = service_of(request.app)
    await service.run_of(job)
    paths = RunPaths(service.config.data, job)
    file = await service.exports.file(paths, wanted.format, items=wanted.items)
    query = {"format": wanted.format} | ({"items": "true"} if wanted.items else {})
    url, expires_s = service.links.make(f"/api/jobs/{job}/export", query)
    size = (await asyncio.to_thread(file.stat)).st_size
    return answer({"url": url, "expires_at": iso_time(expires_s * 1000), "bytes": size}, 201)


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
    shown = [dict(line) for line in lines[start : start + limit]]
    await add_robots(run, served.config, shown)
    return answer({"domains": shown, "sample": is_sample, "next": following})


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


class _Download(FileResponse):
    """A file, or a part of it. A malformed Range is ignored (RFC 9110, 14.2), not an error in plain text."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []
        except RangeNotSatisfiable:
            raise Refused(
                416,
                f"The file has {file_size:,} bytes, and this range has none of them. Leave out Range.",
                headers={"Content-Range": f"bytes */{file_size}"},
            ) from None


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
