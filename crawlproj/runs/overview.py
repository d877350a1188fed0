"""More of a run than its leader needs, for people who look: its processes, its pace, its domains."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.names import read_holders
from crawlproj.runs.processes import read_supervisors
from crawlproj.runs.record import Run
from crawlproj.runs.status import status_of

#: Domains of each partition looked at, and those read in one round trip. With 64 partitions a look takes some
#: 0.4 s of CPU.
MOST_DOMAINS = 250
_PAGE = 250
#: How many domains of a kind are named.
_NAMED = 5


async def overview_of(
    run: Run, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
) -> dict[str, Any]:
    """Return what `status_of` does and what the processes tell; as there, names only ever get added.

    Costs a round trip or two more, whatever the size of the run.
    """
    status, run_map = await status_of(run), await run.read_map()
    processes = await _processes(run, run_map.shards, now_ms())
    supervisors = await read_supervisors(run, now_ms())
    [leader] = await read_holders(run.door, [keys.leader(run.name)])
    lines = {
        instance: _line("supervisor", str(number), beat, now_ms())
        for number, (instance, beat) in enumerate(supervisors.items())
    }
    # In single mode a shard and a parser are one process, and both tell its memory.
    alone = {(line["host"], line["pid"]): line for line in processes}.values()
    return status | {
        "remaining": status["waiting"] + status["leased"],
        "limits": asdict(run_map.limits),
        "ran_seconds": round(run_map.ran_s, 1),
        "pages_per_second": _sum(processes, "shard", "pages_per_s"),
        "parsed_per_second": _sum(processes, "parser", "pages_per_s"),
        "memory_bytes": sum(line.get("memory_bytes", 0) for line in alone),
        "open_files": sum(line.get("open_files", 0) for line in alone),
        "processes": processes,
        # The one that leads the run; None if a shard does, or nobody.
        "supervisor": lines.get(leader.process.instance) if leader else None,
        "supervisors": list(lines.values()),
    }


async def domains_of(run: Run, most: int = MOST_DOMAINS) -> dict[str, Any]:
    """Return the domains that stand out among the first *most* or so of each partition.

    ``domains_are_sample`` says that there are more: then one that stands out more may be missing.
    """
    hottest: list[_Domain] = []
    slowest: list[_Domain] = []
    failing: list[_Domain] = []
    read: dict[int, int] = dict.fromkeys(range(run.partitions), 0)
    cursors = dict.fromkeys(read, b"0")
    is_sample = False
    while cursors:
        answers = await run.door.pipeline(
            [("HSCAN", keys.domains(run.name, p), cursor, "COUNT", _PAGE) for p, cursor in cursors.items()]
        )
        found = []
        for partition, (cursor, flat) in zip(list(cursors), answers, strict=True):
            page = pairs(flat)
            found += [_Domain.decode(domain, state) for domain, state in page]
            read[partition] += len(page)
            cursors[partition] = cursor
            if cursor == b"0" or read[partition] >= most:
                is_sample |= cursor != b"0"
                del cursors[partition]
        hottest = _first([*hottest, *(d for d in found if d.fetched)], lambda d: d.fetched)
        slowest = _first([*slowest, *(d for d in found if d.delay_ms)], lambda d: d.delay_ms)
        failing = _first([*failing, *(d for d in found if d.failures)], lambda d: d.failures)
    return {
        "domains_read": sum(read.values()),
        "domains_are_sample": is_sample,
        "hottest_domains": [asdict(domain) for domain in hottest],
        "slowest_domains": [asdict(domain) for domain in slowest],
        "failing_domains": [asdict(domain) for domain in failing],
    }


@dataclass(frozen=True, slots=True)
class _Domain:
    domain: str
    fetched: int
    admitted: int
    delay_ms: int
    #: In a row.
    failures: int
    bytes: int
    #: Why it is parked; '': it is not.
    parked: str

    @classmethod
    def decode(cls, domain: str, state: str) -> _Domain:
        _, _, failures, admitted, fetched, delay_ms, size, parked = state.split(" ")
        return cls(
            domain,
            int(fetched),
            int(admitted),
            int(delay_ms),
            int(failures),
            int(size),
            "" if parked == "-" else parked,
        )


def _first(domains: list[_Domain], figure: Callable[[_Domain], int]) -> list[_Domain]:
    # HSCAN may tell one twice.
    return heapq.nsmallest(_NAMED, dict.fromkeys(domains), key=lambda d: (-figure(d), d.domain))


async def _processes(run: Run, shards: int, now_ms: int) -> list[dict[str, Any]]:
    """Return a line of every process: shards by number, then parsers by name."""
    *held, parsers = await run.door.pipeline(
        [
            *(("GET", keys.shard(run.name, number)) for number in range(shards)),
            ("HGETALL", keys.parsers(run.name)),
        ]
    )
    lines = []
    for number, value in enumerate(held):
        if value:
            beat = json.loads(value.partition(b" ")[2])
            lines.append(_line("shard", str(number), beat | beat.pop("figures", {}), now_ms))
    for name, value in sorted(pairs(parsers)):
        lines.append(_line("parser", name, json.loads(value), now_ms))
    return lines


def _line(kind: str, name: str, beat: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return a heartbeat as it is shown. Of an older process only some figures are known."""
    process = beat.pop("process") or {}
    said_ms = beat.pop("renewed_ms", None) or beat.pop("at_ms")
    return {
        "kind": kind,
        "name": name,
        "host": process.get("host", ""),
        "pid": process.get("pid", 0),
        # Clocks of several machines differ.
        "silent_seconds": max(0.0, round((now_ms - said_ms) / 1000, 1)),
        **beat,
    }


def _sum(processes: list[dict[str, Any]], kind: str, figure: str) -> float:
    total: float = sum(line.get(figure, 0.0) for line in processes if line["kind"] == kind)
    return round(total, 1)
