"""The links of a page: found, resolved, canonical, each once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from crawlproj.errors import BadUrl
from crawlproj.model.urls import UrlRules, canonicalise, origin_of

#: Longer links are dropped, and a longer base is ignored: a page could otherwise be made to say a short
#: path with a megabyte in front of it five thousand times.
MOST_URL_CHARS = 2048
_OTHER_SCHEMES = ("javascript:", "mailto:", "tel:", "data:")
#: What the URL standard leaves as it is, in a path and behind the first question mark. Dots and percent
#: signs can be more than they seem; see `_plain`.
_SAFE = re.compile(r"[A-Za-z0-9_~!$&()*+,;=@/.:-]+(?:\?[A-Za-z0-9_~!$&()*+,;=@/.:?%-]+)?").fullmatch


def canonical_links(hrefs: Iterable[str], base: str, limit: int, rules: UrlRules) -> tuple[list[str], bool]:
    """Return the canonical URLs of *hrefs*, different ones in their order, and whether there were more.

    Each is ``rules.clean(canonicalise(href, base))``; what cannot be crawled is left out, and so are links
    to the base itself, such as ``#top``. *base* is canonical.
    """
    origin = origin_of(base)
    folder = base.partition("?")[0].rpartition("/")[0] + "/"
    links: dict[str, None] = {}
    # Resolving a link costs more than finding it, so repeated ones go first.
    for href in dict.fromkeys(hrefs):
        if "#" in href:
            href = href.partition("#")[0]
        if not href or len(href) > MOST_URL_CHARS:
            continue
        url = _plain(href, origin, folder) or _resolved(href, base)
        if url is None:
            continue
        url = rules.clean(url)
        if len(url) <= MOST_URL_CHARS and url not in links:
            if len(links) == limit:
                return list(links), True
            links[url] = None
    return list(links), False


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


def _plain(href: str, origin: str, folder: str) -> str | None:
    """Return what most hrefs come to without asking the URL parser, or None for the few that need it.

    Plain is what has only safe characters, and no part of its path that begins with a dot, but for
    ``../`` at the start.
    """
    if _SAFE(href) is None:
        return None
    if href[0] == "/":
        return None if href.startswith("//") or "/." in href else origin + href
    if href.startswith(("http://", "https://")):
        end = href.find("/", 8)
        return href if end > 0 and "/." not in href and _is_canonical(href[:end]) else None
    if ":" in href:
        return None
    while href.startswith("../"):
        href = href[3:]
        if len(folder) > len(origin) + 1:
            folder = folder[: folder.rindex("/", 0, -1) + 1]
    return None if href[:1] in ("/", ".", "?") or "/." in href else folder + href


@lru_cache(maxsize=8192)
def _is_canonical(origin: str) -> bool:
    try:
        return canonicalise(f"{origin}/") == f"{origin}/"
    except BadUrl:
        return False
