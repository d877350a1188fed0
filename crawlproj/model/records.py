"""The records that travel: candidate, lease, settlement, page.

A URL waits as an *entry*, one line of text: ``depth attempt short-url`` and, where there is one, its `Extra`.
Canonical URLs hold no space, so the line splits without escapes.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

from crawlproj.model.extra import NO_EXTRA, Extra
from crawlproj.model.urls import expand, fingerprint, shorten


def lane_of(priority: int) -> int:
    """Return which of its domain's three queues a Scrapy priority waits in; the lowest is served first."""
    return 0 if priority > 0 else 1 if priority == 0 else 2


def new_mark() -> int:
    """Return a mark that no other candidate has."""
    return secrets.randbits(63)


@dataclass(slots=True)
class Candidate:
    """A canonical URL to be admitted.

    ``mark`` stands for it in `seen`, so that it counts once however often it is admitted: the fingerprint of
    its URL, or `new_mark()` for one that is wanted whether its URL was seen or not.
    """

    url: str
    depth: int = 0
    priority: int = 0
    extra: Extra = NO_EXTRA
    mark: int = -1

    def __post_init__(self) -> None:
        if self.mark == -1:
            self.mark = fingerprint(self.url)


@dataclass(slots=True, eq=False)
class Lease:
    """A URL leased to a shard. ``token`` identifies it in its partition.

    ``fails``, ``delay_ms`` and ``fetched`` (pages) are those of its domain when it was leased, which is due
    ``wait_ms`` later.
    """

    token: bytes
    partition: int
    epoch: str
    number: int
    lane: int
    domain: str
    depth: int
    attempt: int
    url: str
    extra: Extra
    fails: int
    delay_ms: int
    wait_ms: int = 0
    fetched: int = 0

    @classmethod
    def from_token(
        cls,
        token: bytes,
        partition: int,
        epoch: str,
        fails: int = 0,
        delay_ms: int = 0,
        wait_ms: int = 0,
        fetched: int = 0,
    ) -> Lease:
        number, lane, domain, entry = token.decode().split(" ", 3)
        depth, attempt, url, extra = decode_entry(entry, domain)
        place = (token, partition, epoch, int(number), int(lane), domain)
        return cls(*place, depth, attempt, url, extra, fails, delay_ms, wait_ms, fetched)


def encode_entry(url: str, domain: str, depth: int, attempt: int, extra: Extra = NO_EXTRA) -> str:
    entry = f"{depth} {attempt} {shorten(url, domain)}"
    text = extra.encode()
    return f"{entry} {text}" if text else entry


def decode_entry(entry: str, domain: str) -> tuple[int, int, str, Extra]:
    """Return depth, attempt, URL and extra of an entry."""
    depth, attempt, rest = entry.split(" ", 2)
    short, _, extra = rest.partition(" ")
    return int(depth), int(attempt), expand(short, domain), Extra.decode(extra)


class Outcome(StrEnum):
    """How a lease ended."""

    DONE = "done"
    FAILED = "failed"
    #: Waits again, behind the others of its lane (but see COOKIE_RETRY), with one more attempt counted.
    RETRY = "retry"
    #: Not fetched: refused by robots.txt or a rule of the run.
    SKIPPED = "skipped"
    #: Not fetched: trapped, that is parked until it is released by hand.
    TRAPPED = "trapped"
    #: Returned unused; it is the first of its lane again.
    RETURNED = "returned"
    #: Not ended: only publishes the delay of its domain, for the next owner.
    PACED = "paced"


#: Why a URL is retried before the others of its lane: the cookie may expire. `settle_urls.lua` knows it, too.
COOKIE_RETRY = "retry_cookie"
#: Why a URL is skipped.
SKIP_REASONS = ("robots", "excluded", "length")


def outcome_of(reason: str) -> str:
    """Return the outcome a reason belongs to; any unknown reason is an error."""
    if reason in SKIP_REASONS:
        return "skipped"
    if reason.startswith(("http_", "redirect", "bad_redirect", "content_type")):
        return "fetched"
    if reason.startswith("trap_"):
        return "trapped"
    return "retried" if reason.startswith("retry_") else "failed"


@dataclass(slots=True)
class Settlement:
    """How a lease ended, for the frontier.

    ``wait_ms`` counts from now: the domain is not due before. ``delay_ms`` is the domain's delay as
    its owner knows it, ``fails`` its failures in a row: both kept for the next owner. ``fetched_bytes``
    count against its budget. ``page`` goes onto the page queue in the same step. A RETRY counts as an attempt
    unless ``is_attempt`` is false.
    """

    lease: Lease
    outcome: Outcome
    reason: str = ""
    wait_ms: int = 0
    delay_ms: int = 0
    fails: int = 0
    fetched_bytes: int = 0
    page: bytes = b""
    is_attempt: bool = True


@dataclass(slots=True)
class Page:
    """A fetched response, or the failure to get one, on its way to a parser."""

    url: str
    run: str
    domain: str
    depth: int
    status: int
    fetched_at_ms: int
    latency_ms: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    shard: int = 0
    attempt: int = 0
    truncated: bool = False
    redirected_from: str = ""
    error: str = ""
    #: 0: an ordinary page. A sitemap: 1, and one more for each sitemap index on the way to it.
    sitemap_level: int = 0
    #: How many redirects in a row led to it.
    hops: int = 0
    #: What a spider scraped from it, as JSON.
    items: list[str] = field(default_factory=list)
    #: Whether only the items are stored: the spider makes of its pages what it wants.
    is_bare: bool = False


class Heading(TypedDict):
    """A heading of a page: its level, 1 for ``h1``, and its text."""

    level: int
    text: str


@dataclass(slots=True)
class FetchedPage:
    """The item of the spider `web`: a page, and the settlement that carries it to the page queue."""

    page: Page
    settlement: Settlement
