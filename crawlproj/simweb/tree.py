"""The tree of a simulated web: which pages exist at which URL, and the links that make them reachable. Pure.

Nothing is stored: everything follows from the spec. Two trees make every page reachable from one seed: the
pages of a domain below its home page, and the home pages of domains below that of domain 0. A page that
cannot carry links reliably (it redirects, fails, or is disallowed) leaves its children to the nearest
ancestor that can.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from crawlproj.simweb.faults import Fault
from crawlproj.simweb.page import Kind
from crawlproj.simweb.sites import Dice, Site, make_site, number_of, part, unit
from crawlproj.simweb.spec import PAGE_SHARES, WorldSpec

_PAGE_FANOUT = 5
_DOMAIN_FANOUT = 6
#: Seeds by default: a crawl of many domains would otherwise spend long in the first few.
_SEEDS = 10

_SECTIONS = ("news", "guides", "about", "archive", "people", "shop", "blog", "notes")
_HIDDEN = ("private", "staff")
_SLUGS = ("river", "market", "letter", "winter", "bridge", "island", "r%C3%ADo", "%E6%B5%B7")

_KIND_OF_EDGE = (*PAGE_SHARES.values(), (Kind.PAGE, Fault.NONE))


class Card(NamedTuple):
    """The cheap half of a page: all that another page needs to link to it."""

    kind: Kind
    fault: Fault
    host: str
    path: str
    url: str
    carries: bool  # whether a polite crawler gets its links without fail
    seed: int


class Tree:
    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self._dice = Dice(spec.seed)
        # All are pure; the bounds keep a server of five million pages small.
        self.site: Callable[[int], Site] = lru_cache(maxsize=20_000)(partial(make_site, spec, self._dice))
        self.site_of: Callable[[str], Site | None] = lru_cache(maxsize=20_000)(self._site_of)
        self._card: Callable[[int, int], Card] = lru_cache(maxsize=50_000)(self._draw_card)

    def _site_of(self, host: str) -> Site | None:
        number = number_of(host)
        if number is None or number >= self.spec.domains:
            return None
        site = self.site(number)
        return site if host in site.hosts else None

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

    def _draw_card(self, site_number: int, number: int) -> Card:
        site = self.site(site_number)
        a, b, _, d = self._dice.draws(site_number, number)
        if number == 0:
            return Card(Kind.PAGE, Fault.NONE, site.domain, "/", self._home(site), True, d)
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
        return Card(kind, fault, host, path, site.base_url(host) + path, carries, d)

    def _url(self, site: Site, number: int) -> str:
        return self._card(site.number, number).url

    def _home(self, site: Site) -> str:
        return site.base_url(site.domain) + "/"

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
