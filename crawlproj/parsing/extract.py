"""What a page says: links, title, description, text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b

from selectolax.lexbor import LexborHTMLParser

from crawlproj.errors import BadUrl
from crawlproj.model.records import Page
from crawlproj.model.urls import canonicalise
from crawlproj.pages.inflate import inflate
from crawlproj.parsing.charset import decode

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_UNSEEN = ["script", "style", "noscript", "template"]
#: Where a tag of an element begins that ends a word: of any but those that stand inside of one.
_BREAK = re.compile(
    r"<(?=[a-zA-Z/])(?!/?(?:[abisuqABISUQ]|abbr|big|cite|code|del|dfn|em|font|ins|kbd|mark|samp|small|span|strong|sub|sup|time"
    r"|tt|var|wbr|ABBR|BIG|CODE|EM|FONT|SMALL|SPAN|STRONG|SUB|SUP|TT)[\s/>])"
)
_OTHER_SCHEMES = ("javascript:", "mailto:", "tel:", "data:")


@dataclass(slots=True)
class Extract:
    """What was read from a page. ``links`` are canonical and different, in the order of the page."""

    content_type: str | None = None
    charset: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    links: list[str] = field(default_factory=list)
    body_bytes: int = 0
    content_hash: str | None = None
    truncated: bool = False


def extract(page: Page, max_bytes: int) -> Extract:
    """Return what *page* says, reading at most *max_bytes* of its body once inflated.

    Text and links come from successful pages only: the words of an error page are not the site's.
    """
    headers = {name.lower(): value for name, value in page.headers.items()}
    body, cut = inflate(page.body, headers.get("content-encoding", ""), max_bytes)
    declared = headers.get("content-type", "")
    found = Extract(
        content_type=_content_type(declared, body),
        body_bytes=len(body),
        truncated=page.truncated or cut,
        content_hash=blake2b(body, digest_size=16).hexdigest() if body else None,
    )
    if page.error or not 200 <= page.status < 300:
        return found
    if found.content_type in _HTML:
        html, found.charset = decode(body, declared, found.truncated)
        _read_html(html, page.url, found)
    elif found.content_type == "text/plain":
        found.text, found.charset = decode(body, declared, found.truncated)
    return found


def _content_type(declared: str, body: bytes) -> str | None:
    name = declared.partition(";")[0].strip().lower()
    if name:
        return name
    return "text/html" if body[:512].lstrip()[:1] == b"<" else None


def _read_html(html: str, url: str, found: Extract) -> None:
    # Form feeds are white space to HTML, so they change no tree, and hardly any page has its own. Put before
    # the parse they mark where lines end; doing it in the tree costs five times as much, and
    # unwrapping elements there takes a minute for a page of 80,000 nested ones.
    tree = LexborHTMLParser(_BREAK.sub("\f<", html))
    if title := tree.css_first("head title"):
        found.title = _one_line(title.text())
    followed = True
    for meta in tree.css("meta[name][content]"):
        name = (meta.attributes["name"] or "").strip().lower()
        content = meta.attributes["content"] or ""
        if name == "description" and found.description is None:
            found.description = _one_line(content)
        elif name == "robots":
            words = {word.strip() for word in content.lower().split(",")}
            followed = followed and not words & {"nofollow", "none"}
    if followed:
        found.links = _links(tree, url)
    tree.strip_tags(_UNSEEN)
    if tree.body is not None:
        lines = (_one_line(part) for part in tree.body.text(separator="").split("\f"))
        found.text = "\n".join(line for line in lines if line)


def _links(tree: LexborHTMLParser, url: str) -> list[str]:
    base = url
    if element := tree.css_first("base[href]"):
        try:
            base = canonicalise((element.attributes["href"] or "").strip(), url)
        except BadUrl:
            pass
    # Resolving a link costs more than finding it, so repeated ones go first.
    written = {
        (node.attributes["href"] or "").replace("\f", "").strip().partition("#")[0]: None
        for node in tree.css("a[href], area[href]")
    }
    links: dict[str, None] = {}
    for href in written:
        if href and not href.lower().startswith(_OTHER_SCHEMES):
            try:
                links[canonicalise(href, base)] = None
            except BadUrl:
                continue
    return list(links)


def _one_line(text: str) -> str:
    return " ".join(text.split())
