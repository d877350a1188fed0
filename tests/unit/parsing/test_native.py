"""What C code reads from a page is what Python reads from it."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawlproj.parsing import native, nesting, simhash
from crawlproj.parsing.html import Html, TreeHtml

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the C code cannot be built")

ROOT = Path(__file__).parents[3]
LINK_TAGS = ("a", "area", "iframe", "frame", "link")


def everything(page: Html) -> dict[str, object]:
    return {
        "head": page.head(),
        "hrefs": page.hrefs(obey_rel_nofollow=False),
        "followed": page.hrefs(obey_rel_nofollow=True),
        "all": page.text("all", is_last=False),
        "fast": page.text("fast"),
    }


def read_by_c(html: bytes) -> dict[str, object]:
    reader = native.reader()
    assert reader is not None
    return everything(reader.read(html, LINK_TAGS))


def read_by_python(html: bytes) -> dict[str, object]:
    return everything(TreeHtml(html, LINK_TAGS))


# -- pages

PARAGRAPH = "<p>" + "All of it is a sentence that goes on. " * 4 + "</p>"
ODD_PAGES = {
    "nothing": "",
    "a word": "word",
    "a zero byte": "a\0b<a href='x\0y'>c\0</a>",
    "frames": "<frameset><frame src=/f><frame></frameset><noframes><a href=/n>n</a></noframes>",
    "frames in place of a body": "<noembed>x</noembed><title>y</title><frameset><frame src=/f>",
    "a body in a body": "<body lang=x>one<body class=two>two<html lang=en>",
    "white space": "<p>\u00a0 a \t\r\n b\u2003\u3000</p>\u2028<p>\x0b c \x1c</p>\x85<p>d\fe</p> ’ — é \u00a0",
    "nothing but white space": "<p> \n </p><div>\u2003</div>",
    "lines of one sentence": "a<b>b</b>c<!-- x -->d<span></span>e<br>f<img>g<script>h</script>i"
    "<i><style>j</style></i>k",
    "titles": "<svg><title>s</title></svg><title></title><title> a  b<!--c--></title>",
    "titles in titles": "<svg><noscript><title>a<svg><noscript><title>b",
    "metas": "<meta name=a><meta property=b content='c'><p><meta name='' property=d content=e>",
    "bases and canonical URLs": "<base><base href=''><base href=/b><link rel=canonical>"
    "<p><link rel='x Canonical' href=/c>",
    "links": "<a>n</a><a href>e</a><a href=1 rel=NOFOLLOW>1</a><area href=2><iframe src=3></iframe>"
    "<link rel=next href=4><link rel=prev href=5><a href=6 rel='ugc\u00a0nofollow'>6</a><A HREF=7>7</A>",
    "links of pictures": "<svg><a href=1 xlink:href=2>x</a><a xlink:href=3>y<a href=4>z</a></a></svg>",
    "templates": "<template><p>in<a href=/t>t</a><meta name=a content=b></template>out",
    "attributes twice": "<a href=1 href=2 rel=x rel=nofollow>x</a><div class=a class=nav>x</div>",
    "menus": "<div><ul><li><a href=1>One</a><li><a href=2>Two <b>x</b></a></ul>"
    f"{PARAGRAPH}<p>Share this</p></div>",
    "names": f"<div class=sidebar>{PARAGRAPH * 3}</div><div id=post-content>{PARAGRAPH}"
    "<div class='Ad-Banner'>ad</div><p itemprop=Author>me</p><p hidden>no</p><p style='DISPLAY : none'>no</p>"
    "<p role=navigation>no</p></div>",
    "names inside of names": f"<div>{PARAGRAPH * 9}<div class=nav>one"
    f"<div class=tags>{PARAGRAPH}</div></div></div>",
    "names that are long": f"<div class='{'é' * 199}b nav'>{PARAGRAPH}</div>"
    f"<div class='{'x ' * 100}nav'>x</div>",
    "articles and asides": f"<article class=nav>{PARAGRAPH}</article><aside>{PARAGRAPH * 2}</aside>"
    f"<nav>{PARAGRAPH}</nav>",
    "blocks alike": f"<div>{PARAGRAPH}</div><div>{PARAGRAPH}</div><div><div>{PARAGRAPH}</div></div>",
    "paragraphs of the body": PARAGRAPH * 2,
    "headings and forms": f"<div>{PARAGRAPH}<h1>h</h1><h2>i</h2><form>f<label>l</label></form>"
    "<table><td>t</table></div>",
    "mathematics": "<math><mi>x</mi><annotation-xml><p>p</p></annotation-xml></math><p>q",
    "what has no end": "<div class='x><p>text<a href=\"y",
    "formatting that goes on": "<p><b><i>a<p>b</b>c</i><table>d<tr><b>e</table>f",
    "deep": "<div class=nav>" * 3000 + "x" + "</div>" * 3000,
    "links in links": "<svg>" + "<a href=x>y" * 500,
    "blocks of links in links": f"<svg><a>a<desc><a>b<p>b</p></a></desc></a></svg><p>b</p>{PARAGRAPH}",
    "unknown elements": "<x-y class=nav><p>a</p></x-y><foo>b</foo>c",
}


@pytest.mark.parametrize("html", ODD_PAGES.values(), ids=ODD_PAGES)
def test_c_code_reads_odd_pages_as_python_does(html: str) -> None:
    data = html.encode()

    assert read_by_c(data) == read_by_python(data)


def words(text: str) -> list[str]:
    return text.split()


NAMES = words(
    """a a area article b base body br div div form frame h1 head html i iframe img li link meta nav noscript
    p p script section span style svg table td template title ul"""
)
VALUES = words(
    """x nav sidebar post-body share tags é true display:none navigation canonical next nofollow /u?a=1"""
)
ATTRIBUTES = words(
    """class id href src rel style hidden aria-hidden role itemprop name property content lang"""
)
WORDS = ["word", " ", "\n", "&nbsp;", "\u2003", "x" * 45 + ". ", "&lt;", "<!--c-->", "Related", "\f", "日本"]
attribute = st.tuples(st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES)).map('{0[0]}="{0[1]}"'.format)
start = st.builds(
    lambda name, attributes: f"<{name} {' '.join(attributes)}>",
    st.sampled_from(NAMES),
    st.lists(attribute, max_size=3),
)
end = st.sampled_from(NAMES).map("</{}>".format)
soup = st.lists(st.one_of(start, end, st.sampled_from(WORDS), start), max_size=60).map("".join)


@settings(max_examples=400)
@given(soup)
def test_c_code_reads_any_page_as_python_does(html: str) -> None:
    data = html.encode()

    assert read_by_c(data) == read_by_python(data)


@given(st.binary(max_size=300))
def test_c_code_bears_what_is_no_html(data: bytes) -> None:
    text = data.decode("utf-8", "replace").encode()

    assert read_by_c(text) == read_by_python(text)


def test_a_page_leaves_nothing_behind_for_the_next() -> None:
    full, empty = ODD_PAGES["names"].encode(), b"<p>x"

    assert read_by_c(full)["fast"] != ""
    assert read_by_c(empty) == read_by_python(empty)
    assert read_by_c(full) == read_by_python(full)


def test_what_a_large_page_took_is_not_kept_for_the_next() -> None:
    reader = native.reader()
    assert reader is not None
    text_part = reader._parts[native._TEXT]

    reader.read(b"<p>" + b"word " * 1_000_000, ()).text("all")
    assert text_part.room > 4_000_000
    reader.read(b"<p>word", ()).text("all")

    assert text_part.room < 1000


def test_after_a_page_that_took_all_memory_the_next_one_is_read() -> None:
    program = """
