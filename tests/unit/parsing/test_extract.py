from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.records import Page
from crawlproj.parsing.extract import Extract, extract

URL = "http://a.test/dir/page?q=1"


def read(
    body: bytes | str,
    content_type: str = "text/html",
    *,
    status: int = 200,
    max_bytes: int = 1_000_000,
    **headers: str,
) -> Extract:
    data = body.encode() if isinstance(body, str) else body
    sent = {"Content-Type": content_type} if content_type else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return extract(Page(URL, "web", "a.test", 0, status, 0, 0, sent, data), max_bytes)


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
def test_what_cannot_be_crawled_is_no_link(href: str) -> None:
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


@pytest.mark.parametrize("content", ["nofollow", "NOINDEX, NoFollow", "none"])
def test_a_page_that_forbids_to_follow_has_no_links_but_text(content: str) -> None:
    found = read(f'<meta name="Robots" content="{content}"><body>word <a href="/x">x</a>')

    assert (found.links, found.text) == ([], "word x")


@pytest.mark.parametrize("content", ["index, follow", "noindex", ""])
def test_other_robots_words_leave_the_links(content: str) -> None:
    assert read(f'<meta name="robots" content="{content}"><a href="/x">x</a>').links == ["http://a.test/x"]


def test_title_and_description_are_one_line_each() -> None:
    found = read('<title>\n A &amp;  B </title><meta name="Description" content=" short\n words ">')

    assert (found.title, found.description) == ("A & B", "short words")


def test_the_title_of_a_picture_is_not_the_page_s() -> None:
    assert read("<body><svg><title>logo</title></svg>").title is None


def test_text_is_what_a_reader_sees() -> None:
    found = read(
        "<title>t</title><style>p{}</style><script>var x</script><body><h1>Head</h1>"
        "<p>One <b>wo</b>rd\nmore</p><noscript>no</noscript><template>tpl</template><script>y</script>"
        "<ul><li>a<li>b</ul><!-- c -->"
    )

    assert found.text == "Head\nOne word more\na\nb"


def test_cells_and_lines_do_not_run_together_and_words_are_not_cut() -> None:
    found = read("<table><tr><td>a<td>b<tr><td>c</table>1<br>2<span>3</span><I>4</I>5<img>6 &lt; 7 < 8")

    assert found.text == "a\nb\nc\n1\n2345\n6 < 7 < 8"


@pytest.mark.parametrize(
    ("body", "content_type", "charset"),
    [
        ("\ufeffgrün".encode("utf-8"), "text/html; charset=windows-1251", "utf-8"),
        ("\ufeffgrün".encode("utf-16-le"), "text/html", "utf-16-le"),
        ("\ufeffgrün".encode("utf-16-be"), "text/html", "utf-16-be"),
        ("grün".encode("latin-1"), "text/html; charset=ISO-8859-1", "cp1252"),
        ("grün".encode("latin-1"), 'text/html; Charset="latin1"', "cp1252"),
        ('<meta charset="iso-8859-2">grün'.encode("iso-8859-2"), "text/html", "iso8859-2"),
        (
            '<meta http-equiv="Content-Type" content="text/html; charset=utf-8">grün'.encode(),
            "text/html",
            "utf-8",
        ),
        ('<meta charset="utf-16">grün'.encode(), "text/html", "utf-8"),
        ('<meta charset="latin1">grün'.encode(), "text/html; charset=utf-8", "utf-8"),
        ("grün".encode(), "text/html", "utf-8"),
        ("grün".encode("latin-1"), "text/html", "windows-1252"),
        ("grün".encode(), "text/html; charset=no-such", "utf-8"),
        ("grün".encode(), "text/html; charset=punycode", "utf-8"),
        ("grün".encode(), "text/html; charset=hex", "utf-8"),
        ("grün".encode(), "text/html; charset=utf-7", "utf-8"),
    ],
)
def test_the_charset_is_found_as_browsers_find_it(body: bytes, content_type: str, charset: str) -> None:
    found = read(body, content_type)

    assert (found.text, found.charset) == ("grün", charset)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("日本語", "shift_jis"),
        ("日本語", "euc-jp"),
        ("日本語", "iso-2022-jp"),
        ("中文", "gb2312"),
        ("中文", "big5"),
        ("한국어", "euc-kr"),
        ("привет", "koi8-r"),
        ("привет", "windows-1251"),
    ],
)
def test_encodings_of_the_world_are_read(text: str, label: str) -> None:
    assert read(text.encode(label), f"text/html; charset={label}").text == text


def test_a_character_cut_at_the_limit_does_not_change_the_charset() -> None:
    found = read("ü" * 100, max_bytes=101)

    assert (found.charset, found.text, found.truncated) == ("utf-8", "ü" * 50, True)


def test_plain_text_is_text_without_links() -> None:
    found = read('see <a href="/x">', "text/plain; charset=utf-8")

    assert (found.text, found.links) == ('see <a href="/x">', [])


@pytest.mark.parametrize("content_type", ["image/png", "application/json", "application/pdf"])
def test_what_is_not_text_has_neither_text_nor_links(content_type: str) -> None:
    found = read('<a href="/x">x</a>', content_type)

    assert (found.text, found.links, found.body_bytes) == (None, [], 18)


def test_html_without_a_content_type_is_recognised() -> None:
    assert read('\n <!doctype html><a href="/x">x</a>', "").links == ["http://a.test/x"]


@pytest.mark.parametrize("status", [301, 302, 404, 500])
def test_a_page_that_is_no_success_has_no_text_and_no_links(status: int) -> None:
    found = read('<title>t</title>gone <a href="/x">x</a>', status=status, Location="/x")

    assert (found.text, found.links) == (None, [])


def test_a_compressed_body_is_read() -> None:
    found = read(gzip.compress(b"<p>word</p>"), content_encoding="gzip")

    assert (found.text, found.body_bytes, found.truncated) == ("word", 11, False)


def test_a_cut_body_gives_the_text_before_the_cut() -> None:
    packed = gzip.compress(b"".join(b"<p>%d</p>" % number for number in range(50_000)))

    found = read(packed[: len(packed) // 2], content_encoding="gzip")

    assert found.truncated
    assert found.text is not None
    assert found.text.startswith("0\n1\n2\n")


def test_a_body_that_inflates_without_end_is_cut() -> None:
    found = read(gzip.compress(b"<p>" + b"a" * 50_000_000), content_encoding="gzip", max_bytes=10_000)

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
