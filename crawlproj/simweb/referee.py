"""Judges a crawl of a simulated web by the server's own log, never by what the crawler says of itself."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from math import inf
from pathlib import Path

from protego import Protego

from crawlproj.errors import BadUrl
from crawlproj.model.urls import canonicalise
from crawlproj.simweb.accesslog import Request, read_log
from crawlproj.simweb.faults import ALWAYS, Fault, answers_within
from crawlproj.simweb.graph import World
from crawlproj.simweb.hostile import ROBOTS_KINDS
from crawlproj.simweb.page import Kind, PageSpec
from crawlproj.simweb.sites import Robots, Site, number_of

#: Not part of "what had to be fetched": a crawler may ask for them as it sees fit.
_FREE = (Kind.ROBOTS, Kind.SITEMAP)
#: Linked, and allowed, but a sensible crawler may leave them out.
_OPTIONAL = (Kind.TRAP, Kind.FILE, *_FREE)
#: How many examples a problem names.
_EXAMPLES = 5
#: What a whole domain does, whatever it is asked for.
_WHOLE_DOMAIN = (Fault.THROTTLED, Fault.DEAD)
#: A domain that throttles everything sees its rate fall by so much within so many requests.
_RATE_FALL = 10
_TEN_REQUESTS = 10
#: A first pause below this is none, and none cannot grow.
_LEAST_PAUSE_MS = 10.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the crawler was told, as far as it changes what it had to do."""

    obey_robots: bool = True
    max_redirects: int = 10
    follow_nofollow: bool = True
    #: None: the world's own seeds.
    seeds: tuple[str, ...] | None = None
    #: How often a URL is tried at most.
    attempts: int = 3
    #: How often one that answers 429 is: that is what its site says, and may count against the site instead.
    throttled_attempts: int = 6
    #: Whether it reads the sitemaps that robots.txt names.
    sitemaps: bool = False
    #: It need not keep a longer Crawl-delay than this.
    crawl_delay_cap_s: float = 300.0
    #: Without Retry-After, each pause of a throttled domain is so many times the one before, up to the cap.
    backoff_factor: float = 1.5
    backoff_cap_s: float = 3600.0
    #: A dead domain sees fewer connections than this in any window.
    dead_connections: int = 10
    dead_window_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    problems: list[str]
    facts: str

    @property
    def ok(self) -> bool:
        return not self.problems

    def report(self) -> str:
        outcome = "\n".join(f"- {problem}" for problem in self.problems) or "nothing to object to"
        return f"{self.facts}\n{outcome}"


