"""The server itself: health, processes of all jobs, metrics."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time

from fastapi import APIRouter
from starlette.responses import Response

from crawlproj.api.answers import Health, WorkerList
from crawlproj.api.service import Served, Service, answer
from crawlproj.api.view import iso_time
from crawlproj.errors import CrawlError
from crawlproj.model.run import RunPaths, RunState
from crawlproj.observe.endpoint import CONTENT_TYPE
from crawlproj.observe.exposition import exposition_of_all
from crawlproj.observe.slots import ProcessMetrics, read_processes
from crawlproj.redisio import keys
from crawlproj.runs import Run
from crawlproj.runs.gauges import run_gauges

router = APIRouter(tags=["server"])

#: A load balancer does not wait longer.
_REDIS_S = 2.0
#: With less, pages cannot be stored much longer.
_LEAST_FREE_BYTES = 100_000_000
_ENDS = frozenset(state for state in RunState if state.is_end)
#: A server that leads shows every second that it is alive.
_LEADER_S = 30.0
#: Metrics on disk that are older are of dead processes; see `observe.slots`.
_LIVE_S = 60.0


@router.get("/api/health", response_model=Health, responses={503: {"model": Health}})
async def health(served: Served) -> Response:
    """Say whether jobs can be taken and pages stored; 503 if not."""
    problems: list[dict[str, str]] = []
    running = waiting = 0
    progress_ms = 0
    redis = "ok"
    disks = {socket.gethostname(): await asyncio.to_thread(_free_bytes, served)}
    try:
        async with asyncio.timeout(_REDIS_S):
            running, waiting, progress_ms, elsewhere = await _jobs(served)
            disks = elsewhere | disks
    except (TimeoutError, CrawlError) as exc:
        redis = str(exc) or "It did not answer in time."
        problems.append({"what": f"Redis: {redis}", "remedy": "Start it, or see REDIS_URL."})
    problems += [{"what": error, "remedy": "Jobs wait until it answers."} for error in served.places.errors]
    leader, silent_s = await asyncio.to_thread(served.lead.read)
    if silent_s > _LEADER_S:
        what = f"No jobs are started: {leader} holds the lead, and has shown no life for {silent_s:,.0f} s."
        problems.append({"what": what, "remedy": "Kill it; another server takes over at once."})
    host, free = min(disks.items(), key=lambda disk: disk[1])
    if free < _LEAST_FREE_BYTES:
        what = f"{free / 1e6:,.0f} MB are free on the disk of {host}."
        problems.append({"what": what, "remedy": "Free some space."})
    value = {
        "status": "unwell" if problems else "ok",
        "redis": redis,
        "leader": leader or None,
        "disk_free_bytes": free,
        "jobs_running": running,
        "jobs_waiting": waiting,
        "last_progress_at": iso_time(progress_ms),
        "problems": problems,
    }
    return answer(value, 503 if problems else 200)


@router.get("/api/workers", response_model=WorkerList)
async def workers(served: Served) -> Response:
    """List the shards, parsers and supervisors of all jobs, on all machines."""
    names = await Run.names(served.client)
    states = await served.client.pipeline([("HGET", keys.run_record(name), "state") for name in names])
    known = {name: state.decode() for name, state in zip(names, states, strict=True) if state}
    over = {name for name, state in known.items() if state in _ENDS}
    # Runs that were reopened are looked at again.
    served.left &= over
    asked = [name for name, state in known.items() if state != RunState.CREATED and name not in served.left]
    views = await asyncio.gather(*(served.views.get(name, 2.0) for name in asked))
    served.left |= over & {view["id"] for view in views if view and not view["processes"]}
    lines = [{"job": view["id"], **line} for view in views if view for line in view["processes"]]
    return answer({"workers": lines})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(served: Served) -> Response:
    """Prometheus metrics of all jobs on this machine that run."""
    runs = []
    for name in await Run.names(served.client):
        if await Run(served.client, name, 1).state() == RunState.RUNNING:
            try:
                figures = await run_gauges(await Run.find(served.client, name), served.config)
            except CrawlError:
                # Deleted a moment ago, or of another version.
                continue
            runs.append((name, figures, await asyncio.to_thread(_processes, served, name)))
    text = await asyncio.to_thread(exposition_of_all, runs)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


def _processes(service: Service, run: str) -> list[ProcessMetrics]:
    return list(read_processes(RunPaths(service.config.data, run).metrics / socket.gethostname(), _LIVE_S))


async def _jobs(service: Service) -> tuple[int, int, int, dict[str, int]]:
    """Return how many jobs run and wait, when one last made progress (ms), and the free room by host."""
    await service.client.command("PING")
    names = await service.records.open_names()
    views = [view for view in await asyncio.gather(*(service.views.get(name, 5.0) for name in names)) if view]
    running = sum(view["state"] == "processing" for view in views)
    waiting = sum(view["state"] == "pending" for view in views)
    done = sum(view["completed"] + view["failed"] + view["pages_stored"] for view in views)
    if done != service.progress[0]:
        service.progress = (done, int(time.time() * 1000))
    rooms = [
        (line["disk_free_bytes"], line["host"])
        for view in views
        for line in view["processes"]
        if line["disk_free_bytes"] is not None
    ]
    return running, waiting, service.progress[1], {host: free for free, host in sorted(rooms, reverse=True)}


def _free_bytes(service: Service) -> int:
    try:
        return shutil.disk_usage(service.config.data).free
    except OSError:
        return 0
