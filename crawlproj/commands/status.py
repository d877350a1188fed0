"""``scrapy status``: what a run is doing."""

from __future__ import annotations

import argparse
from typing import Any

from crawlproj.console import RunCommand

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


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy status                    a table for people
  scrapy status --run news --json  one JSON object for programs"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Show what a run is doing"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        import json

        from crawlproj.runs import Run, status_of

        async with self.door() as door:
            status = await status_of(await Run.find(door, self.run_name(opts)))
        if opts.json:
            print(json.dumps(status, indent=None))
            return None
        for line in table_of(status):
            print(line)
        return None


def table_of(status: dict[str, Any]) -> list[str]:
    """Return what people read: groups of figures, the reasons of each outcome below it."""
    alive = ", ".join(f"{number} ({process})" for number, process in status["shards_alive"].items())
    groups: dict[str, list[tuple[str, int]]] = {
        "URLs": [(name, status[name]) for name in ("admitted", "waiting", "leased")],
        "outcomes": _outcomes(status),
        "set aside; scrapy parked lists them": [
            ("domains parked", status["parked_domains"]),
            ("URLs parked with them", status["parked"]),
            ("URLs kept as traps", status["trapped_kept"]),
        ],
        "links not admitted": _most_first(status["filtered"]),
        "pages": [
            ("stored", status["pages_stored"]),
            ("on the queue", status["pages_queued"]),
            *((f"parser {name}", count) for name, count in status["parsers"].items()),
        ],
    }
    lines = [
        f"run {status['run']}, {status['state']}" + (f": {status['reason']}" if status["reason"] else ""),
        f"shards alive: {alive or 'none'}, of {status['shards']}",
        f"partitions owned: {status['partitions_owned']} of {status['partitions']}",
    ]
    width = max(len(name) for figures in groups.values() for name, _ in figures)
    for title, figures in groups.items():
        lines += ["", title, *(f"  {name:<{width}} {count:>12,}" for name, count in figures)]
        if not figures:
            lines.append("  none")
    return lines


def _outcomes(status: dict[str, Any]) -> list[tuple[str, int]]:
    reasons: dict[str, dict[str, int]] = {}
    for reason, count in status["by_reason"].items():
        reasons.setdefault(_outcome_of(reason), {})[reason] = count
    figures: list[tuple[str, int]] = []
    for outcome, title in _OUTCOMES.items():
        figures.append((title, status[outcome]))
        figures += ((f"  {reason}", count) for reason, count in _most_first(reasons.get(outcome, {})))
    return figures


def _outcome_of(reason: str) -> str:
    """Return the outcome a reason belongs to; what has no other is an error, and those are many."""
    if reason in ("robots", "excluded", "length"):
        return "skipped"
    if reason.startswith(("http_", "redirect", "bad_redirect", "content_type")):
        return "fetched"
    if reason.startswith("trap_"):
        return "trapped"
    return "retried" if reason.startswith("retry_") else "failed"


def _most_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
