"""The words of a page: all that is visible, or only what the page is about. Pure.

A page is parsed once for links and text; what reads the text changes the tree, so links are read first.
Nothing here recurses: a page may be nested as deep as the parser let it be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from selectolax.lexbor import LexborHTMLParser, LexborNode, create_tag

TextMode = Literal["fast", "article", "all"]

#: What stands between two lines of a text just read: white space to HTML, and hardly any page has its own.
_MARK = "\f"
_GAP = re.compile(" {2,}")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _words(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark picture q rp rt
    ruby s samp small source span strike strong sub sup time tt u var wbr"""
)
#: Never part of what a page is about, whatever they hold.
ASIDE = _words(
    """aside audio button canvas datalist dialog embed figcaption footer head iframe input label map math
    menu nav noscript object option script select style svg template textarea video"""
)
ARTICLE = _words("article main")
_HEADING = _words("h1 h2 h3 h4 h5 h6")

# What people call the parts of a page, word by word, in class, id and itemprop. The first kind is hardly
# ever the text itself; the second now and then, when a theme puts such a word on the body of the text.
_BOILERPLATE_WORDS = _words(
    """addthis adsense advert advertisement advertising breadcrumb breadcrumbs caption comment
    commentlist comments consent cookie cookies disqus footer footnav gdpr login menu modal
    mostread nav navbar navi navigation newsletter newsletters outbrain overlay pager pagination
    paywall popup popular promo promos promotion recirc recommend recommendations recommended
    related relatedposts respond share sharebar sharedaddy sharing sidebar signup skip social
    socials sponsored submenu subscribe subscription taboola toc trending widgets"""
)
_SUSPECT_WORDS = _words(
    """about ad ads alert author authors banner bio byline card cards contact copyright credit credits
    date dateline disclaimer embed form gallery header hero hidden infobox masthead meta metadata
    more print rating readmore slideshow sponsor tag taglist tags teaser timestamp toolbar tools
    tooltip"""
)
_BOILERPLATE_ROLES = _words("alert banner complementary contentinfo dialog navigation search")
_BODY_NAMES = re.compile(
    r"(?:article|story) *(?:body|content|text)|(?:post|entry|content) *body|(?:post|entry|main) *content"
)
_WORD_BREAKS = str.maketrans("-_", "  ")
#: The style of elements with another sign of being hidden.
_HIDDEN = "display:none"
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:advert(?:isement|ising)?|anzeige|werbung|publicidad|publicité|реклама|related(?: \w+)?"
    r"|read (?:more|also|next)|see also|more from .*|don.t miss|trending|share(?: this)?.{0,20}|comments?"
    r"|sponsored.{0,10}|tags?|filed under|(?:story |article )?continues? .{0,20})\W*",
    re.IGNORECASE,
)
_LABEL_CHARS = 40
MOST_NAMES_CHARS = 200
_SENTENCE_END = frozenset('.!?:;…。！？"”’»)')


def tag_ids(names: Set[str]) -> frozenset[int]:
    """Numbers of tags: asking a node for its name makes a string each time."""
    return frozenset(create_tag(name).tag_id for name in names)


# What the attributes of an element say of its text.
_BODY, _NOTHING, _SUSPECT, _BOILERPLATE = 1, 0, -1, -2
_COMMENT = 4
UNSEEN = tag_ids(_words("script style noscript template"))
#: What ends no line. Comments, too: some sites put one between any two pieces of a sentence.
UNWRAPPED = tag_ids(_INLINE - {"img", "picture", "source"}) | {_COMMENT}


def page_text(tree: LexborHTMLParser, mode: TextMode) -> str:
    """Return the text of the page: with mode ``all`` what is visible, else what the page is about.

    This is without menus, teasers, comments and the like. Of a page that is about nothing in particular it is
    what reads like sentences, or nothing at all. The tree loses elements on the way.
    """
    body = tree.body
    # One that a frameset has taken the place of is not part of the tree.
    if body is None or body.parent is None:
        return ""
    if mode == "all":
        return _all_text(body)
    return _fast_text(tree, body) if mode == "fast" else _article_text(body)


def _all_text(body: LexborNode) -> str:
    unseen: list[LexborNode] = []
    # Outermost first: what is inside moves one step each time, and not with all that came out of others.
    for node in list(body.traverse())[1:]:
        tag_id = node.tag_id
        if tag_id in UNWRAPPED:
            node.unwrap(delete_empty=True)
        elif tag_id in UNSEEN:
            unseen.append(node)
    for node in unseen:
        node.decompose(recursive=False)
    # Now the pieces of a line are neighbours, and what stands between two texts ends a line.
    body.merge_text_nodes()
    return "\n".join(_lines(body.text(separator=_MARK, skip_empty=True)))


