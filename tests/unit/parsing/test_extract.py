from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from datetime import UTC, datetime

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.config import Config, load_config
from crawlproj.errors import BadSetting
from crawlproj.model.records import Page
from crawlproj.parsing.extract import Extract, ExtractOptions, extract, headings_of
from crawlproj.parsing.head import Head
from crawlproj.parsing.metadata import Metadata

URL = "http://a.test/dir/page?q=1"


def read(
    body: bytes | str,
    content_type: str = "text/html",
    *,
    status: int = 200,
    options: ExtractOptions = ExtractOptions(Config()),  # noqa: B008  # never changed
    **headers: str,
) -> Extract:
    data = body.encode() if isinstance(body, str) else body
    sent = {"Content-Type": content_type} if content_type else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    page = Page(URL, "web", "a.test", 0, status, 0, 0, sent, data)
    return extract(page, options)


@pytest.mark.parametrize(
    ("href", "link"),
    [
        ("/x", "http://a.test/x"),
        ("x", "http://a.test/dir/x"),
        ("?p=2", "http://a.test/dir/page?p=2"),
        ("//B.test", "http://b.test/"),
        ("HTTPS://b.test:443/./a/../c#top", "https://b.test/c"),
        ("  /space\n", "http://a.test/space"),
        ("/ä", "http://a.test/%C3%A4"),
        ("/a&amp;b", "http://a.test/a&b"),
        ("/a<p>", "http://a.test/a%3Cp%3E"),
    ],
)
def test_a_link_is_resolved_and_canonical(href: str, link: str) -> None:
    assert read(f'<a href="{href}">x</a>').links == [link]


@pytest.mark.parametrize(
    "href",
    [
        "",
        "#top",
        "javascript:void(0)",
        "MAILTO:a@b.test",
        "tel:1",
        "data:text/html,x",
        "ftp://a.test/",
        "http://",
        "http://[::1",
        "http://a b/",
    ],
)
def test_urls_that_cannot_be_crawled_are_not_links(href: str) -> None:
    assert read(f'<a href="{href}">x</a><a href="/good">x</a>').links == ["http://a.test/good"]


def test_links_are_different_and_in_the_order_of_the_page() -> None:
    found = read(
        '<a href="/b">1</a><map><area href="/a"></map><a href="/b#x">2</a><a href="http://A.test/a">3</a>'
    )

    assert found.links == ["http://a.test/b", "http://a.test/a"]


def test_the_base_of_the_page_is_honoured() -> None:
    assert read('<base href="/other/"><a href="x">x</a>').links == ["http://a.test/other/x"]


def test_a_base_that_cannot_be_used_is_ignored() -> None:
    assert read('<base href="javascript:1"><a href="x">x</a>').links == ["http://a.test/dir/x"]


@pytest.mark.parametrize("content", ["nofollow", "index, NoFollow"])
def test_a_page_that_forbids_to_follow_has_no_links_but_text(content: str) -> None:
    found = read(f'<meta name="Robots" content="{content}"><body>word <a href="/x">x</a>')

    assert (found.links, found.text, found.error) == ([], "word x", None)


SECRET = (
    "<title>T</title><meta name=description content=D><meta name=author content='Ada L.'>"
    '<body>word <a href="/x">x</a>'
)


