"""Sitemaps: the URLs a site lists, and the other sitemaps it names. Pure.

Read by patterns, as feeds are, and not as XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from crawlproj.model.urls import UrlRules, domain_of
from crawlproj.pages.inflate import inflate
from crawlproj.parsing.feeds import elements, feed_entries, root_of, url_of
from crawlproj.parsing.links import canonical_links

_HEAD_BYTES = 65_536
_LINE = re.compile(rb"(?:\A|[\r\n])[ \t]*+(https?://\S++)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sitemap:
    """What a sitemap lists: canonical and different URLs, in its order."""

    urls: list[str]
    sitemaps: list[str]


def read_sitemap(
    body: bytes, url: str, rules: UrlRules, *, most_urls: int, most_bytes: int, is_cut: bool = False
) -> Sitemap:
    """Return what the sitemap at *url* lists: XML, an index of others, RSS, Atom, or a URL a line.

    A gzip file is inflated up to *most_bytes*. Of the entries the first *most_urls* are read. *is_cut* says
    that the end of *body* is missing: an entry that may not be whole is then left out.
    """
    if body.startswith(b"\x1f\x8b"):
        body, is_missing = inflate(body, "gzip", most_bytes)
        is_cut = is_cut or is_missing
    is_index, entries = _entries(_in_utf8(body), is_cut)
    found = [url_of(entry) for entry in islice(entries, most_urls)]
    links = canonical_links(found, url, most_urls, rules)
    # A sitemap may speak only for its own site: else anybody could fill the queues of others, at depth 1.
    domain = domain_of(url)
    links = [link for link in links if domain_of(link) == domain]
    return Sitemap([], links) if is_index else Sitemap(links, [])


def _in_utf8(body: bytes) -> bytes:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16", "replace").encode()
    return body.removeprefix(b"\xef\xbb\xbf")


def _entries(body: bytes, is_cut: bool) -> tuple[bool, Iterator[bytes]]:
    """Return whether the entries are sitemaps, and the entries as they are written."""
    if not body[:_HEAD_BYTES].lstrip().startswith(b"<"):
        if is_cut:
            body = body[: max(body.rfind(b"\n"), body.rfind(b"\r"), 0)]
        return False, (match[1] for match in _LINE.finditer(body))
    root = root_of(body)
    if root is None:
        return False, iter(())
    if root.name not in (b"urlset", b"sitemapindex"):
        return False, feed_entries(body, root)
    # Elements with another prefix are others': <image:loc> is not a page.
    texts = elements(re.escape(root.prefix) + b"loc", body)
    return root.name == b"sitemapindex", (text for _, text in texts)
