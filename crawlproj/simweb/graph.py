"""The world as a graph: what every URL is and where it leads, computed from the spec alone.

Nothing is stored and nothing is read: a page is found by the numbers in its URL. Two trees make everything
reachable from one seed: pages of a domain hang below its home page, and homes of domains below the home of
domain 0. Pages that cannot carry a link reliably (they redirect, fail, or are disallowed) hand their children
to the nearest ancestor that can. All other links are extra, so no page depends on a nofollow link,
a retry or a duplicate to be found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from crawlproj.simweb.faults import ALWAYS, Fault
from crawlproj.simweb.hostile import (
    RESET_AFTER,
    ROBOTS_RESET_AFTER,
    Hostile,
    HostilePath,
    parse_path,
)
from crawlproj.simweb.page import Kind, Link, PageSpec
from crawlproj.simweb.sites import Dice, Robots, Site, make_site, number_of, part, robots_text, spread, unit
from crawlproj.simweb.spec import PAGE_SHARES, WorldSpec
from crawlproj.simweb.words import CHARSETS, LANGUAGES

__all__ = ["Kind", "Link", "PageSpec", "World", "WorldSpec"]

_PAGE_FANOUT = 5
_DOMAIN_FANOUT = 6
#: Seeds by default: a crawl of many domains would otherwise spend long in the first few.
_SEEDS = 10
_SITEMAP_URLS = 1000
#: Second number of a draw, apart from all page numbers.
_STYLE = 2**62
_GROUP = 2**61

_SECTIONS = ("news", "guides", "about", "archive", "people", "shop", "blog", "notes")
_HIDDEN = ("private", "staff")
_SLUGS = ("river", "market", "letter", "winter", "bridge", "island", "r%C3%ADo", "%E6%B5%B7")
_PAGE_PATH = re.compile(r".*?(?:-(\d{1,9})\.(?:html|pdf)|\?id=(\d{1,9})(?:&lang=[a-z]+)?)")
_HOP_PATH = re.compile(r"/(hop|loop)/(\d{1,9})/(\d)")
_TRAP_PATH = re.compile(
    r"/calendar/(?P<year>[1-9]\d*)/(?P<month>0[1-9]|1[0-2])"
    r"|/session/(?P<sid>[0-9a-f]{16})/(?P<step>\d+)|/deep(?:/(?:more|next|again))+"
)
_SITEMAP_PATH = re.compile(r"/sitemap(?:\.xml|-(\d{1,6})\.xml(\.gz)?)")


_KINDS: dict[str, tuple[Kind, Fault]] = {
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
_KIND_OF_EDGE = (*(_KINDS[name] for name in PAGE_SHARES), (Kind.PAGE, Fault.NONE))


class _Card(NamedTuple):
    """The cheap half of a page: all that another page needs to link to it."""

    kind: Kind
    fault: Fault
    host: str
    path: str
    url: str
    carries: bool  # whether a polite crawler gets its links without fail
    seed: int


class World:
    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self._dice = Dice(spec.seed)
        # All are pure; the bounds keep a server of five million pages small.
        self.site: Callable[[int], Site] = lru_cache(maxsize=20_000)(self._site)
        self.site_of: Callable[[str], Site | None] = lru_cache(maxsize=20_000)(self._site_of)
        self._card: Callable[[int, int], _Card] = lru_cache(maxsize=50_000)(self._draw_card)

    # -- domains

    def _site(self, number: int) -> Site:
        return make_site(self.spec, self._dice, number)

    def _site_of(self, host: str) -> Site | None:
        number = number_of(host)
        if number is None or number >= self.spec.domains:
            return None
        site = self.site(number)
        return site if host in site.hosts else None

    def domains(self) -> list[str]:
        """Domain names, by number, as ``crawlproj.model.urls.domain_of`` gives them."""
        return [self.site(number).domain for number in range(self.spec.domains)]

    @cached_property
    def total_pages(self) -> int:
        """Exactly how many numbered pages there are; robots.txt, sitemaps, hops and traps have no number."""
        sites = map(self.site, range(self.spec.domains))
        return sum(site.pages + site.unlinked for site in sites)

    def seeds(self, count: int | None = None) -> list[str]:
        """Home pages of up to *count* open domains, from which every page can be reached."""
        roots = list(self._roots(0))
        wanted = max(len(roots), _SEEDS if count is None else count)
        chosen = dict.fromkeys(roots)
        for number in range(self.spec.domains):
            if len(chosen) >= wanted:
                break
            if not self.site(number).closed:
                chosen[number] = None
        return [self._home(self.site(number)) for number in chosen]

    def _roots(self, number: int) -> Iterator[int]:
        """The domains no other open domain links to: domain 0, unless it is closed."""
        if not self.site(number).closed:
            yield number
            return
        for child in self._below(number, _DOMAIN_FANOUT, self.spec.domains):
            yield from self._roots(child)

    # -- pages

    def page(self, url: str) -> PageSpec | None:
        """What *url* (canonical, absolute) is, or None if this world has no such page."""
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        host, _, port = authority.partition(":")
        if scheme != "http" or not slash or (int(port) if port.isdigit() else 80) != (self.spec.port or 80):
            return None
        return self.lookup(host, slash + path)

    def lookup(self, host: str, target: str) -> PageSpec | None:
        """The same, as an HTTP request says it."""
        site = self.site_of(host)
        if site is None:
            return None
        if target == "/robots.txt":
            return self._robots_page(site, host)
        if match := _PAGE_PATH.fullmatch(target):
            number = int(match[1] or match[2])
        elif target == "/":
            number = 0
        else:
            return self._unnumbered(site, target) if host == site.domain else None
        if number >= site.pages + site.unlinked:
            return None
        card = self._card(site.number, number)
        return self._page(site, number, card) if (host, target) == (card.host, card.path) else None

    def _draw_card(self, site_number: int, number: int) -> _Card:
        site = self.site(site_number)
        a, b, _, d = self._dice.draws(site_number, number)
        if number == 0:
            return _Card(Kind.PAGE, Fault.NONE, site.domain, "/", self._home(site), True, d)
        kind, fault = _KIND_OF_EDGE[bisect_right(site.kinds, unit(a))]
        hidden = site.hides and part(b, 0) < site.spec.private_page_share
        sections = _HIDDEN if hidden else _SECTIONS
        section = sections[(b >> 16) % len(sections)]
        form = part(b, 2)
        if kind is Kind.FILE:
            path = f"/{section}/{_SLUGS[b % 4]}-{number}.pdf"
        elif form < 0.08:
            path = f"/{section}/item?id={number}"
        elif form < 0.12:
            path = f"/{section}/item?id={number}&lang={site.language}"
        else:
            path = f"/{section}/{_SLUGS[(b >> 52) % len(_SLUGS)]}-{number}.html"
        carries = kind is Kind.PAGE and fault in (Fault.NONE, Fault.SLOW) and not hidden
        host = site.hosts[(b >> 24) % len(site.hosts)]
        return _Card(kind, fault, host, path, site.base_url(host) + path, carries, d)

    def _url(self, site: Site, number: int) -> str:
        return self._card(site.number, number).url

    def _home(self, site: Site) -> str:
        return site.base_url(site.domain) + "/"

    def _page(self, site: Site, number: int, card: _Card) -> PageSpec:
        url, kind = card.url, card.kind
        s0, s1, s2, s3 = self._dice.draws(site.number, number | _STYLE)
        spec = site.spec
        if kind is Kind.REDIRECT:
            return self._redirect(site, number, url, s0)
        if kind is Kind.NOT_FOUND:
            return PageSpec(url, site.number, kind, status=404, text_seed=card.seed, text_bytes=200)
        language = site.language if part(s0, 0) < 0.85 else LANGUAGES[int(part(s0, 1) * len(LANGUAGES))]
        charset, declared = "utf-8", ("both", "header", "meta")[int(part(s0, 2) * 3)]
        if part(s0, 3) < spec.non_utf8_share:
            charset = CHARSETS[language][s1 % len(CHARSETS[language])]
        encoding = _pick(part(s1, 1), gzip=spec.gzip_share, br=spec.br_share, zstd=spec.zstd_share)
        text_bytes = int(spec.page_bytes * (0.3 + 1.4 * part(s1, 2) ** 2 + 4 * part(s1, 3) ** 16))
        text_seed, altered_seed, absolute = card.seed, None, False
        base: str | None = None
        canonical: str | None = url
        links: tuple[Link, ...]
        if kind is Kind.FILE:
            return PageSpec(
                url,
                site.number,
                kind,
                content_type="application/pdf",
                text_bytes=text_bytes,
                text_seed=card.seed,
            )
        if kind is Kind.DUPLICATE:
            # Members of one group share every byte, so nothing here may depend on the page itself.
            # Half of them repeat text of their own domain, half what domain 0 gave to everybody.
            owner = site if part(s2, 0) < 0.5 else self.site(0)
            group = s2 >> 63
            text_seed = self._dice.draws(owner.number, group | _GROUP)[0]
            language, charset, declared, canonical, absolute = owner.language, "utf-8", "both", None, True
            text_bytes = owner.spec.page_bytes
            links = self._unique(
                [self._home(owner), *(self._url(owner, n) for n in range(1, min(4, owner.pages)))]
            )
        elif kind is Kind.NEAR_DUPLICATE:
            original = self._page(
                site, parent := self._carrier(site, number), self._card(site.number, parent)
            )
            language, charset, declared = original.language, original.charset, original.declared
            text_bytes, text_seed, altered_seed = original.text_bytes, original.text_seed, card.seed
            canonical = original.url
            links = self._unique([self._home(site), original.url])
        else:
            if kind is Kind.HUGE:
                text_bytes = spec.huge_bytes
            links = self._links(site, number, card)
            if part(s2, 2) < spec.base_href_share:
                base = f"{site.base_url(card.host)}/base/{number}/"
            if part(s2, 3) < 0.5:
                canonical = None
        failures = 0
        if card.fault not in (Fault.NONE, Fault.SLOW):
            failures = ALWAYS if part(s3, 0) < spec.permanent_share else spec.transient_failures
        return PageSpec(
            url=url,
            site=site.number,
            kind=kind,
            fault=card.fault,
            failures=failures,
            links=links,
            language=language,
            charset=charset,
            declared="header" if charset == "utf-16" else declared,
            encoding=encoding,
            chunked=part(s3, 1) < spec.chunked_share,
            text_bytes=text_bytes,
            text_seed=text_seed,
            altered_seed=altered_seed,
            absolute_links=absolute,
            base=base,
            canonical=canonical,
        )

    # -- links

    def _links(self, site: Site, number: int, card: _Card) -> tuple[Link, ...]:
        links = {self._home(site): False}
        if card.carries:
            for child in self._children(site, number):
                links[self._url(site, child)] = False
        if number == 0:
            for child in self._child_sites(site.number):
                links[self._home(self.site(child))] = False
            if site.trap:
                home = site.base_url(site.domain)
                for path in ("/calendar/2024/01", f"/session/{card.seed:016x}/0", "/deep/more"):
                    links[home + path] = False
            for url in self.hostile_urls(site.number):
                links[url] = False
        spec = site.spec
        count = int(spec.links_mean * (0.25 + 1.5 * part(card.seed, 3)))
        draws = iter(spread(card.seed, 4 * count))
        for kind, where, page, rel in zip(draws, draws, draws, draws, strict=True):
            # Squares make low numbers popular, as a few pages and domains are in any web.
            there, popular = site, where**2
            if kind < spec.cross_domain_share:
                there = self.site(int(self.spec.domains * where**2))
                popular = 0.0 if page < 0.6 else page**2
            links.setdefault(self._url(there, int(there.pages * popular)), rel < spec.nofollow_share)
        return tuple(map(Link._make, links.items()))

    @staticmethod
    def _unique(urls: list[str]) -> tuple[Link, ...]:
        return tuple(Link(url) for url in dict.fromkeys(urls))

    @staticmethod
    def _below(number: int, fanout: int, size: int) -> range:
        return range(number * fanout + 1, min(number * fanout + fanout + 1, size))

    def _children(self, site: Site, number: int) -> Iterator[int]:
        for child in self._below(number, _PAGE_FANOUT, site.pages):
            yield child
            if not self._card(site.number, child).carries:
                yield from self._children(site, child)

    def _carrier(self, site: Site, number: int) -> int:
        """The page whose links lead to this one."""
        while number:
            number = (number - 1) // _PAGE_FANOUT
            if self._card(site.number, number).carries:
                break
        return number

    def _child_sites(self, number: int) -> Iterator[int]:
        for child in self._below(number, _DOMAIN_FANOUT, self.spec.domains):
            yield child
            if self.site(child).closed:
                yield from self._child_sites(child)

    # -- everything that is not a numbered page

    def _redirect(self, site: Site, number: int, url: str, draw: int) -> PageSpec:
        form = part(draw, 0)
        if form < 0.2:
            there = self.site(int(part(draw, 1) * self.spec.domains))
            target = self._url(there, int(part(draw, 2) * there.pages))
        elif form < 0.4:
            target = f"{site.base_url(site.domain)}/hop/{number}/{2 + draw % 3}"
        elif form < 0.45:
            target = f"{site.base_url(site.domain)}/loop/{number}/1"
        else:
            target = self._url(site, int(part(draw, 2) * site.pages))
        status = (301, 302, 303, 307, 308)[draw % 5]
        return PageSpec(url, site.number, Kind.REDIRECT, status=status, location=target)

    def _unnumbered(self, site: Site, target: str) -> PageSpec | None:
        home = site.base_url(site.domain)
        if match := _HOP_PATH.fullmatch(target):
            number, left = int(match[2]), int(match[3])
            exists = number < site.pages + site.unlinked
            start = self._page(site, number, self._card(site.number, number)) if exists else None
            if (
                start is None
                or start.location is None
                or f"{home}/{match[1]}/{number}/" not in start.location
            ):
                return None
            first = int(start.location[-1])
            if match[1] == "loop":
                location = f"{home}/loop/{number}/{3 - left}"
                exists = left in (1, 2)
            else:
                # Hops count down, so that the number says how many are left.
                location = f"{home}/hop/{number}/{left - 1}" if left > 1 else self._url(site, number // 2)
                exists = 1 <= left <= first
            if not exists:
                return None
            return PageSpec(home + target, site.number, Kind.REDIRECT, status=302, location=location)
        if (match := _SITEMAP_PATH.fullmatch(target)) and site.sitemap:
            return self._sitemap(site, home + target, match[1], gzip=match[2] is not None)
        if path := parse_path(target):
            return self._hostile(site, path)
        if site.trap and (match := _TRAP_PATH.fullmatch(target)):
            return self._trap(site, home, target, match)
        return None

    def _robots_page(self, site: Site, host: str) -> PageSpec:
        page = PageSpec(
            url=f"{site.base_url(host)}/robots.txt",
            site=site.number,
            kind=Kind.ROBOTS,
            status=404 if site.robots is Robots.MISSING else 200,
            fault=Fault.ERROR if site.robots is Robots.BROKEN else Fault.NONE,
            failures=site.robots_failures,
            content_type="text/plain",
        )
        if not site.spec.robots_hostile:
            return page
        path = HostilePath(Hostile(site.spec.robots_hostile), site.number, 0, robots=True)
        return self._spoilt(page, path)

    # -- hostile pages

    def hostile_urls(self, number: int) -> list[str]:
        """The hostile pages that the home page of a domain links to."""
        site = self.site(number)
        if not site.spec.hostile:
            return []
        kind = Hostile(site.spec.hostile)
        numbers = RESET_AFTER if kind is Hostile.RESET else (0,)
        return [site.base_url(site.domain) + HostilePath(kind, number, n).text for n in numbers]

    def _hostile(self, site: Site, path: HostilePath) -> PageSpec | None:
        if path.origin >= self.spec.domains or path.domain(self.spec.domains) != site.number:
            return None
        origin = self.site(path.origin)
        if path.kind != (origin.spec.robots_hostile if path.robots else origin.spec.hostile):
            return None
        home = site.base_url(site.domain)
        if path.robots:
            # Whoever serves it, these are the rules of the domain whose robots.txt led here.
            page = PageSpec(home + path.text, origin.number, Kind.ROBOTS, content_type="text/plain")
        else:
            links = self._unique([home + "/"])
            seed = self._dice.draws(site.number, _GROUP - 1)[0]
            page = PageSpec(
                home + path.text, site.number, Kind.HOSTILE, links=links, text_bytes=400, text_seed=seed
            )
        return self._spoilt(page, path)

    def _spoilt(self, page: PageSpec, path: HostilePath) -> PageSpec:
        number = path.number
        if path.robots and path.kind is Hostile.RESET:
            number = ROBOTS_RESET_AFTER
        facts: dict[str, Any] = {"hostile": path.kind, "hostile_number": number}
        there = path.next(self.spec.domains)
        if there is not None:
            site = self.site(there.domain(self.spec.domains))
            home = site.base_url(site.domain)
            back = there.robots and there.number == 0
            facts |= {"status": 302, "location": home + ("/robots.txt" if back else there.text)}
        return msgspec.structs.replace(page, **facts)

    def robots_text(self, domain: int) -> str:
        return robots_text(self.site(domain))

    def _sitemap(self, site: Site, url: str, index: str | None, *, gzip: bool) -> PageSpec | None:
        pages = site.pages + site.unlinked
        has_index = site.spec.sitemap_gzip or pages > _SITEMAP_URLS
        suffix = ".xml.gz" if site.spec.sitemap_gzip else ".xml"
        if index is None and has_index:
            home = site.base_url(site.domain)
            parts = range((pages + _SITEMAP_URLS - 1) // _SITEMAP_URLS)
            links = tuple(Link(f"{home}/sitemap-{number}{suffix}") for number in parts)
        else:
            first = int(index or 0) * _SITEMAP_URLS
            if first >= pages or (index is not None and (not has_index or gzip != site.spec.sitemap_gzip)):
                return None
            numbers = range(pages)[first : first + _SITEMAP_URLS]
            links = tuple(Link(self._url(site, number)) for number in numbers)
        content_type = "application/gzip" if gzip else "application/xml"
        return PageSpec(url, site.number, Kind.SITEMAP, links=links, content_type=content_type)

    def sitemap_urls(self, number: int) -> list[str]:
        """The pages of the sitemap that the domain's robots.txt names, if it names one."""
        site = self.site(number)
        if not site.sitemap or site.robots is Robots.MISSING:
            return []
        return [self._url(site, page) for page in range(site.pages + site.unlinked)]

    def _trap(self, site: Site, home: str, target: str, match: re.Match[str]) -> PageSpec:
        if match["year"]:
            year, month = int(match["year"]), int(match["month"])
            after = f"{year + month // 12}/{month % 12 + 1:02}"
            paths = [f"/calendar/{after}", f"/calendar/{year + 1}/{month:02}"]
        elif match["sid"]:
            step = int(match["step"]) + 1
            sids = self._dice.draws(int(match["sid"], 16), step)[:3]
            paths = [f"/session/{sid:016x}/{step}" for sid in sids]
        else:
            paths = [f"{target}/{word}" for word in ("more", "next", "again")]
        seed = self._dice.draws(site.number, _GROUP - 1 - len(target))[0]
        links = self._unique([home + "/", *(home + path for path in paths)])
        return PageSpec(home + target, site.number, Kind.TRAP, links=links, text_bytes=500, text_seed=seed)


def _pick(where: float, **shares: float) -> str:
    for name, share in shares.items():
        if where < share:
            return name
        where -= share
    return "identity"
