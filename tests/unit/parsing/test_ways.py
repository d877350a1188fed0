"""The ways on besides links: refreshes, frames, headers, feeds."""

from __future__ import annotations

import pytest

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.parsing.extract import Extract, ExtractOptions, extract

URL = "http://a.test/dir/page"
OPTIONS = ExtractOptions(Config())


def read(
    body: str, content_type: str = "text/html", *, options: ExtractOptions = OPTIONS, **headers: str
) -> Extract:
    sent = {"Content-Type": content_type} | {name.replace("_", "-"): value for name, value in headers.items()}
    return extract(Page(URL, "web", "a.test", 0, 200, 0, 0, sent, body.encode()), options)


@pytest.mark.parametrize(
    "body",
    [
        '<meta http-equiv="refresh" content="0; url=/x">',
        "<META HTTP-EQUIV=Refresh CONTENT=\"5;URL='http://A.test/x#top'\">",
        '<head><noscript><meta http-equiv="refresh" content="0;url=../x"></noscript></head><body>text',
        '<body><noscript><meta http-equiv="refresh" content="0;url=../x"></noscript>text',
        '<base href="http://a.test/other/"><meta http-equiv=refresh content="30;../x">',
        # The first that leads elsewhere.
        (
            '<meta http-equiv=refresh content="300"><meta http-equiv=refresh content="0;/x">'
            '<meta http-equiv=refresh content="0;/y">'
        ),
    ],
)
def test_a_refresh_leads_where_its_page_moved_to(body: str) -> None:
    found = read(body)

    assert (found.refresh, found.links) == ("http://a.test/x", [])


def test_a_refresh_that_takes_long_is_a_link() -> None:
    found = read('<meta http-equiv=refresh content="31;url=/x"><a href="/y">y</a>')

    assert (found.refresh, found.links) == (None, ["http://a.test/y", "http://a.test/x"])


@pytest.mark.parametrize(
    "content",
    ["0", "900", "5;url=", "5;url=page", "0;url=#top", "0;url=page?utm_source=x", "x", "0;javascript:x"],
)
def test_a_page_that_reloads_itself_leads_nowhere(content: str) -> None:
    found = read(f'<meta http-equiv=refresh content="{content}"><p>text')

    assert (found.refresh, found.links, found.text) == (None, [], "text")


def test_a_refresh_of_a_page_that_says_nofollow_is_followed_only_by_setting() -> None:
    body = '<meta http-equiv=refresh content="0;/x"><meta name=robots content=nofollow>'

    assert read(body).refresh is None
    assert read(body, options=ExtractOptions(Config(obey_nofollow=False))).refresh == "http://a.test/x"


def test_the_header_refreshes_as_the_element_does() -> None:
    assert read("text", "text/plain", Refresh="0; url=/x").refresh == "http://a.test/x"
    assert read("text", "text/plain", Refresh="60; url=/x").links == ["http://a.test/x"]
    assert read("text", "text/plain", Refresh="0; url=/x", X_Robots_Tag="nofollow").refresh is None


@pytest.mark.parametrize("content_type", ["text/html", "application/pdf", "text/plain"])
def test_a_link_header_names_the_next_page_and_the_canonical_url(content_type: str) -> None:
    found = read("x", content_type, Link='<2>; rel="next", <//b.test/c>; rel=canonical, </s>; rel=shortlink')

    assert (found.links, found.canonical_url) == (["http://a.test/dir/2"], "http://b.test/c")


def test_the_canonical_url_of_the_page_goes_over_that_of_the_header() -> None:
    found = read('<link rel=canonical href="/x">', Link="</y>; rel=canonical")

    assert found.canonical_url == "http://a.test/x"


def test_the_next_page_is_not_followed_against_the_will_of_this_one() -> None:
    found = read("x", "text/plain", Link="</2>; rel=next, </c>; rel=canonical", X_Robots_Tag="nofollow")

    assert (found.links, found.canonical_url) == ([], "http://a.test/c")


def test_no_more_links_come_than_wanted_wherever_they_are_from() -> None:
    options = ExtractOptions(Config(max_links=1))
    found = read('<a href="/1">', Link="</1>; rel=next, </2>; rel=next", options=options)

    assert found.links == ["http://a.test/1"]


@pytest.mark.parametrize("content_type", ["application/rss+xml", "text/xml", "application/xml"])
def test_a_feed_has_links_and_text(content_type: str) -> None:
    body = "<rss><channel><item><title>News</title><link>/1?utm_source=feed</link></item></channel></rss>"

    found = read(body, content_type)

    assert (found.links, found.text) == (["http://a.test/1"], "News\n/1?utm_source=feed")
    assert read(body, content_type, X_Robots_Tag="nofollow").links == []


@pytest.mark.parametrize("content_type", ["application/feed+json", "application/json"])
def test_a_json_feed_has_links_and_text(content_type: str) -> None:
    body = '{"version": "https://jsonfeed.org/version/1", "items": [{"url": "/1"}]}'

    assert read(body, content_type).links == ["http://a.test/1"]
    assert read(body, content_type).text == body


def test_xml_and_json_that_are_not_feeds_have_no_links() -> None:
    assert read("<data><link>/1</link></data>", "text/xml").links == []
    assert read('{"items": [{"url": "/1"}]}', "application/json").links == []
