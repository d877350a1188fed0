"""When requests came, by the server's own log: concurrency, delays, backoff, Retry-After."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, pairwise
from pathlib import Path

from protego import Protego

from crawlproj.simweb.accesslog import Request, read_log
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.graph import World
from crawlproj.simweb.sites import Robots

#: A domain that throttles everything must see its request rate fall by this factor within this many requests.
RATE_FALL = 10
TEN_REQUESTS = 10
#: A busy server notices so much later that a client left. When an answer it sends has ended, it knows.
_LATE_MS = 40.0
#: A first pause below this counts as this: zero cannot grow.
_LEAST_PAUSE_MS = 10.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of the crawler that change what it had to do."""

    obey_robots: bool = True
    max_redirects: int = 10
    follow_nofollow: bool = True
    #: None: the world's own seeds.
    seeds: tuple[str, ...] | None = None
    #: Maximum attempts per URL.
    attempts: int = 3
    #: The same for one that answers 429, which may count against its site instead.
    throttled_attempts: int = 6
    #: Whether it reads the sitemaps that robots.txt names.
    sitemaps: bool = False
    #: A longer Crawl-delay than this need not be honoured.
    crawl_delay_cap_s: float = 300.0
    #: Without Retry-After, each pause of a throttled domain is this many times the last, up to the cap.
    backoff_factor: float = 1.5
    backoff_cap_s: float = 3600.0
    #: A dead domain must see fewer connections than this in any window.
    dead_connections: int = 10
    dead_window_s: float = 3600.0


class Timing:
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
        #: The rules of a domain, by its number.
        self._robots: Callable[[int], Protego] = cache(lambda n: Protego.parse(world.site(n).robots_text()))

    def required_gap_ms(self, domain: str, default_ms: float) -> float:
        """The domain's Crawl-delay for our agent where that is longer than *default_ms*."""
        site = self.world.site_of(domain)
        if site is None or site.robots is Robots.MISSING or not self.rules.obey_robots:
            return default_ms
        delay_s = min(self._robots(site.number).crawl_delay(self._agent) or 0, self.rules.crawl_delay_cap_s)
        return max(default_ms, delay_s * 1000)

    @cached_property
    def _by_domain(self) -> dict[str, list[Request]]:
        grouped: dict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            grouped[request.domain].append(request)
        return dict(grouped)

    def max_concurrency(self, *, tolerance_ms: float = 0) -> dict[str, int]:
        """Per domain, the greatest number of requests at once; overlaps up to *tolerance_ms* do not count."""
        return {domain: _most_at_once(requests, tolerance_ms) for domain, requests in self._by_domain.items()}

    def hurried(self, *, tolerance_ms: float = 5) -> dict[str, float]:
        """Domains fetched from before their Retry-After had passed, and how many ms early."""
        hurried: dict[str, float] = {}
        for domain, requests in self._by_domain.items():
            starts_ms = [request.start_ms for request in requests]
            for index, throttled in enumerate(requests):
                until_ms = self._quiet_until_ms(throttled)
                # Requests in flight at the time could not know.
                after = max(index + 1, bisect_left(starts_ms, throttled.end_ms - tolerance_ms))
                if until_ms and after < len(requests) and until_ms - starts_ms[after] > tolerance_ms:
                    left_ms = until_ms - starts_ms[after]
                    hurried[domain] = max(hurried.get(domain, 0.0), left_ms)
        return hurried

    def _quiet_until_ms(self, request: Request) -> float:
        if request.fault == Fault.THROTTLED:
            return request.quiet_until_ms
        site = self.world.site_of(request.domain)
        if request.status != 429 or site is None:
            return 0.0
        return request.end_ms + site.spec.retry_after_s * 1000

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

        They are compared with the first pause: one that was longer than necessary is not a violation.
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
        """How many times slower a throttled domain is after ten requests; those with fewer are left out.

        Without a normal pause, the first within the row counts as such.
        """
        falls = {}
        for domain, gaps in self.throttled_gaps_ms().items():
            if len(gaps) >= TEN_REQUESTS - 1:
                normal_ms = normal_gap_ms(domain) if callable(normal_gap_ms) else normal_gap_ms
                falls[domain] = gaps[TEN_REQUESTS - 2] / (normal_ms or max(gaps[0], _LEAST_PAUSE_MS))
        return falls

    def _unslowed(self, normal_gap_ms: float | Callable[[str], float]) -> dict[str, str]:
        cap_ms = self.rules.backoff_cap_s * 1000
        gaps = self.throttled_gaps_ms()
        return {
            domain: f"{fall:.1f} times slower"
            for domain, fall in self.rate_falls(normal_gap_ms).items()
            if fall < RATE_FALL and gaps[domain][TEN_REQUESTS - 2] < cap_ms
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

    def rushes(
        self, min_gap_ms: float | Callable[[str], float], tolerance_ms: float = 5
    ) -> Iterator[tuple[Request, float, float]]:
        """Yield each request that came too soon after the one before, its pause and the one required in ms.

        The pause is negative where both were answered at once.
        """
        for domain, requests in self._by_domain.items():
            if callable(min_gap_ms):
                required_ms = delay_ms = min_gap_ms(domain)
            else:
                required_ms, delay_ms = min_gap_ms, self.required_gap_ms(domain, min_gap_ms)
            free_ms = float("-inf")
            for request in requests:
                gap_ms = request.start_ms - free_ms
                if required_ms > 0 and gap_ms < required_ms - tolerance_ms:
                    yield request, gap_ms, required_ms
                free_ms = max(free_ms, request.end_ms - (_LATE_MS if request.left else 0.0))
                # A Crawl-delay is binding once robots.txt was read.
                if request.url.endswith("/robots.txt") and request.is_success:
                    required_ms = delay_ms

    def _rushed(self, min_gap_ms: float | Callable[[str], float], tolerance_ms: float) -> dict[str, str]:
        rushed: dict[str, tuple[float, float]] = {}
        for request, gap_ms, required_ms in self.rushes(min_gap_ms, tolerance_ms):
            worst = rushed.get(request.domain, (gap_ms, required_ms))
            rushed[request.domain] = min(worst, (gap_ms, required_ms))
        return {
            domain: f"{gap:.0f} ms instead of {required:.0f}" for domain, (gap, required) in rushed.items()
        }


def _most_at_once(requests: list[Request], tolerance_ms: float) -> int:
    edges: list[tuple[float, int]] = []
    for request in requests:
        edges.append((request.start_ms, 1))
        # Of a short request only half is tolerated, or none would ever count.
        lasted_ms = request.end_ms - request.start_ms
        late_ms = tolerance_ms + (_LATE_MS if request.left else 0.0)
        edges.append((request.end_ms - min(late_ms, lasted_ms / 2), -1))
    # At the same moment an end, -1, comes before a start.
    edges.sort()
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most
