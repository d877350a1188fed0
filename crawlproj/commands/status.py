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

from crawlproj.config.rules import shown
from crawlproj.console import RunCommand, spoken
from crawlproj.errors import BadArgument
from crawlproj.model.records import outcome_of
from crawlproj.runs import Run
from crawlproj.runs.overview import domains_of, overview_of
from crawlproj.runs.reasons import failure_lines, is_fruitless
from crawlproj.supervisor.progress import aligned, room_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Labels of the outcomes.
_OUTCOMES = {
    "fetched": "fetched",
    "skipped": "not allowed",
    "failed": "failed",
    "trapped": "trapped",
    "retried": "retried",
    "returned": "returned",
    "reclaimed": "reclaimed",
}
_WATCH_S = 2.0
#: How many changes of rules are shown.
_CHANGES = 5
_LEAST_WATCH_S = 0.5
#: Finding a few domains reads thousands, so less often than the rest.
_DOMAINS_EVERY_S = 10.0
#: Wide enough that no line is cut when the output is not a terminal.
_PLAIN_WIDTH = 200


class Command(RunCommand):
    group = "look"
    summary = "Show what a run is doing"
    requires_crawl = True
    examples = """\
  scrapy status                    a table
  scrapy status --watch            the same, refreshed every 2 seconds; Ctrl-C quits
  scrapy status --watch 10 >> log  a block every 10 seconds
  scrapy status --run news --json  one JSON object; with --watch, one per line
  scrapy status --rules            with all rules of the run, not only those that differ from the defaults"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--rules", action="store_true", help="show all rules of the run")
        parser.add_argument(
            "--watch",
            nargs="?",
            const=str(_WATCH_S),
            metavar="SECONDS",
            help=f"refresh every SECONDS (default: {_WATCH_S:g}) until Ctrl-C",
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproj.supervisor.view import console_for

        every_s = None if opts.watch is None else watch_seconds(opts.watch)
        console = console_for(sys.stdout, None if sys.stdout.isatty() else _PLAIN_WIDTH)
        async with self.found_run(opts) as run:
            statuses = _read_statuses(run, every_s, all_rules=opts.rules)
            try:
                if opts.json:
                    async for status in statuses:
                        print(json.dumps(status), flush=True)
                elif every_s is not None and console.is_terminal:
                    await _draw(console, statuses)
                else:
                    async for status in statuses:
                        _print(console, status, with_time=every_s is not None)
            except asyncio.CancelledError:
                # Ctrl-C is the normal end of --watch, and an interrupt otherwise.
                if every_s is None:
                    raise


def watch_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _LEAST_WATCH_S <= seconds < math.inf:
        raise BadArgument(f"--watch {text}: must be at least {_LEAST_WATCH_S:g} seconds.")
    return seconds


async def _read_statuses(
    run: Run, every_s: float | None, *, all_rules: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield the run's overview once, or every *every_s* seconds."""
    domains: dict[str, Any] = {}
    read_s = -math.inf
    while True:
        if time.monotonic() - read_s >= _DOMAINS_EVERY_S:
            domains, read_s = await domains_of(run), time.monotonic()
        status = await overview_of(run) | domains
        if all_rules:
            status["rules_shown"] = sorted(status["rules"])
        yield status
        if every_s is None:
            return
        await asyncio.sleep(every_s)


async def _draw(console: Console, statuses: AsyncIterator[dict[str, Any]]) -> None:
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for status in statuses:
            live.update(report_of(status), refresh=True)


def _print(console: Console, status: dict[str, Any], *, with_time: bool) -> None:
    if console.is_terminal:
        console.print(report_of(status))
        return
    if with_time:
        print(time.strftime("%Y-%m-%d %H:%M:%S"))
    # Flushed, so that a reader at the other end of a pipe sees each block at once.
    print("\n".join(table_of(status)) + ("\n" if with_time else ""), flush=True)


def report_of(status: dict[str, Any]) -> RenderableType:
    """Return the table for a terminal: groups of figures side by side where they fit."""
    from rich.columns import Columns
    from rich.console import Group

    from crawlproj.supervisor.view import style_of, text_of

    def text(block: list[str], style: str = "title") -> RenderableType:
        return text_of([(block[0], style), *((line, "") for line in [*block[1:], ""])])

    return Group(
        text(_head(status), style_of(status)),
        Columns(map(text, _groups(status)), padding=(0, 4), equal=True),
        *map(text, _tables(status)),
    )


def table_of(status: dict[str, Any]) -> list[str]:
    """Return the table as plain lines: groups of figures, each outcome followed by its reasons."""
    blocks = [*_groups(status), *_tables(status)]
    return [*_head(status), *(line for block in blocks for line in ("", *block))]


