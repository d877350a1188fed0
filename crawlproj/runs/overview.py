"""The status of a run in detail: its processes, its speed, its domains."""

from __future__ import annotations

import heapq
import json
from dataclasses import asdict
from typing import Any

from crawlproj.config.rules import Rules
from crawlproj.model.domain import DomainState
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import read_holders
from crawlproj.redisio.stripes import read_hash
from crawlproj.runs.membership import Member, read_members
from crawlproj.runs.processes import is_interrupted
from crawlproj.runs.record import Run
from crawlproj.runs.status import status_of

#: Domains read of each partition, and per round trip. With 64 partitions that takes some 0.4 s of CPU.
MOST_DOMAINS = 250
_PAGE = 250
#: With less, pages cannot be stored much longer.
LITTLE_DISK_BYTES = 1_000_000_000
#: How many domains of each kind are returned.
_NAMED = 5
#: The kinds, and the figure that is highest for each.
_DOMAIN_KINDS = {"hottest_domains": "fetched", "slowest_domains": "delay_ms", "failing_domains": "failures"}


async def overview_of(run: Run, now_ms: int = 0) -> dict[str, Any]:
    """Return `status_of` plus the heartbeats of the processes; an interface, so names are only ever added.

    Costs a few round trips more, whatever the size of the run. *now_ms* is for tests.
    """
    status, run_map = await status_of(run), await run.read_map()
    now_ms = now_ms or await server_ms(run.client)
    processes = await _processes(run, run_map.shards, now_ms)
    members = await read_members(run, now_ms)
    [leader] = await read_holders(run.client, [keys.leader(run.name)])
    lines = {
        instance: _line("supervisor", str(number), _beat(member), now_ms)
        for number, (instance, member) in enumerate(members.items())
    }
    # In single mode a shard and a parser are one process, and both report its memory.
    alone = {(line["host"], line["pid"]): line for line in processes}.values()
    rules = Rules.decode(run_map.rules, run.name) if run_map.rules else None
    return status | {
        # Its rules, and which of them are not the defaults; empty if no process has worked on it yet.
        "spider": rules.spider if rules else "",
        "rules": rules.plain() if rules else {},
        "rules_not_default": sorted(rules.unusual()) if rules else [],
        "rule_changes": list(rules.changes) if rules else [],
        "remaining": status["waiting"] + status["leased"],
        "pages_per_second": _pages_per_s(processes, "shard"),
        "parsed_per_second": _pages_per_s(processes, "parser"),
        "memory_bytes": sum(line.get("memory_bytes", 0) for line in alone),
        "open_files": sum(line.get("open_files", 0) for line in alone),
        # It should be running, but no process of it is left.
        "interrupted": await is_interrupted(run, run_map.state),
        "processes": processes,
        # The hosts that store, the one with the least room first.
        "disks": _disks([*processes, *lines.values()]),
        # Redis is short of room, so links are spilled: as its parsers say.
        "admission_waits": any(line.get("short_of_room") for line in processes),
        # Why a parser cannot store pages; '': all can.
        "storage_waits": next((why for line in processes if (why := line.get("waits_for_store"))), ""),
        # The one that leads the run, if any.
        "supervisor": lines.get(leader.process.instance) if leader else None,
        "supervisors": list(lines.values()),
    }


async def domains_of(run: Run, most: int = MOST_DOMAINS) -> dict[str, Any]:
    """Return the hottest, slowest and failing domains among the first *most* or so of each partition.

    ``domains_are_sample``: there are more, so a more extreme one may be missing.
    """
    shown: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _DOMAIN_KINDS}
    read: dict[int, int] = dict.fromkeys(range(run.partitions), 0)
    cursors = dict.fromkeys(read, b"0")
    is_sample = False
    while cursors:
        answers = await run.client.pipeline(
            [("HSCAN", keys.domains(run.name, p), cursor, "COUNT", _PAGE) for p, cursor in cursors.items()]
        )
        found = []
        for partition, (cursor, flat) in zip(list(cursors), answers, strict=True):
            page = pairs(flat)
            found += [domain_line(domain, DomainState.decode(text)) for domain, text in page]
            read[partition] += len(page)
            cursors[partition] = cursor
            if cursor == b"0" or read[partition] >= most:
                is_sample |= cursor != b"0"
                del cursors[partition]
        for kind, figure in _DOMAIN_KINDS.items():
            # By name, as HSCAN may return one twice.
            different = {d["domain"]: d for d in (*shown[kind], *found) if d[figure]}
            shown[kind] = heapq.nsmallest(_NAMED, different.values(), key=lambda d: (-d[figure], d["domain"]))
    return {"domains_read": sum(read.values()), "domains_are_sample": is_sample, **shown}


def domain_line(domain: str, state: DomainState) -> dict[str, Any]:
    return {
        "domain": domain,
        "fetched": state.fetched,
        "admitted": state.admitted,
        "delay_ms": state.delay_ms,
        "failures": state.fails,
        "bytes": state.bytes,
        # Why; '': it is not parked.
        "parked": state.parked,
    }


async def _processes(run: Run, shards: int, now_ms: int) -> list[dict[str, Any]]:
    """Return a line of every process: shards by number, then parsers by name."""
    held = await run.client.pipeline([("GET", keys.shard(run.name, number)) for number in range(shards)])
    parsers = await read_hash(run.client, run.name, keys.parsers)
    lines = []
    for number, value in enumerate(held):
        if value:
            beat = json.loads(value.partition(b" ")[2])
            lines.append(_line("shard", str(number), beat | beat.pop("figures", {}), now_ms))
    for name, value in sorted(parsers.items()):
        lines.append(_line("parser", name, json.loads(value), now_ms))
    return lines


def _beat(member: Member) -> dict[str, Any]:
    known = {"process": asdict(member.process), "at_ms": member.at_ms, "brings_shards": member.shards}
    return {**member.figures, **known}


def _line(kind: str, name: str, beat: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return a heartbeat as it is shown. One of an older version may lack some figures."""
    process = beat.pop("process") or {}
    said_ms = beat.pop("renewed_ms", None) or beat.pop("at_ms")
    return {
        "kind": kind,
        "name": name,
        "host": process.get("host", ""),
        "pid": process.get("pid", 0),
        "silent_seconds": max(0.0, round((now_ms - said_ms) / 1000, 1)),
        **beat,
    }


def _disks(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the free room that processes report, the least of each host: their directories may differ."""
    free: dict[str, int] = {}
    for line in processes:
        if (room := line.get("disk_free_bytes")) is not None:
            free[line["host"]] = min(room, free.get(line["host"], room))
    return [{"host": host, "free_bytes": room} for host, room in sorted(free.items(), key=lambda one: one[1])]


def _pages_per_s(processes: list[dict[str, Any]], kind: str) -> float:
    total: float = sum(line.get("pages_per_s", 0.0) for line in processes if line["kind"] == kind)
    return round(total, 1)
