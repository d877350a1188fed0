"""Everything that makes a simulated web: one frozen value, the same in every process."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self

from crawlproj.errors import BadArgument
from crawlproj.simweb.faults import ALWAYS, Fault
from crawlproj.simweb.hostile import PAGE_KINDS, ROBOTS_KINDS
from crawlproj.simweb.page import Kind

MAX_DOMAINS = 100_000

#: Shares of a domain's pages, and what these are. They exclude each other, so together they are at most 1.
PAGE_SHARES: Mapping[str, tuple[Kind, Fault]] = {
    "redirect_share": (Kind.REDIRECT, Fault.NONE),
    "error_404_share": (Kind.NOT_FOUND, Fault.NONE),
    "error_500_share": (Kind.PAGE, Fault.ERROR),
    "throttle_share": (Kind.PAGE, Fault.THROTTLE),
    "slow_share": (Kind.PAGE, Fault.SLOW),
    "hang_share": (Kind.PAGE, Fault.HANG),
    "drop_share": (Kind.PAGE, Fault.DROP),
    "truncate_share": (Kind.PAGE, Fault.TRUNCATE),
    "huge_share": (Kind.HUGE, Fault.NONE),
    "file_share": (Kind.FILE, Fault.NONE),
    "duplicate_share": (Kind.DUPLICATE, Fault.NONE),
    "near_duplicate_share": (Kind.NEAR_DUPLICATE, Fault.NONE),
}
#: What belongs to the whole world and so cannot differ from domain to domain.
WORLD_ONLY = ("seed", "domains", "naming", "port", "overrides")
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "hostile": ("", *map(str, PAGE_KINDS)),
    "robots_hostile": ("", *map(str, ROBOTS_KINDS)),
    "throttle_all": (0, 429, 503),
    "throttle_retry_after": ("", "seconds", "date"),
    "dead": ("", "reset", "hang"),
    "markup": ("plain", "wild"),
}


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """A benign but realistic web by default; see ``calm`` and ``rough`` for the two extremes.

    A ``*_share`` is a probability between 0 and 1: of pages, or, where the comment says so, of domains.
    """

    seed: int = 1
    domains: int = 20
    #: The mean; some domains are tiny and some several times larger.
    pages_per_domain: int = 50
    #: 0: every domain has exactly the mean number of pages.
    size_spread: float = 1.0
    #: "ip": hosts are 127.a.b.c. "name": hosts are d00042.test, www.d00042.test, blog.d00042.test.
    naming: str = "ip"
    #: The server fills in its real port; URLs made before that carry none.
    port: int = 0

    links_mean: float = 10.0
    cross_domain_share: float = 0.2  # of links
    nofollow_share: float = 0.05  # of links that are not the only way to a page
    page_bytes: int = 4000  # mean length of the text
    #: "plain": little more than the text. "wild": size and markup of real pages (crawlproj.simweb.wild).
    markup: str = "plain"
    non_utf8_share: float = 0.15
    base_href_share: float = 0.05

    redirect_share: float = 0.04
    error_404_share: float = 0.02
    error_500_share: float = 0.01
    throttle_share: float = 0.005
    slow_share: float = 0.01
    hang_share: float = 0.0
    drop_share: float = 0.0
    truncate_share: float = 0.0
    huge_share: float = 0.0
    file_share: float = 0.01
    duplicate_share: float = 0.02
    near_duplicate_share: float = 0.02

    chunked_share: float = 0.1
    gzip_share: float = 0.4
    br_share: float = 0.1
    zstd_share: float = 0.1

    #: Of failing pages, how many fail forever; the others fail ``transient_failures`` times, then work.
    permanent_share: float = 0.25
    transient_failures: int = 1
    #: Every answer takes this long. Two requests at once are seen as such only while one is being answered.
    latency_ms: float = 2.0
    slow_ms: int = 200
    hang_s: float = 10.0  # the server gives up on a hanging connection after this long
    retry_after_s: int = 1
    huge_bytes: int = 5_000_000

    no_robots_share: float = 0.3  # of domains: robots.txt is a 404
    robots_5xx_share: float = 0.0  # of domains: forever or for a while, see permanent_share
    disallow_share: float = 0.3  # of domains: some paths are disallowed
    private_page_share: float = 0.1  # of the pages of such a domain
    closed_share: float = 0.01  # of domains: Disallow: /
    crawl_delay_share: float = 0.05  # of domains
    crawl_delay_min_s: float = 0.2
    crawl_delay_max_s: float = 0.5
    sitemap_share: float = 0.3  # of domains
    trap_share: float = 0.0  # of domains: they link into infinite spaces
    sitemap_gzip: bool = False  # sitemap.xml is an index of sitemap-N.xml.gz
    #: Extra pages, as a share of a domain's pages, that its sitemap names and no page links to.
    sitemap_only_share: float = 0.0

    # From here on mostly for overrides: how a whole domain treats its visitors.
    #: A kind of crawlproj.simweb.hostile: the home page links to such pages, all others stay as they are.
    hostile: str = ""
    robots_hostile: str = ""  # the same for robots.txt
    hostile_step_ms: int = 1000  # between two bytes or lines of what dribbles
    #: The server ends a hostile answer after this long, or this many bytes.
    hostile_s: float = 30.0
    hostile_bytes: int = 200_000_000
    bomb_bytes: int = 1 << 30  # of a decompression bomb, inflated
    #: 429 or 503: the answer to the first ``throttle_requests`` requests (faults.ALWAYS: to all).
    throttle_all: int = 0
    throttle_requests: int = ALWAYS
    #: How it says retry_after_s: "" (not at all), "seconds" or "date".
    throttle_retry_after: str = ""
    throttle_robots: bool = False  # robots.txt, too
    #: "reset" or "hang": what the first ``dead_attempts`` connections (faults.ALWAYS: all) get at once.
    dead: str = ""
    dead_attempts: int = ALWAYS
    #: False: robots.txt is answered, so the rest dies only once it has been asked for.
    dead_robots: bool = True

    #: Domain number -> any fields of this class that differ there.
    overrides: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.naming not in ("ip", "name"):
            raise BadArgument(f"naming={self.naming!r} is unknown; it is 'ip' or 'name'.")
        if not 0 <= self.port <= 65_535:
            raise BadArgument(f"port={self.port} is out of range; it is 0 (a free one) to 65535.")
        if not 1 <= self.domains <= MAX_DOMAINS:
            raise BadArgument(f"domains={self.domains} is out of range; it is 1 to {MAX_DOMAINS}.")
        if self.pages_per_domain < 1:
            raise BadArgument(f"pages_per_domain={self.pages_per_domain} is too small; it is at least 1.")
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                choices = ", ".join(repr(choice) for choice in known)
                raise BadArgument(f"{name}={value!r} is unknown; it is one of {choices}.")
        for name in FIELDS:
            if (name.endswith("_share") or name == "size_spread") and not 0 <= getattr(self, name) <= 1:
                raise BadArgument(f"{name}={getattr(self, name)} is not a share; it is between 0 and 1.")
        for names in (PAGE_SHARES, ("gzip_share", "br_share", "zstd_share")):
            total = sum(getattr(self, name) for name in names)
            if total > 1 + 1e-9:
                raise BadArgument(f"{' + '.join(names)} = {total:.3f} is more than 1; make some smaller.")
        for number, changes in self.overrides.items():
            for name in changes:
                check_field(name)
                if name in WORLD_ONLY:
                    raise BadArgument(
                        f"{name} belongs to the whole world; domain {number} cannot override it."
                    )

    @classmethod
    def calm(cls, **fields: Any) -> Self:
        """Every page answers 200 at once; no robots rules, redirects, failures, duplicates or traps."""
        quiet: dict[str, Any] = {name: 0.0 for name in FIELDS if name.endswith("_share")}
        quiet |= {"cross_domain_share": 0.2, "gzip_share": 0.4, "br_share": 0.1, "zstd_share": 0.1}
        return cls(**(quiet | fields))

    @classmethod
    def wild(cls, **fields: Any) -> Self:
        """The same web with pages as large, and as much markup and links, as real ones have."""
        real: dict[str, Any] = {"markup": "wild", "page_bytes": 5400, "links_mean": 30.0}
        return cls(**(real | fields))

    @classmethod
    def rough(cls, **fields: Any) -> Self:
        """Everything on, except traps: a crawl without trap detection would never end."""
        rough: dict[str, Any] = dict.fromkeys(PAGE_SHARES, 0.04)
        rough |= {"redirect_share": 0.1, "huge_share": 0.002, "hang_share": 0.01, "chunked_share": 0.3}
        rough |= {"robots_5xx_share": 0.06, "closed_share": 0.03, "crawl_delay_share": 0.15}
        return cls(**(rough | fields))

    def for_domain(self, number: int) -> Self:
        changes = self.overrides.get(number)
        return dataclasses.replace(self, **changes) if changes else self

    def to_json(self) -> str:
        # Not asdict(): it would copy the overrides of 100,000 domains.
        return json.dumps({name: getattr(self, name) for name in FIELDS}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        for name in fields:
            check_field(name)
        fields["overrides"] = {int(number): change for number, change in fields.get("overrides", {}).items()}
        return cls(**fields)


FIELDS = tuple(f.name for f in dataclasses.fields(WorldSpec))


def check_field(name: str) -> None:
    if name not in FIELDS:
        close = get_close_matches(name, FIELDS, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise BadArgument(f"A simulated web has no {name!r}.{hint}")
