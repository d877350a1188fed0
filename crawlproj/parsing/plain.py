"""HTML read by resiliparse, where this project's own reader could not be built. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resiliparse.extract.html2text import extract_plain_text  # type: ignore[import-untyped]  # it has no types
from resiliparse.parse.html import HTMLTree  # type: ignore[import-untyped]

from crawlproj.config import Config
from crawlproj.parsing.head import Head, Html

_LINK_ATTRIBUTES = {"a": "href", "area": "href", "iframe": "src", "frame": "src", "link": "href"}
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


def read_plainly(html: bytes, config: Config) -> Html:
    """The same as `crawlproj.parsing.html.read_html`."""
    tree = HTMLTree.parse(html.decode("utf-8", "replace"))
    document = tree.document
    found, source = "", "main"
    if config.text == "main":
        found = extract_plain_text(tree, main_content=True, list_bullets=False, links=False)
    everything = ""
    if config.full_text or not found.strip():
        everything = extract_plain_text(tree, list_bullets=False, links=False, form_fields=True)
    if not found.strip():
        found, source = everything, "all"
    return Html(
        Head(
            title=tree.title or "",
            metas=list(_metas(document)),
            base=_first(document, "base[href]", "href"),
            canonical=_first(document, "link[rel~=canonical][href]", "href"),
            language=_first(document, "html[lang]", "lang"),
            json_ld=[node.text for node in document.query_selector_all('script[type*="ld+json"]')],
            times=[
                (
                    _attribute(node, "datetime") or node.text,
                    f"{node.class_name} {_attribute(node, 'itemprop')}",
                )
                for node in document.get_elements_by_tag_name("time")
            ],
            bylines=[node.text for node in document.query_selector_all("[rel~=author], [itemprop~=author]")],
            headings=[
                (int(node.tag[1]), node.text) for node in document.query_selector_all(", ".join(_HEADINGS))
            ]
            if config.headings
            else [],
        ),
        list(dict.fromkeys(_hrefs(document, config.link_tags, config.obey_rel_nofollow))),
        found.strip(),
        source if found.strip() else None,
        everything if config.full_text else None,
    )


def _attribute(node: Any, name: str) -> str:
    return node.getattr(name, "") or ""


def _first(document: Any, selector: str, attribute: str) -> str:
    node = document.query_selector(selector)
    return _attribute(node, attribute) if node else ""


def _metas(document: Any) -> Iterator[tuple[str, str]]:
    for node in document.get_elements_by_tag_name("meta"):
        name = next(filter(None, (_attribute(node, key) for key in ("property", "name", "itemprop"))), "")
        if not name and (equivalent := _attribute(node, "http-equiv")):
            name = f"http-equiv:{equivalent}"
        if name and "content" in node.attrs:
            yield name.strip().lower(), _attribute(node, "content")


def _hrefs(document: Any, link_tags: tuple[str, ...], obey_rel_nofollow: bool) -> Iterator[str]:
    for node in document.query_selector_all(", ".join(link_tags)) if link_tags else ():
        rel = _attribute(node, "rel").lower().split()
        if (node.tag == "link" and "next" not in rel) or (obey_rel_nofollow and "nofollow" in rel):
            continue
        if href := _attribute(node, _LINK_ATTRIBUTES[node.tag]).partition("#")[0]:
            yield href
