"""``scrapy status``: what a run is doing."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument
from crawlproj.model.records import outcome_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from crawlproj.runs import Run

#: The outcomes as people read them.
_OUTCOMES = {
    "fetched": "fetched",
    "skipped": "not allowed",
    "failed": "failed",
    "trapped": "taken for traps",
    "retried": "tried again",
    "returned": "given back",
    "reclaimed": "lent again",
}
_WATCH_S = 2.0
_LEAST_WATCH_S = 0.5
#: Thousands of domains are read to find a few: not with every look.
_DOMAINS_EVERY_S = 10.0
#: How wide output is that nobody sees on a screen, so that no line of it is cut.
_PLAIN_WIDTH = 200


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy status                    a table for people
  scrapy status --watch            the same, drawn again every 2 seconds; Ctrl-C leaves
  scrapy status --watch 10 >> log  a block every 10 seconds
  scrapy status --run news --json  one JSON object for programs; with --watch, one a line"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Show what a run is doing"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--watch",
            nargs="?",
            const=str(_WATCH_S),
            metavar="SECONDS",
            help=f"look again every so many seconds (default: {_WATCH_S:g}), until Ctrl-C",
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.runs import Run
        from crawlproj.supervisor.view import console_for

        every_s = None if opts.watch is None else watch_seconds(opts.watch)
        console = console_for(sys.stdout, None if sys.stdout.isatty() else _PLAIN_WIDTH)
        async with self.door() as door:
            looks = _looks(await Run.find(door, self.run_name(opts)), every_s)
            try:
                if opts.json:
                    async for status in looks:
                        print(json.dumps(status), flush=True)
                elif every_s is not None and console.is_terminal:
                    await _draw(console, looks)
                else:
                    async for status in looks:
                        _print(console, status, with_time=every_s is not None)
            except asyncio.CancelledError:
                # Ctrl-C is how one stops watching; anything else it ends was not done.
                if every_s is None:
                    raise
        return None


def watch_seconds(text: str) -> float:
    """Read ``--watch``. Raises BadArgument."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _LEAST_WATCH_S <= seconds < math.inf:
        raise BadArgument(
            f"--watch {text}: give seconds from {_LEAST_WATCH_S:g}, or nothing for {_WATCH_S:g}."
        )
    return seconds


async def _looks(run: Run, every_s: float | None) -> AsyncIterator[dict[str, Any]]:
    """Yield what the run is doing: once, or every so many seconds."""
    from crawlproj.runs.overview import domains_of, overview_of

    domains: dict[str, Any] = {}
    read_s = -math.inf
    while True:
        if time.monotonic() - read_s >= _DOMAINS_EVERY_S:
            domains, read_s = await domains_of(run), time.monotonic()
        yield await overview_of(run) | domains
        if every_s is None:
            return
        await asyncio.sleep(every_s)


async def _draw(console: Console, looks: AsyncIterator[dict[str, Any]]) -> None:
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for status in looks:
            live.update(report_of(status), refresh=True)


def _print(console: Console, status: dict[str, Any], *, with_time: bool) -> None:
    if console.is_terminal:
        console.print(report_of(status))
        return
    if with_time:
        print(time.strftime("%Y-%m-%d %H:%M:%S"))
    # Flushed: whoever reads a block at a time should not wait for the next.
    print("\n".join(table_of(status)) + ("\n" if with_time else ""), flush=True)


def report_of(status: dict[str, Any]) -> RenderableType:
    """Return the table for a terminal: groups of figures side by side as far as there is room."""
    from rich.columns import Columns
    from rich.console import Group

    from crawlproj.supervisor.view import text_of

    def text(block: list[str]) -> RenderableType:
        return text_of([(block[0], "title"), *((line, "") for line in [*block[1:], ""])])

    return Group(
        text(_head(status)),
        Columns(map(text, _groups(status)), padding=(0, 4), equal=True),
        *map(text, _tables(status)),
    )


def table_of(status: dict[str, Any]) -> list[str]:
    """Return what people read: groups of figures, the reasons of each outcome below it."""
    blocks = [*_groups(status), *_tables(status)]
    return [*_head(status), *(line for block in blocks for line in ("", *block))]