class Referee:
    def __init__(
        self,
        world: World,
        log: Iterable[Request] | Path,
        *,
        user_agent: str = "crawlproj",
        rules: Rules | None = None,
    ) -> None:
        self.world = world
        self.rules = rules or Rules()
        self.requests = sorted(read_log(log) if isinstance(log, Path) else log, key=lambda r: r.start_ms)
        self._agent = user_agent
        self._parsed: dict[int, Protego] = {}
        self._seeds = [canonicalise(url) for url in self.rules.seeds or world.seeds()]

    # -- what the rules allow

    def _robots(self, site: Site) -> Protego:
        if site.number not in self._parsed:
            self._parsed[site.number] = Protego.parse(self.world.robots_text(site.number))
        return self._parsed[site.number]

    def may_fetch(self, page: PageSpec) -> bool:
        """Whether robots.txt lets the crawler have *page*, now or once robots.txt can be had."""
        if not self.rules.obey_robots or page.kind is Kind.ROBOTS:
            return True
        site = self.world.site(page.site)
        if site.robots_unreachable:
            return False
        if site.robots is Robots.MISSING:
            return True
        if site.robots is Robots.BROKEN and site.robots_failures == ALWAYS:
            return False
        return self._robots(site).can_fetch(page.url, self._agent)

    def required_gap_ms(self, domain: str, default_ms: float) -> float:
        """The domain's Crawl-delay for our agent where that is longer than *default_ms*."""
        number = number_of(domain)
        if number is None or number >= self.world.spec.domains or not self.rules.obey_robots:
            return default_ms
        site = self.world.site(number)
        if site.robots is Robots.MISSING:
            return default_ms
        delay_s = min(self._robots(site).crawl_delay(self._agent) or 0, self.rules.crawl_delay_cap_s)
        return max(default_ms, delay_s * 1000)

    # -- what had to be fetched

    @cached_property
    def _expected(self) -> set[str]:
        must: set[str] = set()
        hops = dict.fromkeys(self._seeds, 0)
        todo = deque(self._seeds)
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

    def expected(self) -> set[str]:
        """URLs that had to be asked for: all that the seeds lead to under the rules.

        Redirects and their targets, 404s, hostile pages and pages that never work are among them; disallowed
        pages, files, sitemaps, traps, and domains that are dead or throttled for ever are not.
        """
        return set(self._expected)

    def _answers(self, page: PageSpec) -> bool:
        return answers_within(page.fault, page.failures, self.rules.attempts)

    def missed(self) -> set[str]:
        """Expected URLs that were never asked for, or given up before they would have answered."""
        return {url for url in self._expected if url not in self._answered and not self._excused(url)}

    def _excused(self, url: str) -> bool:
        page = self.world.page(url)
        assert page is not None
        if page.kind is Kind.HOSTILE:
            # One is enough: a domain that does nothing but fail may be given up.
            return not self._asked.keys().isdisjoint(self.world.hostile_urls(page.site))
        return url in self._asked and not self._answers(page)

    # -- what was fetched

    @cached_property
    def _urls(self) -> list[str]:
        """The canonical URL of each request, in order."""
        return [_canonical(request.url) for request in self.requests]

    @cached_property
    def _asked(self) -> Counter[str]:
        # A dead domain has heard no URL.
        return Counter(filter(None, self._urls))

    @cached_property
    def _answered(self) -> Counter[str]:
        return Counter(url for url, r in zip(self._urls, self.requests, strict=True) if _is_success(r))

    def fetched_twice(self) -> dict[str, int]:
        """URLs answered in full (no 429, 5xx or cut connection) more than once, robots and sitemaps aside."""
        twice = {url: count for url, count in self._answered.items() if count > 1}
        # A hostile page was sent in full, it seems, where a client may have turned away in disgust.
        free = (*_FREE, Kind.HOSTILE)
        return {
            url: n
            for url, n in twice.items()
            if (page := self.world.page(url)) is None or page.kind not in free
        }

    def forbidden(self) -> set[str]:
        """URLs asked for though robots.txt disallows them, or though this world has no such page."""
        return {
            url for url in self._asked if (page := self.world.page(url)) is None or not self.may_fetch(page)
        }

    def tried_too_often(self) -> dict[str, int]:
        """URLs asked for more often than the rules allow, robots and sitemaps aside.

        A request to a throttled or dead domain is no try of the URL: the domain refused all of them.
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
        """URLs asked for before their domain's robots.txt was known: answered, and not by a 5xx."""
        known: set[str] = set()
        early: set[str] = set()
        for url, request in sorted(zip(self._urls, self.requests, strict=True), key=_ended):
            if url.endswith("/robots.txt"):
                # What is endless is never complete, and yet enough of it was read.
                if _is_success(request) or (request.status == 200 and request.fault in ROBOTS_KINDS):
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

    # -- when

    @cached_property
    def _by_domain(self) -> dict[str, list[Request]]:
        grouped: dict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            grouped[request.domain].append(request)
        return dict(grouped)

    def max_concurrency(self, *, tolerance_ms: float = 0) -> dict[str, int]:
        """Per domain, the greatest number of requests at once; overlaps up to *tolerance_ms* do not count."""
        return {domain: _most_at_once(requests, tolerance_ms) for domain, requests in self._by_domain.items()}

    def smallest_gap_ms(self) -> dict[str, float]:
        """Per domain with two requests or more, the least time from end to next start; below 0: overlap."""
        gaps = {}
        for domain, requests in self._by_domain.items():
            free_ms, smallest = requests[0].end_ms, float("inf")
            for request in requests[1:]:
                smallest = min(smallest, request.start_ms - free_ms)
                free_ms = max(free_ms, request.end_ms)
            if len(requests) > 1:
                gaps[domain] = smallest
        return gaps

    def hurried(self, *, tolerance_ms: float = 5) -> dict[str, float]:
        """Domains asked again sooner than a Retry-After of theirs allowed, with the ms that were left."""
        hurried: dict[str, float] = {}
        for domain, requests in self._by_domain.items():
            starts_ms = [request.start_ms for request in requests]
            for index, throttled in enumerate(requests):
                until_ms = self._quiet_until_ms(throttled)
                # Those already under way when the answer came could not know.
                after = max(index + 1, bisect_left(starts_ms, throttled.end_ms - tolerance_ms))
                if until_ms and after < len(requests) and until_ms - starts_ms[after] > tolerance_ms:
                    left_ms = until_ms - starts_ms[after]
                    hurried[domain] = max(hurried.get(domain, 0.0), left_ms)
        return hurried

    def _quiet_until_ms(self, request: Request) -> float:
        number = number_of(request.domain)
        if request.fault == Fault.THROTTLED:
            return request.quiet_until_ms
        if request.status != 429 or number is None or number >= self.world.spec.domains:
            return 0.0
        return request.end_ms + self.world.site(number).spec.retry_after_s * 1000

    def throttled_gaps_ms(self) -> dict[str, list[float]]:
        """Per domain, the pauses within its longest row of throttled answers (429 or 503 to everything)."""
        longest: dict[str, list[float]] = {}
        for domain, requests in self._by_domain.items():
            for is_throttled, row in groupby(requests, key=lambda r: r.fault == Fault.THROTTLED):
                gaps = [after.start_ms - before.end_ms for before, after in pairwise(row)]
                if is_throttled and len(gaps) >= len(longest.get(domain, [])):
                    longest[domain] = gaps
        return longest

    def stubborn(self, *, tolerance_ms: float = 5) -> dict[str, str]:
        """Throttled domains without Retry-After whose pauses did not grow by ``rules.backoff_factor``.

        They are held against the first pause, so that one that took longer than it had to is no reproach.
        """
        stubborn: dict[str, str] = {}
        factor, cap_ms = self.rules.backoff_factor, self.rules.backoff_cap_s * 1000
        for domain, gaps in self.throttled_gaps_ms().items():
            if any(request.quiet_until_ms for request in self._by_domain[domain]):
                continue
            needed_ms = max(gaps[0], _LEAST_PAUSE_MS) if gaps else 0.0
            for number, gap_ms in enumerate(gaps[1:], 2):
                needed_ms = min(needed_ms * factor, cap_ms)
                if gap_ms < needed_ms - tolerance_ms:
                    stubborn[domain] = f"pause {number} was {gap_ms:.0f} ms instead of {needed_ms:.0f}"
                    break
        return stubborn

    def rate_falls(self, normal_gap_ms: float | Callable[[str], float] = 0) -> dict[str, float]:
        """How many times slower a throttled domain is asked after ten requests; who saw fewer is left out.

        Without a normal pause, the first within the row counts as such.
        """
        falls = {}
        for domain, gaps in self.throttled_gaps_ms().items():
            if len(gaps) >= _TEN_REQUESTS - 1:
                normal_ms = normal_gap_ms(domain) if callable(normal_gap_ms) else normal_gap_ms
                falls[domain] = gaps[_TEN_REQUESTS - 2] / (normal_ms or max(gaps[0], _LEAST_PAUSE_MS))
        return falls

    def _unslowed(self, normal_gap_ms: float | Callable[[str], float]) -> dict[str, str]:
        cap_ms = self.rules.backoff_cap_s * 1000
        gaps = self.throttled_gaps_ms()
        return {
            domain: f"{fall:.1f} times slower"
            for domain, fall in self.rate_falls(normal_gap_ms).items()
            if fall < _RATE_FALL and gaps[domain][_TEN_REQUESTS - 2] < cap_ms
        }

    def connections_to_the_dead(self) -> dict[str, int]:
        """Per domain that was dead, the most connections in any window of ``rules.dead_window_s``."""
        window_ms = self.rules.dead_window_s * 1000
        most: dict[str, int] = {}
        for domain, requests in self._by_domain.items():
            starts_ms = [request.start_ms for request in requests if request.fault == Fault.DEAD]
            for index, start_ms in enumerate(starts_ms):
                within = bisect_left(starts_ms, start_ms + window_ms) - index
                most[domain] = max(most.get(domain, 0), within)
        return most

    def _rushed(self, min_gap_ms: float | Callable[[str], float], tolerance_ms: float) -> dict[str, str]:
        rushed: dict[str, tuple[float, float]] = {}
        for domain, requests in self._by_domain.items():
            if callable(min_gap_ms):
                required_ms = delay_ms = min_gap_ms(domain)
            else:
                required_ms, delay_ms = min_gap_ms, self.required_gap_ms(domain, min_gap_ms)
            free_ms = float("-inf")
            for request in requests:
                gap_ms = request.start_ms - free_ms
                if required_ms > 0 and gap_ms < required_ms - tolerance_ms:
                    rushed[domain] = min(rushed.get(domain, (gap_ms, required_ms)), (gap_ms, required_ms))
                free_ms = max(free_ms, request.end_ms)
                # Nobody can keep a Crawl-delay before having read it.
                if request.url.endswith("/robots.txt") and _is_success(request):
                    required_ms = delay_ms
        return {
            domain: f"{gap:.0f} ms instead of {required:.0f}" for domain, (gap, required) in rushed.items()
        }

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
        """Hold the log against all rules.

        *min_gap_ms* is a default that a domain's Crawl-delay may raise, or a function of the domain.
        *tolerance_ms* is how far the server's clock of an answer's end may lag behind the client's.
        *complete*: the crawl was to find everything. *twice_allowed*: how many URLs may have been fetched
        again, after a crash that lost their answers.
        """
        problems = []
        if complete:
            problems += _problem("expected but not fetched", dict.fromkeys(self.missed(), ""))
        if len(twice := self.fetched_twice()) > twice_allowed:
            problems += _problem("fetched more than once", {url: f"{n} times" for url, n in twice.items()})
        problems += _problem("forbidden or invented", dict.fromkeys(self.forbidden(), ""))
        problems += _problem("asked for before robots.txt", dict.fromkeys(self.before_robots(), ""))
        often = {url: f"{n} times" for url, n in self.tried_too_often().items()}
        problems += _problem("tried too often", often)

        endless = dict.fromkeys(self.endless_redirects(), "")
        problems += _problem(f"redirects followed further than {self.rules.max_redirects}", endless)

        at_once = self.max_concurrency(tolerance_ms=tolerance_ms)
        crowded = {domain: f"{n} at once" for domain, n in at_once.items() if n > max_at_once}
        problems += _problem(f"domains with more than {max_at_once} at once", crowded)
        rushed = self._rushed(min_gap_ms, tolerance_ms)
        problems += _problem("domains asked again too soon", rushed)
        hurried = {
            domain: f"{ms:.0f} ms early" for domain, ms in self.hurried(tolerance_ms=tolerance_ms).items()
        }
        problems += _problem("domains whose Retry-After was ignored", hurried)
        stubborn = self.stubborn(tolerance_ms=tolerance_ms)
        problems += _problem("throttled domains without growing pauses", stubborn)
        what = f"throttled domains not {_RATE_FALL} times slower after {_TEN_REQUESTS} requests"
        problems += _problem(what, self._unslowed(min_gap_ms))
        limit = self.rules.dead_connections
        dead = {
            domain: f"{n} in {self.rules.dead_window_s:.0f} s"
            for domain, n in self.connections_to_the_dead().items()
            if n >= limit
        }
        problems += _problem(f"dead domains with {limit} connections or more", dead)

        busiest = max(at_once.values(), default=0)
        facts = (
            f"{len(self.requests)} requests to {len(self._by_domain)} domains, {len(self._answered)} URLs "
            f"answered, {len(self._expected)} expected; at most {busiest} at once in a domain"
        )
        return Verdict(problems, facts)