@pytest.mark.parametrize(
    ("meta", "header", "links"),
    [
        ('<meta name="robots" content="NoIndex, follow">', "", ["http://a.test/x"]),
        ('<meta name="crawlproj" content="noindex">', "", ["http://a.test/x"]),
        ('<meta name="robots" content="none">', "", []),
        ("", "noindex", ["http://a.test/x"]),
        ("", "CrawlProj: noindex, nofollow", []),
        ("", "otherbot: all\nnoindex", ["http://a.test/x"]),
    ],
)
def test_of_a_page_that_asks_not_to_be_indexed_no_word_is_kept(
    meta: str, header: str, links: list[str]
) -> None:
    config = load_config(
        {"CRAWL_FULL_TEXT": True, "CRAWL_HEADINGS": True, "CRAWL_FIELDS": {"head": "css:title::text"}}
    )

    found = read(meta + SECRET, options=ExtractOptions(config), x_robots_tag=header)

    words = (found.title, found.description, found.text, found.full_text, found.language, found.simhash)
    assert (words, found.fields, found.error) == ((None,) * 6, {}, "noindex")
    assert (found.metadata, found.headings, found.text_source) == (Metadata(), None, None)
    assert (found.links, found.body_bytes) == (links, len(meta + SECRET))


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml"])
def test_a_header_can_forbid_indexing_of_other_types(content_type: str) -> None:
    found = read("<a>word</a>", content_type, x_robots_tag="noindex")

    assert (found.text, found.error) == (None, "noindex")


@pytest.mark.parametrize(
    ("meta", "header"),
    [
        ('<meta name="otherbot" content="noindex">', ""),
        ("", "otherbot: noindex"),
        ("", "otherbot: noindex, nofollow\nindex"),
    ],
)
def test_what_is_said_to_other_robots_is_not_said_to_this_one(meta: str, header: str) -> None:
    options = ExtractOptions(Config())

    found = read(meta + SECRET, options=options, x_robots_tag=header)

    assert (found.title, found.text, found.links) == ("T", "word x", ["http://a.test/x"])


def test_a_page_is_indexed_against_its_will_only_by_setting() -> None:
    options = ExtractOptions(Config(obey_noindex=False))

    found = read("<meta name=robots content=noindex>" + SECRET, options=options)

    assert (found.title, found.text, found.noindex, found.error) == ("T", "word x", True, None)


def test_an_error_page_is_not_said_to_be_kept_from_the_index() -> None:
    assert read("gone", status=404, x_robots_tag="noindex").error is None


def test_a_body_not_fetched_for_its_type_is_not_truncated() -> None:
    found = read(b"", "image/png", content_encoding="gzip")

    assert (found.content_type, found.text, found.body_bytes, found.truncated) == (
        "image/png",
        None,
        0,
        False,
    )


def read_map(body: bytes, encoding: str = "", *, status: int = 200, truncated: bool = False) -> Extract:
    sent = {"Content-Type": "application/xml", "Content-Encoding": encoding}
    page = Page("http://a.test/map.xml", "web", "a.test", 0, status, 0, 0, sent, body, truncated=truncated)
    page.sitemap_level = 1
    return extract(page, ExtractOptions(Config(max_body=50, sitemap_bytes=10_000, sitemap_urls=3)))


URLSET = b"<urlset>" + b" " * 1000 + b"<url><loc>http://a.test/1</loc></url></urlset>"


def test_a_sitemap_has_links_and_no_text_and_a_limit_of_its_own() -> None:
    found = read_map(URLSET)

    assert (found.links, found.sitemaps, found.text) == (["http://a.test/1"], [], None)
    assert (found.content_type, found.body_bytes, found.truncated) == ("application/xml", len(URLSET), False)
    assert read_map(URLSET.replace(b"urlset", b"sitemapindex")).sitemaps == ["http://a.test/1"]


def test_a_sitemap_may_be_compressed_once_for_the_wire_and_once_as_a_file() -> None:
    packed = gzip.compress(gzip.compress(URLSET))

    assert read_map(packed, "gzip").links == ["http://a.test/1"]


def test_a_sitemap_s_limits_hold() -> None:
    many = b"<urlset>" + b"".join(b"<loc>http://a.test/%d</loc>" % number for number in range(5))

    assert len(read_map(many).links) == 3
    assert read_map(b" " * 10_000 + many).truncated
    assert read_map(gzip.compress(b" " * 10_000 + many)).links == []
    assert read_map(b"http://a.test/1\nhttp://a.test/2", truncated=True).links == ["http://a.test/1"]


def test_a_sitemap_that_is_not_there_lists_nothing() -> None:
    assert read_map(URLSET, status=404).links == []