def _head(status: dict[str, Any]) -> list[str]:
    from crawlproj.supervisor.view import duration, size

    alive = ", ".join(f"{number} ({process})" for number, process in status["shards_alive"].items())
    rates = f"{status['pages_per_second']:,.1f} pages/s fetched, {status['parsed_per_second']:,.1f} parsed"
    return [
        f"run {status['run']}, {status['state']}" + (f": {status['reason']}" if status["reason"] else ""),
        f"shards alive: {alive or 'none'}, of {status['shards']}",
        f"partitions owned: {status['partitions_owned']} of {status['partitions']}",
        f"ran for {duration(status['ran_seconds'])}; now {rates}",
        f"memory: {size(status['memory_bytes'])}, open files: {status['open_files']:,.0f}",
    ]


def _groups(status: dict[str, Any]) -> list[list[str]]:
    groups: dict[str, list[tuple[str, int]]] = {
        "URLs": [(name, status[name]) for name in ("admitted", "waiting", "leased", "remaining")],
        "outcomes": _outcomes(status),
        "set aside; scrapy parked lists them": [
            ("domains parked", status["parked_domains"]),
            ("URLs parked with them", status["parked"]),
            ("URLs kept as traps", status["trapped_kept"]),
        ],
        "links not admitted": _most_first(status["filtered"]),
        "pages": [
            ("stored", status["pages_stored"]),
            ("  cut", status["pages_cut"]),
            ("on the queue", status["pages_queued"]),
            ("being parsed", status["pages_being_parsed"]),
        ],
    }
    width = max(len(name) for figures in groups.values() for name, _ in figures)
    return [
        [title, *([f"  {name:<{width}} {count:>12,}" for name, count in figures] or ["  none"])]
        for title, figures in groups.items()
    ]


def _tables(status: dict[str, Any]) -> list[list[str]]:
    from crawlproj.supervisor.view import last_errors, process_lines

    tables = []
    if processes := status["processes"]:
        errors = [f"{name}: {error}" for name, error in last_errors(processes)]
        tables.append(["processes", *_indented([*process_lines(processes), *errors])])
    everybody = [*processes, *status["supervisors"]]
    if tellers := [line for line in everybody if line.get("descriptors")]:
        tables.append(["open descriptors", *_indented(_descriptor_lines(tellers))])
    sample = ""
    if status["domains_are_sample"]:
        sample = f"; of {status['domains_read']:,} looked at, there are more"
    for kind, why in (("hottest", "most fetched"), ("slowest", "longest delay"), ("failing", "in a row")):
        if domains := status[f"{kind}_domains"]:
            tables.append([f"{kind} domains ({why}{sample})", *_indented(_domain_lines(domains))])
    return tables


def _descriptor_lines(processes: list[dict[str, Any]]) -> list[str]:
    from crawlproj.supervisor.view import aligned, name_of

    kinds = list(dict.fromkeys(kind for line in processes for kind in line["descriptors"]))
    rows = [("", *kinds, "process")]
    for line in processes:
        counts = (f"{line['descriptors'].get(kind, 0):,}" for kind in kinds)
        rows.append((name_of(line), *counts, str(line["pid"] or "?")))
    return aligned(rows)


def _domain_lines(domains: list[dict[str, Any]]) -> list[str]:
    from crawlproj.supervisor.view import aligned, size

    rows = [("", "fetched", "admitted", "delay", "failures", "bytes", "")]
    rows += (
        (
            domain["domain"],
            f"{domain['fetched']:,}",
            f"{domain['admitted']:,}",
            f"{domain['delay_ms'] / 1000:,.1f} s",
            f"{domain['failures']:,}",
            size(domain["bytes"]),
            f"parked: {domain['parked']}" if domain["parked"] else "",
        )
        for domain in domains
    )
    return aligned(rows)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _outcomes(status: dict[str, Any]) -> list[tuple[str, int]]:
    reasons: dict[str, dict[str, int]] = {}
    for reason, count in status["by_reason"].items():
        reasons.setdefault(outcome_of(reason), {})[reason] = count
    figures: list[tuple[str, int]] = []
    for outcome, title in _OUTCOMES.items():
        figures.append((title, status[outcome]))
        figures += ((f"  {reason}", count) for reason, count in _most_first(reasons.get(outcome, {})))
    return figures


def _most_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