def _lines(text: str) -> list[str]:
    """Return what stands between the marks of *text*, white space folded, without what is empty."""
    # These four are nearly all the white space there is.
    text = text.replace("\n", " ").replace("\r", " ").replace("\t", " ").replace("\xa0", " ")
    lines = [part.strip() for part in text.split(_MARK)]
    # Most lines have nothing left to fold.
    return [_GAP.sub(" ", line) if "  " in line else line for line in lines if line]


# -- fast: the block of the paragraphs, less what has the name of boilerplate --------------------------------

_PARAGRAPH_CHARS = 40
#: How much of a paragraph counts for its parent, the parent of that, and the next.
_SHARES = (1.0, 0.7, 0.5)
DROPPED = tag_ids(ASIDE | {"form", "h1"})
NAMED = tag_ids(_words("div section ul p"))
#: The share of a text that is taken for what its name says.
_BELIEVED: dict[int, float] = {_SUSPECT: 0.15, _BOILERPLATE: 0.6}
[_LINK] = tag_ids({"a"})


def _fast_text(tree: LexborHTMLParser, body: LexborNode) -> str:
    chosen = _block_of_paragraphs(tree) or body
    linked: list[str] = []
    unwrapped: list[LexborNode] = []
    named: list[tuple[LexborNode, int]] = []
    dropped: list[LexborNode] = []
    link_end = 0
    for place, node in enumerate(list(chosen.traverse())[1:]):
        tag_id = node.tag_id
        if tag_id in UNWRAPPED:
            unwrapped.append(node)
            # A link inside of another, as pictures may have them without end, is part of that.
            if tag_id == _LINK and place >= link_end:
                linked.append(node.text_lexbor())
                link_end = place + sum(1 for _ in node.traverse())
        elif tag_id in NAMED:
            if (attributes := node.attributes) and (hint := _hint("", attributes)) < 0:
                named.append((node, hint))
        elif tag_id in DROPPED:
            dropped.append(node)
    for node in unwrapped:
        node.unwrap(delete_empty=True)
    chosen.merge_text_nodes()
    chars = len(chosen.text_lexbor()) if named else 0
    # Innermost first: what is gone is no part of what is around it.
    for node, hint in reversed(named):
        # A name is not believed of the greater part of a text.
        if len(node.text_lexbor()) < chars * _BELIEVED[hint]:
            node.decompose(recursive=False)
    for node in dropped:
        node.decompose(recursive=False)
    lines = _lines(chosen.text(separator=_MARK, skip_empty=True))
    return without_menus(lines, _lines(_MARK.join(linked)))


def without_menus(lines: list[str], linked: list[str]) -> str:
    """Return *lines* as a text, without labels and what is nothing but a link, whose texts are *linked*."""
    menu = set(linked)
    return "\n".join([line for line in lines if line not in menu and not _is_label(line)])


def _block_of_paragraphs(tree: LexborHTMLParser) -> LexborNode | None:
    nodes: dict[int, LexborNode] = {}
    chars: dict[int, int] = {}
    for paragraph in tree.tags("p"):
        count = len(paragraph.text_lexbor())
        if count >= _PARAGRAPH_CHARS and (parent := paragraph.parent) is not None:
            key = parent.mem_id
            nodes[key] = parent
            chars[key] = chars.get(key, 0) + count
    scores: dict[int, float] = {}
    # What was found out about a block: it is around many paragraphs.
    blocks: dict[int, tuple[int, int]] = {}
    for inner, count in chars.items():
        counted: list[tuple[int, float]] = []
        trust, key = 1.0, inner
        for share in _SHARES:
            if key not in blocks:
                blocks[key] = _block(nodes[key], nodes)
            hint, outer = blocks[key]
            if hint == _BOILERPLATE:
                trust = 0.1
            counted.append((key, count * share * (2.0 if hint == _BODY else 1.0)))
            if not outer:
                break
            key = outer
        for key, score in counted:
            scores[key] = scores.get(key, 0.0) + score * trust
    return nodes[max(scores, key=scores.__getitem__)] if scores else None


