"""Domains of a simulated web: their hosts, their size, their robots.txt. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b, shake_128
from itertools import accumulate
from struct import Struct, unpack

from crawlproj.simweb.faults import ALWAYS
from crawlproj.simweb.hostile import UNREACHABLE, Hostile
from crawlproj.simweb.spec import PAGE_SHARES, WorldSpec
from crawlproj.simweb.words import LANGUAGES

_PAIR = Struct("<QQ")
_DRAWS = Struct("<QQQQ")
#: The draw that belongs to a domain as a whole; no page has this number.
_SITE = 2**63
#: Bytes a.b.c of 127.a.b.c run from 1 to 254, so that no address is a network or a broadcast one.
_RADIX = 254
_HOST = re.compile(r"127\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})|(?:(?:www|blog)\.)?d(\d{5,6})\.test")
#: How many times larger than the mean a domain may be.
_LARGEST = 8.0


class Robots(StrEnum):
    ALLOW = "allow"
    MISSING = "404"
    BROKEN = "503"
    DISALLOW = "disallow"
    AGENTS = "agents"  # groups per user agent
    CLOSED = "closed"  # Disallow: /


@dataclass(frozen=True, slots=True)
class Site:
    """One domain of the world."""

    number: int
    domain: str  # as crawlproj.model.urls.domain_of names it
    hosts: tuple[str, ...]
    spec: WorldSpec  # with this domain's overrides
    pages: int
    language: str
    robots: Robots
    robots_failures: int
    crawl_delay_s: float | None
    sitemap: bool
    trap: bool
    kinds: tuple[float, ...]  # upper ends of PAGE_SHARES, in order
    unlinked: int = 0  # pages only the sitemap names; their numbers follow those of the others

    @property
    def closed(self) -> bool:
        """Whether a polite crawler may never get a page here, so that nothing else may hang on its links."""
        return (
            self.robots is Robots.CLOSED
            or (self.robots is Robots.BROKEN and self.robots_failures == ALWAYS)
            or self.useless
            or self.robots_unreachable
        )

    @property
    def useless(self) -> bool:
        """Whether a crawler may ask but need not get a page: that depends on its patience."""
        spec = self.spec
        odd_robots = spec.robots_hostile not in ("", Hostile.REDIRECT_OTHER) and not self.robots_unreachable
        dead = bool(spec.dead) and spec.dead_attempts == ALWAYS
        return odd_robots or dead or (spec.throttle_all > 0 and spec.throttle_requests == ALWAYS)

    @property
    def robots_unreachable(self) -> bool:
        """Whether its robots.txt never gives a status, which RFC 9309 takes for Disallow: /."""
        return self.spec.robots_hostile in UNREACHABLE

    @property
    def hides(self) -> bool:
        """Whether some, not all, of its paths are disallowed to some crawler."""
        return self.robots in (Robots.DISALLOW, Robots.AGENTS)

    def base_url(self, host: str) -> str:
        return f"http://{host}:{self.spec.port}" if self.spec.port not in (0, 80) else f"http://{host}"

    def robots_text(self) -> str:
        """The robots.txt that is served once it is served at all; empty where there is none."""
        if self.robots is Robots.MISSING:
            return ""
        delay = "" if self.crawl_delay_s is None else f"Crawl-delay: {self.crawl_delay_s}\n"
        if self.robots is Robots.CLOSED:
            rules = f"User-agent: *\nDisallow: /\n{delay}"
        elif self.robots is Robots.DISALLOW:
            rules = f"User-agent: *\nDisallow: /private/\nDisallow: /staff/\n{delay}"
        elif self.robots is Robots.AGENTS:
            rules = (
                f"User-agent: greedybot\nDisallow: /\n\nUser-agent: crawlproj\nDisallow: /private/\n{delay}\n"
                f"User-agent: *\nDisallow: /staff/\nDisallow: /private/\n{delay}"
            )
        else:
            rules = f"User-agent: *\nDisallow:\n{delay}"
        sitemap = f"\nSitemap: {self.base_url(self.domain)}/sitemap.xml\n" if self.sitemap else ""
        return f"# {self.domain}\n{rules}{sitemap}"


class Dice:
    """Random numbers that depend on the world's seed and on two numbers, nothing else."""

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()[:64]

    def draws(self, first: int, second: int) -> tuple[int, int, int, int]:
        """Four independent 64-bit numbers."""
        digest = blake2b(_PAIR.pack(first, second), digest_size=32, key=self._key).digest()
        a, b, c, d = _DRAWS.unpack(digest)
        return a, b, c, d