@pytest.mark.parametrize("content", ["index, follow", "noindex", ""])
def test_other_robots_words_leave_the_links(content: str) -> None:
    assert read(f'<meta name="robots" content="{content}"><a href="/x">x</a>').links == ["http://a.test/x"]


@pytest.mark.parametrize(
    ("header", "nofollow", "noindex"),
    [
        ("nofollow", True, False),
        ("NOINDEX", False, True),
        ("none", True, True),
        ("otherbot: nofollow, noindex", False, False),
        ("crawlproj: nofollow", True, False),
        ("otherbot: noindex, crawlproj: nofollow", True, False),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow", True, False),
        ("max-snippet: 5", False, False),
        ("", False, False),
    ],
)
def test_the_robots_header_is_read(header: str, nofollow: bool, noindex: bool) -> None:
    options = ExtractOptions(Config())

    found = read('<a href="/x">', options=options, x_robots_tag=header)

    assert (found.nofollow, found.noindex) == (nofollow, noindex)
    assert bool(found.links) is not nofollow


def test_a_page_is_followed_against_its_will_only_by_setting() -> None:
    found = read(
        '<meta name=robots content=none><a href="/x">', options=ExtractOptions(Config(obey_nofollow=False))
    )

    assert (found.links, found.nofollow, found.noindex) == (["http://a.test/x"], True, True)


def test_a_meta_for_this_robot_counts_and_one_for_others_does_not() -> None:
    options = ExtractOptions(Config())

    ours = read('<meta name="CrawlProj" content="nofollow">', options=options)
    theirs = read('<meta name="otherbot" content="nofollow">', options=options)

    assert (ours.nofollow, theirs.nofollow) == (True, False)


def test_a_robots_meta_behind_a_broken_head_still_counts() -> None:
    html = "<head><noscript><img src=x></noscript><meta name=robots content=nofollow><title>T</title></head>"

    found = read(html)

    assert (found.nofollow, found.title) == (True, "T")


def test_a_link_marked_nofollow_is_none_unless_the_same_link_is_there_without() -> None:
    found = read('<a rel="NoFollow ugc" href="/x">1</a><a rel=nofollow href="/y">2</a><a href="/y">3</a>')

    assert found.links == ["http://a.test/y"]


def test_a_link_marked_nofollow_is_followed_by_setting() -> None:
    options = ExtractOptions(Config(obey_rel_nofollow=False))

    assert read('<a rel=nofollow href="/x">', options=options).links == ["http://a.test/x"]


LINKED = (
    '<link rel=next href="/next"><link rel=stylesheet href="/style"><link rel=canonical href="/canonical">'
    '<a href="/a"><iframe src="/iframe"></iframe><img src="/img" srcset="/set 2x"><script src="/js"></script>'
    '<video src="/video"></video><form action="/form"></form><map><area href="/area"></map>'
)


@pytest.mark.parametrize(
    ("tags", "links"),
    [
        (("a", "area"), ["/a", "/area"]),
        (("a",), ["/a"]),
        (("a", "link"), ["/next", "/a"]),
        (("a", "area", "iframe", "frame", "link"), ["/next", "/a", "/iframe", "/area"]),
    ],
)
def test_elements_are_followed_by_setting(tags: tuple[str, ...], links: list[str]) -> None:
    found = read(LINKED, options=ExtractOptions(Config(link_tags=tags)))

    assert found.links == [f"http://a.test{link}" for link in links]


def test_frames_are_followed_unless_the_setting_leaves_them_out() -> None:
    html = '<frameset><frame src="/left"><frame src="/right"></frameset>'

    assert read(html).links == ["http://a.test/left", "http://a.test/right"]
    assert read(html, options=ExtractOptions(Config(link_tags=("a",)))).links == []