def _block(node: LexborNode, nodes: dict[int, LexborNode]) -> tuple[int, int]:
    """Return what the names of *node* say, and the key in *nodes* of the block around it, 0 for none."""
    tag, outer = node.tag or "", node.parent
    hint = _BOILERPLATE if tag in ASIDE else _hint(tag, node.attributes)
    if outer is None or tag == "body":
        return hint, 0
    key = outer.mem_id
    nodes[key] = outer
    return hint, key


# -- article: every line judged, then the part of the tree with the best of them -----------------------------


@dataclass(slots=True)
class _Line:
    text: str
    linked_chars: int
    owner: int


@dataclass(slots=True)
class _Outline:
    """The blocks of a page in document order, as columns; a subtree is a range of them."""

    lines: list[_Line] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    hints: list[int] = field(default_factory=list)
    first_line: list[int] = field(default_factory=list)
    end_line: list[int] = field(default_factory=list)

    def open(self, tag: str, parent: int, hint: int) -> int:
        self.tags.append(tag)
        self.parents.append(parent)
        self.hints.append(hint)
        self.first_line.append(len(self.lines))
        self.end_line.append(0)
        return len(self.tags) - 1

    def sum_up(self, values: list[float]) -> None:
        """Add to each block's value those of all blocks inside it."""
        for block in range(len(values) - 1, 0, -1):
            values[self.parents[block]] += values[block]


#: Elements that only dress words: left out, there are fewer nodes to look at.
_DRESS = "span:not([style], [hidden], [aria-hidden]), code, em, strong, b, i, small, sub, sup"
_INLINE_NODE = -1
_LINK_NODE = -2


def _outline(body: LexborNode) -> _Outline:
    page = _Outline()
    lines = page.lines
    block = page.open("body", -1, _NOTHING)
    parts: list[str] = []
    linked_chars = links_open = 0
    # The nodes around the current one; for a block its number and the one around it.
    around: list[tuple[LexborNode, int, int]] = [(body, block, block)]
    node = body.child
    while True:
        if node is None:
            node, number, outer = around.pop()
            if number >= 0:
                if parts:
                    if text := _line("".join(parts)):
                        lines.append(_Line(text, linked_chars, block))
                    parts = []
                    linked_chars = 0
                page.end_line[number] = len(lines)
                block = outer
            elif number == _LINK_NODE:
                links_open -= 1
            if not around:
                return page
            node = node.next
            continue
        tag = node.tag
        child = node.child
        if tag == "-text":
            text = node.text_content or ""
            parts.append(text)
            if links_open:
                linked_chars += len(text.strip())
        elif tag in _INLINE:
            if child is not None and not (tag == "span" and _is_hidden(node.attributes)):
                links_open += tag == "a"
                around.append((node, _LINK_NODE if tag == "a" else _INLINE_NODE, block))
                node = child
                continue
        elif tag == "br":
            parts.append("\n\0")
        elif tag is not None and tag[0] != "-":
            if parts:
                if text := _line("".join(parts)):
                    lines.append(_Line(text, linked_chars, block))
                parts = []
                linked_chars = 0
            if child is not None and tag not in ASIDE:
                number = page.open(tag, block, _hint(tag, node.attributes))
                around.append((node, number, block))
                block = number
                node = child
                continue
        node = node.next


def _line(text: str) -> str:
    """One paragraph: white space folded, but for the line breaks of its own."""
    if "\0" in text:
        return "\n".join(line for part in text.split("\0") if (line := " ".join(part.split())))
    return " ".join(text.split())


def _article_text(body: LexborNode) -> str:
    for node in body.css(_DRESS):
        node.unwrap(delete_empty=True)
    body.merge_text_nodes()
    page = _outline(body)
    values = [_value(line, page.tags[line.owner]) for line in page.lines]
    boilerplate = _boilerplate(page, values)
    totals = [0.0] * len(page.tags)
    for line, value in zip(page.lines, values, strict=True):
        if not boilerplate[line.owner]:
            totals[line.owner] += value
    page.sum_up(totals)
    outer = _best_block(page, totals)
    inner = _heart(page, totals, outer)
    # An introduction often stands in front of the block that holds the rest.
    start, end = page.first_line[inner], page.end_line[inner]
    chosen: list[str] = []
    for number in range(page.first_line[outer], end):
        line = page.lines[number]
        tag = page.tags[line.owner]
        if (
            boilerplate[line.owner]
            or tag == "h1"
            or line.linked_chars * 2 > len(line.text)
            or _is_label(line.text)
        ):
            continue
        if number >= start or (values[number] >= _INTRODUCTION and tag != "li"):
            chosen.append(line.text)
    return "\n".join(chosen)


