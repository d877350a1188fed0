"""What is read from HTML, and how: element by element, with selectolax. `native` does the same in C."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from crawlproj.parsing.text import TextMode, page_text, tag_ids

_OF_HEAD = tag_ids({"base", "link", "meta", "title"})
#: What of each element is a link.
_LINK_ATTRIBUTES = {"a": "href", "area": "href", "iframe": "src", "frame": "src", "link": "href"}


@dataclass(frozen=True, slots=True)
class Head:
    """What a page says of itself, as it is written; '' for what it does not say.

    ``metas`` are the name, property and content of each. Title, base and canonical URL are looked for in the
    head first, and anywhere else then.
    """

    title: str
    metas: list[tuple[str, str, str]]
    base: str
    canonical: str
    language: str


class Html(Protocol):
    """A page that was read."""

    def head(self) -> Head: ...

    def hrefs(self, *, obey_rel_nofollow: bool) -> list[str]:
        """Return the links of the page as they are written, in their order."""

    def text(self, mode: TextMode, *, is_last: bool = True) -> str:
        """Return its text. *is_last*: the page may be taken apart for it; nothing can be asked of it then."""


def may_follow(tag: str, rel: str, *, obey_rel_nofollow: bool) -> bool:
    """Say whether an element with that *rel* leads anywhere. ``link`` only does if it names the next page."""
    words = rel.lower().split()
    return not (tag == "link" and "next" not in words) and not (obey_rel_nofollow and "nofollow" in words)


def canonical_of(links: Iterable[tuple[str, str]]) -> str:
    """Return the first canonical URL among the rel and href of *links*."""
    for rel, href in links:
        # Most say one word, and another one.
        if href and rel != "stylesheet" and "canonical" in rel.lower().split():
            return href
    return ""


class TreeHtml:
    """*link_tags* are the elements whose links are wanted."""

    def __init__(self, html: bytes, link_tags: Iterable[str]) -> None:
        # Without its events the parser is a tenth faster; they matter to trees that change.
        self._tree = LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS)
        self._link_tags = link_tags
        # To look for an element takes a walk through the page: the head goes first.
        self._in_head: dict[str, list[LexborNode]] = {}
        head = self._tree.head
        for node in head.traverse() if head is not None else ():
            if node.tag_id in _OF_HEAD:
                self._in_head.setdefault(node.tag or "", []).append(node)

    def head(self) -> Head:
        root = self._tree.root
        return Head(
            title=self._first("title", _title_of_page),
            metas=[_meta(node) for node in self._tree.tags("meta")],
            base=self._first("base", lambda node: node.attributes.get("href") or ""),
            canonical=self._first("link", _canonical_href),
            language=(root.attributes.get("lang") or "") if root is not None else "",
        )

    def hrefs(self, *, obey_rel_nofollow: bool) -> list[str]:
        by_tag = {tag: nodes for tag in self._link_tags if (nodes := self._tree.tags(tag))}
        only_a = by_tag.keys() <= {"a"}
        # What keeps the order of several tags takes longer, and most pages have one.
        nodes = by_tag.get("a", []) if only_a else self._tree.css(", ".join(by_tag))
        hrefs: list[str | None] = []
        for node in nodes:
            attributes, tag = node.attributes, "a" if only_a else node.tag or ""
            rel = attributes.get("rel")
            if (not rel and tag != "link") or may_follow(tag, rel or "", obey_rel_nofollow=obey_rel_nofollow):
                hrefs.append(attributes.get(_LINK_ATTRIBUTES[tag]))
        return [href for href in hrefs if href]

    def text(self, mode: TextMode, *, is_last: bool = True) -> str:
        return page_text(self._tree if is_last else self._tree.clone(), mode)

    def _first(self, name: str, wanted: Callable[[LexborNode], str]) -> str:
        """Return the first thing that *wanted* finds in an element of that tag, '' if it finds none."""
        in_head = next(filter(None, map(wanted, self._in_head.get(name, ()))), "")
        return in_head or next(filter(None, map(wanted, self._tree.tags(name))), "")


def _title_of_page(title: LexborNode) -> str:
    # Pictures have titles, too.
    is_of_page = title.parent is not None and title.parent.tag in ("head", "body", "noscript")
    return title.text() if is_of_page else ""


def _meta(node: LexborNode) -> tuple[str, str, str]:
    attributes = node.attributes
    if (attributes.get("http-equiv") or "").strip().lower() == "refresh":
        return "http-equiv:refresh", "", attributes.get("content") or ""
    return tuple(attributes.get(name) or "" for name in ("name", "property", "content"))  # type: ignore[return-value]


def _canonical_href(link: LexborNode) -> str:
    attributes = link.attributes
    return canonical_of([(attributes.get("rel") or "", attributes.get("href") or "")])
