"""A job as callers see it: its run in Redis, and what was asked for. Names are only ever added."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from crawlproj.config import Config
from crawlproj.errors import RunMismatch
from crawlproj.model.records import outcome_of
from crawlproj.model.run import RunPaths, RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord, JobRecords
from crawlproj.runs.overview import LITTLE_DISK_BYTES, overview_of

#: The states of a run, in the words of the API.
STATES = {
    RunState.CREATED: "pending",
    RunState.RUNNING: "processing",
    RunState.PAUSED: "paused",
    RunState.FINISHED: "completed",
    RunState.STOPPED: "stopped",
    RunState.FAILED: "failed",
}
_ENDS = ("completed", "stopped", "failed")
#: Of a job, but not of a line in the list of jobs.
DETAILS = ("processes", "rules", "links")
_COPIED = (
    *("failed", "skipped", "remaining", "waiting", "leased", "pages_stored", "pages_cut", "pages_queued"),
    *(
        "pages_being_parsed",
        "links_spilled",
        "bytes",
        "dead_letters",
        "pages_per_second",
        "parsed_per_second",
    ),
    *("parked_domains", "trapped", "redis_full"),
)
_LINKS = ("history", "pages", "domains", "events", "export", "deadletters")
#: What is shown of a process.
_FIGURES = ("kind", "name", "host", "pid", "silent_seconds", "pages_per_s", "memory_bytes", "open_files")


async def read_job(client: RedisClient, config: Config, job: str) -> dict[str, Any] | None:
    """Return all that is known of a job; None if there is none of this name."""
    record = await JobRecords(client).find(job)
    run = await Run.look_up(client, job)
    if run is None:
        return _waiting(record, config) if record else None
    try:
        overview = await overview_of(run)
        times = await client.command(
            "HMGET",
            keys.run_record(job),
            "created_ms",
            "running_ms",
            "finished_ms",
            "stopped_ms",
            "failed_ms",
        )
    except RunMismatch:
        # Deleted a moment ago.
        return None
    created, running, *ends = (int(value or 0) for value in times)
    state, reason = STATES[RunState(overview["state"])], overview["reason"]
    if state in _ENDS and _is_storing(overview):
        state, reason = "processing", "stores what was fetched"
    view: dict[str, Any] = _empty(job, config) | {name: overview[name] for name in _COPIED}
    limits = overview["limits"]
    percent, left_s = _progress(overview, limits)
    view |= {
        "state": state,
        "reason": reason,
        "created_at": iso_time(record.created_ms if record else created),
        "started_at": iso_time(running),
        "ended_at": iso_time(max(ends)) if state in _ENDS else None,
        "mode": _mode(record, overview),
        "spider": overview["spider"],
        "shards": overview["shards"],
        "parsers": record.request.get("parsers", "") if record else "",
        "total": overview["admitted"],
        "completed": overview["fetched"],
        "failed_by_reason": _by_reason(overview, "failed"),
        "skipped_by_reason": _by_reason(overview, "skipped"),
        "percent": 100.0 if state == "completed" else percent,
        "seconds_left": left_s if state == "processing" else None,
        "ran_seconds": overview["ran_seconds"],
        "limits": {f"max_{name}": value for name, value in limits.items()},
        "rules": _rules(record, overview),
        "processes": [_process(line) for line in (*overview["supervisors"], *overview["processes"])],
    }
    _add_record(view, record)
    view["problems"] = _problems(view, overview)
    return view


def summary_of(view: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in view.items() if name not in DETAILS}


def _empty(job: str, config: Config) -> dict[str, Any]:
    """Return the view of a job that has no run yet."""
    path = f"/api/jobs/{job}"
    return {
        "id": job,
        "state": "pending",
        "reason": "",
        "created_at": None,
        "started_at": None,
        "ended_at": None,
        "mode": "sharded",
        "spider": "",
        "shards": 0,
        "parsers": "",
        "total": 0,
        "completed": 0,
        "failed_by_reason": {},
        "skipped_by_reason": {},
        **dict.fromkeys(_COPIED, 0),
        "redis_full": "",
        "percent": None,
        "seconds_left": None,
        "ran_seconds": 0.0,
        "limits": {"max_pages": 0, "max_seconds": 0.0, "max_bytes": 0},
        "problems": [],
        "pages_path": str(RunPaths(config.data, job).pages),
        "rules": {},
        "processes": [],
        "links": {"self": path} | {name: f"{path}/{name}" for name in _LINKS},
    }


def _waiting(record: JobRecord, config: Config) -> dict[str, Any]:
    asked = record.request
    view = _empty(record.id, config) | {
        "created_at": iso_time(record.created_ms),
        "mode": asked.get("mode", "sharded"),
        "shards": asked.get("shards", 0),
        "parsers": asked.get("parsers", ""),
        "limits": {name: asked.get(name, 0) for name in ("max_pages", "max_seconds", "max_bytes")},
        "rules": asked.get("settings", {}),
        "reason": "starting" if record.starts else "waits for a free place",
    }
    _add_record(view, record)
    return view


def _add_record(view: dict[str, Any], record: JobRecord | None) -> None:
    """Show what a person did to a job that was being started, and why one cannot be."""
    if record is not None and record.held and view["state"] in ("pending", "processing"):
        view |= {"state": record.held, "reason": "asked"}
    if record is not None and record.error and view["state"] in ("pending", "processing", "failed"):
        view |= {"state": "failed", "reason": record.error}
        view["problems"] = [{"what": record.error, "remedy": "Correct it, then resume the job."}]


def _mode(record: JobRecord | None, overview: dict[str, Any]) -> str:
    if record is not None and "mode" in record.request:
        return str(record.request["mode"])
    shards = {(line["host"], line["pid"]) for line in overview["processes"] if line["kind"] == "shard"}
    parsers = {(line["host"], line["pid"]) for line in overview["processes"] if line["kind"] == "parser"}
    return "single" if shards and shards == parsers else "sharded"


def _rules(record: JobRecord | None, overview: dict[str, Any]) -> dict[str, Any]:
    rules = overview.get("rules") or (record.request.get("settings", {}) if record else {})
    shown = overview.get("rules_not_default")
    return dict(rules) if shown is None else {name: rules[name] for name in shown}


def _is_storing(overview: dict[str, Any]) -> bool:
    """Whether processes of a run that has ended still store pages: nobody should export it yet."""
    unstored = overview["pages_queued"] + overview["pages_being_parsed"]
    return bool(unstored and (overview["supervisors"] or overview["processes"]))


def _by_reason(overview: dict[str, Any], outcome: str) -> dict[str, int]:
    return {reason: count for reason, count in overview["by_reason"].items() if outcome_of(reason) == outcome}


def _process(line: dict[str, Any]) -> dict[str, Any]:
    shown = {name: line.get(name, 0) for name in _FIGURES}
    # Not from `started_ms`: the clocks of machines differ.
    shown["age_seconds"] = int(line.get("up_s", 0) + line["silent_seconds"])
    # None: it cannot be read, or is not known.
    shown["disk_free_bytes"] = line.get("disk_free_bytes")
    shown["cpu"] = line.get("cpu")
    shown["last_error"] = line.get("last_error", "")
    return shown


def _progress(overview: dict[str, Any], limits: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return how far a run is, in percent, and the seconds that are left, as the nearest limit has it."""
    done = overview["fetched"] + overview["failed"] + overview["skipped"]
    rate = overview["pages_per_second"]
    ways: list[tuple[float, float]] = []
    if limits["seconds"]:
        ways.append(
            (overview["ran_seconds"] / limits["seconds"], limits["seconds"] - overview["ran_seconds"])
        )
    pages_left = limits["pages"] - overview["fetched"]
    if limits["pages"] and pages_left < overview["remaining"]:
        ways.append((overview["fetched"] / limits["pages"], pages_left / rate if rate else math.inf))
    # Until the first pages are stored, nothing may be left because no link was found yet.
    elif done and (overview["remaining"] or overview["pages_stored"]):
        left = overview["remaining"]
        ways.append((done / (done + left), left / rate if rate else math.inf))
    if not ways:
        return None, None
    share, left_s = min(ways, key=lambda way: way[1])
    percent = round(min(100.0, 100 * share), 1)
    return percent, None if left_s == math.inf else max(0, round(left_s))


