"""The contract of the HTML reader: what becomes of each part of a page."""

from __future__ import annotations

import ctypes
import gc
import html.entities
import random
import resource
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.config import Config
from crawlproj.parsing import _reader
from crawlproj.parsing.head import Head, Html
from crawlproj.parsing.html import read_html

ROOT = Path(__file__).parents[3]
SENTENCE = "The river rose in the night, and by the morning nobody in the village could cross it any more."
ARTICLE = "".join(f"<p>{SENTENCE} Day {day}.</p>" for day in range(6))


def text_of(markup: str) -> str:
    return read_html(markup.encode(), Config(text="all")).text


def head_of(markup: str) -> Head:
    return read_html(markup.encode(), Config(headings=True)).head


def hrefs_of(markup: str, *link_tags: str, obey_rel_nofollow: bool = True) -> list[str]:
    return read_html(
        markup.encode(), Config(link_tags=link_tags or ("a", "area"), obey_rel_nofollow=obey_rel_nofollow)
    ).hrefs


# -- lines


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>one<p>two<div>three</div>four", "one\ntwo\nthree\nfour"),
        ("<ul><li>one<li>two<ul><li>three</ul></ul>four", "one\ntwo\nthree\nfour"),
        ("<dl><dt>one<dd>two<dt>three</dl>", "one\ntwo\nthree"),
        ("<h1>one</h1>two<h2>three</h2>", "one\ntwo\nthree"),
        ("th<b>re</b>e <i>w<u>or</u>ds</i><span>!</span>", "three words!"),
        ("one <!-- no -->two<!---->three", "one twothree"),
        ("one<img>two<wbr>three", "onetwothree"),
        ("one<script>x</script>two<style>y</style>", "onetwo"),
        ("  one \n\t two&nbsp;&nbsp;\u00a0three\f\r\nfour  ", "one two three four"),
        ("one <b> two </b> three", "one two three"),
        ("<p> </p><div>\n</div>", ""),
        ("<x-card>one</x-card><x-card>two</x-card>", "one\ntwo"),
        ("<select><option>one<option>two</select><button>three</button>", "one\ntwo\nthree"),
        ("one<hr>two", "one\ntwo"),
        ("one <svg><g><path d=x></path></g></svg>two", "one two"),
        ("<math><mi>x</mi><mo>=</mo><mn>1</mn></math>", "x=1"),
        ("one\0two", "onetwo"),
        ("שלום <b>עולם</b>", "שלום עולם"),
        ("日本<b>語</b>の<ruby>漢<rt>kan</rt></ruby>", "日本語の漢kan"),
    ],
)
def test_blocks_end_lines_and_nothing_else_does(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("one<br>two", "one\ntwo"),
        ("one<br> <br/>two</br>three", "one\ntwo\nthree"),
        ("<br>one<br><p>two", "one\ntwo"),
        ("one <br> two", "one\ntwo"),
        ("one<b><br></b>two", "one\ntwo"),
    ],
)
def test_a_break_ends_a_line_and_leaves_no_empty_one(markup: str, text: str) -> None:
    assert text_of(markup) == text


