"""Why URLs failed, in words, with what would help; and whether a run fetched anything at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from crawlproj.model.records import outcome_of

#: How many reasons are named.
_MOST = 3
#: A domain may rest for so long without anything being wrong.
_PATIENCE_S = 15.0
_REMEDIES = {
    "address_refused": "the address is not public; to crawl it, add it to CRAWL_ALLOW_ADDRESSES",
    "bad_response": "the response is not HTTP",
    "cannot_resolve_host": "the name was not found; check its spelling, the network and the DNS",
    "certificate": "the certificate is not trusted; DOWNLOAD_VERIFY_CERTIFICATES=False accepts it",
    "connect_timeout": "no connection within CRAWL_CONNECT_SECONDS; check the network, or raise it",
    "connection_failed": "no connection could be made; check the network and its routes",
    "connection_lost": "the connection was closed within the response headers; the site may block crawlers",
    "connection_refused": "nothing listens there; check host and port",
    "data_loss": "the body was incomplete; DOWNLOAD_FAIL_ON_DATALOSS=False accepts it at once",
    "excluded": "excluded by CRAWL_EXCLUDE or CRAWL_EXCLUDE_FILE",
    "header_timeout": "no answer within CRAWL_HEADER_SECONDS; raise it for slow sites",
    "headers_too_large": "the headers are over CRAWL_MAX_HEADERS",
    "idle_timeout": "the body stalled for CRAWL_IDLE_SECONDS; raise it for slow sites",
    "length": "the URL is longer than CRAWL_MAX_URL",
    "no_answer": "the connection was closed without an answer; the site may block crawlers",
    "redirects": "too many redirects in a row; the limit is CRAWL_MAX_REDIRECTS",
    "robots": "robots.txt does not allow it, or could not be read (docs/robots.md)",
    "robots_unreachable": "robots.txt could not be fetched, so nothing of the site may be (docs/robots.md)",
    "tls": "the TLS handshake failed; try http:// instead of https://",
    "total_timeout": "the download took longer than DOWNLOAD_TIMEOUT; raise it",
}
_STATUSES = {
    "401": "the site wants a login",
    "403": "the site refuses us; it may block crawlers, or want another USER_AGENT",
    "404": "there is no such page; check the URL",
    "410": "there is no such page any more",
    "429": "the site wants fewer requests; raise DOWNLOAD_DELAY",
    "451": "the site may not show it here",
}


def remedy_of(reason: str) -> str:
    """Return what *reason* means and what would help; '' if nothing is known."""
    if reason.startswith("http_"):
        status = reason[5:]
        return _STATUSES.get(status, "the site is in trouble; try again later" if status[0] == "5" else "")
    return _REMEDIES.get(reason, "")


def is_fruitless(status: Mapping[str, Any]) -> bool:
    """Whether URLs were admitted, and not one of them led to a page: only errors and redirects."""
    answered = sum(count for reason, count in status["by_reason"].items() if _is_no_page(reason))
    return bool(status["admitted"]) and status["fetched"] <= answered


def failure_lines(status: Mapping[str, Any], *, all_kinds: bool = False) -> list[str]:
    """Return the commonest reasons of failed URLs, most first, each with what would help.

    *all_kinds*: also those of URLs that were answered with an error, not allowed, or are still retried.
    """
    outcomes = {"failed"}
    if all_kinds:
        # A URL that failed was retried before.
        outcomes |= {"skipped", "fetched"} | (set() if status["failed"] else {"retried"})
    return _lines(
        {
            reason: count
            for reason, count in status["by_reason"].items()
            if outcome_of(reason) in outcomes and reason not in ("redirected", "content_type")
        }
    )


class Standstill:
    """Why nothing is fetched: what went wrong since the last page."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fetched = -1
        self._since_s = 0.0
        self._before: Mapping[str, int] = {}

    def note(self, status: Mapping[str, Any]) -> list[str]:
        """Take in *status*; returns lines to show, none as long as pages come or nothing goes wrong."""
        reasons = status["by_reason"]
        if status["fetched"] != self._fetched:
            self._fetched, self._before, self._since_s = status["fetched"], reasons, self._clock()
        since = {reason: count - self._before.get(reason, 0) for reason, count in reasons.items()}
        wrong = {
            reason: count
            for reason, count in since.items()
            if count > 0 and outcome_of(reason) in ("failed", "retried")
        }
        if not status["waiting"] + status["leased"]:
            return []
        beside = status.get("runs_beside")
        if not wrong and beside and not status["leased"] and self._clock() - self._since_s > _PATIENCE_S:
            names = ", ".join(beside[:_MOST])
            why = f"its domains rest, perhaps for other runs ({names}): CRAWL_SHARE_DELAYS"
            return [f"nothing is fetched at the moment: {why}"]
        if not wrong:
            return []
        return ["nothing is fetched at the moment:", *_lines(wrong)]


def _lines(reasons: Mapping[str, int]) -> list[str]:
    counts: dict[str, int] = {}
    for reason, count in reasons.items():
        counts[_bare(reason)] = counts.get(_bare(reason), 0) + count
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST]
    return [
        f"  {reason}, {count:,} {'times' if count > 1 else 'time'}"
        + (f": {remedy}" if (remedy := remedy_of(reason)) else "")
        for reason, count in most
    ]


def _bare(reason: str) -> str:
    """Return what went wrong, whether it was with a page or with the robots.txt before it."""
    return reason.removeprefix("retry_").removeprefix("robots_") if reason.startswith("retry_") else reason


def _is_no_page(reason: str) -> bool:
    """Whether a response with this reason is not a page but an error, or a redirect."""
    return outcome_of(reason) == "fetched" and reason != "content_type"