def test_the_canonical_url_is_resolved() -> None:
    assert read('<link rel="Canonical" href="other#x">').canonical_url == "http://a.test/dir/other"
    assert read('<base href="/b/"><link rel=canonical href="c">').canonical_url == "http://a.test/b/c"
    assert read('<link rel=canonical href="javascript:1">').canonical_url is None
    assert read("<p>").canonical_url is None


def test_no_more_links_are_returned_than_wanted() -> None:
    html = '<a href="/1">1</a><a href="/2">2</a><a href="/1">1</a>'

    all_of_them = read(html, options=ExtractOptions(Config(max_links=2)))
    fewer = read(html, options=ExtractOptions(Config(max_links=1)))

    assert len(all_of_them.links) == 2
    assert len(fewer.links) == 1


def test_a_description_for_social_networks_serves_when_there_is_no_other() -> None:
    social = '<meta property="og:description" content="social">'

    assert read(social).description == "social"
    assert read(social + '<meta name="description" content="own">').description == "own"


def test_the_language_is_that_of_the_text_and_the_page_is_asked_when_it_is_not_clear() -> None:
    german = "<html lang=en><p>" + "Das ist ein Satz, der auf der Seite steht und nicht sehr lang ist. " * 3

    assert read(german).language == "de"
    assert read("<html lang=en-GB><p>Gnu Hurd 3.1</p>").language == "en"
    assert read("<p>Gnu Hurd 3.1</p>").language is None


def test_equal_texts_have_equal_simhashes_whatever_is_around_them() -> None:
    assert read("<p>some words").simhash == read("<div>some\nwords</div>").simhash is not None


def fields(**selectors: object) -> ExtractOptions:
    return ExtractOptions(Config(fields=selectors))


def test_the_user_s_own_fields_are_selected() -> None:
    options = fields(
        price="css:.price::text", author={"xpath": "//meta[@name='author']/@content"}, none="css:.no"
    )

    found = read(
        '<meta name=author content=Ann><b class=price>1</b><b class="price x">2</b>', options=options
    )

    assert found.fields == {"price": ["1", "2"], "author": ["Ann"], "none": []}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "price",
        "css:",
        "css:..price",
        "xpath://[",
        "regex:x",
        {},
        {"css": 1},
        {"css": "a", "xpath": "b"},
        3,
    ],
)
def test_an_invalid_field_is_reported_before_the_crawl(selector: object) -> None:
    with pytest.raises(BadSetting, match=r"CRAWL_FIELDS\['price'\]"):
        fields(price=selector)


def test_the_settings_say_what_is_read() -> None:
    config = load_config({"CRAWL_MAX_LINKS": "1", "CRAWL_LINK_TAGS": "area", "CRAWL_TEXT": "all"})
    html = "<nav>menu</nav><p>words<a href=/a><area href=/b><area href=/c>"

    found = read(html, options=ExtractOptions(config))

    assert (found.links, found.text_source) == (["http://a.test/b"], "all")


def test_title_and_description_are_one_line_each() -> None:
    found = read('<title>\n A &amp;  B </title><meta name="Description" content=" short\n words ">')

    assert (found.title, found.description) == ("A & B", "short words")


def test_the_title_of_a_picture_is_not_the_page_s() -> None:
    assert read("<body><svg><title>logo</title></svg>").title is None


def test_the_main_text_is_the_text_and_all_text_is_there_when_wanted() -> None:
    sentence = "A sentence of the text that this page is about, long enough to be one. " * 3
    html = f"<body><nav>menu entry</nav><article><p>{sentence}</p><p>{sentence}</p></article>"

    found = read(html, options=ExtractOptions(Config(full_text=True)))

    assert found.text is not None
    assert "A sentence of the text" in found.text
    assert "menu" not in found.text
    assert found.full_text is not None
    assert found.full_text.startswith("menu entry\nA sentence")


def test_what_a_page_declares_is_read_with_the_rest_of_it() -> None:
    found = read(
        '<base href="/b/"><meta property="og:type" content="article"><meta name="Author" content="By Ada L.">'
        '<meta property="og:image" content="i.png"><meta name="date" content="2020-01-05">words'
    ).metadata

    assert found == Metadata(
        published=datetime(2020, 1, 5, tzinfo=UTC),
        author="Ada L.",
        kind="article",
        image="http://a.test/b/i.png",
    )


