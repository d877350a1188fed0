from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.feeds import feed_links

RSS = """<?xml version="1.0"?><!-- <rss><link>no</link> --><?xml-stylesheet href="x"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>T</title>
<atom:link href="https://a.test/feed" rel="self"/><link>https://a.test/</link>
<item><title>1</title><link>https://a.test/1?a=1&amp;b=2</link>
<guid isPermaLink="false">https://a.test/?p=1</guid><comments>https://a.test/1#c</comments>
<description><![CDATA[<link>https://no.test/</link> <a href="x">]]></description></item>
<item><link><![CDATA[ https://a.test/2 ]]></link><guid>tag:a.test,2</guid></item>
<item><guid isPermaLink="true">https://a.test/3</guid><enclosure url="https://a.test/3.mp3"/></item>
<item><guid>https://a.test/4</guid></item>
</channel></rss>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<channel rdf:about="https://a.test/feed"><link>https://a.test/</link></channel>
<item rdf:about="https://a.test/1"><link>https://a.test/1</link></item></rdf:RDF>"""
ATOM = """\ufeff<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="https://a.test/feed"/>
<link href='https://a.test/'/><entry><link rel="alternate" href="https://a.test/1?a=1&#38;b=2"/>
<link rel='enclosure' href='https://a.test/1.mp3'/><link rel="replies" href="https://a.test/1/c"/>
<content type="html">&lt;link href="no"/></content></entry>
<entry><link href="2"/></entry></feed>"""
JSON = """{"version": "https:\\/\\/jsonfeed.org\\/version\\/1.1", "home_page_url": "https://a.test/",
"items": [{"id": 1, "url": "https://a.test/1", "external_url": "https://b.test/"}, {"url": null}]}"""


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (RSS, ["https://a.test/", "https://a.test/1?a=1&b=2", "https://a.test/2", "https://a.test/3", "https://a.test/4"]),
        (RDF, ["https://a.test/", "https://a.test/1"]),
        (ATOM, ["https://a.test/", "https://a.test/1?a=1&b=2", "2"]),
        (JSON, ["https://a.test/1", "https://b.test/"]),
        ('<a:feed xmlns:a="x"><a:link href="1"/><link href="2"/>', ["1"]),
    ],
    ids=["RSS", "RDF", "Atom", "JSON", "prefix"],
)  # fmt: skip
def test_the_links_of_every_kind_of_feed_are_read(markup: str, expected: list[str]) -> None:
    assert feed_links(markup) == expected


def test_relative_links_of_atom_are_those_of_its_base() -> None:
    feed = "<feed xml:base='https://a.test/on/'><link href='./'/><entry><link href='When/1'/></entry></feed>"

    assert feed_links(feed) == ["https://a.test/on/", "https://a.test/on/When/1"]


@pytest.mark.parametrize(
    "markup",
    [
        "",
        "<html><head><link href='x'></head><rss><link>x</link></rss></html>",
        "<urlset><url><loc>https://a.test/</loc></url></urlset>",
        '<?xml version="1.0"?><opml><body><outline xmlUrl="x"/><link>x</link></body></opml>',
        '{"items": [{"url": "https://a.test/"}]}',
        '{"version": "1", "note": "not jsonfeed.org", "items": [{"url": "https://a.test/"}]}',
        '{"version": "https://jsonfeed.org/version/1", "items": [7]}',
        '{"version": "https://jsonfeed.org/version/1", "items": [',
        "see jsonfeed.org",
    ],
)
def test_other_xml_has_no_feed_links(markup: str) -> None:
    assert feed_links(markup) == []


def test_a_broken_feed_is_read_as_far_as_it_goes() -> None:
    assert feed_links("<rss><item><link>https://a.test/?a=1&b=2</link></item><link>https://a.te") == [
        "https://a.test/?a=1&b=2",
        "",
    ]


def test_no_entity_is_expanded_or_fetched() -> None:
    bomb = (
        '<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/hosts">]>'
        "<rss><link>https://a.test/&b;</link><link>&f;</link></rss>"
    )

    assert feed_links(bomb) == ["https://a.test/&b;", "&f;"]


def test_no_more_links_are_read_than_a_feed_has() -> None:
    assert len(feed_links("<rss>" + "<link>x</link>" * 20_000)) == 10_000


@given(
    st.lists(
        st.sampled_from(
            [
                "<rss>",
                "<feed>",
                "<link",
                ">",
                "href='x'",
                "x",
                "<![CDATA[",
                "]]>",
                "<!--",
                "-->",
                "<guid>",
                "<?",
                " ",
            ]
        )
    )
)
def test_any_text_is_read_without_an_error(parts: list[str]) -> None:
    assert all(len(link) <= len("".join(parts)) for link in feed_links("".join(parts)))


@pytest.mark.parametrize("root", ["<rss>", "<feed>", "", '{"version":"jsonfeed.org","items":'])
@pytest.mark.parametrize(
    "part",
    ["<link ", "<![CDATA[", "<!--", "<guid a", "<?", "<link href=", " xml:base=", "<", "[", "<link>", "<!"],
)
def test_hostile_feeds_take_no_longer_than_their_length(root: str, part: str) -> None:
    begun_s = time.process_time()

    feed_links(root + part * 300_000)

    assert time.process_time() - begun_s < 2.0
