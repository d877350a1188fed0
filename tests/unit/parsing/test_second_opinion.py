"""What the reader finds in pages of any kind is what lexbor, a parser by the standard, finds in them.

It differs by design: the reader leaves text in tables where it is written, and does not open links and
formatting a second time (lexbor then has the link twice); ``</noscript>`` always ends a noscript; a frame
needs no frameset; text of SVG is none for readers.
"""

from __future__ import annotations

from random import Random

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawlproj.config import Config
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
    found = read_html(html.encode(), Config(text="all", link_tags=LINKS, obey_rel_nofollow=False))
    expected = SecondOpinion(html)
    order = list if in_order else sorted

    assert " ".join(found.head.title.split()) == expected.title
    assert found.head.metas == expected.metas
    assert order(dict.fromkeys(found.hrefs)) == order(expected.hrefs)
    assert order(letters(found.text)) == order(expected.letters)


# -- pages that were written for this

PAGES = """
<p>one<p>two</p>three
<p>one<div>two</div>three</p>four
<p>a<h1>b<h2>c</h2></h1>d
<p>a<table><tr><td>b</table>c
<p>a<ul><li>b<li>c<ol><li>d</ol>e</ul>f
<dl><dt>a<dd>b<dt>c<dd>d</dl>e
<dd>a<ul><dd>b</ul><dt>c
<ul><li>a<div>b<li>c</div>d</ul>
<li>a<p>b<li>c</p>d
<div>a</p>b</div>c
</p>a</br>b</div>c</x-y>d
<h1>a</h2>b<h3>c</h1>d
<b>a<p>b</b>c</p>d
<i>a<b>b</i>c</b>d
<a href=/1>a<a href=/2>b</a>c</a>d
<a href=/1>a<div>b<a href=/2>c</div>d
<a href=/1>a<p>b</a>c<p>d
<button>a<p>b<button>c</button>d</p>e
<form>a<form>b</form>c</form>d
<select><option>a<option>b<optgroup><option>c</select>d
<select>a<input>b
<select><option>a<textarea>b</textarea>c
<table><tr><td>a<td>b<tr><th>c<th>d</table>e
<table><caption>a<tr><td>b<tbody><tr><td>c<tfoot><tr><td>d</table>
<table><td>a<table><td>b</table>c<td>d</table>e
<table><thead><tr><th>a</thead><tbody><tr><td>b
<table><colgroup><col><col><tr><td>a</table>b
<tr><td>a</td></tr>b
<td>a<tbody>b<caption>c
<div><tr>a</tr><td>b</td></div>
<table><td><li>a<table><td><li>b</table><li>c</table>
<table><tr><td>a</tr></table></td></tr>b
<svg><g><a href=/1>x</a></g></svg>a
<svg><path/><circle></circle></svg>a<p>b
<svg><p>a</p></svg>b
<svg><desc><p>x<a href=/1>y</a></desc></svg>a
<svg><foreignObject><div>x<a href=/1>y</a></div></foreignObject></svg>a
<svg><title>x</title></svg><title>y</title>a
<svg><![CDATA[ x <a href=/1> ]]></svg>a
<svg><script>x</script><style>y</style></svg>a
<svg/>a<math/>b
<svg><br>a
<svg><b>a</b></svg>b
<svg><image href=/1></svg>a
<math><mi>a</mi><mo>=</mo><mn>1</mn></math>b
<math><mtext><p>a</p></mtext></math>b
<math><mi>a<p>b</math>c
<math><![CDATA[a<b]]></math>c
<math><annotation-xml encoding=text/html><p>a</annotation-xml></math>b
<![CDATA[a]]>b
<!-->a
<!--->a
<!--a-->b
<!--a--!>b
<!--a--->b
<!--a--b-->c
<!--a<!--b-->c
<!----!>a
<!---!>a-->b
<!--a
<!--a-
<!--a--
<!doctype html>a
<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4.01//EN" "x">a
<!x>a
<?xml version="1.0"?>a
<?php echo "a>b" ?>c
</>a
</ b>a
</3>a
<3>a
< p>a
a<
a</
a<b
a<b c
a<b c=
a<b c="
a<b c="d
a</b
a<!
a<?
a<<b>c
a<<<b>c</b>
a>b
a & b &amp c &lt; d
&copy&reg&notit;&noti;&not;
&#65;&#x42;&#X43;&#0;&#128;&#x80;&#159;&#xD800;&#x110000;&#99999999999;
&#;&#x;&#a;&#xg;&;&a;&amp;amp;
&nbsp;a&nbsp;b&emsp;c
&CounterClockwiseContourIntegral;&nGt;&fjlig;&NotEqualTilde;
<a href="/?a=1&copy=2&amp;b=3&lt&not;x&notx&para">a</a>
<a href=/1?a&b>a</a><a href='/2?"'>b</a><a href="/3?'">c</a>
<a href = "/1">a</a><a href= /2>b</a><a href =/3>c</a>
<a href=/1 href=/2>a</a><a HREF=/3>b</a><A hReF=/4>c</a>
<a href>a</a><a href="">b</a><a href=" ">c</a>
<a href=/1/>a</a><a href=/2/ >b</a><a/href=/3>c</a>
<a href="/1"class=x>a</a><a class=x/href=/2>b</a>
<a =href=/1>a</a><a "href=/2>b</a><a 'x' href=/3>c</a>
<a href="/1&#10;2">a</a><a href='/3&Tab;4'>b</a>
<a href=/<b>a</a><a href="/<b>">c</a>
<area href=/1><map><area href=/2></map><area>
<iframe src=/1>a<p>b</iframe>c
<iframe src=/1/>a</iframe>b
<frameset><frame src=/1><frame src=/2></frameset>
<frameset><frameset><frame src=/1></frameset></frameset>
<noframes>a<a href=/1>b</a></noframes>c
<noembed>a</noembed>b
<script>a</script>b
<script>a<b</script>c
<script>"</script>"a
<script><!--a</script>b
<script><!--<script>a</script>b
<script><!--<script>a</script>--></script>b
<script><!--<script>a</script></script>b
<script><!--<script>a--></script>b
<script><!--></script>a
<script><!--<scriptx>a</script>b
<script><!--<script/>a</script>b</script>c
<script>a</scriptx>b</script>c
<script>a</script x="</script>">b
<script>a</SCRIPT
>b
<script/>a</script>b
<script>a
<style>a</style>b<style><!--</style>c
<style>a</style
>b
<title>a<b>c</title>d
<title>a</titlex>b</title>c
<title> </title><title>a</title>b
<title>a&amp;b &lt;i&gt;</title>c
<title>a
<body><title>a</title>b
<textarea>a<p>b</textarea>c
<textarea>
a</textarea>b
<xmp>a<p>b</xmp>c
<plaintext>a<p>b</plaintext>c
<pre>
a
  b</pre>c
<pre>a<p>b</pre>c
<template>a<a href=/1>b</a><meta name=x content=y></template>c
<template><template>a</template>b</template>c
<table><template><tr><td>a</template><tr><td>b</table>
<template><tr><td>a</template>b
<body><noscript>a<p>b</p></noscript>c
<body><noscript><a href=/1>a</a></noscript>b
<body><noscript><img src=x><iframe src=/1></iframe></noscript>b
<object>a<p>b</object>c</p>d
<object><p>a</object></p>b
<marquee>a<p>b</marquee>c
<applet><b>a</applet>b</b>c
<ruby>a<rp>(<rt>b<rp>)</ruby>c
<x-y>a<p>b</x-y>c</p>d
<x-y><div>a</x-y>b</div>c
<custom-element class=x>a<custom-element>b</custom-element>c
<o:p>a</o:p>b<v:shape>c</v:shape>d
<font color=red>a<p>b</font>c
<center>a<p>b</center>c
<address>a<li>b</address>c
<body>a<body class=x>b</body>c</body>d
<html><head><title>a</title></head><body>b</body></html>c
a</body>b</html>c
<head>a</head>b
</head>a
<meta name=a content=b><p><meta name=c content=d>x
<meta name=" A " content=" b "><meta NAME=b CONTENT=c>x
<meta property=a name=b itemprop=c http-equiv=d content=e>x
<meta itemprop=a http-equiv=b content=c><meta http-equiv=A content="5; url=/x">x
<meta name="" property="" content=a><meta name=a><meta content=b>x
<meta name=a content="&quot;b&quot; &lt;c&gt;">x
<meta name=a content='b
 c'>x
<input value=a>b<img alt=a>c<embed>d<wbr>e<hr>f<br>g
<p/>a<div/>b</div>c<br/>d
<details><summary>a</summary>b</details>c
<figure>a<figcaption>b</figure>c
<fieldset><legend>a</legend>b</fieldset>c
<nav><ul><li><a href=/1>a</a><li><a href=/2>b</a></ul></nav>c
<video>a<source><track>b</video><audio>c</audio>d
<canvas>a</canvas>b
<dir><li>a<dir><li>b</dir>c</dir>d
<menu><li>a</menu>b
<option>a<option>b</option>c
<nobr>a<nobr>b</nobr>c
<q>a<q>b</q></q>c
<label>a<div>b</label>c</div>d
<span>a<div>b</span>c</div>d
<section><p>a</section>b</p>c
<main><article><p>a</main>b</article>c
""".strip()