def _problems(view: dict[str, Any], overview: dict[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong now, or worth knowing, and what a person can do about it."""
    found: list[tuple[bool, str, str]] = [
        (bool(view["redis_full"]), view["redis_full"], "Give Redis more memory, or stop other runs."),
        *(
            (
                disk["free_bytes"] < LITTLE_DISK_BYTES,
                f"{disk['free_bytes'] / 1e6:,.0f} MB are free on the disk of {disk['host']}.",
                "Free some space there: without room its parsers wait.",
            )
            for disk in overview.get("disks", ())
        ),
        (
            bool(overview.get("interrupted")),
            "This job has no running processes.",
            "A server restarts it. If that does not happen, start one: crawlproj serve.",
        ),
        (
            bool(overview.get("admission_waits")),
            "Redis is short of room; links wait on disk.",
            "Give Redis more memory.",
        ),
        (
            bool(overview.get("storage_waits")),
            f"Pages cannot be stored: {overview.get('storage_waits')}",
            "Free some disk space, or fix the object store; parsers resume by themselves.",
        ),
        (
            view["state"] == "completed" and not view["completed"],
            "No page was fetched.",
            "See the parked domains, and what failed why: wrong names, no network, or robots.txt.",
        ),
    ]
    notes = [
        (
            view["parked_domains"] > 0,
            f"Parked domains: {view['parked_domains']:,}. They failed too often, or asked for a pause.",
            "See the domains; release those that should be tried again.",
        ),
        (
            view["dead_letters"] > 0,
            f"Pages that could not be parsed: {view['dead_letters']:,}.",
            "See the dead letters; replay them after an update.",
        ),
        (
            view["pages_cut"] > 0,
            f"Truncated pages: {view['pages_cut']:,}. Too large, or broken off by their site.",
            "Raise CRAWL_MAX_BODY if the ends of large ones matter.",
        ),
    ]
    listed = (("wrong", found), ("note", notes))
    problems = [
        {"what": what, "remedy": remedy, "level": level}
        for level, lines in listed
        for is_so, what, remedy in lines
        if is_so
    ]
    return [*view["problems"], *problems]


def iso_time(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else None
