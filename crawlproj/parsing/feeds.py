"""Feeds: where the entries of RSS, Atom, RDF and JSON Feed lead. Pure.

XML is read by patterns: a broken file gives what can be read, a bare ``&`` is accepted, no entity is ever
expanded, and no part of a file is read twice. It also takes half the time of an XML parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from itertools import islice
from typing import NamedTuple
from urllib.parse import urljoin

import msgspec

from crawlproj.parsing.links import MOST_URL_CHARS

#: Most feeds have a few dozen; the rest of a longer one is not read.
_MOST_LINKS = 10_000
#: A URL of the longest kind, each character written as a reference, with white space around it.
_MOST_ENTRY_BYTES = 8 * MOST_URL_CHARS
#: The root element comes before this, or there is none.
_HEAD_BYTES = 65_536
# Each finds comments and CDATA as well, with no group in them, so that nothing is found inside. And all that
# repeats gives nothing back (*+): what does would take quadratic time on hostile files.
_NO_MARKUP = rb"!--(?s:.*?)(?:-->|\Z)|!\[CDATA\[(?s:.*?)(?:\]\]>|\Z)"
_ROOT = re.compile(rb"<(?:%s|[?!][^>]*+>?+|(?:([\w.-]++):)?+([\w.-]++)(\s[^<>]*+)?+)" % _NO_MARKUP)
_ELEMENT = rb"<(?:%s|%s(\s[^<>]*+)?+>\s*+(?:<!\[CDATA\[)?+([^<]*+))"
_HREF = re.compile(rb"\shref\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')")
_BASE = re.compile(rb"\sxml:base\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')")
_OTHER_REL = re.compile(rb"\srel\s*+=\s*+[\"'](?!alternate[\"'])")
_NO_PERMALINK = re.compile(rb"\sisPermaLink\s*+=\s*+[\"']\s*+false", re.IGNORECASE)
_JSON_FEED = "jsonfeed.org"
#: Those of XML. HTML has more, and without a semicolon: it would read ``&copy=1`` as a sign.
_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")


class Root(NamedTuple):
    """The root element of a file: its name, its prefix with the colon, its attributes as they are written."""

    name: bytes
    prefix: bytes
    attributes: bytes


class _JsonItem(msgspec.Struct):
    url: str | None = None
    external_url: str | None = None


class _JsonFeed(msgspec.Struct):
    version: str
    items: list[_JsonItem]


def feed_links(markup: str) -> list[str]:
    """Return where the entries of a feed lead, as it is written; nothing if *markup* is not a feed.

    Links of the feed itself to its site are among them, links to pictures, comments and other feeds are not.
    """
    if _JSON_FEED in markup and markup.lstrip("\ufeff \t\r\n").startswith("{"):
        return _links_of_json(markup)
    body = markup.encode("utf-8", "replace")
    root = root_of(body)
    if root is None:
        return []
    base = _BASE.search(root.attributes)
    links = [url_of(entry) for entry in islice(feed_entries(body, root), _MOST_LINKS)]
    return [_joined(url_of(base[1] or base[2] or b""), link) for link in links] if base else links


def root_of(body: bytes) -> Root | None:
    for match in _ROOT.finditer(body, 0, _HEAD_BYTES):
        if match[2]:
            return Root(match[2], match[1] + b":" if match[1] else b"", match[3] or b"")
    return None


def feed_entries(body: bytes, root: Root) -> Iterator[bytes]:
    """Yield the links of a feed, as they are written, references and all."""
    if root.name == b"feed":
        for attributes, _ in elements(re.escape(root.prefix) + b"link", body):
            href = _HREF.search(attributes)
            if href is not None and not _OTHER_REL.search(attributes):
                yield href[1] or href[2] or b""
    elif root.name in (b"rss", b"RDF"):
        # RSS itself has no prefix, whatever RDF around it has.
        for attributes, text in elements(b"(?:link|guid(?=[^<>]*+>\\s*+(?:<!\\[CDATA\\[)?+https?:))", body):
            if not _NO_PERMALINK.search(attributes):
                yield text


def elements(name: bytes, body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield attributes and text of the elements of that *name*, a pattern.

    Text at the very end may have been cut, and counts as empty.
    """
    for match in re.finditer(_ELEMENT % (_NO_MARKUP, name), body):
        if match[2] is not None:
            yield match[1] or b"", match[2] if match.end() < len(body) else b""


def url_of(entry: bytes) -> str:
    """Return *entry* with its references resolved."""
    if len(entry) > _MOST_ENTRY_BYTES:
        return ""
    text = entry.partition(b"]]>")[0].decode("utf-8", "replace").strip()
    return _REFERENCE.sub(lambda match: unescape(match[0]), text) if "&" in text else text


def _joined(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        return link


def _links_of_json(text: str) -> list[str]:
    try:
        feed = msgspec.json.decode(text.lstrip("\ufeff"), type=_JsonFeed)
    except (msgspec.MsgspecError, RecursionError):
        return []
    if _JSON_FEED not in feed.version:
        return []
    links = (link for item in feed.items for link in (item.url, item.external_url) if link)
    return list(islice(links, _MOST_LINKS))