def test_two_breaks_part_what_one_break_keeps_together() -> None:
    lines, _, _ = _reader.inspect(b"one<br>two<br><br>three<br>four")

    assert [text for text, _ in lines] == ["one\ntwo", "three\nfour"]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<table><tr><td>a<td>b<tr><th>c</th><td>d</table>e", "a\tb\nc\td\ne"),
        (
            "<table><caption>t</caption><thead><tr><th>a<th>b</thead><tbody><tr><td>c<td>d</table>",
            "t\na\tb\nc\td",
        ),
        ("<table><tr><td>a<td><table><tr><td>b<td>c</table><td>d</table>", "a\nb\tc\nd"),
        ("<table><tr><td>a<td><td>b</table>", "a\tb"),
        ("<table><tr><td><p>a<p>b<td>c</table>", "a\nb\nc"),
    ],
)
def test_a_row_of_a_table_is_a_line_with_tabs_between_its_cells(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("<li class=one>", "<li>"), ("<p class=one>", "<p>"), ("<p class=one>", "<div>")),
        *(("<dt class=one>", "<dd>"), ("<dd class=one>", "<dt>"), ("<h1 class=one>", "<h2>")),
        *(
            ("<option class=one>", "<option>"),
            ("<button class=one>", "<button>"),
            ("<p class=one>", "<table>"),
        ),
        *(("<table><td class=one>", "<td>"), ("<table><tr class=one><td>", "<tr><td>")),
        *(("<table><tbody class=one><td>", "<tfoot><td>"), ("<svg class=one>", "<p>")),
    ],
)
def test_a_start_tag_ends_the_elements_that_it_cannot_be_in(before: str, after: str) -> None:
    lines, _, _ = _reader.inspect(f"{before}first{after}second".encode())

    names = {text: [name for name, _ in around] for text, around in lines}
    assert names["second"] == []
    assert names.get("first", ["one"]) == ["one"]  # that of a picture is none


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<pre>\n\n  a\n    b  \n\n\n</pre>c", "  a\n    b\nc"),
        ("<pre>  <b>def</b> f():\n      <i>pass</i>\r\n\n\nx</pre>", "  def f():\n      pass\n\n\nx"),
        ("<pre><code>a <span> b</span>\n\tc</code></pre>", "a  b\n\tc"),
        ("<textarea>\n a\n  b</textarea>", " a\n  b"),
        ("<pre>a<br>b</pre>", "a\nb"),
        ("<p>a</p><pre> \n </pre><p>b", "a\nb"),
        ("<code>a \n b</code>", "a b"),
    ],
)
def test_code_keeps_its_lines_and_indentation(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize(
    "markup",
    [
        *("<script>no</script>", "<style>no</style>", "<template>no</template>", "<title>no</title>"),
        *("<iframe>no</iframe>", "<noembed>no</noembed>", "<noframes>no</noframes>"),
        *("<svg><text>no</text></svg>", "<svg><![CDATA[<p>no]]></svg>", "<svg><style>no</style></svg>"),
        *(
            "<noscript>no</noscript>",
            "<span hidden>no</span>",
            "<b><span style='Display : NONE'>no</span></b>",
        ),
        *('<span class="x sr-only">no</span>', "<!-- no -->", "<?no?>", "<!no>", "</no>", "</ no>"),
        "<script><!--<script>no</script>no--></script>",
    ],
)
def test_invisible_content_is_not_text(markup: str) -> None:
    assert text_of(f"<p>seen {markup}again") == "seen again"


# -- characters


def test_every_named_character_is_known() -> None:
    names = html.entities.html5
    whole = [name for name in names if name.endswith(";")]
    found = []
    for start in range(0, len(whole), 400):  # a page has 500 metas at most
        markup = "".join(f'<meta name=a content="&{name}">' for name in whole[start : start + 400])
        found += [content for _, content in head_of(markup).metas]

    assert found == [names[name] for name in whole]
    assert [name for name in names if letters_of(f"x&{name} ") != "x" + "".join(names[name].split())] == []


def letters_of(markup: str) -> str:
    return "".join(text_of(markup).split())


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("&#65;&#x42;&#X43;&#00068", "ABCD"),
        ("&#128;&#x92;&#150;", "€’–"),
        ("&#0;&#xD800;&#x110000;&#99999999999999;", "\ufffd" * 4),
        ("&notit; &notin; &amp &ampx", "¬it; ∉ & &x"),
        ("&nosuch; & &# &#x; &;", "&nosuch; & &# &#x; &;"),
        ("&am<b>p;</b>", "&amp;"),
    ],
)
def test_references_to_characters_are_resolved_as_in_browsers(markup: str, text: str) -> None:
    assert text_of(markup) == text


def test_a_parameter_in_a_query_is_not_an_entity() -> None:
    assert hrefs_of('<a href="/?a&copy=1&reg2&amp;b&copy">x</a>') == ["/?a&copy=1&reg2&b©"]


