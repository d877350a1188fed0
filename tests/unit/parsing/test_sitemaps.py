from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.urls import UrlRules
from crawlproj.parsing.sitemaps import Sitemap, read_sitemap

URL = "https://www.a.test/maps/sitemap.xml"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def read(
    body: bytes | str, *, most_urls: int = 100, most_bytes: int = 1_000_000, is_cut: bool = False
) -> Sitemap:
    data = body.encode() if isinstance(body, str) else body
    return read_sitemap(data, URL, UrlRules(), most_urls=most_urls, most_bytes=most_bytes, is_cut=is_cut)


def urlset(*locs: str) -> str:
    entries = "".join(f"<url>\n<loc>{loc}</loc><lastmod>2024-01-01</lastmod></url>" for loc in locs)
    return f"{HEAD}<urlset {NAMESPACE}>{entries}</urlset>"


@pytest.mark.parametrize(
    "body",
    [
        urlset("https://a.test/1", "https://www.a.test/2"),
        "<urlset><url><loc>https://a.test/1</loc></url><url><loc>https://www.a.test/2</loc></url></urlset>",
        '<sm:urlset xmlns:sm="x"><sm:url><sm:loc>https://a.test/1</sm:loc><sm:loc >https://www.a.test/2</sm:loc>',
        f"{HEAD}<rss><channel><link>https://a.test/1</link><item><link><![CDATA[https://www.a.test/2]]></link>",
        '<rdf:RDF xmlns="x"><item><link>https://a.test/1</link></item><link> https://www.a.test/2 </link>',
        (
            '<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="https://a.test/feed"/>'
            "<entry><link href='https://a.test/1'/><link rel='alternate' type='x' href='https://www.a.test/2'/>"
            '<link href="https://a.test/x.mp3" rel="enclosure"/></entry></feed>'
        ),
        (
            '<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:link href="https://a.test/1"/>'
            '<a:link href="https://www.a.test/2"/>'
        ),
        "https://a.test/1\nhttps://www.a.test/2",
        "\n  https://a.test/1\r\n# a note\r\n\r\nhttps://www.a.test/2\r\n",
        "https://a.test/1\rHTTPS://www.a.test/2\r",
    ],
    ids=["XML", "no namespace", "prefix", "RSS 2", "RSS 1", "Atom", "Atom prefix", "text", "CRLF", "CR"],
)
def test_the_urls_of_every_kind_of_sitemap_are_read(body: str) -> None:
    assert read(body) == Sitemap(["https://a.test/1", "https://www.a.test/2"], [])


