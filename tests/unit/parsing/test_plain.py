"""Pages where the reader could not be built: a library reads them."""

from __future__ import annotations

import logging
import sys

import pytest

import crawlproj.parsing
from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.parsing import html
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.head import Head
from crawlproj.parsing.html import read_html, simhash_of

SENTENCE = "The river rose in the night, and by the morning nobody in the village could cross it any more."
PAGE = f"""<!doctype html><html lang=en><head><title>A &amp; B</title><base href="/b/">
<meta name=Description content="short"><meta property=og:type content=article>
<meta http-equiv=refresh content=5><link rel=canonical href=/c><link rel=next href=/2>
<script type="application/ld+json">{{"a": 1}}</script></head>
<body><nav><a href=/menu>menu</a></nav><article><h1>Flood</h1><time datetime=2020-01-05 class=d>then</time>
<a rel=author href=/ada>Ada</a><p>{SENTENCE}</p><p>{SENTENCE}</p><p>{SENTENCE}</p>
<a rel=nofollow href=/no>no</a><map><area href=/area></map></article></body></html>""".encode()


@pytest.fixture(autouse=True)
def _not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_reader", None)


def test_what_a_page_says_of_itself_is_read() -> None:
    found = read_html(PAGE, Config(headings=True)).head

    assert found == Head(
        title="A & B",
        metas=[("description", "short"), ("og:type", "article"), ("http-equiv:refresh", "5")],
        base="/b/",
        canonical="/c",
        language="en",
        json_ld=['{"a": 1}'],
        times=[("2020-01-05", "d ")],
        bylines=["Ada"],
        headings=[(1, "Flood")],
    )


def test_links_are_found() -> None:
    assert read_html(PAGE).hrefs == ["/menu", "/ada", "/area"]
    assert read_html(PAGE, Config(link_tags=("link", "a"), obey_rel_nofollow=False)).hrefs == [
        *("/2", "/menu", "/ada", "/no")
    ]
    assert read_html(PAGE, Config(link_tags=())).hrefs == []


def test_main_and_all_text_are_found() -> None:
    main, everything = read_html(PAGE, Config(full_text=True)), read_html(PAGE, Config(text="all"))

    assert main.text.count(SENTENCE) == 3
    assert "menu" not in main.text
    assert (main.text_source, everything.text_source) == ("main", "all")
    assert everything.text.split() == (main.full_text or "").split()
    assert "menu" in everything.text
    assert everything.full_text is None


@pytest.mark.parametrize("body", [b"", b"<p>", b"\xff\xfe\0", b"<div>" * 3000, b"<frameset><frame src=/f>"])
def test_a_page_without_words_has_no_text(body: bytes) -> None:
    found = read_html(body.replace(b"\xff\xfe", b""))

    assert (found.text.strip("\0"), found.head.title) == ("", "")


def test_a_page_is_extracted_as_a_whole() -> None:
    page = Page("http://a.test/", "web", "a.test", 0, 200, 0, 0, {"Content-Type": "text/html"}, PAGE)

    found = extract(page, ExtractOptions(Config()))

    assert (found.title, found.canonical_url, found.simhash) == ("A & B", "http://a.test/c", None)
    assert found.links == ["http://a.test/menu", "http://a.test/ada", "http://a.test/area"]
    assert SENTENCE in (found.text or "")


def test_it_is_said_once_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "crawlproj.parsing._reader", None)
    monkeypatch.delattr(crawlproj.parsing, "_reader", raising=False)

    with caplog.at_level(logging.WARNING):
        assert html._import_reader() is None
        read_html(PAGE)
        simhash_of("some words")

    [record] = caplog.records
    assert "Install a C compiler" in record.getMessage()
