"""What the reader finds in pages of any kind is what lexbor, a parser by the standard, finds in them.

It differs by design: the reader leaves text in tables where it is written, and does not open links and formatting a
second time (lexbor then has the link twice); text of SVG is none for readers.
"""

from __future__ import annotations

from random import Random

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawlproj.parsing.html import read_html
from crawlproj.simweb.words import LANGUAGES, sentences

LINKS = ("a", "area", "iframe", "frame")
#: Whose text readers do not see, or not as text.
UNSEEN = {
    *("script", "style", "noscript", "template", "svg", "iframe", "noembed", "noframes", "title", "head"),
    *("-comment", "-doctype"),
}


class SecondOpinion:
    """A page as lexbor sees it."""

    def __init__(self, html: str) -> None:
        self._tree = LexborHTMLParser(html)

    @property
    def title(self) -> str:
        found = self._tree.css("html > head > title, html > body title")
        titles = (" ".join(node.text().split()) for node in found if not self._is_in_svg(node))
        return next(filter(None, titles), "")

    @property
    def hrefs(self) -> list[str]:
        found = self._tree.css("a[href], area[href], iframe[src], frame[src]")
        hrefs = (node.attributes["src" if "frame" in (node.tag or "") else "href"] for node in found)
        # A link that was opened again is one link.
        return list(dict.fromkeys(filter(None, hrefs)))

    @property
    def metas(self) -> list[tuple[str, str]]:
        found = []
        for node in self._tree.css("meta[content]"):
            have = node.attributes
            names = (have.get("property"), have.get("name"), have.get("itemprop"))
            name = next(filter(None, names), None)
            if name is None and have.get("http-equiv"):
                name = f"http-equiv:{have['http-equiv']}"
            if name is not None:
                found.append((name.strip().lower(), have["content"] or ""))
        return found

    @property
    def letters(self) -> str:
        """All text, without white space: where lines end is not lexbor's to say."""
        parts: list[str] = []
        self._collect(self._tree.body, parts)
        return "".join("".join(parts).split())

    def _collect(self, node: LexborNode | None, parts: list[str]) -> None:
        while node is not None:
            if node.tag == "-text":
                parts.append(node.text())
            elif node.tag not in UNSEEN:
                self._collect(node.child, parts)
            node = node.next

    @staticmethod
    def _is_in_svg(node: LexborNode) -> bool:
        parent = node.parent
        while parent is not None and parent.tag != "svg":
            parent = parent.parent
        return parent is not None


def letters(text: str) -> str:
    return "".join(text.split())


def assert_same(html: str, *, in_order: bool = True) -> None:
    found = read_html(html.encode(), text="all", link_tags=LINKS, obey_rel_nofollow=False)
    expected = SecondOpinion(html)
    order = list if in_order else sorted

    assert " ".join(found.head.title.split()) == expected.title
    assert found.head.metas == expected.metas
    assert order(dict.fromkeys(found.hrefs)) == order(expected.hrefs)
    assert order(letters(found.text)) == order(expected.letters)