def _problem(what: str, found: dict[str, str]) -> list[str]:
    if not found:
        return []
    examples = [
        f"{name} ({detail})" if detail else name for name, detail in sorted(found.items())[:_EXAMPLES]
    ]
    more = "" if len(found) <= _EXAMPLES else f" and {len(found) - _EXAMPLES} more"
    return [f"{len(found)} {what}: {', '.join(examples)}{more}"]


def _canonical(url: str) -> str:
    try:
        return canonicalise(url)
    except BadUrl:
        return url


def _is_success(request: Request) -> bool:
    return request.complete and 200 <= request.status < 500 and request.status != 429


def _ended(pair: tuple[str, Request]) -> float:
    # A page is judged by its start, robots.txt by its end: only then was it known.
    url, request = pair
    return request.end_ms if url.endswith("/robots.txt") else request.start_ms


def _most_at_once(requests: list[Request], tolerance_ms: float) -> int:
    edges: list[tuple[float, int]] = []
    for request in requests:
        edges.append((request.start_ms, 1))
        # Of a short request only half is forgiven, or none of them would ever count.
        lasted_ms = request.end_ms - request.start_ms
        edges.append((request.end_ms - min(tolerance_ms, lasted_ms / 2), -1))
    # At the same moment an end, -1, comes before a start.
    edges.sort()
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most
