"""What a page declares for collections: when, by whom, where, and what it is. Pure; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urljoin

from crawlproj.parsing.authors import authors_of, in_bylines
from crawlproj.parsing.dates import date_in_path, moment_of
from crawlproj.parsing.head import Head
from crawlproj.parsing.jsonld import Graph, Node

_MOST_NAME_CHARS = 200
_MOST_NAMES = 50
_MOST_URL_CHARS = 2048
_MOST_DATES = 200
#: Clocks of servers, and of time zones, may be ahead of ours.
_AHEAD = timedelta(days=2)
#: A time this close to the fetch is what a clock on the page showed.
_NOW = timedelta(minutes=10)

Metas = dict[str, list[str]]
Ranks = dict[str, int]


def _ranks(names: str) -> Ranks:
    return {name: rank for rank, name in enumerate(names.split())}


# Names of meta elements, best first.
#: Where these and the JSON-LD differ, these are right three times in four.
_PUBLISHED = _ranks("article:published_time og:article:published_time article:published og:published_time")
_PUBLISHED_TOO = _ranks(
    "citation_online_date citation_publication_date citation_date bepress_citation_date datepublished "
    "parsely-pub-date sailthru.date dc.date.issued dcterms.issued dc.date.created dcterms.created "
    "publish-date publish_date publishdate published published-date date_published publication_date "
    "publication-date pubdate pub_date og:pubdate bt:pubdate w-published-date article.published "
    "article_date_original cxenseparse:recs:publishtime shareaholic:article_published_time "
    "rnews:datepublished vr:published_time release_date originalpublicationdate datecreated created"
)
#: Ambiguous: as often the date of the last change.
_SOME_DATE = _ranks("date dc.date dcterms.date")
_MODIFIED = _ranks(
    "article:modified_time og:article:modified_time og:updated_time datemodified article:modified "
    "dcterms.modified dc.date.modified article.updated lastmod last-modified modified revised "
    "updated_time lastupdate"
)
_AUTHORS = _ranks(
    "citation_author author article:author og:article:author parsely-author sailthru.author byl dc.creator "
    "dcterms.creator dc.creator.personalname article.author authors creator article:author_name "
    "cxenseparse:author shareaholic:article_author_name vr:author"
)
_SITE_NAMES = _ranks("application-name apple-mobile-web-app-title dc.publisher citation_journal_title")
_IMAGES = _ranks("og:image og:image:url og:image:secure_url")
_IMAGES_TOO = _ranks("twitter:image twitter:image:src image thumbnail")
_TITLES = _ranks("og:title twitter:title")
_ALONE = _ranks("og:site_name og:type article:content_tier")
_WANTED = (
    _PUBLISHED | _PUBLISHED_TOO | _SOME_DATE | _MODIFIED
    | _AUTHORS | _SITE_NAMES | _IMAGES | _IMAGES_TOO | _TITLES | _ALONE
)  # fmt: skip
#: Words in the class and itemprop of ``time`` elements.
_MARKS_PUBLISHED = tuple(_ranks("publi pubdate pub- datecreated entry-date entry-time post-date post-time"))
_MARKS_MODIFIED = ("modified", "updated")
#: Kinds by the first word of ``og:type``; ``website`` and what sites made up say nothing.
_OG_KINDS = {
    "article": "article", "news": "article", "newsarticle": "article", "blogpost": "article",
    "product": "product", "og:product": "product", "video": "video", "movie": "video", "music": "audio",
    "book": "book", "books": "book", "profile": "profile", "recipe": "recipe", "event": "event",
}  # fmt: skip
_PAYWALLED_BY_TIER = {"free": False, "metered": True, "locked": True}
_BODIES = ("articleBody", "reviewBody", "text", "description")
_IS_HTTP = re.compile(r"https?://[^/?#]", re.IGNORECASE)


@dataclass(slots=True)
class Metadata:
    """What a page declares, None for what it does not. Times are in the zone they were written in."""

    published: datetime | None = None
    modified: datetime | None = None
    author: str | None = None
    site_name: str | None = None
    kind: str | None = None
    image: str | None = None
    paywalled: bool | None = None
    #: The text that it declares: for pages that scripts would have to write.
    body: str | None = None


def metadata_of(head: Head, url: str, fetched_at_ms: int | None = None) -> Metadata:
    """Return what the page at *url* declares; no date more than two days after *fetched_at_ms*."""
    metas: Metas = {}
    for name, content in head.metas:
        if name in _WANTED and content:
            metas.setdefault(name, []).append(content)
    graph = Graph(head.json_ld)
    node, kind = graph.main((url, head.canonical), (head.title, *_values(metas, _TITLES)))
    fetched_at = datetime.fromtimestamp(fetched_at_ms / 1000, UTC) if fetched_at_ms else None
    published, modified = _Dates(head, metas, graph, node, fetched_at).both(url)
    site_name = next(_site_names(metas, graph, node), None)
    return Metadata(
        published,
        modified,
        _author(head, metas, graph, node, site_name),
        site_name,
        kind or _og_kind(metas),
        _image(head, url, metas, graph, node),
        _paywalled(metas, graph, {} if kind == "event" else node),
        next((text for key in _BODIES if isinstance(text := node.get(key), str) and text.strip()), None),
    )


def _names_in(metas: Metas, ranks: Ranks) -> list[str]:
    """Return the names that are in both, in the order of *ranks*."""
    # The other way round this would take most of the time: a page has ten of a hundred names.
    names = [name for name in metas if name in ranks]
    if len(names) > 1:
        names.sort(key=ranks.__getitem__)
    return names


def _values(metas: Metas, ranks: Ranks) -> list[str]:
    return [value for name in _names_in(metas, ranks) for value in metas[name]]


class _Dates:
    """The dates of a page, each from the most reliable place that has one."""

    def __init__(
        self, head: Head, metas: Metas, graph: Graph, node: Node, fetched_at: datetime | None
    ) -> None:
        self._times = head.times[:_MOST_DATES]
        self._metas = metas
        self._graph = graph
        self._node = node
        self._fetched_at = fetched_at

    def both(self, url: str) -> tuple[datetime | None, datetime | None]:
        """Return when the page was published, and when modified."""
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
            or self._taken(date_in_path(_path(url)))
        )
        return published, modified

    def _in_node(self, node: Node, *keys: str) -> datetime | None:
        for key in keys:
            value = _first(node.get(key))
            if isinstance(value, (str, int)) and (moment := self._taken(moment_of(str(value)))):
                return moment
        return None

    def _in_pages(self, *keys: str) -> datetime | None:
        for node in self._graph.pages:
            if moment := self._in_node(node, *keys):
                return moment
        return None

    def _in_metas(self, ranks: Ranks) -> datetime | None:
        for value in _values(self._metas, ranks)[:_MOST_DATES]:
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


def _path(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2].partition("?")[0].partition("#")[0]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _author(head: Head, metas: Metas, graph: Graph, node: Node, site_name: str | None) -> str | None:
    """Return the authors declared first. Those who are only the site itself count if there are no others."""
    publishers = {name.casefold() for name in (site_name or "", *_names(node.get("publisher"), graph))}
    only_site = None
    for names in _declared_authors(head, metas, graph, node):
        authors = authors_of(names)
        if any(author.casefold() not in publishers for author in authors):
            return "; ".join(authors)
        only_site = only_site or "; ".join(authors) or None
    return only_site


def _declared_authors(head: Head, metas: Metas, graph: Graph, node: Node) -> Iterator[list[str]]:
    yield _names(node.get("author") or node.get("creator"), graph)
    for name in _names_in(metas, _AUTHORS):
        yield metas[name]
    yield in_bylines(head.bylines)


def _names(value: Any, graph: Graph) -> list[str]:
    """Return the names in the author or publisher of a node, however it is written."""
    if value is None:
        return []
    names = []
    for one in value[:_MOST_NAMES] if isinstance(value, list) else (value,):
        one = graph.resolve(one)
        if isinstance(one, dict):
            one = one.get("name")
            if isinstance(one, list):
                one = "; ".join(name for name in one[:_MOST_NAMES] if isinstance(name, str))
        if isinstance(one, str):
            names.append(one)
    return names


def _site_names(metas: Metas, graph: Graph, node: Node) -> Iterator[str]:
    def declared() -> Iterator[str]:
        yield from metas.get("og:site_name", ())
        yield from _names(node.get("publisher"), graph)
        yield from _names(graph.sites, graph)
        yield from _values(metas, _SITE_NAMES)

    for name in declared():
        if line := " ".join(unescape(name[: 4 * _MOST_NAME_CHARS]).split())[:_MOST_NAME_CHARS]:
            yield line


def _og_kind(metas: Metas) -> str | None:
    for value in metas.get("og:type", ()):
        if kind := _OG_KINDS.get(value.strip().lower().partition(".")[0]):
            return kind
    return None


def _image(head: Head, url: str, metas: Metas, graph: Graph, node: Node) -> str | None:
    def declared() -> Iterator[str]:
        yield from _values(metas, _IMAGES)
        yield from _node_images(graph, node)
        yield from _values(metas, _IMAGES_TOO)

    for value in declared():
        value = value.strip().replace(" ", "%20")
        if not value or len(value) > _MOST_URL_CHARS:
            continue
        if not _IS_HTTP.match(value):
            try:
                value = urljoin(urljoin(url, head.base) if head.base else url, value)
            except ValueError:
                continue
        if _IS_HTTP.match(value):
            return value
    return None


def _node_images(graph: Graph, node: Node) -> Iterator[str]:
    for key in ("image", "thumbnailUrl", "primaryImageOfPage"):
        value = graph.resolve(_first(node.get(key)))
        if isinstance(value, dict):
            value = _first(value.get("url") or value.get("contentUrl"))
        if isinstance(value, str):
            yield value


def _paywalled(metas: Metas, graph: Graph, node: Node) -> bool | None:
    for one in (node, *graph.pages):
        free = one.get("isAccessibleForFree")
        if isinstance(free, str):
            free = {"true": True, "false": False}.get(free.strip().lower().rpartition("/")[2])
        if isinstance(free, bool):
            return not free
    for value in metas.get("article:content_tier", ()):
        if (is_paywalled := _PAYWALLED_BY_TIER.get(value.strip().lower())) is not None:
            return is_paywalled
    return None
