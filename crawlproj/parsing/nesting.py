"""HTML that was made to keep a parser busy, or to break it, made harmless. Pure.

The time of the HTML parser grows with the square of how deep elements are nested, and of how many
attributes one has: 200,000 nested elements, a megabyte, take it more than a minute.
"""

from __future__ import annotations

import re

from crawlproj.parsing import native

#: With fewer tags even the worst page takes less than 0.3 s, and nearly all pages have fewer.
_FEW_TAGS = 10_000
#: Browsers build no deeper trees than 512.
_MOST_DEPTH = 1000
#: A tag with more characters than this is looked at, and with more white space in them than this refused.
_LONG_TAG_CHARS = 8192
_MOST_ATTRIBUTES = 1000

#: Elements that never hold others, or end by themselves when the next of them begins.
_SHALLOW = frozenset(
    {
        b"area",
        b"base",
        b"br",
        b"col",
        b"embed",
        b"hr",
        b"img",
        b"input",
        b"link",
        b"meta",
        b"param",
        b"source",
        b"track",
        b"wbr",
        b"p",
        b"li",
        b"dd",
        b"dt",
        b"td",
        b"th",
        b"tr",
        b"tbody",
        b"thead",
        b"tfoot",
        b"option",
        b"optgroup",
        b"a",
    }
)
#: A tag of another element; those in capitals may be of these, too.
_TAG_NAME = re.compile(rb"<(/?)(?!(?:" + b"|".join(sorted(_SHALLOW)) + rb")(?:[\s/<>]|$))([a-zA-Z][^\s/<>]*)")
_REOPENED = frozenset(
    {b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u"}
)
_TAG_START = re.compile(rb"<[a-zA-Z]")
#: A tag as far as it goes, with what is quoted in it; it never goes back, so it is linear.
_WHOLE_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"?|'[^']*'?)*+""")
_QUOTED = re.compile(rb""""[^"]*"|'[^']*'""")
_ATTRIBUTE_GAP = re.compile(rb"[\s/]+")
_ANY_TAG = re.compile(rb"</?([a-zA-Z][^\s/<>]*)[^<>]*>?")
#: What is kept of a hostile page: links, what says how to read them, and what ends that text which is none.
_KEPT = frozenset(
    {
        b"a",
        b"area",
        b"base",
        b"meta",
        b"link",
        b"title",
        b"script",
        b"style",
        b"template",
        b"iframe",
        b"frame",
        b"frameset",
        b"head",
        b"body",
    }
)
_KEPT_CHARS = 4096
#: The two names of characters that are shorter than what they stand for. lexbor 3.1 writes that over the name
#: without asking whether there is room: where its buffer ends with the name, all that follows is written
#: behind the buffer.
_LONGER_THAN_THEIR_NAMES = ((b"&nGt;", "\u226b\u20d2".encode()), (b"&nLt;", "\u226a\u20d2".encode()))


def harmless(html: bytes, *, fast: bool = True) -> bytes:
    """Return *html*, or if it is nested or crowded beyond all reason its links and text without structure."""
    for name, characters in _LONGER_THAN_THEIR_NAMES:
        html = html.replace(name, characters)
    if len(html) > _FEW_TAGS * len(b"<b>") and html.count(b"<") > _FEW_TAGS and is_deep(html, fast=fast):
        return _flat(html)
    return _flat(html) if _is_crowded(html) else html


def is_deep(html: bytes, *, fast: bool = True) -> bool:
    if fast and (is_it := native.is_deep(html, _SHALLOW, _REOPENED, _MOST_DEPTH)) is not None:
        return is_it
    open_names: list[bytes] = []
    open_counts: dict[bytes, int] = {}
    for slash, name in _TAG_NAME.findall(html):
        name = name.lower()
        if name in _SHALLOW:
            continue
        if not slash:
            open_names.append(name)
            open_counts[name] = open_counts.get(name, 0) + 1
            if len(open_names) > _MOST_DEPTH:
                return True
        elif not open_counts.get(name):
            continue
        elif name in _REOPENED and open_names[-1] != name:
            # What was opened inside of these goes on behind them.
            open_counts[name] -= 1
            del open_names[max(place for place, other in enumerate(open_names) if other == name)]
        else:
            # Other end tags end all that was opened inside; those that match nothing end nothing.
            while True:
                last = open_names.pop()
                open_counts[last] -= 1
                if last == name:
                    break
    return False


def _is_crowded(html: bytes) -> bool:
    return any(_has_crowded_tag(html, bracket) for bracket in (b"<", b">"))


def _has_crowded_tag(html: bytes, bracket: bytes) -> bool:
    # From one bracket to the last one within reach: a long tag is where there is none. Either of them may
    # stand in the quotes of an attribute, so both are tried.
    position = 0
    while position + _LONG_TAG_CHARS < len(html):
        next_one = html.rfind(bracket, position, position + _LONG_TAG_CHARS)
        if next_one > position:
            position = next_one
            continue
        end = position + _LONG_TAG_CHARS
        start = _TAG_START.search(html, position, end)
        if start and (tag := _WHOLE_TAG.match(html, start.start())):
            attributes = _ATTRIBUTE_GAP.split(_QUOTED.sub(b"=", tag[0]), _MOST_ATTRIBUTES)
            if len(attributes) > _MOST_ATTRIBUTES:
                return True
            end = max(end, tag.end())
        position = end
    return False


def _flat(html: bytes) -> bytes:
    return _ANY_TAG.sub(_kept, html)


def _kept(tag: re.Match[bytes]) -> bytes:
    return tag[0] if len(tag[0]) <= _KEPT_CHARS and tag[1].lower() in _KEPT else b" "
