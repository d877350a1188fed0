"""Pages with the size and the markup of real ones, around a text and its links.

Sizes are spread as those of 1,032 public pages were, proportions are near those of 794: almost half of the
bytes are scripts, styles and drawings, most of them before the text, and most of the others tags and their
attributes; of some ninety links most stand in menus, teasers and the footer.
What is not the page's own comes from a few long texts that are made once and cut at another place for each.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import cycle, islice
from random import Random
from statistics import NormalDist

from crawlproj.simweb.page import PageSpec
from crawlproj.simweb.sites import spread
from crawlproj.simweb.words import labels, sentences

#: Of the size of a page: half are smaller, and the spread of its logarithm; the ends.
_MEDIAN_BYTES, _SPREAD = 94_000, 0.92
_LEAST_BYTES, _MOST_BYTES = 8_000, 1_600_000
#: So much of a page comes for each link around its text.
_BYTES_A_LINK, _FEWEST_LINKS, _MOST_LINKS = 2000, 10, 400
#: How the room beside the text and its links is divided: styles and the first scripts stand in the head, and
#: drawings and the first widgets, elements with nothing to read, before the text, too; the rest is scripts.
_STYLE_SHARE, _HEAD_SCRIPT_SHARE, _DRAWING_SHARE, _WIDGET_SHARE = 0.13, 0.22, 0.09, 0.22
_CLASSES = 300
_LIBRARY_CHARS = 400_000
_PIECE_CHARS, _LEAST_PIECE_CHARS = 40_000, 200
_PARAGRAPH = 5
_NORMAL = NormalDist()


def page_chars(seed: int) -> int:
    """Return how long the page of *seed* is."""
    [draw] = spread(seed ^ 0x517E, 1)
    deviation = _NORMAL.inv_cdf(min(max(draw, 1e-6), 1 - 1e-6))
    return int(min(max(_MEDIAN_BYTES * math.exp(_SPREAD * deviation), _LEAST_BYTES), _MOST_BYTES))


def html(page: PageSpec, title: str, text: list[str], anchors: list[str]) -> str:
    """Return a page about *text*, its sentences; *anchors* are its links, and stand there several times."""
    # Two bytes a character make no page larger.
    wanted = page_chars(page.text_seed) // (2 if page.charset == "utf-16" else 1)
    classes = _classes()
    count = min(max(wanted // _BYTES_A_LINK, _FEWEST_LINKS), _MOST_LINKS)
    turn = page.text_seed % _CLASSES
    names = cycle(classes[turn:] + classes[:turn])
    name = names.__next__
    stock = sentences(page.language)
    words = [stock[(page.text_seed + 7 * number) % len(stock)] for number in range(40)]
    # In these shares links stand in menus, in teasers beside and below the text, and in the footer.
    links = cycle(anchors)
    menu, teasers, footer = (list(islice(links, math.ceil(count * share))) for share in (0.35, 0.3, 0.25))
    body = "".join(
        (
            f'<header class="{name()} {name()}" role="banner"><div class="{name()}">',
            f'<nav class="{name()}" aria-label="main">{_items(menu, names)}</nav></div></header>\n',
            f'<div class="{name()}" id="page"><div class="{name()} {name()}"><main>\n',
            _article(page, title, text, anchors, names),
            f'</main>\n<aside class="{name()}">{_teasers(teasers[::2], words, names)}</aside></div>',
            f'<section class="{name()} related"><h2>{words[1].strip()}</h2>',
            _teasers(teasers[1::2], words, names),
            f'</section>\n<section class="comments">{_comments(words, names)}</section></div>\n',
            f'<footer class="{name()}" role="contentinfo">{_items(footer, names)}',
            f"<p>© 2026 simweb. {words[2]}</p></footer>\n",
            f'<div class="cookie-banner {name()}" role="dialog"><p>{words[3]}{words[4]}</p>',
            f'<button class="{name()}">{labels(page.language)[0]}</button></div>\n',
        )
    )
    head, seed = _head(page, title, text), page.text_seed
    rest = max(0, wanted - len(head) - len(body))
    style, early, drawing, widgets = (
        int(rest * share) for share in (_STYLE_SHARE, _HEAD_SCRIPT_SHARE, _DRAWING_SHARE, _WIDGET_SHARE)
    )
    late = rest - style - early - drawing - 2 * widgets
    return "".join(
        (
            head,
            *_pieces("<style>", _library("style"), "</style>\n", style, seed),
            *_pieces("<script>", _library("script"), "</script>\n", early, seed >> 3),
            f'</head>\n<body class="{name()} {name()} single">\n<!-- begin header -->\n',
            *_pieces(
                '<svg class="icons" aria-hidden="true">', _library("drawing"), "</svg>\n", drawing, seed
            ),
            *_pieces('<div class="widget-area">', _library("widget"), "</div>\n", widgets, seed >> 5),
            *("<div>" * 6, body, "</div>" * 6),
            *_pieces('<div class="widget-area">', _library("widget"), "</div>\n", widgets, seed >> 7),
            *_pieces("<script async>", _library("script"), "</script>\n", late, seed),
            "</body></html>\n",
        )
    )


def declarations(page: PageSpec) -> tuple[str, str, str]:
    """Return the elements that say the charset, the base and the canonical URL of a page that has them."""
    charset = f'<meta charset="{page.charset}">\n' if page.declared != "header" else ""
    base = f'<base href="{page.base}">\n' if page.base else ""
    canonical = f'<link rel="canonical" href="{escape(page.canonical)}">\n' if page.canonical else ""
    return charset, base, canonical


def escape(url: str) -> str:
    return url.replace("&", "&amp;")


def _head(page: PageSpec, title: str, text: list[str]) -> str:
    about = text[1].strip()
    charset, base, canonical = declarations(page)
    facts = (
        f'"@context":"https://schema.org","@type":"NewsArticle","headline":"{title}","description":"{about}"'
    )
    day = f"2026-0{1 + page.text_seed % 9}-{10 + page.text_seed % 19}T08:30:00+00:00"
    return (
        f'<!DOCTYPE html>\n<html lang="{page.language}" class="no-js"><head>\n{charset}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f'<meta name="description" content="{about}">\n{base}{canonical}'
        f'<meta property="og:type" content="article">\n<meta property="og:title" content="{title}">\n'
        f'<meta property="og:description" content="{about}">\n<meta property="og:locale" content="en">\n'
        f'<meta property="article:published_time" content="{day}">\n<meta name="author" content="A. W.">\n'
        '<meta name="twitter:card" content="summary_large_image">\n<meta name="color" content="#204060">\n'
        + _LINK_ELEMENTS
        + f'<script type="application/ld+json">{{{facts},"datePublished":"{day}","author":'
        '{"@type":"Person","name":"A. Writer"}}</script>\n'
        '<!--[if lt IE 9]><script src="/static/html5shiv.js"></script><![endif]-->\n'
    )


_LINK_ELEMENTS = """\
<link rel="preload" href="/static/font.woff2">
<link rel="stylesheet" href="/static/theme.css">
<link rel="stylesheet" href="/static/blocks.css">
<link rel="icon" href="/static/icon-32.png">
<link rel="apple-touch-icon" href="/static/icon-180.png">
<link rel="manifest" href="/static/site.webmanifest">
<link rel="dns-prefetch" href="/static/cdn">
"""


def _article(page: PageSpec, title: str, text: list[str], anchors: list[str], names: cycle[str]) -> str:
    name = names.__next__
    words = labels(page.language)
    parts = [
        f'<article class="{name()} post" itemscope><header class="{name()}"><h1>{title}</h1>',
        f'<p class="{name()} byline"><span>A. W.</span> <time datetime="2026-01-02">2026-01-02</time>',
        f'</p></header>\n<figure class="{name()}"><img src="/static/lead.jpg" srcset="/lead-2.jpg 2x" ',
        f'alt="{words[1]}" loading="lazy" width="1200"><figcaption>{text[2].strip()}</figcaption>',
        f'</figure>\n<div class="{name()} entry-content">\n',
    ]
    paragraphs = [text[start : start + _PARAGRAPH] for start in range(0, len(text), _PARAGRAPH)]
    each = math.ceil(len(anchors) / len(paragraphs))
    for number, paragraph in enumerate(paragraphs):
        if number % 4 == 3:
            parts.append(f'<h2 id="part-{number}" class="{name()}">{words[number % len(words)]}</h2>\n')
        inside = " ".join(anchors[number * each : (number + 1) * each])
        if number % 9 == 5:
            parts.append(
                f"<ul>{''.join(f'<li>{sentence}</li>' for sentence in paragraph)}<li>{inside}</li></ul>\n"
            )
        elif number % 9 == 7:
            parts.append(f"<blockquote><p>{''.join(paragraph)}{inside}</p></blockquote>\n")
        else:
            parts.append(f"<p>{''.join(paragraph)}{inside}</p>\n")
        if number == 4:
            rows = "".join(f"<tr><td>{words[n]}</td><td>{n * 17}</td></tr>" for n in range(5))
            parts.append(f'<table class="{name()}"><tbody>{rows}</tbody></table>\n')
    parts.append("</div></article>\n")
    return "".join(parts)


def _items(anchors: list[str], names: cycle[str]) -> str:
    name = names.__next__
    items = (
        f'<li class="{name()} menu-item" id="item-{number}"><span class="{name()}">{anchor}</span></li>'
        for number, anchor in enumerate(anchors)
    )
    return f'<ul class="{name()}">{"".join(items)}</ul>'


def _teasers(anchors: list[str], words: list[str], names: cycle[str]) -> str:
    name = names.__next__
    return "".join(
        f'<div class="{name()} {name()} card" data-id="{number * 7919}"><div class="{name()}">'
        f'<img src="/static/{number}.jpg" alt="" loading="lazy" width="320" height="180"></div>'
        f'<h3 class="{name()}">{anchor}</h3><p>{words[number % len(words)]}</p></div>\n'
        for number, anchor in enumerate(anchors)
    )


def _comments(words: list[str], names: cycle[str]) -> str:
    name = names.__next__
    return "".join(
        f'<div class="comment {name()}" id="comment-{number}"><b>reader {number}</b><p>{sentence}</p></div>\n'
        for number, sentence in enumerate(words[5:9])
    )


def _pieces(begin: str, library: str, end: str, chars: int, seed: int) -> list[str]:
    """Return about *chars* of *library*, whole lines, as elements, from a place that *seed* chooses."""
    pieces: list[str] = []
    at = seed % (len(library) // 2)
    while chars > _LEAST_PIECE_CHARS:
        start = library.index("\n", at) + 1
        stop = library.index("\n", start + min(_PIECE_CHARS, chars))
        pieces += (begin, library[start:stop], end)
        chars -= stop - start
        at = (at + _PIECE_CHARS) % (len(library) // 2)
    return pieces


# --- What all pages share -------------------------------------------------------------------------------


@cache
def _classes() -> list[str]:
    random = Random(3)
    blocks = ("site", "nav", "card", "grid", "entry", "widget", "btn", "media", "u", "wp-block", "css")
    ends = ("inner", "title", "item", "wrap", "link", "left", "large", "mobile", "dark", "active")
    return [
        f"{random.choices(blocks)[0]}-{random.choices(ends)[0]}-{int(random.random() * 90)}"
        for _ in range(_CLASSES)
    ]


#: The seed of each library, and how often its lines have noise.
_LIBRARIES = {"script": (1, 0.2), "style": (2, 0.1), "drawing": (4, 0.1), "widget": (5, 0.5)}
#: Scripts have what looks like markup and links, and is none.
_LINES = {
    "script": 'function W(e,t){var n=W(t,N);if(e.W<n&&t>0){n.innerHTML="<a class=\\"W\\" href='
    '\\"/js/W\\">H<\\/a>"}return n.W({id:N,W:"H",ok:!0})}window.W=window.W||[];',
    "style": ".W-W>.W:hover{color:#H;margin:0 Npx;display:flex}@media (min-width:Npx){.W{padding:Npx}}",
    "drawing": '<path class="W" d="MN.4 N.2h-NvNl-N.1 N.7c1.H zM0 0"/>',
    "widget": '<div class="W-W W" data-W="N"><div class="W W-H js-W"><span class="W W-N" style="margin:Npx '
    'auto"><i class="W" aria-hidden></i></span><button type="button" class="W-W b-N" data-id="H">W</button>'
    '<picture><source srcset="/W-N.webp" media="(min-width:Npx)"><img class="W" src="/W/N.jpg" alt="" '
    'loading="lazy" width="N"></picture><div class="W W-W"><div class="W"><div id="W-N" class="W W-W">'
    '<input type="hidden" name="W" value="H"></div></div></div></div></div>',
}


@cache
def _library(kind: str) -> str:
    """Return many lines of *kind*, their letters W, N and H replaced by words, numbers and noise."""
    line, (seed, strange) = _LINES[kind], _LIBRARIES[kind]
    random = Random(seed)
    names = [
        "".join(random.choices("abcdefghijklmnoprstuvwxyz", k=2 + int(random.random() * 9)))
        for _ in range(400)
    ]
    made: list[str] = []
    chars = 0
    while chars < _LIBRARY_CHARS:
        one = line.replace("W", random.choices(names)[0], 1).replace("W", random.choices(names)[0], 1)
        one = one.replace("W", random.choices(names)[0]).replace("N", str(int(random.random() * 5000)))
        if random.random() < strange:
            one = one.replace("H", f"{random.getrandbits(128):032x}")
        made.append(one.replace("H", random.choices(names)[0]))
        chars += len(made[-1])
    return "\n".join(made)
