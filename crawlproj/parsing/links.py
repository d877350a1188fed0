"""The links of a page: found, resolved, canonical, each once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from crawlproj.errors import BadUrl
from crawlproj.model.urls import UrlRules, canonicalise, origin_of
from crawlproj.parsing.html import plain_links

#: Longer links are dropped, and a longer base is ignored: a page could otherwise be made to say a short
#: path with a megabyte in front of it five thousand times.
MOST_URL_CHARS = 2048
_OTHER_SCHEMES = ("javascript:", "mailto:", "tel:", "data:")


def canonical_links(hrefs: Iterable[str], base: str, limit: int, rules: UrlRules) -> list[str]:
    """Return the canonical URLs of *hrefs*, different ones in their order, at most *limit*.

    Each is ``rules.clean(canonicalise(href, base))``; what cannot be crawled is left out, and so are links
    to the base itself, such as ``#top``. *base* is canonical.
    """
    different = list(dict.fromkeys([href.partition("#")[0] if "#" in href else href for href in hrefs]))
    folder = base.partition("?")[0].rpartition("/")[0] + "/"
    # Resolving a link costs more than finding it: what is plain needs no URL parser.
    plain = plain_links(different, origin_of(base), folder, _is_canonical, rules.clean)
    links: dict[str, None] = {}
    for href, url in zip(different, plain, strict=True):
        if url is None:
            resolved = _resolved(href, base) if href and len(href) <= MOST_URL_CHARS else None
            if resolved is None:
                continue
            url = rules.clean(resolved)
        if len(url) <= MOST_URL_CHARS and url not in links:
            if len(links) == limit:
                break
            links[url] = None
    return list(links)


def base_of(href: str, url: str) -> str:
    """Return the base that ``<base href>`` gives the page at *url*: its own URL if it cannot be used."""
    if len(href) > MOST_URL_CHARS:
        return url
    return _resolved(href, url) or url


def _resolved(href: str, base: str) -> str | None:
    if href.lstrip()[:11].lower().startswith(_OTHER_SCHEMES):
        return None
    try:
        return canonicalise(href, base)
    except BadUrl:
        return None


@lru_cache(maxsize=8192)
def _is_canonical(origin: str) -> bool:
    try:
        return canonicalise(f"{origin}/") == f"{origin}/"
    except BadUrl:
        return False