def _head(status: dict[str, Any]) -> list[str]:
    from crawlproj.supervisor.forecast import duration, size

    alive = ", ".join(f"{number} ({process})" for number, process in status["shards_alive"].items())
    limit = f" of {size(status['redis_memory_max_bytes'])}" if status["redis_memory_max_bytes"] else ""
    rates = f"{status['pages_per_second']:,.1f} pages/s fetched, {status['parsed_per_second']:,.1f} parsed"
    state = f"{status['state']}: {status['reason']}" if status["reason"] else status["state"]
    if status["interrupted"]:
        how = spoken(f"scrapy run --run {status['run']}")
        state = f"interrupted: no process is left; to resume: {how}"
    return [
        f"run {status['run']}, {state}",
        f"shards alive: {alive or 'none'}, of {status['shards']}",
        f"partitions owned: {status['partitions_owned']} of {status['partitions']}",
        f"ran for {duration(status['ran_seconds'])}; now {rates}",
        f"memory: {size(status['memory_bytes'])}, open files: {status['open_files']:,.0f}",
        f"memory of Redis: {size(status['redis_memory_bytes'])}{limit}",
        *(f"least free disk: {size(disk['free_bytes'])} on {disk['host']}" for disk in status["disks"][:1]),
        *room_lines(status),
        *_trouble(status),
    ]


def _trouble(status: dict[str, Any]) -> list[str]:
    """Return why there is no page yet, or at all."""
    why = failure_lines(status, all_kinds=True) if is_fruitless(status) else []
    return ["no page was fetched so far:", *why] if why else []


def _groups(status: dict[str, Any]) -> list[list[str]]:
    groups: dict[str, list[tuple[str, int]]] = {
        "URLs": [(name, status[name]) for name in ("admitted", "waiting", "leased", "remaining")],
        "outcomes": _outcomes(status),
        spoken("parked or trapped; see: scrapy parked"): [
            ("domains parked", status["parked_domains"]),
            ("URLs of parked domains", status["parked"]),
            ("URLs trapped", status["trapped_kept"]),
        ],
        "links not admitted": _most_first(status["filtered"]),
        "pages": [
            ("stored", status["pages_stored"]),
            ("  truncated", status["pages_cut"]),
            ("in open files", status["pages_being_parsed"]),
            ("on the queue", status["pages_queued"]),
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
    if rules := _rule_lines(status):
        tables.append(rules)
    if processes := status["processes"]:
        errors = [f"{name}: {error}" for name, error in last_errors(processes)]
        tables.append(["processes", *_indented([*process_lines(processes), *errors])])
    if files := status.get("spill_files"):
        how = spoken(f"scrapy parser --run {status['run']}")
        title = f"links on disk; a parser on that host admits them: {how}"
        tables.append([title, *_indented(_spill_lines(files))])
    if counted := [line for line in (*processes, *status["supervisors"]) if line.get("descriptors")]:
        tables.append(["open descriptors", *_indented(_descriptor_lines(counted))])
    sample = ""
    if status["domains_are_sample"]:
        sample = f"; from a sample of {status['domains_read']:,}"
    for kind, why in (("hottest", "most fetched"), ("slowest", "longest delay"), ("failing", "in a row")):
        if domains := status[f"{kind}_domains"]:
            tables.append([f"{kind} domains ({why}{sample})", *_indented(_domain_lines(domains))])
    return tables


def _rule_lines(status: dict[str, Any]) -> list[str]:
    """Return the rules of the run that are not the defaults, or all if asked for, and who changed some."""
    names = status.get("rules_shown", status["rules_not_default"])
    changes = [
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(change['at_ms'] / 1000))} {change['by']}: "
        + "; ".join(f"{name} {shown(old)} -> {shown(new)}" for name, (old, new) in change["values"].items())
        for change in status["rule_changes"][-_CHANGES:]
    ]
    if not names and not changes:
        return []
    title = "rules of the run" if "rules_shown" in status else "rules that are not the defaults"
    return [title, *_indented([f"{name}={shown(status['rules'][name])}" for name in names] + changes)]


def _descriptor_lines(processes: list[dict[str, Any]]) -> list[str]:
    from crawlproj.supervisor.view import name_of

    kinds = list(dict.fromkeys(kind for line in processes for kind in line["descriptors"]))
    rows = [("", *kinds, "process")]
    for line in processes:
        counts = (f"{line['descriptors'].get(kind, 0):,}" for kind in kinds)
        rows.append((name_of(line), *counts, f"{line['pid'] or '?'} on {line['host']}"))
    return aligned(rows)


def _spill_lines(files: list[dict[str, Any]]) -> list[str]:
    rows = [("host", "links", "file below DATA/runs/RUN/spills")]
    return aligned([*rows, *((file["host"], f"{file['links']:,}", file["file"]) for file in files)])


def _domain_lines(domains: list[dict[str, Any]]) -> list[str]:
    from crawlproj.supervisor.forecast import size

    rows = [("", "fetched", "admitted", "delay", "failures", "bytes", "")]
    rows += (
        (
            domain["domain"],
            f"{domain['fetched']:,}",
            f"{domain['admitted']:,}",
            f"{domain['delay_ms'] / 1000:,.{2 if domain['delay_ms'] < 100 else 1}f} s",
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
