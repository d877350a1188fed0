"""Judges a crawl of a simulated web by the server's own log, never by what the crawler says of itself."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf

from crawlproj.errors import BadUrl
from crawlproj.model.urls import canonicalise
from crawlproj.simweb.accesslog import Request
from crawlproj.simweb.faults import ALWAYS, Fault, answers_within
from crawlproj.simweb.hostile import ROBOTS_KINDS
from crawlproj.simweb.page import Kind, PageSpec
from crawlproj.simweb.sites import Robots
from crawlproj.simweb.timing import RATE_FALL, TEN_REQUESTS, Timing

#: Not part of what had to be fetched: a crawler may request them as it sees fit.
_FREE = (Kind.ROBOTS, Kind.SITEMAP)
#: Linked and allowed, but a sensible crawler may skip them.
_OPTIONAL = (Kind.TRAP, Kind.FILE, *_FREE)
#: How many examples a problem names.
_EXAMPLES = 5
#: What a whole domain does, whatever it is asked for.
_WHOLE_DOMAIN = (Fault.THROTTLED, Fault.DEAD)


@dataclass(frozen=True, slots=True)
class Verdict:
    problems: list[str]
    facts: str

    @property
    def ok(self) -> bool:
        return not self.problems

    def report(self) -> str:
        outcome = "\n".join(f"- {problem}" for problem in self.problems) or "no violations"
        return f"{self.facts}\n{outcome}"


class Referee(Timing):
    # -- what the rules allow

    def may_fetch(self, page: PageSpec) -> bool:
        """Whether robots.txt allows *page*, now or once robots.txt is available."""
        if not self.rules.obey_robots or page.kind is Kind.ROBOTS:
            return True
        site = self.world.site(page.site)
        if site.robots_unreachable:
            return False
        if site.robots is Robots.MISSING:
            return True
        if site.robots is Robots.BROKEN and site.robots_failures == ALWAYS:
            return False
        return self._robots(site.number).can_fetch(page.url, self._agent)

    # -- what had to be fetched

    @cached_property
    def expected(self) -> set[str]:
        """URLs that had to be requested: all that the seeds lead to under the rules.

        Includes redirects and their targets, 404s, hostile pages and pages that never work; not disallowed
        pages, files, sitemaps, traps, and domains that are dead or throttled forever.
        """
        must: set[str] = set()
        hops = {canonicalise(url): 0 for url in self.rules.seeds or self.world.seeds()}
        todo = deque(hops)
        mapped: set[int] = set()
        while todo:
            url = todo.popleft()
            page = self.world.page(url)
            if page is None or page.kind in _OPTIONAL or not self.may_fetch(page):
                continue
            if self.world.site(page.site).useless:
                continue
            must.add(url)
            if page.kind is Kind.HOSTILE or not self._answers(page):
                continue
            if self.rules.sitemaps and page.site not in mapped:
                mapped.add(page.site)
                new = [listed for listed in self.world.sitemap_urls(page.site) if listed not in hops]
                hops |= dict.fromkeys(new, 0)
                todo.extend(new)
            follow = [(link.url, 0) for link in page.links if self.rules.follow_nofollow or not link.nofollow]
            if page.location is not None and hops[url] < self.rules.max_redirects:
                follow.append((page.location, hops[url] + 1))
            for target, count in follow:
                # Again when a shorter chain of redirects is found: more may be in reach from there.
                if count < hops.get(target, self.rules.max_redirects + 1):
                    hops[target] = count
                    todo.append(target)
        return must

    def _answers(self, page: PageSpec) -> bool:
        return answers_within(page.fault, page.failures, self.rules.attempts)

    def missed(self) -> set[str]:
        """Expected URLs that were never requested, or given up before they would have answered."""
        return {url for url in self.expected if url not in self._answered and not self._excused(url)}

    def _excused(self, url: str) -> bool:
        page = self.world.page(url)
        assert page is not None
        if page.kind is Kind.HOSTILE:
            # One is enough: a domain that only fails may be given up.
            return not self._asked.keys().isdisjoint(self.world.hostile_urls(page.site))
        return url in self._asked and not self._answers(page)

    # -- what was fetched

    @cached_property
    def _urls(self) -> list[str]:
        """The canonical URL of each request, in order."""
        return [_canonical(request.url) for request in self.requests]

    @cached_property
    def _asked(self) -> Counter[str]:
        # Requests to dead domains have no URL.
        return Counter(filter(None, self._urls))

    @cached_property
    def _answered(self) -> Counter[str]:
        return Counter(url for url, r in zip(self._urls, self.requests, strict=True) if r.is_success)

    def fetched_twice(self) -> dict[str, int]:
        """URLs answered in full (no 429, 5xx or cut) more than once, except robots.txt and sitemaps."""
        twice = {url: count for url, count in self._answered.items() if count > 1}
        # A hostile page may look complete where the client gave up on it.
        free = (*_FREE, Kind.HOSTILE)
        return {
            url: n
            for url, n in twice.items()
            if (page := self.world.page(url)) is None or page.kind not in free
        }

    def forbidden(self) -> set[str]:
        """URLs requested although robots.txt disallows them or this world has no such page."""
        return {
            url for url in self._asked if (page := self.world.page(url)) is None or not self.may_fetch(page)
        }

    def tried_too_often(self) -> dict[str, int]:
        """URLs requested more often than the rules allow, except robots.txt and sitemaps.

        A request to a throttled or dead domain does not count: the domain refused all of them.
        """
        tries = Counter(
            url for url, r in zip(self._urls, self.requests, strict=True) if r.fault not in _WHOLE_DOMAIN
        )
        return {url: count for url, count in tries.items() if count > self._tries_allowed(url)}

    def _tries_allowed(self, url: str) -> float:
        page = self.world.page(url)
        if page is not None and page.kind in _FREE:
            return inf
        if page is not None and page.fault is Fault.THROTTLE:
            return self.rules.throttled_attempts
        return self.rules.attempts

    def before_robots(self) -> set[str]:
        """URLs requested before their domain's robots.txt was answered, other than by a 5xx."""
        known: set[str] = set()
        early: set[str] = set()
        for url, request in sorted(zip(self._urls, self.requests, strict=True), key=_ended):
            if url.endswith("/robots.txt"):
                # An endless one is never complete, but enough of it was read.
                if request.is_success or (request.status == 200 and request.fault in ROBOTS_KINDS):
                    known.add(request.domain)
            elif url and self.rules.obey_robots and request.domain not in known:
                page = self.world.page(url)
                if page is None or page.kind is not Kind.ROBOTS:
                    early.add(url)
        return early

    def endless_redirects(self) -> set[str]:
        """URLs of hostile redirects further than ``rules.max_redirects`` from their start."""
        limit = self.rules.max_redirects
        pages = ((url, self.world.page(url)) for url in self._asked if "/hostile" in url)
        return {url for url, page in pages if page and page.location and page.hostile_number > limit}

    # -- the verdict

    def verdict(
        self,
        *,
        min_gap_ms: float | Callable[[str], float] = 0,
        max_at_once: int = 1,
        tolerance_ms: float = 5,
        complete: bool = True,
        twice_allowed: int = 0,
    ) -> Verdict:
        """Check the log against all rules.

        *min_gap_ms* is a default that a domain's Crawl-delay may raise, or a function of the domain.
        *tolerance_ms* is how far the server may lag behind the client in seeing the end of a response.
        *complete*: the crawl had to find everything. *twice_allowed*: how many URLs may have been fetched
        again after a crash.
        """
        rules, twice, endless = self.rules, self.fetched_twice(), self.endless_redirects()
        at_once = self.max_concurrency(tolerance_ms=tolerance_ms)
        crowded = {domain: f"{n} at once" for domain, n in at_once.items() if n > max_at_once}
        hurried = self.hurried(tolerance_ms=tolerance_ms).items()
        dead = {
            domain: f"{n} in {rules.dead_window_s:.0f} s"
            for domain, n in self.connections_to_the_dead().items()
            if n >= rules.dead_connections
        }
        found = {
            "expected but not fetched": dict.fromkeys(self.missed() if complete else (), ""),
            "fetched more than once": _times(twice) if len(twice) > twice_allowed else {},
            "forbidden or invented": dict.fromkeys(self.forbidden(), ""),
            "requested before robots.txt": dict.fromkeys(self.before_robots(), ""),
            "tried too often": _times(self.tried_too_often()),
            f"redirects followed further than {rules.max_redirects}": dict.fromkeys(endless, ""),
            f"domains with more than {max_at_once} at once": crowded,
            "domains requested again too soon": self._rushed(min_gap_ms, tolerance_ms),
            "domains whose Retry-After was ignored": {name: f"{ms:.0f} ms early" for name, ms in hurried},
            "throttled domains without growing pauses": self.stubborn(tolerance_ms=tolerance_ms),
            f"throttled domains not {RATE_FALL} times slower after {TEN_REQUESTS} requests": (
                self._unslowed(min_gap_ms)
            ),
            f"dead domains with {rules.dead_connections} connections or more": dead,
        }
        problems = [_problem(what, names) for what, names in found.items() if names]
        busiest = max(at_once.values(), default=0)
        facts = (
            f"{len(self.requests)} requests to {len(self._by_domain)} domains, {len(self._answered)} URLs "
            f"answered, {len(self.expected)} expected; at most {busiest} at once in a domain"
        )
        return Verdict(problems, facts)


def _times(counts: dict[str, int]) -> dict[str, str]:
    return {name: f"{count} times" for name, count in counts.items()}


def _problem(what: str, found: dict[str, str]) -> str:
    examples = [
        f"{name} ({detail})" if detail else name for name, detail in sorted(found.items())[:_EXAMPLES]
    ]
    more = "" if len(found) <= _EXAMPLES else f" and {len(found) - _EXAMPLES} more"
    return f"{len(found)} {what}: {', '.join(examples)}{more}"


def _canonical(url: str) -> str:
    try:
        return canonicalise(url)
    except BadUrl:
        return url


def _ended(pair: tuple[str, Request]) -> float:
    # A page counts from its start, robots.txt from its end.
    url, request = pair
    return request.end_ms if url.endswith("/robots.txt") else request.start_ms