def test_headings_are_lines_that_are_not_empty() -> None:
    head = Head(headings=[(1, " A\n title "), (2, " "), (6, "last")])

    assert headings_of(head) == [{"level": 1, "text": "A title"}, {"level": 6, "text": "last"}]


def test_headings_are_kept_only_if_wanted() -> None:
    assert read("<h1>words</h1>").headings is None
    assert read("<h1>words</h1>", options=ExtractOptions(Config(headings=True))).headings is not None


def test_all_text_is_not_kept_unless_wanted() -> None:
    assert read("<p>words").full_text is None


def test_a_character_cut_at_the_limit_does_not_change_the_charset() -> None:
    found = read("ü" * 100, options=ExtractOptions(Config(max_body=101)))

    assert (found.charset, found.text, found.truncated) == ("utf-8", "ü" * 50, True)


#: A page, and its sentence before the place where it is cut; after each there is one more.
SENTENCE = "This sentence of the page stands before the place where it is cut, and it is not lost, either. "
CUTS = {
    "tag": "<p>{}</p><p><a href='/before'>link</a></p><p class='wide",
    "attribute": "<p>{}</p><a href='/before'>link</a><a href='/a/half/addr",
    "entity": "<p>{}<a href='/before'>link</a></p><p>&nbs",
    "script": "<p>{}</p><a href='/before'>link</a><script>var sales = '<p>not text</p>'; if (1 <",
    "style": "<p>{}</p><a href='/before'>link</a><style>p > a {{ color",
    "comment": "<p>{}</p><a href='/before'>link</a><!-- not text <p>",
    "closing tag": "<p>{}</p><a href='/before'>link</a></di",
    "template": "<p>{}</p><a href='/before'>link</a><template><p>not text",
    "textarea": "<p>{}</p><a href='/before'>link</a><textarea>not te",
}


@pytest.mark.parametrize("place", CUTS)
def test_a_page_cut_anywhere_keeps_what_came_before(place: str) -> None:
    head = "<html><head><title>t</title></head><body><article>"
    before = (head + CUTS[place].format(SENTENCE * 3)).encode()
    body = before + b"' href='/after'>and this comes after the cut</p></article>"

    found = read(body, options=ExtractOptions(Config(max_body=len(before), full_text=True)))

    assert (found.truncated, found.body_bytes, found.title) == (True, len(before), "t")
    assert found.text is not None
    assert found.text.startswith((SENTENCE * 3).strip())
    assert found.links[0] == "http://a.test/before"
    assert "http://a.test/after" not in found.links
    assert found.full_text is not None
    assert "after the cut" not in found.full_text
    assert "not text" not in found.full_text


@pytest.mark.parametrize("charset", ["utf-8", "shift_jis", "utf-16le", "gb18030"])
def test_a_page_cut_inside_a_character_keeps_the_others(charset: str) -> None:
    body = ("<title>t</title><p>" + "語" * 200).encode(charset)

    found = read(
        body, f"text/html; charset={charset}", options=ExtractOptions(Config(max_body=len(body) - 1))
    )

    assert found.truncated
    assert (found.text or "").rstrip("\ufffd") == "語" * 199


def test_plain_text_is_text_without_links() -> None:
    found = read('see <a href="/x">', "text/plain; charset=utf-8")

    assert (found.text, found.links) == ('see <a href="/x">', [])


@pytest.mark.parametrize(
    "content_type", ["image/png", "image/svg+xml", "application/pdf", "text/css", "application/zip"]
)
def test_what_is_not_text_has_neither_text_nor_links(content_type: str) -> None:
    found = read('<a href="/x">x</a>', content_type)

    assert (found.text, found.links, found.body_bytes) == (None, [], 18)