def pages() -> list[str]:
    """Each begins a line; a continuation line has no tag and no "&" or "a" at its beginning."""
    found: list[str] = []
    for line in PAGES.split("\n"):
        if found and (line in (">b", "a", " c'>x") or line.startswith(("a</textarea", "  b</pre"))):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


@pytest.mark.parametrize("html", pages())
def test_a_page_is_read_as_the_standard_says(html: str) -> None:
    assert_same(html)


@pytest.mark.parametrize(
    "html",
    [
        "<table>a<tr>b<td>c</td>d</tr>e</table>f",
        "<table><a href=/1>a</a><tr><td><a href=/2>b</a></table>",
        "<table><p>a<tr><td>b</table>c",
        "<table><tr><td><p>a</td>b</p></table>c",
        "<table><tr><td>a</tbody>b</table>c",
        "<table><b><tr><td>a</td></tr>b</table>c",
    ],
)
def test_misplaced_parts_of_a_table_are_all_there(html: str) -> None:
    assert_same(html, in_order=False)


# -- pages of chance

BLOCKS = [
    "div",
    "p",
    "section",
    "article",
    "header",
    "footer",
    "nav",
    "aside",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "blockquote",
    "pre",
    "h1",
    "h2",
    "h3",
    "form",
    "fieldset",
    "figure",
    "figcaption",
    "main",
    "address",
    "center",
    "details",
    "summary",
    "dir",
    "menu",
    "hgroup",
    "div",
    "p",
    "li",
]
INLINE = [
    "b",
    "i",
    "em",
    "strong",
    "span",
    "u",
    "small",
    "code",
    "font",
    "tt",
    "big",
    "strike",
    "s",
    "nobr",
    "abbr",
    "cite",
    "q",
    "sub",
    "sup",
    "time",
    "label",
    "mark",
    "ins",
    "del",
    "var",
    "samp",
    "x-y",
    "custom",
]
TABLE = ["table", "tr", "td", "th", "tbody", "thead", "tfoot", "caption"]
VOID = ["br", "hr", "img", "input", "wbr", "embed"]
PIECES = [
    *("<!-- c -->", "<!--x--!>", "<!-->", "<?php x ?>", "<!doctype html>", "</>", "</ x>", "<![CDATA[x]]>"),
    *(
        "<",
        "< b",
        "a<3",
        "&amp;",
        "&lt;p&gt;",
        "&copy",
        "&notit;",
        "&#65;",
        "&#128;",
        "&",
        "&#x;",
        "&nosuch;",
    ),
    *(
        "<script>if(a<b){'</p>'}</script>",
        "<script><!--<script>x</script>--></script>",
        "<style>p>a{}</style>",
    ),
    *(
        "<template><p>t</p></template>",
        "<title>t</title>",
        "<textarea>a<b>c</textarea>",
        "<xmp><b>x</b></xmp>",
    ),
    *("<svg><path d=x/><text>s</text></svg>", "<svg><title>s</title></svg>", "<math><mi>x</mi></math>"),
    *("<button>", "</button>", "<object>", "</object>", "<select><option>a<option>b</select>", "</br>"),
    *("<meta name=A content='x&amp;y'>", "<meta property=p name=n content=c>", "<meta itemprop=i content>"),
    *(
        "\r\n",
        "\t",
        "\u00a0",
        "\u3000",
        "<body class=x>",
        "<html lang=x>",
        "</body>",
        "</html>",
        "<p/>",
        "<br/>",
    ),
]


