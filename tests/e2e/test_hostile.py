"""Servers that mean harm: each ends in bounded time with the right outcome, and the rest is crawled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.hostile import PAGE_KINDS, RESET_AFTER, ROBOTS_KINDS, Hostile
from crawlproj.simweb.sites import address_of
from crawlproj.simweb.spec import WorldSpec

pytestmark = pytest.mark.e2e

#: Domains that mean no harm; they come first, because others hang below the low numbers.
ORDINARY = 4
PAGES = 4
#: The default; said here because the outcomes below are about it.
MAX_BODY = 100_000
#: What a shard and a parser need for themselves is about 100 MB and 150 MB. One bomb is 256 MB inflated, an
#: endless body comes with up to 64 MB a second.
MOST_MEMORY_BYTES = 300_000_000
#: One connection for each of the domains below, twice, and what a process needs besides.
MOST_OPEN_FILES = 150

#: Limits in the order in which they must strike; the server itself would continue for `hostile_s`.
LIMITS = {
    "CRAWL_MAX_ATTEMPTS": "2",
    "CRAWL_MAX_BODY": str(MAX_BODY),
    "CRAWL_HEADER_SECONDS": "1.5",
    "CRAWL_IDLE_SECONDS": "1.5",
    "DOWNLOAD_TIMEOUT": "4",
    "CRAWL_BACKOFF_SECONDS": "0.1",
    "CRAWL_MAX_BACKOFF_SECONDS": "0.5",
}
HARM = {"hostile_step_ms": 300, "hostile_s": 25, "bomb_bytes": 1 << 28}


class Row(NamedTuple):
    """What is stored of a hostile page."""

    status: int
    error: str | None = None
    truncated: bool = False
    #: How often it was asked for.
    tries: int = 1


CUT = Row(200, truncated=True)
TOO_LARGE = Row(0, "headers_too_large")
PAGE_ROWS = {
    Hostile.SLOWLORIS: Row(0, "header_timeout", tries=2),
    Hostile.ENDLESS_HEADERS: TOO_LARGE,
    Hostile.ENDLESS_LINE: TOO_LARGE,
    Hostile.ENDLESS_1XX: Row(0, "bad_response", tries=2),
    Hostile.HEADER_FLOOD: TOO_LARGE,
    Hostile.ENDLESS_BODY: CUT,
    Hostile.ENDLESS_CHUNKS: CUT,
    # The last time, what came of a body that cannot end well is taken.
    Hostile.CHUNK_OVERFLOW: CUT._replace(tries=2),
    Hostile.LONG_LENGTH: CUT._replace(tries=2),
    Hostile.SHORT_LENGTH: Row(200),
    Hostile.DRIP: Row(0, "total_timeout", tries=2),
    Hostile.HANG: Row(0, "header_timeout", tries=2),
    Hostile.HANG_HEAD: Row(0, "idle_timeout", tries=2),
    Hostile.HANG_BODY: Row(0, "idle_timeout", tries=2),
    Hostile.BOMB_GZIP: CUT,
    Hostile.BOMB_BR: CUT,
    Hostile.BOMB_ZSTD: CUT,
    Hostile.BOMB_NESTED: CUT,
    Hostile.GARBAGE: Row(0, "bad_response", tries=2),
    Hostile.TLS: Row(0, "bad_response", tries=2),
    Hostile.REDIRECT_LOOP: Row(302),
    Hostile.REDIRECT_CHAIN: Row(302),
    Hostile.REDIRECT_SELF: Row(302),
}

#: The kinds of rows that the pages of a domain have: status and error.
Rows = set[tuple[int, str | None]]
FETCHED: Rows = {(200, None)}
REFUSED: Rows = {(0, "headers_too_large")}
UNREACHABLE: Rows = {(0, "robots_unreachable")}
#: The site itself seems to be in trouble: its URLs are kept, in case it recovers, and none has a row.
PARKED: Rows = set()
ROBOTS_ROWS = {
    Hostile.SLOWLORIS: PARKED,
    Hostile.ENDLESS_HEADERS: REFUSED,
    Hostile.ENDLESS_LINE: REFUSED,
    Hostile.ENDLESS_1XX: UNREACHABLE,
    Hostile.HEADER_FLOOD: REFUSED,
    Hostile.ENDLESS_BODY: FETCHED,
    Hostile.ENDLESS_CHUNKS: FETCHED,
    Hostile.CHUNK_OVERFLOW: UNREACHABLE,
    Hostile.DRIP: PARKED,
    Hostile.HANG: PARKED,
    Hostile.HANG_HEAD: PARKED,
    Hostile.HANG_BODY: PARKED,
    Hostile.LONG_LENGTH: UNREACHABLE,
    Hostile.SHORT_LENGTH: FETCHED,
    Hostile.RESET: PARKED,
    Hostile.BOMB_GZIP: FETCHED,
    Hostile.BOMB_BR: FETCHED,
    Hostile.BOMB_ZSTD: FETCHED,
    Hostile.BOMB_NESTED: FETCHED,
    Hostile.GARBAGE: UNREACHABLE,
    Hostile.TLS: UNREACHABLE,
    Hostile.REDIRECT_CHAIN: FETCHED,
    Hostile.REDIRECT_SELF: FETCHED,
    Hostile.BIG: FETCHED,
    Hostile.REDIRECT_OTHER: FETCHED,
}


class Usage:
    """The most memory and files that processes were seen to use."""

    def __init__(self) -> None:
        self.memory_bytes = 0
        self.open_files = 0

    def look(self, pid: int) -> None:
        # It may end while we look.
        with suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            self.open_files = max(self.open_files, len(list(Path(f"/proc/{pid}/fd").iterdir())))
            if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
                self.memory_bytes = max(self.memory_bytes, int(peak[1]) * 1024)


def crawl(crew: Any) -> Usage:
    """Crawl the world with one shard to its own end, and watch the processes meanwhile."""
    crew.start(shards=1)
    usage = Usage()

    def has_ended() -> bool:
        for process in crew.processes:
            usage.look(process.process.pid)
        return not any(process.is_running for process in crew.processes)

    crew.wait_until(has_ended, "the crawl has ended by itself")
    crew.finish(*crew.processes)
    return usage


def status_of(crew: Any, json_of: Callable[[str], Any]) -> dict[str, Any]:
    command = crew.scrapy("status", "--json", name="status")
    assert command.wait() == 0, command.log
    status: dict[str, Any] = json_of(command.log)
    return status


def test_every_hostile_page_has_its_row_and_the_shard_continues(
    crew_of: Callable[..., Any], json_of: Callable[[str], Any]
) -> None:
    kinds = dict(enumerate((kind for kind in PAGE_KINDS if kind is not Hostile.RESET), ORDINARY))
    crew = crew_of(
        WorldSpec.calm(
            seed=7,
            domains=ORDINARY + len(kinds),
            pages_per_domain=PAGES,
            size_spread=0.0,
            overrides={number: {"hostile": str(kind)} for number, kind in kinds.items()},
            **HARM,
        ),
        **LIMITS,
    )

    usage = crawl(crew)

    rows = {page["url"]: page for page in crew.pages()}
    asked = Counter(request.url for request in read_log(crew.simweb.log_path))
    found = {
        kind: Row(row["status"], row["error"], row["truncated"], asked[url])
        for number, kind in kinds.items()
        for url in crew.simweb.world.hostile_urls(number)
        if (row := rows.get(url))
    }
    assert found == PAGE_ROWS
    assert max(page["body_bytes"] for page in rows.values()) == MAX_BODY
    assert not [page["url"] for page in rows.values() if page["title"] == "poison"]
    # What is not hostile was fetched, from the hostile domains as well.
    crew.assert_content()
    status = status_of(crew, json_of)
    counted = {reason: n for reason, n in status["by_reason"].items() if not reason.startswith("retry_")}
    assert counted.pop("redirected") > 0
    # A chain of redirects ends with one that is not followed; a loop leads to what was seen before.
    assert counted["redirects"] == 2
    assert counted == Counter(page["error"] for page in rows.values() if page["error"])
    assert status["fetched"] + status["failed"] == status["pages_stored"] == len(rows)
    assert (status["waiting"], status["leased"], status["parked"]) == (0, 0, 0)
    assert usage.memory_bytes < MOST_MEMORY_BYTES
    assert usage.open_files < MOST_OPEN_FILES


def test_a_page_may_be_reset_at_any_byte(crew_of: Callable[..., Any], json_of: Callable[[str], Any]) -> None:
    crew = crew_of(
        WorldSpec.calm(seed=7, domains=2, pages_per_domain=PAGES, overrides={1: {"hostile": "reset"}}),
        # More than the pages that fail in a row: the site is not to be given up before all were tried.
        **(LIMITS | {"CRAWL_GIVE_UP_FAILURES": "10", "CRAWL_MAX_BACKOFF_SECONDS": "0.1"}),
    )

    crawl(crew)

    rows = {page["url"]: page for page in crew.pages()}
    asked = Counter(request.url for request in read_log(crew.simweb.log_path))
    found = {
        after: Row(row["status"], row["error"], row["truncated"], asked[url])
        for after, url in zip(RESET_AFTER, crew.simweb.world.hostile_urls(1), strict=True)
        if (row := rows.get(url))
    }
    # Not a byte came: that is the site's fault, so it is tried as often as a site. On a kept connection that
    # says nothing yet: then it is asked once more, after a pause.
    assert found.pop(0)._replace(tries=0) == Row(0, "no_answer", tries=0)
    assert asked[crew.simweb.world.hostile_urls(1)[RESET_AFTER.index(0)]] in range(10, 14)
    assert found == {
        **dict.fromkeys((1, 8, 12, 15, 40, 60, 95), Row(0, "connection_lost", tries=2)),
        # Here the head was whole, and the last time its body is taken as far as it came.
        **dict.fromkeys((96, 97, 98, 200), CUT._replace(tries=2)),
    }
    ordinary = {url for url in crew.referee().expected if "/hostile/" not in url}
    assert ordinary - {url for url, row in rows.items() if row["status"] == 200} == set()
    delay_ms = float(crew.settings["DOWNLOAD_DELAY"]) * 1000
    problems = crew.referee().verdict(min_gap_ms=delay_ms).problems
    assert [problem for problem in problems if "too soon" in problem] == []
    reasons = status_of(crew, json_of)["by_reason"]
    assert (reasons["connection_lost"], reasons["no_answer"]) == (7, 1)


def test_every_hostile_robots_txt_ends_and_none_is_taken_for_leave(
    crew_of: Callable[..., Any], json_of: Callable[[str], Any]
) -> None:
    # A loop waits for the turns of other domains, and here we might give up first: test_politeness has it.
    kinds = dict(enumerate((kind for kind in ROBOTS_KINDS if kind is not Hostile.REDIRECT_LOOP), ORDINARY))
    crew = crew_of(
        WorldSpec.calm(
            seed=8,
            domains=ORDINARY + len(kinds),
            pages_per_domain=PAGES,
            size_spread=0.0,
            overrides={number: {"robots_hostile": str(kind)} for number, kind in kinds.items()},
            **HARM,
        ),
        **(LIMITS | {"CRAWL_GIVE_UP_FAILURES": "3", "CRAWL_BACKOFF_SECONDS": "0.3"}),
    )

    usage = crawl(crew)

    pages = crew.pages()
    found: dict[Hostile, Rows] = {
        kind: {(page["status"], page["error"]) for page in pages if page["domain"] == address_of(number)}
        for number, kind in kinds.items()
    }
    assert found == ROBOTS_ROWS
    # The referee knows which of these domains may be fetched from: none without an answer.
    crew.assert_content()
    status = status_of(crew, json_of)
    errors = Counter(page["error"] for page in pages if page["error"])
    assert {reason: status["by_reason"].get(reason) for reason in errors} == errors
    assert status["failed"] == errors.total()
    assert status["parked_domains"] == sum(rows == PARKED for rows in ROBOTS_ROWS.values())
    assert usage.memory_bytes < MOST_MEMORY_BYTES
    assert usage.open_files < MOST_OPEN_FILES
