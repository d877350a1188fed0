"""Reads the answers to requests for robots.txt, and ends the turns they were fetched in."""

from __future__ import annotations

import asyncio
import logging

from crawlproj.download.client import Answer
from crawlproj.errors import BadUrl
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.frontier.robots_turns import RobotsTurns
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Lease
from crawlproj.model.urls import canonicalise, domain_of, escape_raw_bytes
from crawlproj.pages.inflate import inflate
from crawlproj.politeness.pacing import Ending, Trouble
from crawlproj.politeness.robots import MAX_ROBOTS_BYTES, MAX_ROBOTS_REDIRECTS, RobotRules

logger = logging.getLogger(__name__)

#: How many bytes of a robots.txt are read: one more than are used, to detect a longer one.
ROBOTS_CUT = MAX_ROBOTS_BYTES + 1
#: Larger and compressed ones are parsed in a thread, to not block the loop.
_LARGE_BYTES = 8 * 1024
#: How many sitemaps of one robots.txt are followed.
_MOST_SITEMAPS = 20


class RobotsTxt:
    def __init__(self, turns: RobotsTurns, agent: str, *, follows_sitemaps: bool) -> None:
        self.turns = turns
        self._agent = agent
        self._follows_sitemaps = follows_sitemaps

    async def ended(self, fetch: RobotsFetch, answer: Answer, ending: Ending) -> None:
        """End the turn of *fetch*."""
        if answer.error is not None:
            if ending.trouble is Trouble.FINAL:
                self.turns.fail(fetch, ending.error)
            else:
                self._unreachable(fetch, ending if ending.error else Ending(error="unreadable"))
            return
        size = len(answer.body)
        try:
            target = _redirect_of(fetch.url, answer) if fetch.redirects < MAX_ROBOTS_REDIRECTS else None
            rules = await self._rules(answer)
        except Exception:
            # Its domain must not wait forever.
            logger.exception("cannot read a robots.txt", extra={"url": fetch.url})
            self._unreachable(fetch, Ending(error="unreadable"))
            return
        if target:
            self.turns.redirect(fetch, target, ending, size)
            return
        self.turns.learn(fetch, rules, ending, size)
        self._follow_sitemaps(fetch.origin, rules)

    async def ended_elsewhere(self, lease: Lease, answer: Answer) -> None:
        """Store the robots.txt of another domain's origin that *lease* fetched.

        If it could not be fetched, its origin retries or gives up.
        """
        origin, hops = lease.extra.robots_for, lease.extra.hops
        if answer.error is not None:
            return
        target = _redirect_of(lease.url, answer)
        if target and hops < MAX_ROBOTS_REDIRECTS:
            self.turns.fetch_elsewhere(origin, target, hops + 1)
            return
        rules = await self._rules(answer)
        self.turns.learn_elsewhere(origin, rules)
        self._follow_sitemaps(origin, rules)

    def _unreachable(self, fetch: RobotsFetch, ending: Ending) -> None:
        self.turns.learn(fetch, RobotRules(self._agent, retry=True), ending)

    async def _rules(self, answer: Answer) -> RobotRules:
        encoding = b", ".join(answer.headers.get(b"Content-Encoding", ())).decode("latin-1")

        def read() -> RobotRules:
            body, _ = inflate(answer.body, encoding, ROBOTS_CUT)
            return RobotRules.from_response(answer.status, body, self._agent).prepare()

        is_large = encoding or len(answer.body) > _LARGE_BYTES
        return await asyncio.to_thread(read) if is_large else read()

    def _follow_sitemaps(self, origin: str, rules: RobotRules) -> None:
        """Admit the sitemaps of a site that are in its own domain."""
        if not self._follows_sitemaps:
            return
        candidates = []
        for text in rules.sitemaps[:_MOST_SITEMAPS]:
            try:
                url = canonicalise(text, f"{origin}/robots.txt")
            except BadUrl:
                continue
            if domain_of(url) == domain_of(f"{origin}/"):
                candidates.append(Candidate(url, extra=Extra(sitemap_level=1)))
        self.turns.admit(candidates)


def _redirect_of(url: str, answer: Answer) -> str | None:
    location = answer.header(b"Location")
    if not 300 <= answer.status < 400 or not location:
        return None
    try:
        return canonicalise(escape_raw_bytes(location.decode("latin-1")), url)
    except BadUrl:
        return None
