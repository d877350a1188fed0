"""The report as one HTML page that loads no other file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from crawlproj.charts import bar_chart, column_chart, escaped, line_chart, share
from crawlproj.report.html import WIDTH_PX, date, document, duration, figure, section, size, table, tiles
from crawlproj.report.tally import Tally

#: Counters from Redis, by their names in `status_of`.
_RECORD = {
    "admitted": "admitted",
    "fetched": "fetched",
    "failed": "failed",
    "skipped": "not allowed",
    "trapped": "trapped",
    "retried": "retried",
    "waiting": "still waiting",
    "parked_domains": "domains parked",
}


def render(
    run: str, tally: Tally, *, made_at: datetime, status: Mapping[str, Any] | None = None, note: str = ""
) -> str:
    """Return the report of *run*. *status* is its `status_of`, if Redis is reachable.

    *note* says what the figures leave out.
    """
    totals = tally.totals
    state = f", {status['state']}" if status else ""
    parts = [
        f"<h1>Crawl report: {escaped(run)}</h1>",
        f"<p>{date(totals.begun_ms / 1000)} to {date(totals.ended_ms / 1000)} UTC{escaped(state)}</p>",
        f"<p>Not all pages: {escaped(note)}</p>" if note else "",
        tiles(_numbers(tally)),
        section("Speed", _speed(tally)),
        section("Responses", _responses(tally)),
        section("Content", _content(tally)),
        section("Domains", _domains(tally)),
        section("Politeness", _politeness(tally)),
        _frontier(status) if status else "",
        f"<footer>Made {date(made_at.timestamp())} UTC by scrapy report, from committed pages.</footer>",
    ]
    return document(f"{run}: crawl report", parts)


def _numbers(tally: Tally) -> list[tuple[str, str, str]]:
    """Return the tiles at the top: name, value, explanation."""
    totals = tally.totals
    pages, fetched, seconds = totals.pages, totals.fetched, totals.seconds
    rate = f"{fetched / seconds:,.1f}" if seconds else "-"
    median_ms, _, slow_ms = tally.latency_ms
    return [
        ("pages", f"{pages:,}", f"{share(totals.good, pages)} with status 2xx"),
        ("time", duration(seconds), "from the first page to the last"),
        ("pages per second", rate, "on average"),
        (
            "bytes",
            size(totals.body_bytes),
            f"{size(totals.body_bytes / (fetched or 1))} per page, decompressed",
        ),
        ("truncated", f"{totals.cut:,}", "the rest was over CRAWL_MAX_BODY, or never sent"),
        ("domains", f"{totals.domains:,}", f"{pages / totals.domains:,.1f} pages each"),
        ("no response", f"{totals.failures:,}", f"{share(totals.failures, pages)} of all pages"),
        ("not allowed", f"{totals.skipped:,}", "never requested: robots.txt, or a rule of the run"),
        ("HTTP errors", f"{totals.http_errors:,}", f"{share(totals.http_errors, pages)}, 4xx and 5xx"),
        ("latency", f"{median_ms:,} ms", f"median; 99 % within {slow_ms:,} ms"),
        (
            "duplicates",
            f"{totals.same_body:,}",
            f"{share(totals.same_body, totals.good)} by bytes; {totals.same_text:,} by text",
        ),
    ]


def _speed(tally: Tally) -> list[str]:
    unit, unit_s = _unit(tally.totals.seconds)
    since = f"{unit} since the first page"

    def over_time(title: str, y: str, series: Mapping[str, Sequence[float]]) -> str:
        times = [part.middle_s / unit_s for part in tally.slices]
        lines = {name: list(zip(times, values, strict=True)) for name, values in series.items()}
        return figure(line_chart(title, since, y, lines, width_px=WIDTH_PX))

    return [
        over_time(
            "Pages over time",
            "pages/s",
            {
                "all": [part.pages_per_s for part in tally.slices],
                "no response": [part.failures_per_s for part in tally.slices],
            },
        ),
        over_time("Bytes over time", "MB/s", {"": [part.bytes_per_s / 1e6 for part in tally.slices]}),
    ]


def _responses(tally: Tally) -> list[str]:
    median_ms, most_ms, slow_ms = tally.latency_ms
    latency = f"50 % within {median_ms:,} ms, 90 % within {most_ms:,} ms, 99 % within {slow_ms:,} ms."
    return [
        _shares("Status", _outcomes(tally), tally.totals.pages),
        _shares("Errors", tally.errors, tally.totals.pages, "Why there was no response, or no text."),
        _columns("Latency", "ms to the first byte", tally.latencies, latency),
    ]


def _content(tally: Tally) -> list[str]:
    return [
        _shares("Content types", tally.content_types, tally.totals.good, "Of pages with status 2xx."),
        _shares("Languages", tally.languages, tally.totals.good, "As detected in the text."),
        _columns("Sizes", "bytes, decompressed", tally.sizes, "Of pages with status 2xx."),
        _columns("Depth", "links from a seed", tally.depths),
        figure(
            bar_chart(
                "Duplicates",
                "pages",
                {
                    "unique": tally.totals.good - tally.totals.same_body,
                    "same bytes as another": tally.totals.same_body,
                    "same text as another": tally.totals.same_text,
                },
                width_px=WIDTH_PX,
            ),
            "Of pages with status 2xx; the first of several does not count. Texts are compared by simhash.",
        ),
    ]


def _domains(tally: Tally) -> list[str]:
    failing = [
        (line.domain, f"{line.pages:,}", f"{line.failures:,}", f"{line.http_errors:,}", line.trouble)
        for line in tally.failing
    ]
    slowest = [
        (line.domain, f"{line.pages:,}", f"{line.mean_latency_ms:,.0f} ms", f"{line.longest_latency_ms:,} ms")
        for line in tally.slowest
    ]
    others = tally.totals.domains - len(tally.top_domains)
    rest = f"And {others:,} more domains with {tally.totals.pages - sum(tally.top_domains.values()):,} pages."
    return [
        _shares("Largest domains", tally.top_domains, tally.totals.pages, rest if others else ""),
        _columns("Domains by size", "pages of a domain", tally.domains_by_pages, y="domains"),
        table("Failing domains", ["domain", "pages", "no response", "4xx, 5xx", "mostly"], failing),
        table("Slowest domains", ["domain", "responses", "mean latency", "longest"], slowest),
    ]


def _politeness(tally: Tally) -> list[str]:
    pauses = tally.pauses
    measure = "From the end of one response of a domain to the start of its next request."
    against = (
        f"{pauses.too_short:,} of {pauses.with_delay:,} too short by more than a tenth and 0.1 s. Smaller "
        "differences mean nothing: a shard notes the time a little after a page ends."
    )
    shortest = [
        (line.domain, f"{line.pauses:,}", f"{line.shortest_s:.3f} s", f"{line.delay_s:g} s")
        for line in pauses.shortest
    ]
    return [
        _columns("Pauses", "seconds", pauses.by_length, measure, y="pauses"),
        _columns("Pauses relative to the delay", "times the delay", pauses.by_multiple, against, y="pauses"),
        table("Shortest pauses", ["domain", "pauses", "shortest", "delay"], shortest),
    ]


def _frontier(status: Mapping[str, Any]) -> str:
    numbers = [(name, f"{status[key]:,}", "") for key, name in _RECORD.items()]
    reasons = [(name, f"{count:,}") for name, count in status["by_reason"].items()]
    filtered = [(name, f"{count:,}") for name, count in status["filtered"].items()]
    reason = f"<p>Reason of the end: {escaped(status['reason'])}</p>" if status["reason"] else ""
    return (
        f"<h2>URLs, from Redis</h2>{reason}{tiles(numbers)}<p>&nbsp;</p>"
        f'<div class="cards">{table("Outcomes by reason", ["reason", "URLs"], reasons)}'
        f"{table('Links not admitted', ['rule', 'links'], filtered)}</div>"
    )


def _shares(title: str, counts: Mapping[str, int], total: int, caption: str = "") -> str:
    return figure(bar_chart(title, "pages", counts, whole=total, width_px=WIDTH_PX), caption)


def _columns(title: str, x: str, counts: Mapping[str, int], caption: str = "", y: str = "pages") -> str:
    return figure(column_chart(title, x, y, counts, width_px=WIDTH_PX), caption)


def _outcomes(tally: Tally) -> dict[str, int]:
    """Return the outcomes of the pages, most frequent first."""
    skipped = {f"not allowed: {reason}": count for reason, count in tally.refusals.items()}
    answered = {_status(status): count for status, count in tally.statuses.items()}
    failures = {"no response": tally.totals.failures} if tally.totals.failures else {}
    return dict(sorted((answered | failures | skipped).items(), key=lambda outcome: -outcome[1]))


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _unit(seconds: float) -> tuple[str, float]:
    """Return a handy unit for so many seconds, and its length."""
    for name, length_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 3 * length_s:
            return name, length_s
    return "seconds", 1.0
