"""Sitemaps: the URLs a site lists, and the other sitemaps it names. Pure.

Read by patterns and not as XML: a broken file gives what can be read, a bare ``&`` is no error, no entity
is ever expanded, and no part of a file is looked at twice. It takes half the time, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from itertools import islice

from crawlproj.model.urls import UrlRules, domain_of
from crawlproj.pages.inflate import inflate
from crawlproj.parsing.links import MOST_URL_CHARS, canonical_links

#: A URL of the longest kind, each character written as a reference, with white space around it.
_MOST_ENTRY_BYTES = 8 * MOST_URL_CHARS
#: The root element comes before this, or it is no sitemap.
_HEAD_BYTES = 65_536
# Each finds comments as well, with no group in them, so that nothing is found inside. And all that repeats
# gives nothing back (*+): what does would take quadratic time on hostile files.
_COMMENT = rb"!--(?s:.*?)(?:-->|\Z)"
_ROOT = re.compile(rb"<(?:%s|(?:([\w.-]++):)?(urlset|sitemapindex|rss|RDF|feed)[\s>])" % _COMMENT)
_TEXT = rb"<(?:%s|%s(?:\s[^<>]*+)?+>\s*+(?:<!\[CDATA\[)?+([^<]*+)(?=<))"
_ATTRIBUTES = rb"<(?:%s|%s(\s[^<>]*+)>)"
_LINE = re.compile(rb"(?:\A|[\r\n])[ \t]*+(https?://\S++)", re.IGNORECASE)
_HREF = re.compile(rb"\shref\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')")
_REL = re.compile(rb"\srel\s*+=\s*+[\"'](?!alternate[\"'])")
#: Those of XML. HTML has more, and without a semicolon: it would read ``&copy=1`` as a sign.
_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")


@dataclass(frozen=True, slots=True)
class Sitemap:
    """What a sitemap lists: canonical and different URLs, in its order. ``is_cut``: there was more."""

    urls: list[str]
    sitemaps: list[str]
    is_cut: bool


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
    found = [_url(entry) for entry in islice(entries, most_urls)]
    is_cut = is_cut or next(entries, None) is not None
    links, _ = canonical_links(found, url, most_urls, rules)
    # A sitemap may speak only for its own site: else anybody could fill the queues of others, at depth 1.
    domain = domain_of(url)
    links = [link for link in links if domain_of(link) == domain]
    return Sitemap([], links, is_cut) if is_index else Sitemap(links, [], is_cut)


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
    root = next((match for match in _ROOT.finditer(body, 0, _HEAD_BYTES) if match[2]), None)
    if root is None:
        return False, iter(())
    # Elements with another prefix are others': <image:loc> is no page.
    prefix = re.escape(root[1]) + b":" if root[1] else b""
    if root[2] == b"feed":
        return False, _alternates(body, prefix + b"link")
    # RSS itself has no prefix, whatever RDF around it has.
    name = prefix + b"loc" if root[2] in (b"urlset", b"sitemapindex") else b"link"
    return root[2] == b"sitemapindex", _matches(_TEXT, name, body)


def _alternates(body: bytes, name: bytes) -> Iterator[bytes]:
    """Yield where the links of an Atom feed lead, except to itself, to pictures and the like."""
    for attributes in _matches(_ATTRIBUTES, name, body):
        href = _HREF.search(attributes)
        if href is not None and _REL.search(attributes) is None:
            yield href[1] or href[2] or b""


def _matches(pattern: bytes, name: bytes, body: bytes) -> Iterator[bytes]:
    for match in re.finditer(pattern % (_COMMENT, name), body):
        if match[1] is not None:
            yield match[1]


def _url(entry: bytes) -> str:
    if len(entry) > _MOST_ENTRY_BYTES:
        return ""
    text = entry.partition(b"]]>")[0].decode("utf-8", "replace").strip()
    return _REFERENCE.sub(lambda match: unescape(match[0]), text) if "&" in text else text
