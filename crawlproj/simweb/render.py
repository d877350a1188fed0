"""From a page's spec to the bytes of its body: real HTML, a pure function of world and page."""

from __future__ import annotations

import codecs
import gzip
from random import Random

import brotli
import zstandard

from crawlproj.simweb import wild
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind, PageSpec
from crawlproj.simweb.sites import spread
from crawlproj.simweb.words import labels, sentence_bytes, sentences

#: Attributes and schemes that a link extractor must leave alone.
_NO_LINKS = '<a href="mailto:post@example.test">@</a> <a href="javascript:void(0)">+</a> <a name="top"></a>'
_PARAGRAPH = 5
_HUGE_STEP = 200
_WILD_KINDS = (Kind.PAGE, Kind.DUPLICATE, Kind.NEAR_DUPLICATE)


def body(world: World, page: PageSpec) -> bytes:
    """The body before any Content-Encoding; empty for a redirect."""
    if page.location is not None:
        return b""
    if page.kind is Kind.ROBOTS:
        return world.site(page.site).robots_text().encode()
    if page.kind is Kind.SITEMAP:
        sitemap = _sitemap(page).encode()
        return compress(sitemap, "gzip") if page.content_type == "application/gzip" else sitemap
    if page.kind is Kind.FILE:
        noise = Random(page.text_seed).getrandbits(8 * page.text_bytes).to_bytes(page.text_bytes, "big")
        return b"%PDF-1.4\n%" + noise
    is_wild = page.kind in _WILD_KINDS and world.site(page.site).spec.markup == "wild"
    return _encode(_html(page, is_wild=is_wild), page.charset)


def compress(data: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(data, 1, mtime=0)
    if encoding == "br":
        compressed: bytes = brotli.compress(data, quality=1)
        return compressed
    return zstandard.compress(data, 1)


def _encode(text: str, charset: str) -> bytes:
    if charset == "utf-16":
        return codecs.BOM_UTF16_LE + text.encode("utf-16-le")
    return text.encode(charset, "xmlcharrefreplace")


def _html(page: PageSpec, *, is_wild: bool) -> str:
    stock = sentences(page.language)
    count = max(3, int(page.text_bytes / sentence_bytes(page.language)))
    text = [stock[int(draw * len(stock))] for draw in spread(page.text_seed, min(count, _HUGE_STEP))]
    if count > _HUGE_STEP:
        text = (text * (count // _HUGE_STEP + 1))[:count]
    title = text[0].strip(" .。")
    if page.altered_seed is not None:
        altered = Random(page.altered_seed)
        for _ in range(1 + count // 20):
            text[int(altered.random() * count)] = altered.choices(stock)[0]
    anchors = _anchors(page)
    if is_wild:
        return wild.html(page, title, text, anchors)

    charset, base, canonical = wild.declarations(page)
    parts = [
        f'<!DOCTYPE html>\n<html lang="{page.language}"><head>\n{charset}<title>{title}</title>\n',
        f'<meta name="description" content="{text[1].strip()}">\n{base}{canonical}</head>\n<body>\n',
        f"<nav>{' | '.join(anchors[:4])} {_NO_LINKS}</nav>\n<h1>{title}</h1>\n",
    ]
    rest = anchors[4:]
    paragraphs = [text[start : start + _PARAGRAPH] for start in range(0, count, _PARAGRAPH)]
    per_paragraph = len(rest) // len(paragraphs)
    for index, paragraph in enumerate(paragraphs):
        inside = " ".join(rest[index * per_paragraph : (index + 1) * per_paragraph])
        parts.append(f"<p>{''.join(paragraph)}{inside}</p>\n")
    parts.append("<ul>\n")
    parts.extend(f"<li>{anchor}</li>\n" for anchor in rest[per_paragraph * len(paragraphs) :])
    parts.append("</ul>\n<footer>simweb</footer>\n</body></html>\n")
    return "".join(parts)


def _anchors(page: PageSpec) -> list[str]:
    here = page.base or page.url
    origin_end = here.index("/", 7)
    origin, path = here[:origin_end], here[origin_end:]
    # All paths of numbered pages are one folder deep; a base is two.
    folders = path.partition("?")[0].count("/") - 1
    folder = here[: here.partition("?")[0].rindex("/") + 1]
    # Bits of the seed decide, not a Random: making one costs more than all the links.
    seed = page.text_seed if page.altered_seed is None else page.altered_seed
    texts = labels(page.language)
    anchors = []
    for index, (url, nofollow) in enumerate(page.links):
        form = (seed >> index * 3 % 61) & 7
        href = url
        if page.absolute_links:
            pass
        elif form == 0:
            href = url.removeprefix("http:")
        elif form > 2 and url.startswith(origin + "/"):
            href = url[origin_end:]
            if form > 4:
                inside = url.startswith(folder) and len(url) > len(folder)
                href = url[len(folder) :] if inside else "../" * folders + href[1:]
                href = href or "./"
        if form in (2, 7):
            href += "#part-2"
        rel = ' rel="nofollow"' if nofollow else ""
        anchors.append(f'<a href="{wild.escape(href)}"{rel}>{texts[(seed + index) % len(texts)]}</a>')
    return anchors


def _sitemap(page: PageSpec) -> str:
    index = bool(page.links) and "/sitemap-" in page.links[0].url
    outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    entries = "".join(f"<{inner}><loc>{wild.escape(link.url)}</loc></{inner}>\n" for link in page.links)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{outer} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</{outer}>\n'
    )
