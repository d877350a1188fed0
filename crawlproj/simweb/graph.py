"""A simulated web as a graph: what every URL is and where it leads, computed from the spec alone. Pure.

All links beside those of the tree are extra: no page depends on a nofollow link, a retry or a duplicate.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from crawlproj.simweb.faults import ALWAYS, Fault
from crawlproj.simweb.hostile import RESET_AFTER, ROBOTS_RESET_AFTER, Hostile, HostilePath, parse_path
from crawlproj.simweb.page import Kind, Link, PageSpec
from crawlproj.simweb.sites import Robots, Site, part, spread
from crawlproj.simweb.tree import Card, Tree
from crawlproj.simweb.words import CHARSETS, LANGUAGES

_SITEMAP_URLS = 1000
#: Second number of a draw, apart from all page numbers.
_STYLE = 2**62
_GROUP = 2**61

_PAGE_PATH = re.compile(r".*?(?:-(\d{1,9})\.(?:html|pdf)|\?id=(\d{1,9})(?:&lang=[a-z]+)?)")
_HOP_PATH = re.compile(r"/(hop|loop)/(\d{1,9})/(\d)")
_TRAP_PATH = re.compile(
    r"/calendar/(?P<year>[1-9]\d*)/(?P<month>0[1-9]|1[0-2])"
    r"|/session/(?P<sid>[0-9a-f]{16})/(?P<step>\d+)|/deep(?:/(?:more|next|again))+"
)
_SITEMAP_PATH = re.compile(r"/sitemap(?:\.xml|-(\d{1,6})\.xml(\.gz)?)")


class World(Tree):
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

    def _page(self, site: Site, number: int, card: Card) -> PageSpec:
        kind, spec = card.kind, site.spec
        s0, s1, s2, s3 = draws = self._dice.draws(site.number, number | _STYLE)
        if kind is Kind.REDIRECT:
            return self._redirect(site, number, card.url, s0)
        if kind is Kind.NOT_FOUND:
            return PageSpec(card.url, site.number, kind, status=404, text_seed=card.seed, text_bytes=200)
        if kind is Kind.DUPLICATE:
            facts = self._duplicate(site, s2)
        elif kind is Kind.NEAR_DUPLICATE:
            facts = self._near_duplicate(site, number, card)
        else:
            facts = self._original(site, number, card, draws)
        if kind is Kind.FILE:
            return PageSpec(card.url, site.number, kind, **facts)
        failures = 0
        if card.fault not in (Fault.NONE, Fault.SLOW):
            failures = ALWAYS if part(s3, 0) < spec.permanent_share else spec.transient_failures
        return PageSpec(
            card.url,
            site.number,
            kind,
            fault=card.fault,
            failures=failures,
            encoding=_pick(part(s1, 1), gzip=spec.gzip_share, br=spec.br_share, zstd=spec.zstd_share),
            chunked=part(s3, 1) < spec.chunked_share,
            **facts,
        )

    def _original(self, site: Site, number: int, card: Card, draws: tuple[int, ...]) -> dict[str, Any]:
        spec, (s0, s1, s2, _) = site.spec, draws
        text_bytes = int(spec.page_bytes * (0.3 + 1.4 * part(s1, 2) ** 2 + 4 * part(s1, 3) ** 16))
        if card.kind is Kind.FILE:
            return {"content_type": "application/pdf", "text_bytes": text_bytes, "text_seed": card.seed}
        language = site.language if part(s0, 0) < 0.85 else LANGUAGES[int(part(s0, 1) * len(LANGUAGES))]
        charset, declared = "utf-8", ("both", "header", "meta")[int(part(s0, 2) * 3)]
        if part(s0, 3) < spec.non_utf8_share:
            charset = CHARSETS[language][s1 % len(CHARSETS[language])]
        has_base = part(s2, 2) < spec.base_href_share
        return {
            "language": language,
            "charset": charset,
            "declared": "header" if charset == "utf-16" else declared,
            "text_bytes": spec.huge_bytes if card.kind is Kind.HUGE else text_bytes,
            "text_seed": card.seed,
            "links": self._links(site, number, card),
            "base": f"{site.base_url(card.host)}/base/{number}/" if has_base else None,
            "canonical": None if part(s2, 3) < 0.5 else card.url,
        }

    def _duplicate(self, site: Site, draw: int) -> dict[str, Any]:
        # Members of one group share every byte, so nothing here may depend on the page itself.
        # Half of them repeat text of their own domain, half that of domain 0.
        owner = site if part(draw, 0) < 0.5 else self.site(0)
        others = (self._url(owner, n) for n in range(1, min(4, owner.pages)))
        return {
            "language": owner.language,
            "text_bytes": owner.spec.page_bytes,
            "text_seed": self._dice.draws(owner.number, (draw >> 63) | _GROUP)[0],
            "links": self._unique([self._home(owner), *others]),
            "absolute_links": True,
        }

    def _near_duplicate(self, site: Site, number: int, card: Card) -> dict[str, Any]:
        parent = self._carrier(site, number)
        original = self._page(site, parent, self._card(site.number, parent))
        same = ("language", "charset", "declared", "text_bytes", "text_seed")
        return {
            **{name: getattr(original, name) for name in same},
            "altered_seed": card.seed,
            "canonical": original.url,
            "links": self._unique([self._home(site), original.url]),
        }

    # -- links

    def _links(self, site: Site, number: int, card: Card) -> tuple[Link, ...]:
        must = [self._home(site)]
        if card.carries:
            must += (self._url(site, child) for child in self._children(site, number))
        if number == 0:
            must += (self._home(self.site(child)) for child in self._child_sites(site.number))
            if site.trap:
                traps = ("/calendar/2024/01", f"/session/{card.seed:016x}/0", "/deep/more")
                must += (site.base_url(site.domain) + path for path in traps)
            must += self.hostile_urls(site.number)
        links, spec = dict.fromkeys(must, False), site.spec
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
            if number >= site.pages + site.unlinked:
                return None
            start = self._page(site, number, self._card(site.number, number)).location or ""
            prefix = f"{home}/{match[1]}/{number}/"
            if not start.startswith(prefix):
                return None
            if match[1] == "loop":
                first, location = 2, f"{prefix}{3 - left}"
            else:
                # Hops count down, so that the number says how many are left.
                first = int(start[-1])
                location = f"{prefix}{left - 1}" if left > 1 else self._url(site, number // 2)
            if not 1 <= left <= first:
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
            # Whichever host serves it, these are the rules of the domain whose robots.txt led here.
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