@pytest.mark.parametrize(
    "body", [b"a\xff\xfe", b"\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"<a href=\xff>\xc3("]
)
def test_bytes_that_are_not_utf8_are_replaced(body: bytes) -> None:
    found = read_html(body, Config(text="all"))

    assert "\ufffd" in found.text + "".join(found.hrefs)


# -- what a page says of itself


def test_the_declarations_of_a_page_are_read() -> None:
    head = head_of(
        """<!doctype html><html lang=en-GB><head><base href="/b/"><base href="/late/">
        <title> A &amp; B </title><title>late</title>
        <link rel="alternate canonical" href="/c?a&amp;b"><link rel=canonical href=/late>
        <script type="application/ld+json">{"a": "&amp;"}</script><script>x</script>
        <script type='application/ld+json; charset=utf-8'>2</script></head>
        <body lang=de><h1> One <b>two</b></h1><h6>six</h6>
        <time datetime="2020-01-05" class="d e" itemprop=datePublished>yesterday</time><time> today </time>
        By <a rel="author" href="/ada">Ada L.</a>, <span class="post-author">Bob</span>
        <div itemprop=author>Cyd</div></body></html>"""
    )

    assert head == Head(
        title="A & B",
        base="/b/",
        canonical="/c?a&b",
        language="en-GB",
        json_ld=['{"a": "&amp;"}', "2"],
        times=[("2020-01-05", "d e datePublished"), ("today", " ")],
        bylines=["Ada L.", "Bob", "Cyd"],
        headings=[(1, "One two"), (6, "six")],
    )


def test_a_meta_is_named_by_its_property_then_name_then_itemprop_then_http_equiv() -> None:
    head = head_of(
        """<meta http-equiv=d itemprop=c name=b property=a content=1>
        <meta http-equiv=d itemprop=c name=b content=2><meta http-equiv=d itemprop=C content=3>
        <meta http-equiv=" Refresh " content=4><meta name=x><meta content=y>
        <p><meta name=z content=" &amp; ">"""
    )

    assert head.metas == [("a", "1"), ("b", "2"), ("c", "3"), ("http-equiv:refresh", "4"), ("z", " & ")]


def test_what_stands_in_a_template_or_a_picture_says_nothing_of_the_page() -> None:
    inside = "<title>no</title><meta name=a content=b><base href=/b><a href=/t>x</a><h1>no</h1>"

    found = read_html(
        f"<template>{inside}</template><svg><title>no</title></svg>".encode(), Config(headings=True)
    )

    assert (found.head, found.hrefs, found.text) == (Head(), [], "")


def test_marks_end_where_their_text_does_even_if_space_behind_it_is_dropped() -> None:
    head = head_of("<pre>a<time> x \n </time>\n\n</pre>next line<pre><h2>\n y  </h2></pre>more")

    assert (head.times, head.headings) == ([("x", " ")], [(2, "y")])


def test_headings_are_there_only_if_wanted() -> None:
    assert read_html(b"<h1>x</h1>").head.headings == []


# -- links


def test_links_are_those_of_the_elements_wanted() -> None:
    markup = (
        "<a href=/a>a</a><area href=/area><iframe src=/iframe></iframe><frame src=/frame>"
        "<link rel='x NEXT' href=/next><link rel=prev href=/prev><a>none</a><a href=''>none</a>"
    )

    assert hrefs_of(markup) == ["/a", "/area"]
    assert hrefs_of(markup, "iframe", "frame", "link") == ["/iframe", "/frame", "/next"]
    assert hrefs_of(markup, "a", "area", "iframe", "frame", "link") == [
        *("/a", "/area", "/iframe", "/frame", "/next")
    ]


def test_links_that_say_nofollow_are_left_out_if_that_is_obeyed() -> None:
    markup = (
        "<a href=/1 rel='ugc NoFollow'>x</a><a href=/2 rel=nofollowed>x</a><link rel='next nofollow' href=/3>"
    )

    assert hrefs_of(markup, "a", "link") == ["/2"]
    assert hrefs_of(markup, "a", "link", obey_rel_nofollow=False) == ["/1", "/2", "/3"]


def test_links_are_found_wherever_they_are() -> None:
    markup = (
        "<noscript><a href=/1>x</a></noscript><div hidden><a href=/2>x</a></div><svg><a href=/3>x</a></svg>"
        "<table><a href=/4>x<tr><a href=/5>y</table><a href=/6 href=/no><a href='/7\0'>"
    )

    assert hrefs_of(markup) == ["/1", "/2", "/3", "/4", "/5", "/6", "/7\ufffd"]


def test_the_end_of_a_truncated_page_is_not_a_link() -> None:
    assert hrefs_of("<a href=/1>x</a><a href=/2") == hrefs_of('<a href=/1>x</a><a href="/2>y</a>') == ["/1"]


# -- texts


def test_all_text_is_there_only_if_wanted() -> None:
    assert read_html(b"<p>x", Config(text="all")).full_text is None
    assert read_html(b"<p>x").full_text is None
    assert read_html(b"<p>x", Config(full_text=True)).full_text == "x"
    assert read_html(b"<p>x", Config(text="all", full_text=True)).full_text == "x"


@pytest.mark.parametrize(
    "page",
    [
        f"<nav><ul>{{menu}}</ul></nav><main><h1>Flood</h1>{ARTICLE}</main><footer>{{menu}}</footer>",
        f"<div class=menu>{{menu}}</div><div class=content>{ARTICLE}</div><div class=footer>{{menu}}</div>",
        # No paragraphs at all.
        f"<div id=nav>{{menu}}</div><div>{ARTICLE.replace('<p>', '').replace('</p>', '<br><br>')}</div>",
        # AMP.
        f"<amp-sidebar><ul>{{menu}}</ul></amp-sidebar><article><amp-img></amp-img>{ARTICLE}</article>",
        # For printers.
        f"<body><h1>Flood</h1>{ARTICLE}</body>",
        f"<div class=cookie-consent><p>We use cookies.<button>Accept</button></div><main>{ARTICLE}</main>",
        f"<table><tr><td>{{menu}}</td><td>{ARTICLE}</td></tr></table>",
        f"<div dir=rtl>{{menu}}</div><article lang=he>{ARTICLE}</article>",
    ],
)
def test_main_text_is_the_whole_article_and_no_menu(page: str) -> None:
    menu = "".join(f"<li><a href=/{name}>{name}</a></li>" for name in ("Home", "Sports", "Weather", "Login"))

    found = read_html(page.format(menu=menu).encode())

    assert [line for line in text_of(ARTICLE).split("\n") if line not in found.text] == []
    assert [name for name in ("Sports", "Weather", "Login", "Accept") if name in found.text] == []
    assert found.text_source == "main"


@pytest.mark.parametrize(
    "markup", ["", " ", "<p>", "<script>x</script>", "<!--", "<svg><x/>", "\0", "<title>t"]
)
def test_a_page_without_words_has_no_text(markup: str) -> None:
    found = read_html(markup.encode(), Config(full_text=True))

    assert (found.text, found.text_source, found.full_text) == ("", None, "")


@pytest.mark.parametrize(
    "markup", ["word", "<p>word", "<ul><li><a href=/>word</a>", "<footer>word", "<div hidden>word"]
)
def test_a_page_of_any_word_has_a_text(markup: str) -> None:
    found = read_html(markup.encode())

    assert found.text == "word"
    assert found.text_source in ("main", "relaxed", "all")


def test_what_stands_in_noscript_is_the_text_of_a_page_that_has_no_other() -> None:
    found = read_html(b"<body><noscript><p>Turn on</p><p>scripts.</p></noscript><script>x</script>")

    assert (found.text, found.text_source) == ("Turn on scripts.", "noscript")


# -- limits


def test_a_page_of_too_many_lines_keeps_all_its_text() -> None:
    found = read_html(b"<p>x" * 150_000, Config(text="all")).text

    assert found == "\n".join("x" * 150_000)


def test_every_feature_of_a_line_is_a_number() -> None:
    markup = f"<h1>T</h1><table><tr><td>1<td>2</table><pre> a</pre>{ARTICLE}<p hidden>x<svg><desc>y"

    lines, of_page, of_lines = _reader.inspect(markup.encode())

    assert len(of_page) == 4 * _reader.PAGE_FEATURES
    assert len(of_lines) == 4 * _reader.LINE_FEATURES * len(lines)
    numbers = struct.unpack(f"{len(of_lines) // 4}f", of_lines)
    assert all(-1 < number < 10 for number in numbers)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(body: bytes) -> None:
    found = read_html(body, Config(full_text=True, headings=True))

    assert isinstance(found, Html)


def test_a_page_leaves_nothing_behind_for_the_next() -> None:
    page = b"<html lang=x><title>t</title><base href=/b><meta name=a content=b><a rel=author href=/x>A<pre>x"
    small = read_html(b"<p>x", Config(full_text=True, headings=True))

    read_html(page, Config(full_text=True, headings=True))

    assert read_html(b"<p>x", Config(full_text=True, headings=True)) == small
    assert small.head == Head()


def test_a_page_read_during_garbage_collection_does_not_get_into_another() -> None:
    page = ("".join(f"<meta name=n{n} content=c{n}>" for n in range(400)) + ARTICLE).encode()
    expected = read_html(page)
    thresholds = gc.get_threshold()

    def read_another(phase: str, info: dict[str, int]) -> None:
        read_html(b"<title>other</title>")

    gc.callbacks.append(read_another)
    gc.set_threshold(1)
    try:
        found = [read_html(page) for _ in range(20)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(read_another)

    assert found == [expected] * 20
    assert gc.isenabled()


def test_threads_read_pages_of_their_own() -> None:
    pages = [
        f"<title>{number}</title>{ARTICLE * number}<a href=/{number}>".encode() for number in range(1, 5)
    ]
    expected = [read_html(page) for page in pages]
    differ: list[int] = []

    def read(number: int) -> None:
        differ.extend(number for _ in range(200) if read_html(pages[number]) != expected[number])

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert differ == []


def test_a_page_read_while_links_are_judged_does_not_get_into_them() -> None:
    def is_canonical(origin: str) -> bool:
        read_html(b"<a href=/other>x" * 1000)
        return origin != "http://no.test"

    def clean(url: str) -> str:
        read_html(b"<p>other" * 200_000)
        return url

    hrefs = ["http://b.test/x", "http://no.test/x", "/y", "z?q=1", "http://c.test/?q", "javascript:x"]
    found = _reader.plain_links(hrefs, "http://a.test", "http://a.test/dir/", is_canonical, clean)

    assert found == [
        *("http://b.test/x", None, "http://a.test/y", "http://a.test/dir/z?q=1", "http://c.test/?q", None)
    ]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_reading_pages_keeps_no_memory() -> None:
    chosen = random.Random(1)
    names = ["p", "a href=/x", "b", "table", "td", "time", "h1", "span class=byline", "meta name=a content=b"]
    pages = [
        "".join(f"<{chosen.choice(names)}>word{chosen.random()}" for _ in range(50)).encode()
        for _ in range(50)
    ]

    def read_all(times: int) -> None:
        for _ in range(times):
            for page in pages:
                read_html(page, Config(full_text=True, headings=True))

    read_all(20)
    gc.collect()
    before = resident_bytes()
    read_all(100)
    gc.collect()

    assert resident_bytes() - before < 1_000_000


def test_the_memory_of_a_large_page_is_freed() -> None:
    trim = ctypes.CDLL(None).malloc_trim
    read_html(b"<p>x")
    trim(0)
    before = resident_bytes()

    for large in (b"<p>x" * 200_000, b"<a href=x>" * 400_000, b"<p>" + b"word " * 2_000_000):
        read_html(large, Config(link_tags=()))
    del large
    trim(0)

    assert resident_bytes() - before < 4_000_000


def test_no_reference_is_kept_or_lost() -> None:
    page = b"<title>some title</title><a href=/link>x</a><meta name=a content=b>"
    read_html(page)
    before = sys.getrefcount(page)

    found = [read_html(page) for _ in range(100)]
    of_page, of_title = sys.getrefcount(page), sys.getrefcount(found[0].head.title)
    of_hrefs, of_href = sys.getrefcount(found[0].hrefs), sys.getrefcount(found[0].hrefs[0])

    assert of_page == before
    # What holds it, and the call that counts.
    assert (of_title, of_hrefs, of_href) == (2, 2, 2)


LITTLE_MEMORY = """
import resource
from crawlproj.config import Config
from crawlproj.parsing.html import plain_links, read_html, simhash_of
pages = [
    b"<p>x" * 600_000, b"<p>" + b"word " * 4_000_000, b"<a href=xxxxxxxxx>" * 900_000, b"<p>" * 2_000_000
]
text = "word " * 6_000_000
full, everything = Config(full_text=True), Config(text="all")
read_html(b"<title>first</title>")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for megabytes in (2, 5, 10, 20, 40, 60):
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 1_000_000, resource.RLIM_INFINITY))
    for page in pages:
        try:
            read_html(page, full)
            print("read")
        except MemoryError:
            print("failed")
            assert plain_links(["/x"], "http://a.test", "http://a.test/", bool, str) == ["http://a.test/x"]
        assert read_html(b"<title>next</title><p>one<p>two", everything).text == "one\\ntwo"
        assert read_html(b"<title>next</title>").head.title == "next"
    try:
        simhash_of(text)
    except MemoryError:
        pass
"""


def test_a_page_for_which_memory_does_not_suffice_fails_and_the_next_one_is_read() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LITTLE_MEMORY], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ended.stderr == ""
    assert ended.stdout.split().count("failed") > 10


def test_a_page_that_is_too_large_for_its_numbers_is_refused() -> None:
    page = bytes((1 << 30) + 1)  # of memory that is never touched

    with pytest.raises(ValueError, match="1073741825 bytes cannot be read: give at most 1073741824"):
        read_html(page)
