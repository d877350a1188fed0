"""Fetches robots.txt as a request of its domain, in its turn, and reads the answer."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from scrapy import Request
from scrapy.http import Response
from twisted.python.failure import Failure

from crawlproj.download.connection import PutOffError
from crawlproj.download.endings import ended_of, retry_after_s
from crawlproj.errors import BadUrl
from crawlproj.frontier.feed import AWAY_S, Feed
from crawlproj.frontier.gate import ROBOTS_FOR, RobotsFetch
from crawlproj.model.records import Candidate, Lease
from crawlproj.model.route import Route
from crawlproj.model.urls import canonicalise, domain_of
from crawlproj.pages.inflate import inflate
from crawlproj.politeness.pacing import Ended, Trouble
from crawlproj.politeness.robots import MAX_ROBOTS_BYTES, MAX_ROBOTS_REDIRECTS, RobotRules

#: Where the request for a robots.txt says so.
ROBOTS = "crawl_robots"
#: Larger ones, and what may become larger, are read in a thread: the loop has others to serve.
_LARGE_BYTES = 8 * 1024
#: How many sitemaps of one robots.txt are followed.
_MOST_SITEMAPS = 20
#: We look at the status and at where it leads ourselves.
_AS_IT_IS = {
    "handle_httpstatus_all": True,
    "dont_redirect": True,
    "dont_retry": True,
    "download_cut": MAX_ROBOTS_BYTES + 1,
}


class RobotsTxt:
    """The requests for robots.txt, and what becomes of their answers."""

    def __init__(self, feed: Feed, agent: str, *, follows_sitemaps: bool) -> None:
        self._feed = feed
        self._agent = agent
        self._follows_sitemaps = follows_sitemaps

    def request(self, fetch: RobotsFetch) -> Request:
        return Request(
            fetch.url,
            callback=self._fetched,
            errback=self._failed,
            dont_filter=True,
            meta={ROBOTS: fetch, **_AS_IT_IS},
        )

    def request_elsewhere(self, lease: Lease) -> Request:
        """Return the request for a robots.txt of another domain's origin; *lease* is for one of those."""
        return Request(
            lease.url,
            callback=self._fetched_elsewhere,
            errback=_ignore,
            dont_filter=True,
            meta=dict(_AS_IT_IS),
            cb_kwargs={"asked": json.loads(lease.extra)},
        )

    def left(self, request: Request) -> None:
        """A request has left the engine; if nobody told how it ended, it did not end well."""
        fetch = request.meta.pop(ROBOTS, None)
        if fetch is not None:
            self._unreachable(fetch, Ended(error="robots"))

    async def _fetched(self, response: Response) -> None:
        rules = await self._rules(response)
        fetch: RobotsFetch = response.meta[ROBOTS]
        ended = Ended(response.status, response.meta.get("download_latency", 0.0), _retry_after_s(response))
        self._feed.is_excused(fetch.domain, ended)
        target = _target(response) if fetch.redirects < MAX_ROBOTS_REDIRECTS else None
        if target:
            self._feed.robots_moved(fetch, target, ended, len(response.body))
        else:
            self._feed.robots_ended(fetch, rules, ended, len(response.body))
        # Not before: if any of this breaks, the domain must not wait for an answer for ever. Nor later: its
        # end is told once.
        response.meta.pop(ROBOTS)
        if not target:
            self._follow(fetch.origin, rules)

    async def _fetched_elsewhere(self, response: Response, asked: dict[str, Any]) -> None:
        origin, hops = str(asked["robots_for"]), int(asked["hops"])
        target = _target(response)
        if target and hops < MAX_ROBOTS_REDIRECTS:
            self._feed.ask_elsewhere(origin, target, hops + 1)
            return
        rules = await self._rules(response)
        self._feed.keep_robots(origin, rules)
        self._follow(origin, rules)

    def _failed(self, failure: Failure) -> None:
        request: Request = failure.request  # type: ignore[attr-defined]  # set by Scrapy
        fetch: RobotsFetch = request.meta.pop(ROBOTS)
        assert failure.value is not None
        if isinstance(failure.value, PutOffError):
            self._feed.robots_put_off(fetch, failure.value.wait_s)
            return
        ended = ended_of(failure.value)
        if self._feed.is_excused(fetch.domain, ended):
            self._feed.robots_put_off(fetch, AWAY_S)
        elif ended.trouble is Trouble.FINAL:
            self._feed.robots_impossible(fetch, ended.error)
        else:
            self._unreachable(fetch, ended if ended.error else Ended(error="robots"))

    def _unreachable(self, fetch: RobotsFetch, ended: Ended) -> None:
        self._feed.robots_ended(fetch, RobotRules(self._agent, retry=True), ended)

    async def _rules(self, response: Response) -> RobotRules:
        encoding = b", ".join(response.headers.getlist("Content-Encoding")).decode("latin-1")

        def read() -> RobotRules:
            body, _ = inflate(response.body, encoding, MAX_ROBOTS_BYTES + 1)
            # A redirect we cannot follow counts as a file that is not there.
            return RobotRules.from_response(
                response.status, body, self._agent, MAX_ROBOTS_REDIRECTS
            ).prepare()

        is_large = encoding or len(response.body) > _LARGE_BYTES
        return await asyncio.to_thread(read) if is_large else read()

    def _follow(self, origin: str, rules: RobotRules) -> None:
        """Have the sitemaps of a site admitted, as far as they are its own domain's."""
        if not self._follows_sitemaps:
            return
        candidates = []
        for text in rules.sitemaps[:_MOST_SITEMAPS]:
            try:
                url = canonicalise(text, f"{origin}/robots.txt")
            except BadUrl:
                continue
            if domain_of(url) == domain_of(f"{origin}/"):
                candidates.append(Candidate(url, extra=Route(sitemap_level=1).encode()))
        self._feed.add(candidates)


def is_for_another(lease: Lease) -> bool:
    """Whether *lease* fetches a robots.txt for an origin of another domain."""
    return lease.extra.startswith(ROBOTS_FOR)


def _target(response: Response) -> str | None:
    """Return where a redirect leads, or None."""
    location = response.headers.get("Location")
    if not 300 <= response.status < 400 or not location:
        return None
    try:
        return canonicalise(location.decode("latin-1"), response.url)
    except BadUrl:
        return None


def _retry_after_s(response: Response) -> float | None:
    return retry_after_s(response.headers.get("Retry-After"), time.time())


def _ignore(failure: Failure) -> None:
    """Whoever asked finds no answer, and asks again or gives up."""