import resource
from crawlproj.parsing import native
native.reader()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000, resource.RLIM_INFINITY))
try:
    native.reader().read(b"<p><a href=" + b"x" * 100_000 + b"></p>" + b"<p>x" * 10_000, ())
except (MemoryError, ValueError):
    print(native.reader().read(b"<title>next</title>", ()).head().title)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert told.stdout.split() == ["next"]


def test_every_thread_reads_pages_of_its_own() -> None:
    pages = [f"<title>{number}</title>{PARAGRAPH * number}".encode() for number in range(1, 5)]
    differ: list[int] = []

    def read(number: int) -> None:
        differ.extend(number for _ in range(50) if read_by_c(pages[number]) != expected[number])

    expected = [read_by_python(page) for page in pages]
    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert differ == []


# -- texts and tags


pieces = st.sampled_from(["a", "b", "word", "é", " ", "\n", "\x0b", "\x1c", "\u00a0", "ab", "日本語"])


@given(st.lists(pieces).map("".join))
@example("a b " * 30_000)
@example("日本語" * 50)
def test_c_code_finds_the_same_simhash(text: str) -> None:
    assert simhash.simhash(text) == simhash.simhash(text, fast=False)


TAGS = b"<div>|</div>|<b>|</B>|<p x>|<i|</i |<x-y/>|</x-y>|<|</|<td\n>".split(b"|")


@given(st.lists(st.sampled_from(TAGS), max_size=400).map(b"".join), st.integers(1, 30))
def test_c_code_finds_the_same_depth(html: bytes, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_MOST_DEPTH", most)

        assert nesting.is_deep(html) == nesting.is_deep(html, fast=False)


# -- where it cannot be had


@pytest.fixture
def _forgotten() -> Iterator[None]:
    native._library.cache_clear()
    yield
    native._library.cache_clear()


@pytest.mark.usefixtures("_forgotten")
def test_without_the_library_python_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "_LIBRARY", tmp_path / "libpage.so")

    with caplog.at_level(logging.INFO):
        assert native.reader() is None

    assert "`make` builds" in caplog.text


@pytest.mark.usefixtures("_forgotten")
def test_a_lexbor_that_was_never_tried_is_not_lent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("selectolax.lexbor.LEXBOR_VERSION_MINOR", 99)

    assert native.reader() is None

    assert "99" in caplog.text


@pytest.mark.usefixtures("_forgotten")
def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "_VERSION", native._VERSION + 1)

    assert native.reader() is None

    assert "run make" in caplog.text


@pytest.mark.usefixtures("_forgotten")
def test_a_library_that_cannot_be_loaded_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "libpage.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(native, "_LIBRARY", broken)

    assert native.reader() is native.reader() is None

    assert caplog.text.count(str(broken)) >= 1
    assert len(caplog.records) == 1