def soup(random: Random, names: list[str]) -> str:
    parts = []
    for number in range(random.randrange(60)):
        parts += random.choices(
            (
                [f"<{random.choice(names)}>"],
                [f"</{random.choice(names)}>"],
                [f"<{random.choice(VOID)}>"],
                [f"<a href=/{number}>"],
                ["</a>"],
                [random.choice(PIECES)],
                [f"word{number}", " "],
            ),
            (25, 20, 5, 10, 8, 10, 22),
        )[0]
    return "".join(parts)


@pytest.mark.parametrize("seed", range(300))
def test_tags_in_any_order_are_read_as_the_standard_says(seed: int) -> None:
    assert_same(soup(Random(seed), BLOCKS + INLINE))


@pytest.mark.parametrize("seed", range(150))
def test_tags_in_any_order_in_tables_lose_nothing(seed: int) -> None:
    assert_same(soup(Random(seed), BLOCKS + INLINE + 4 * TABLE), in_order=False)


def whole_page(random: Random) -> str:
    text = sentences(random.choice(LANGUAGES))
    items = "".join(f"<li><a href='/menu/{number}'>{random.choice(text)}</a>" for number in range(5))
    paragraphs = "".join(
        f"<p class=c{number}>{random.choice(text)} "
        f"<a href='/text/{number}?a=1&amp;b=2'>link</a> & <b>more</b>."
        for number in range(8)
    )
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{text[0]}</title>"
        f'<meta name=description content="{text[-1]}"><script>var a = "<p>";</script></head>'
        f"<body><nav><ul>{items}</ul></nav><main><h1>{text[0]}</h1>{paragraphs}<!-- end --></main>"
        f"<footer>&copy; 2020</footer></body></html>"
    )


def mutated(random: Random, html: str) -> str:
    """Some characters doubled, left out or changed; then it may be cut."""
    chars = list(html)
    for _ in range(random.randrange(1, 12)):
        place = random.randrange(len(chars))
        chars[place : place + 1] = random.choice([[], chars[place] * 2, random.choice("<>/\"'&=-! x")])
    return "".join(chars[: random.choice([len(chars), random.randrange(len(chars))])])


@pytest.mark.parametrize("seed", range(300))
def test_a_page_with_mistakes_is_read_as_the_standard_says(seed: int) -> None:
    random = Random(seed)

    assert_same(mutated(random, whole_page(random)), in_order=False)