@pytest.mark.parametrize("content_type", ["application/json", "application/ld+json", "text/markdown"])
def test_what_is_text_is_kept_as_it_is(content_type: str) -> None:
    assert read('{"a": "ü <b>"}', content_type).text == '{"a": "ü <b>"}'


def test_the_text_of_xml_is_what_stands_between_its_tags() -> None:
    feed = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE rss><rss><!-- no --><item a="b">
        <title>Tom &amp; Zoë</title><description><![CDATA[one
        two]]></description></item></rss>"""

    assert read(feed, "application/rss+xml").text == "Tom & Zoë\none two"


@pytest.mark.parametrize("declared", ["", "application/octet-stream"])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"%PDF-1.7 ...", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"PK\x03\x04...", "application/zip"),
        (b'<?xml version="1.0"?><a/>', "application/xml"),
        (b"\xef\xbb\xbf <!DOCTYPE HTML>", "text/html"),
        (b"<p class=x>", "text/html"),
        (b'{"a": 1}', "application/json"),
        (b"plain words", "text/plain"),
        (b"\x00\x01\x02", "application/octet-stream"),
    ],
)
def test_a_missing_type_is_detected_from_the_body(body: bytes, content_type: str, declared: str) -> None:
    assert read(body, declared).content_type == content_type


def test_a_declared_type_is_trusted() -> None:
    assert read(b"%PDF-1.7", "text/plain").content_type == "text/plain"


def test_html_without_a_content_type_is_recognised() -> None:
    assert read('\n <!doctype html><a href="/x">x</a>', "").links == ["http://a.test/x"]


@pytest.mark.parametrize("status", [301, 302, 404, 500])
def test_an_error_page_has_no_text_and_no_links(status: int) -> None:
    found = read('<title>t</title>gone <a href="/x">x</a>', status=status, Location="/x")

    assert (found.text, found.links) == (None, [])


def test_a_compressed_body_is_read() -> None:
    found = read(gzip.compress(b"<p>word</p>"), content_encoding="gzip")

    assert (found.text, found.body_bytes, found.truncated) == ("word", 11, False)


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: brotli.compress(body, quality=5),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_cut_body_gives_the_text_before_the_cut(coding: str) -> None:
    packed = CODINGS[coding](b"".join(b"<p>%d</p>" % number for number in range(50_000)))

    options = ExtractOptions(Config(max_body=100_000, text="all"))
    found = read(packed[: len(packed) // 2], content_encoding=coding, options=options)

    assert (found.truncated, found.body_bytes) == (True, 100_000)
    assert found.text is not None
    assert found.text.startswith("0\n1\n2\n")


def test_a_body_that_inflates_without_end_is_cut() -> None:
    found = read(
        gzip.compress(b"<p>" + b"a" * 50_000_000),
        content_encoding="gzip",
        options=ExtractOptions(Config(max_body=10_000)),
    )

    assert (found.body_bytes, found.truncated) == (10_000, True)


def test_equal_bodies_have_equal_hashes_whatever_their_encoding() -> None:
    assert read(gzip.compress(b"same"), content_encoding="gzip").content_hash == read("same").content_hash
    assert read("same").content_hash != read("other").content_hash


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00" * 2000,
        b"<a href='/x\x00y'>\x00</a>",
        b"<",
        b"</html></body><body><html>",
        b"<div>" * 5_000,
        b"<b>" * 50_000,
        b"<table><a href=/x>" * 500,
        b"<a href='" + b"x" * 100_000 + b"'>",
        b"\xff\xfe\x00\xd8",
        b"<frameset><frame src=x></frameset>",
    ],
)
def test_hostile_html_is_read_without_an_error(body: bytes) -> None:
    read(body).text  # noqa: B018


@given(
    st.binary(max_size=200), st.sampled_from(["", "text/html", "text/html; charset=gb18030", "text/plain"])
)
def test_any_bytes_are_read_without_an_error(body: bytes, content_type: str) -> None:
    assert read(body, content_type).body_bytes == len(body)