def unit(draw: int) -> float:
    """A 64-bit draw as a number in [0, 1)."""
    # The shift keeps the largest draws from rounding up to 1.
    return (draw >> 11) * 2.0**-53


def spread(seed: int, count: int) -> list[float]:
    """*count* numbers in [0, 1) that depend on *seed* alone; a third of the price of a ``random.Random``."""
    raw = shake_128(seed.to_bytes(8, "little")).digest(4 * count)
    return [number * 2.0**-32 for number in unpack(f"<{count}I", raw)]


def part(draw: int, index: int) -> float:
    """One of four numbers in [0, 1) hidden in one draw, good to a part in 65,536."""
    return ((draw >> (16 * index)) & 0xFFFF) / 65_536


def address_of(number: int) -> str:
    """The loopback address of domain *number*; never 127.0.0.1."""
    rest, last = divmod(number, _RADIX)
    first, middle = divmod(rest, _RADIX)
    return f"127.{first}.{middle + 1}.{last + 1}"


def name_of(number: int) -> str:
    return f"d{number:05}.test"


def number_of(host: str) -> int | None:
    """The domain number that *host* (an address, a name, or a subdomain) stands for in any world."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    if match[4]:
        number = int(match[4])
        return number if host.endswith(name_of(number)) else None
    number = (int(match[1]) * _RADIX + int(match[2]) - 1) * _RADIX + int(match[3]) - 1
    return number if address_of(number) == host else None


def make_site(world: WorldSpec, dice: Dice, number: int) -> Site:
    spec = world.for_domain(number)
    a, b, c, d = dice.draws(number, _SITE)
    size = 1 + spec.size_spread * (min(_LARGEST, -math.log(1.0 - unit(a))) - 1)
    domain = address_of(number) if spec.naming == "ip" else name_of(number)
    subdomains = ("www.", "blog.") if spec.naming == "name" and part(b, 0) < 0.4 else ()
    robots, failures = _robots(spec, number, c)
    delay_s = None
    if part(b, 1) < spec.crawl_delay_share:
        delay_s = spec.crawl_delay_min_s + part(b, 2) * (spec.crawl_delay_max_s - spec.crawl_delay_min_s)
        delay_s = round(delay_s, 2)
    sitemap = part(d, 1) < spec.sitemap_share
    # The delay, the only way to some pages, what is hostile: it has to be said somewhere.
    speaks = delay_s is not None or (sitemap and spec.sitemap_only_share > 0) or spec.robots_hostile
    robots = Robots.ALLOW if speaks and robots is Robots.MISSING else robots
    pages = max(1, round(spec.pages_per_domain * size))
    return Site(
        number=number,
        domain=domain,
        hosts=(domain, *(prefix + domain for prefix in subdomains)),
        spec=spec,
        pages=pages,
        language=LANGUAGES[int(part(d, 0) * len(LANGUAGES))],
        robots=robots,
        robots_failures=failures,
        crawl_delay_s=delay_s,
        sitemap=sitemap,
        trap=part(d, 2) < spec.trap_share,
        kinds=tuple(accumulate(getattr(spec, name) for name in PAGE_SHARES)),
        unlinked=round(pages * spec.sitemap_only_share) if sitemap else 0,
    )


def _robots(spec: WorldSpec, number: int, draw: int) -> tuple[Robots, int]:
    # Domain 0 stays open unless it is overridden, so that one seed is enough to reach every other domain.
    may_close = number > 0 or 0 in spec.overrides
    where = part(draw, 0)
    permanent = part(draw, 1) < spec.permanent_share
    if where < spec.robots_5xx_share and (may_close or not permanent):
        return Robots.BROKEN, ALWAYS if permanent else spec.transient_failures
    where -= spec.robots_5xx_share
    if 0 <= where < spec.closed_share and may_close:
        return Robots.CLOSED, 0
    if part(draw, 2) < spec.disallow_share:
        return (Robots.AGENTS if part(draw, 3) < 0.3 else Robots.DISALLOW), 0
    if part(draw, 3) < spec.no_robots_share:
        return Robots.MISSING, 0
    return Robots.ALLOW, 0