_SHORT_CHARS = 40
_INTRODUCTION = 60.0


def _value(line: _Line, tag: str) -> float:
    """How much a line reads like running text, in characters; below zero if it reads like a menu."""
    chars = len(line.text)
    if line.linked_chars * 2 > chars:
        return -float(min(chars, 60))
    if not line.text.isascii() and max(line.text) >= "\u2e80":
        chars *= 2  # Chinese, Japanese and Korean say in one character what takes others two or more
    if chars < _SHORT_CHARS:
        return 0.0 if tag in _HEADING or tag in ("td", "th") else -10.0
    value = chars - line.linked_chars * 1.5
    if line.text[-1] not in _SENTENCE_END:
        value *= 0.5 if chars < 100 else 0.9
    return value * (1.0 if tag == "p" else 0.8)


def _boilerplate(page: _Outline, values: list[float]) -> list[bool]:
    """Say of each block whether its name rules it out; no name is believed of the greater part of a page."""
    good = [0.0] * len(page.tags)
    for line, value in zip(page.lines, values, strict=True):
        good[line.owner] += max(value, 0.0)
    page.sum_up(good)
    all_good = good[0]
    ruled_out = [False]
    for block in range(1, len(page.tags)):
        hint = page.hints[block]
        ruled_out.append(
            ruled_out[page.parents[block]]
            or (hint == _SUSPECT and good[block] <= 0.3 * all_good)
            or (hint == _BOILERPLATE and all_good - good[block] > min(300.0, 0.2 * all_good))
        )
    kept = sum(
        value
        for line, value in zip(page.lines, values, strict=True)
        if value > 0 and not ruled_out[line.owner]
    )
    # Some themes name every single block "sidebar" or "card": then names say nothing.
    return ruled_out if kept >= 0.1 * all_good else [False] * len(page.tags)


def _best_block(page: _Outline, totals: list[float]) -> int:
    best, best_total = 0, float("-inf")
    for block, total in enumerate(totals):
        if total > 0:
            if page.hints[block] == _BODY:
                total *= 2.0
            elif page.tags[block] in ARTICLE:
                total *= 1.15
        # The innermost of equals.
        if total >= best_total:
            best, best_total = block, total
    return best


def _heart(page: _Outline, totals: list[float], block: int) -> int:
    """Go down from *block* as long as one block of several lines holds most of its text."""
    for inside in range(block + 1, len(totals)):
        if page.first_line[inside] >= page.end_line[block]:
            break
        if totals[inside] >= 0.7 * totals[block] > 0 and page.end_line[inside] - page.first_line[inside] > 2:
            block = inside
    return block


# -- what names and labels say -------------------------------------------------------------------------------


def _hint(tag: str, attributes: Mapping[str, str | None]) -> int:
    if not attributes or tag == "body":
        return _NOTHING
    names = attributes.get("class") or ""
    if "id" in attributes or "itemprop" in attributes:
        names = f"{names} {attributes.get('id') or ''} {attributes.get('itemprop') or ''}"
    style = _HIDDEN if _is_hidden(attributes) else ""
    hint = hint_of(names[:MOST_NAMES_CHARS], style, attributes.get("role") or "")
    return max(hint, _NOTHING) if tag in ARTICLE else hint


def hint_of(names: str, style: str, role: str) -> int:
    """Return what the class, id and itemprop of an element, its *style* and its *role* say of its text.

    *names* are the first three, no more of them than `MOST_NAMES_CHARS`.
    """
    if (style and _HIDDEN_STYLE.search(style)) or role in _BOILERPLATE_ROLES:
        return _BOILERPLATE
    return _hint_of_names(names) if names else _NOTHING


def _is_hidden(attributes: Mapping[str, str | None]) -> bool:
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style = attributes.get("style")
    return style is not None and _HIDDEN_STYLE.search(style) is not None


# The same few names stand on every page of a site, and many times on each.
@lru_cache(maxsize=10_000)
def _hint_of_names(names: str) -> int:
    names = names.lower().translate(_WORD_BREAKS)
    if _BODY_NAMES.search(names):
        return _BODY
    words = names.split()
    if not _BOILERPLATE_WORDS.isdisjoint(words):
        return _BOILERPLATE
    return _NOTHING if _SUSPECT_WORDS.isdisjoint(words) else _SUSPECT


def _is_label(line: str) -> bool:
    return len(line) < _LABEL_CHARS and _LABEL.fullmatch(line) is not None
