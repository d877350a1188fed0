"""A comparison of crawls as one HTML page that loads no other file. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from crawlproj.charts import bar_chart, escaped, stacked_bars
from crawlproj.report.comparison import KINDS, Measured, table_of
from crawlproj.report.html import WIDTH_PX, date, document, figure, section, table

#: URLs of pages that differ are listed up to here.
_LISTED = 100


def render_comparison(
    seeds: str, crawls: Sequence[Measured], sentences: Sequence[str], *, made_at: datetime
) -> str:
    """Return the page. *seeds* says what was crawled, *sentences* is the verdict."""
    head, *rows = table_of(crawls)
    different = [(url, crawl.name) for crawl in crawls[1:] for url in crawl.texts.different[:_LISTED]]
    differences = table("Pages whose text differs", ["page", "in"], different)
    note = "CPU includes starting the processes. Other work on the machine changes the seconds most."
    parts = [
        f"<h1>Modes compared: {escaped(seeds)}</h1>",
        f"<h2>{escaped(sentences[0])}</h2>",
        *(f"<p>{escaped(sentence)}</p>" for sentence in sentences[1:]),
        section("Speed and cost", _charts(crawls)),
        f"<h2>Figures</h2>\n{table(f'Ratios are to {crawls[0].name}', head, rows)}",
        f"<h2>Texts</h2>\n{differences}" if different else "",
        f"<footer>Made {date(made_at.timestamp())} UTC by scrapy compare. {note}</footer>",
    ]
    return document(f"{seeds}: modes compared", parts)


def _charts(crawls: Sequence[Measured]) -> list[str]:
    seconds = {
        crawl.name: {
            "fetching": crawl.fetching_s,
            "starting and ending": max(0.0, crawl.seconds - crawl.fetching_s),
        }
        for crawl in crawls
    }
    cpu = {crawl.name: {label: crawl.cpu_ms_of(kind) for kind, label in KINDS.items()} for crawl in crawls}
    memory = {
        crawl.name: {"processes": crawl.memory_bytes / 1e6, "Redis": crawl.redis_bytes / 1e6}
        for crawl in crawls
    }
    rates = {crawl.name: crawl.pages_per_s for crawl in crawls}
    return [
        figure(bar_chart("Speed", "pages/s", rates, width_px=WIDTH_PX)),
        figure(stacked_bars("Time", "seconds", seconds, width_px=WIDTH_PX)),
        figure(
            stacked_bars("CPU", "ms per page", cpu, width_px=WIDTH_PX),
            "In single mode the shard parses, too, so that its time is in that of the shards.",
        ),
        figure(
            stacked_bars("Memory", "MB", memory, width_px=WIDTH_PX),
            "The most that all processes had at once; of Redis, what was added.",
        ),
    ]
