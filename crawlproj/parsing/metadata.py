"""What a page declares about itself for collections: when, by whom, where, what it is. Pure; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

from crawlproj.parsing.dates import date_in_path, moment_of
from crawlproj.parsing.head import Head
from crawlproj.parsing.jsonld import Graph, Node

_MOST_NAME_CHARS = 200
_MOST_AUTHORS = 50
_MOST_URL_CHARS = 2048
_MOST_TIMES = 200
#: Clocks of servers, and of time zones, may be ahead of ours.
_AHEAD = timedelta(days=2)
#: A moment so near to that of the fetch is what a clock on the page showed.
_NOW = timedelta(minutes=10)
#: Words in the class and itemprop of ``time`` elements.
_MARKS_PUBLISHED = ("publi", "pubdate", "pub-", "datecreated", "entry-date", "entry-time", "post-date", "post-time")
_MARKS_MODIFIED = ("modified", "updated")

#: Names of meta elements, best first. Where they and the JSON-LD differ, these are right three times in four.
_PUBLISHED = ("article:published_time", "og:article:published_time", "article:published", "og:published_time")
_PUBLISHED_TOO = (
    "datepublished", "citation_online_date", "citation_publication_date", "citation_date", "bepress_citation_date",
    "parsely-pub-date", "sailthru.date", "dc.date.issued", "dcterms.issued", "dc.date.created", "dcterms.created",
    "publish-date", "publish_date", "publishdate", "published", "published-date", "date_published", "publication_date",
    "publication-date", "pubdate", "pub_date", "og:pubdate", "bt:pubdate", "w-published-date", "article.published",
    "article_date_original", "cxenseparse:recs:publishtime", "shareaholic:article_published_time",
    "rnews:datepublished", "vr:published_time", "release_date", "originalpublicationdate", "datecreated", "created",
)  # fmt: skip
#: They are some date, as often that of the last change.
_SOME_DATE = ("date", "dc.date", "dcterms.date")
_MODIFIED = (
    "article:modified_time", "og:article:modified_time", "og:updated_time", "datemodified", "article:modified",
    "dcterms.modified", "dc.date.modified", "article.updated", "lastmod", "last-modified", "modified",
    "revised", "updated_time", "lastupdate",
)  # fmt: skip
_AUTHORS = (
    "author", "article:author", "og:article:author", "citation_author", "parsely-author", "sailthru.author", "byl",
    "dc.creator", "dcterms.creator", "dc.creator.personalname", "article.author", "authors", "creator", "article:author_name",
    "cxenseparse:author", "shareaholic:article_author_name", "vr:author",
)  # fmt: skip
_SITE_NAMES = ("og:site_name", "application-name", "apple-mobile-web-app-title", "dc.publisher", "citation_journal_title")
_IMAGES = ("og:image", "og:image:url", "og:image:secure_url", "twitter:image", "twitter:image:src", "image", "thumbnail")
_TITLES = ("og:title", "twitter:title")
_WANTED = frozenset(
    (*_PUBLISHED, *_PUBLISHED_TOO, *_SOME_DATE, *_MODIFIED, *_AUTHORS, *_SITE_NAMES, *_IMAGES, *_TITLES, "og:type", "article:content_tier")
)
#: Kinds by ``og:type``; ``website`` and what sites made up say nothing.
_OG_KINDS = {
    "article": "article", "newsarticle": "article", "news": "article", "blogpost": "article", "product": "product",
    "product.item": "product", "product.group": "product", "og:product": "product", "book": "book", "books.book": "book",
    "video": "video", "movie": "video", "music": "audio", "profile": "profile", "recipe": "recipe", "event": "event",
}  # fmt: skip
_TIERS = {"free": False, "metered": True, "locked": True}

_PREFIX = re.compile(
    r"^(?:(?:(?:written|posted|published|reviewed|story|words|article|text|report)\s+)?by\b|von\b|par\b|por\b|door\b"
    r"|przez\b|(?:authors?|autore?n?|auteur|redaktion|text|foto)\s*(?=:))\s*:?\s*",
    re.IGNORECASE,
)
_MAIL_OR_URL = re.compile(r"[(<\[]?(?:https?://\S+|www\.\S+|[^\s<>()]+@[^\s<>()]+\.[a-z]+)[)>\]]?", re.IGNORECASE)
#: What stands for no person.
_NOBODY = frozenset(
    "admin administrator author authors root webmaster unknown anonymous none null undefined n/a na guest user "
    "default editor wordpress superuser false true name".split()
)


@dataclass(slots=True)
class Metadata:
    """What a page declares about itself; None for what it does not. Times are in the zone they were written in."""

    published: datetime | None = None
    modified: datetime | None = None
    author: str | None = None
    site_name: str | None = None
    kind: str | None = None
    image: str | None = None
    paywalled: bool | None = None


def metadata_of(head: Head, url: str, fetched_at_ms: int | None = None) -> Metadata:
    """Return what the page at *url* declares; no date more than two days after *fetched_at_ms*."""
    metas = _metas(head)
    graph = Graph(head.json_ld)
    titles = [head.title, *_values(metas, _TITLES)]
    node, kind = graph.main((url, head.canonical), titles) or ({}, None)
    fetched_at = datetime.fromtimestamp(fetched_at_ms / 1000, UTC) if fetched_at_ms else None
    published, modified = _Dates(head, metas, graph, node, fetched_at).both(url)
    return Metadata(
        published=published,
        modified=modified,
        author=_author(head, metas, graph, node),
        site_name=_site_name(metas, graph, node),
        kind=kind or _og_kind(metas),
        image=_image(head, url, metas, graph, node),
        paywalled=_paywalled(metas, graph, node),
    )


Metas = dict[str, list[str]]


def _metas(head: Head) -> Metas:
    metas: Metas = {}
    for name, content in head.metas:
        if name in _WANTED and content:
            metas.setdefault(name, []).append(content)
    return metas


def _values(metas: Metas, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from metas.get(name, ())


class _Dates:
    """The dates of a page, each from the most telling of the places that have one."""

    def __init__(self, head: Head, metas: Metas, graph: Graph, node: Node, fetched_at: datetime | None) -> None:
        self._times = head.times[:_MOST_TIMES]
        self._metas = metas
        self._graph = graph
        self._node = node
        self._fetched_at = fetched_at

    def both(self, url: str) -> tuple[datetime | None, datetime | None]:
        """Return when the page was published, and modified."""
        modified = (
            self._in_node(self._node, "dateModified")
            or self._in_metas(_MODIFIED)
            or self._in_pages("dateModified")
            or self._in_times(_MARKS_MODIFIED)
        )
        published = (
            self._in_metas(_PUBLISHED)
            or self._in_node(self._node, "datePublished", "dateCreated", "uploadDate", "datePosted")
            or self._in_metas(_PUBLISHED_TOO)
            or self._in_pages("datePublished", "dateCreated")
            or self._in_times(_MARKS_PUBLISHED)
            or self._unless_now(self._one_day_of_times(), modified)
            or self._unless_now(self._in_metas(_SOME_DATE), modified)
            or self._taken(date_in_path(urlsplit(url).path))
        )
        return published, modified

    def _in_node(self, node: Node, *keys: str) -> datetime | None:
        for key in keys:
            value = node.get(key)
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, (str, int)) and (moment := self._taken(moment_of(str(value)))):
                return moment
        return None

    def _in_pages(self, *keys: str) -> datetime | None:
        for node in self._graph.pages:
            if moment := self._in_node(node, *keys):
                return moment
        return None

    def _in_metas(self, names: Iterable[str]) -> datetime | None:
        for name in names:
            for value in self._metas.get(name, ())[:_MOST_TIMES]:
                if moment := self._taken(moment_of(value)):
                    return moment
        return None

    def _in_times(self, marks: Iterable[str]) -> datetime | None:
        for value, names in self._times:
            names = names.lower()
            if any(mark in names for mark in marks) and (moment := self._taken(moment_of(value))):
                return moment
        return None

    def _one_day_of_times(self) -> datetime | None:
        """Return the first moment of the ``time`` elements, if all of them are of one day."""
        moments = [moment for value, _ in self._times if (moment := self._taken(moment_of(value)))]
        return moments[0] if len({moment.date() for moment in moments}) == 1 else None

    def _unless_now(self, moment: datetime | None, modified: datetime | None) -> datetime | None:
        """Return *moment* unless it may be that of the last change, or of the fetch."""
        if moment is None or (modified and moment.date() == modified.date()):
            return None
        return None if self._fetched_at and abs(moment - self._fetched_at) < _NOW else moment

    def _taken(self, moment: datetime | None) -> datetime | None:
        is_ahead = moment and self._fetched_at and moment > self._fetched_at + _AHEAD
        return None if is_ahead else moment


def _author(head: Head, metas: Metas, graph: Graph, node: Node) -> str | None:
    for names in (
        _names(node.get("author") or node.get("creator"), graph),
        *(metas.get(name, ()) for name in _AUTHORS),
        head.bylines[:1],
    ):
        authors: dict[str, str] = {}
        for name in names:
            for part in name.split(";"):
                if person := _person(part):
                    authors.setdefault(person.casefold(), person)
        if authors:
            return "; ".join(list(authors.values())[:_MOST_AUTHORS])
    return None


def _names(value: Any, graph: Graph) -> list[str]:
    """Return the names in the author or publisher of a node, however it is written."""
    values = value[:_MOST_AUTHORS] if isinstance(value, list) else [value]
    names = []
    for one in values:
        one = graph.resolve(one)
        if isinstance(one, dict):
            one = one.get("name")
            if isinstance(one, list):
                one = "; ".join(name for name in one if isinstance(name, str))
        if isinstance(one, str):
            names.append(one)
    return names


def _person(name: str) -> str | None:
    """Return *name* as one line, without what is no part of a name; None if that leaves nobody."""
    if len(name) > 4 * _MOST_NAME_CHARS:
        return None
    name = " ".join(unescape(name).split())
    if name.startswith(("http:", "https:", "//", "@")):
        return None
    name = _PREFIX.sub("", _MAIL_OR_URL.sub("", name)).strip(" ,;:|/-–—•·()")
    if not 1 < len(name) <= _MOST_NAME_CHARS or name.lower() in _NOBODY or not any(map(str.isalpha, name)):
        return None
    return name


def _site_name(metas: Metas, graph: Graph, node: Node) -> str | None:
    for name in (
        *metas.get("og:site_name", ()),
        *_names(node.get("publisher"), graph),
        *_names(graph.sites, graph),
        *_values(metas, _SITE_NAMES),
    ):
        if name := " ".join(unescape(name[: 4 * _MOST_NAME_CHARS]).split())[:_MOST_NAME_CHARS]:
            return name
    return None


def _og_kind(metas: Metas) -> str | None:
    for value in metas.get("og:type", ()):
        value = value.strip().lower()
        if kind := _OG_KINDS.get(value) or _OG_KINDS.get(value.partition(".")[0]):
            return kind
    return None


def _image(head: Head, url: str, metas: Metas, graph: Graph, node: Node) -> str | None:
    declared = [*_values(metas, _IMAGES[:3]), *_image_urls(node, graph), *_values(metas, _IMAGES[3:])]
    for value in declared:
        value = value.strip().replace(" ", "%20")
        if not value or len(value) > _MOST_URL_CHARS or value.startswith("data:"):
            continue
        try:
            if not value.startswith(("http://", "https://")):
                value = urljoin(urljoin(url, head.base) if head.base else url, value)
            parts = urlsplit(value)
        except ValueError:
            continue
        if parts.scheme in ("http", "https") and parts.netloc:
            return value
    return None


def _image_urls(node: Node, graph: Graph) -> list[str]:
    for key in ("image", "thumbnailUrl", "primaryImageOfPage"):
        value = node.get(key)
        value = value[0] if isinstance(value, list) and value else value
        value = graph.resolve(value)
        if isinstance(value, dict):
            value = value.get("url") or value.get("contentUrl") or value.get("@id")
            value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str):
            return [value]
    return []


def _paywalled(metas: Metas, graph: Graph, node: Node) -> bool | None:
    for one in (node, *graph.pages):
        free = one.get("isAccessibleForFree")
        if isinstance(free, str):
            free = {"true": True, "false": False}.get(free.strip().lower().rpartition("/")[2])
        if isinstance(free, bool):
            return not free
    for value in metas.get("article:content_tier", ()):
        if (tier := _TIERS.get(value.strip().lower())) is not None:
            return tier
    return None
