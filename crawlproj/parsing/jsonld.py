"""The JSON-LD of a page: its nodes, and the one that is about the page itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any

import msgspec

#: What is read of one page, in characters; the largest honest ones are lists of hundreds of products.
_MOST_CHARS = 256 << 10
_MOST_NODES = 500
_MOST_DEPTH = 6
#: Where a node that may be the page's own hides in another one.
_INSIDE = ("@graph", "mainEntity", "mainEntityOfPage", "itemReviewed")

Node = dict[str, Any]

#: What a node is about, by its type: the kinds of docs/extraction.md, best first where a page has several.
_TYPES = {
    "job": "JobPosting",
    "recipe": "Recipe",
    "product": "Product ProductGroup ProductModel IndividualProduct SomeProducts Vehicle Car",
    "event": "Event MusicEvent SportsEvent BusinessEvent EducationEvent Festival TheaterEvent SocialEvent "
    "ExhibitionEvent ScreeningEvent CourseInstance",
    "forum": "DiscussionForumPosting QAPage SocialMediaPosting",
    "article": "Article NewsArticle BlogPosting ReportageNewsArticle AnalysisNewsArticle OpinionNewsArticle "
    "BackgroundNewsArticle ReviewNewsArticle AdvertiserContentArticle LiveBlogPosting ScholarlyArticle "
    "MedicalScholarlyArticle TechArticle APIReference SatiricalArticle Report Review CriticReview "
    "ClaimReview HowTo MedicalWebPage",
    "video": "VideoObject Movie TVEpisode TVSeries Clip",
    "audio": "AudioObject PodcastEpisode PodcastSeries MusicRecording MusicAlbum RadioEpisode",
    "course": "Course LearningResource",
    "book": "Book Audiobook",
    "software": "SoftwareApplication MobileApplication WebApplication VideoGame SoftwareSourceCode",
    "dataset": "Dataset",
    "list": "ItemList CollectionPage SearchResultsPage OfferCatalog Blog",
    "profile": "ProfilePage",
}
KIND_OF = {name.lower(): kind for kind, names in _TYPES.items() for name in names.split()}
_RANK = {kind: rank for rank, kind in enumerate(_TYPES)}

_WRAPPING = re.compile(r"(?:(?://|/\*)\s*)?(?:<!--|-->|<!\[CDATA\[|\]\]>)(?:\s*\*/)?|;\s*$")
_WRAPPING_MARKS = ("<!--", "-->", "<![CDATA[", "]]>")
_CONTROLS = re.compile(r"[\x00-\x1f]+")
_COMMA_BEFORE_END = re.compile(r",\s*(?=[}\]])")
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_HALF_PAIR = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NEXT_OBJECT = re.compile(r"}\s*(?:,\s*)?{")
_WORD = re.compile(r"\w+")


class Graph:
    """The nodes of a page, in its order. Scripts that are not even nearly JSON are left out."""

    def __init__(self, scripts: Iterable[str]) -> None:
        #: What has a kind; what is a page of some sort; the site.
        self._by_kind: dict[str, list[Node]] = {}
        self.pages: list[Node] = []
        self.sites: list[Node] = []
        self._by_id: dict[str, Node] = {}
        room, nodes = _MOST_CHARS, 0
        for script in scripts:
            if len(script) > room:
                continue
            room -= len(script)
            for node in _nodes(_decode(script), 0):
                nodes += 1
                if nodes > _MOST_NODES:
                    return
                self._add(node)

    def _add(self, node: Node) -> None:
        name = node.get("@id")
        if isinstance(name, str) and len(node) > 1:
            self._by_id.setdefault(name, node)
        types = types_of(node)
        if kind := next((KIND_OF[one] for one in types if one in KIND_OF), None):
            self._by_kind.setdefault(kind, []).append(node)
        if any(one.endswith("page") for one in types):
            self.pages.append(node)
        elif "website" in types:
            self.sites.append(node)

    def resolve(self, value: Any) -> Any:
        """Return the node that *value* refers to by its ``@id``; *value* itself if it is not a reference."""
        if isinstance(value, dict) and "name" not in value and "url" not in value:
            name = value.get("@id")
            return self._by_id.get(name, value) if isinstance(name, str) else value
        return value

    def main(self, addresses: Iterable[str], titles: Iterable[str]) -> tuple[Node, str | None]:
        """Return the node that is about the page, and its kind; nothing if none stands out.

        It names one of *addresses* or has one of *titles*; or it is the only one of its kind.
        """
        best: tuple[tuple[int, int], Node, str | None] = (-1, -len(_RANK)), {}, None
        if not self._by_kind:
            return {}, None
        here = {_address(address) for address in addresses if address}
        words = [_words(title) for title in titles if title]
        for kind, nodes in self._by_kind.items():
            for node in nodes:
                signs = _signs(node, here, words)
                if signs > 0 or (signs == 0 and len(nodes) == 1):
                    best = max(best, ((signs, -_RANK[kind]), node, kind), key=lambda one: one[0])
        return best[1], best[2]


def types_of(node: Node) -> list[str]:
    """Return the types of *node* in lower case, without their namespace."""
    types = node.get("@type")
    names = types if isinstance(types, list) else [types]
    return [name.rpartition("/")[2].rpartition(":")[2].lower() for name in names if isinstance(name, str)]


def _signs(node: Node, here: set[str], titles: list[str]) -> int:
    """Return how sure it is that *node* is about the page: 2 by its address, 1 by its title, 0 not at all.

    -1 if it is about another page.
    """
    addresses = {_address(text) for key in ("url", "mainEntityOfPage") if (text := _id(node.get(key)))}
    headline = node.get("headline") or node.get("name")
    has_title = isinstance(headline, str) and any(_same_title(_words(headline), title) for title in titles)
    if addresses & here or _address(_id(node.get("@id"))) in here:
        return 2 + has_title
    return 1 if has_title else -1 if addresses else 0


def _id(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("@id") or value.get("url")
    return value.strip() if isinstance(value, str) and value.lstrip().startswith("http") else ""


def _address(url: str) -> str:
    """Return *url* without what two spellings of one address differ in."""
    return url.partition("//")[2].partition("?")[0].partition("#")[0].rstrip("/").lower().removeprefix("www.")


def _words(text: str) -> str:
    return " ".join(_WORD.findall(unescape(text[:500]).lower()))


def _same_title(headline: str, title: str) -> bool:
    # Titles have the name of the site at one of their ends.
    return len(headline) > 2 and (
        title.startswith(headline) or title.endswith(headline) or headline.startswith(title)
    )


def _nodes(value: Any, depth: int) -> Iterator[Node]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, list):
        for item in value[:_MOST_NODES]:
            yield from _nodes(item, depth + 1)
    elif isinstance(value, dict):
        if "@type" in value:
            yield value
        for key in _INSIDE:
            inside = value.get(key)
            if isinstance(inside, (dict, list)):
                yield from _nodes(inside, depth + 1)


def _decode(script: str) -> Any:
    for rescue in (str, _unwrap, _mend):
        try:
            return msgspec.json.decode(rescue(script))
        except (msgspec.DecodeError, UnicodeError):
            continue
        except RecursionError:
            break
    return None


def _unwrap(script: str) -> str:
    """Return *script* without what hid it from old browsers, and with its line ends as JSON has them."""
    script = script.strip("\ufeff \t\r\n")
    if script.endswith(";") or any(mark in script for mark in _WRAPPING_MARKS):
        script = _WRAPPING.sub("", script)
    return _CONTROLS.sub(" ", script)


def _mend(script: str) -> str:
    """Return *script* with common mistakes corrected, as far as that is possible without parsing it."""
    script = _unwrap(script).strip()
    if "&quot;" in script and not script.startswith('{"'):
        script = unescape(script)
    script = _BAD_ESCAPE.sub("", _HALF_PAIR.sub("", _COMMA_BEFORE_END.sub("", script)))
    # Objects one after the other, with or without a comma.
    return f"[{_NEXT_OBJECT.sub('},{', script)}]"