def test_an_index_names_sitemaps_and_no_pages() -> None:
    body = f"{HEAD}<sitemapindex {NAMESPACE}><sitemap><loc>https://a.test/one.xml.gz</loc></sitemap>"

    assert read(body) == Sitemap([], ["https://a.test/one.xml.gz"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_and_xml_are_read_in_unicode_s_encodings(encoding: str) -> None:
    assert read("https://a.test/ä".encode(encoding)).urls == ["https://a.test/%C3%A4"]
    assert read(urlset("https://a.test/ä").encode(encoding)).urls == ["https://a.test/%C3%A4"]


@pytest.mark.parametrize(
    ("loc", "url"),
    [
        (" \n https://a.test/x\n ", "https://a.test/x"),
        ("<![CDATA[ https://a.test/x?a=1&b=2 ]]>", "https://a.test/x?a=1&b=2"),
        ("https://a.test/x?a=1&amp;b=2", "https://a.test/x?a=1&b=2"),
        ("https://a.test/x?a=1&b=2", "https://a.test/x?a=1&b=2"),
        ("https://a.test/?a&copy=1&lt=2", "https://a.test/?a&copy=1&lt=2"),
        ("https://a.test/&#x41;&#66;&apos;", "https://a.test/AB'"),
        ("https://a.test/&#xD800;&#9999999;", "https://a.test/%EF%BF%BD%EF%BF%BD"),
        ("HTTPS://A.test:443/./x#top", "https://a.test/x"),
        ("/x", "https://www.a.test/x"),
        ("https://a.test/x?utm_source=map", "https://a.test/x"),
    ],
)
def test_an_entry_is_made_a_canonical_url(loc: str, url: str) -> None:
    assert read(urlset(loc)).urls == [url]


def test_a_sitemap_speaks_only_for_its_own_site() -> None:
    theirs = ["https://b.test/", "https://a.test.b.test/", "https://xa.test/", "http://127.0.0.1/"]

    assert read(urlset(*theirs, "http://shop.a.test/mine")).urls == ["http://shop.a.test/mine"]
    assert read(urlset(*theirs).replace("urlset", "sitemapindex")).sitemaps == []


def test_pictures_films_and_what_is_commented_out_are_not_pages() -> None:
    body = (
        "<!-- <urlset> --><urlset><!-- <url><loc>https://a.test/old</loc></url> --><url>"
        "<loc>https://a.test/1</loc><image:image><image:loc>https://a.test/1.png</image:loc></image:image>"
        "<video:player_loc>https://a.test/film</video:player_loc></url><!-- <url><loc>https://a.test/2</loc>"
    )

    assert read(body).urls == ["https://a.test/1"]


def test_broken_xml_is_read_as_far_as_it_goes() -> None:
    body = f"{HEAD}<urlset><url><loc>https://a.test/1</wrong></url>&<url><loc><loc>https://a.test/2</url>< \0"

    assert read(body).urls == ["https://a.test/1", "https://a.test/2"]


@pytest.mark.parametrize(
    "body",
    ["", "  ", "words", "\0\1", "{}", "<html><a href='https://a.test/'>", "<", "<!--", "<x><loc>/y</loc>"],
)
def test_other_xml_lists_no_sitemap_urls(body: str) -> None:
    assert read(body) == Sitemap([], [])


@pytest.mark.parametrize(
    "body", [urlset("https://a.test/1", "https://a.test/23"), "/\nhttps://a.test/1\nhttps://a.test/23"]
)
def test_a_truncated_entry_is_not_a_url(body: str) -> None:
    cut = body[: body.index("/23") + 2]

    assert read(cut, is_cut=True) == Sitemap(["https://a.test/1"], [])


def test_no_more_entries_than_wanted_are_read_and_it_is_said() -> None:
    body = urlset(*(f"https://a.test/{number}" for number in range(5)))

    assert read(body, most_urls=5) == Sitemap([f"https://a.test/{n}" for n in range(5)], [])
    assert read(body, most_urls=2) == Sitemap(["https://a.test/0", "https://a.test/1"], [])


def test_a_gzip_file_is_inflated_and_no_further_than_wanted() -> None:
    plain = urlset("https://a.test/1", "https://a.test/2")
    body = gzip.compress(plain.encode())

    assert read(body) == Sitemap(["https://a.test/1", "https://a.test/2"], [])
    assert read(body, most_bytes=plain.index("/2")) == Sitemap(["https://a.test/1"], [])


def test_no_entity_is_expanded_or_fetched() -> None:
    entities = '<!DOCTYPE x [<!ENTITY a "https://a.test/a"><!ENTITY f SYSTEM "file:///etc/passwd">]>'

    assert read(f"{HEAD}{entities}<urlset><loc>&a;</loc><loc>/&f;</loc>").urls == [
        "https://www.a.test/maps/&a;",
        "https://www.a.test/&f;",
    ]


PARTS = [
    b"<urlset>",
    b"<feed >",
    b"<loc>",
    b"<link ",
    b"href='",
    b"<![CDATA[",
    b"]]>",
    b"<!--",
    b"-->",
    b"</",
    b"&#x;",
    b"\n",
]


@given(st.lists(st.sampled_from(PARTS) | st.just(b"http://a.test/") | st.binary(max_size=4), max_size=30))
def test_any_bytes_are_read_without_an_error_and_give_urls_of_the_site(parts: list[bytes]) -> None:
    found = read(b"".join(parts))

    assert all(".a.test/" in url or "//a.test/" in url for url in found.urls + found.sitemaps)
