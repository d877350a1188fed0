from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawlproj.errors import BadUrl
from crawlproj.model.urls import UrlRules, canonicalise
from crawlproj.parsing.links import MOST_URL_CHARS, base_of, canonical_links

RULES = UrlRules()
BASES = [
    canonicalise(url)
    for url in (
        "http://a.test/",
        "http://a.test/dir/page?q=1/2",
        "https://a.test:8443/a/b/c/d.html",
        "http://a.test/a//b//",
        "http://[2001:db8::1]/x/y",
        "http://192.0.2.1/%2ex/%2e/x",
        "https://bücher.test/ä/b",
    )
]
#: The pieces hrefs are made of, with everything that the URL parser treats in its own way.
PIECES = st.sampled_from(
    [
        *(
            "a",
            "b.html",
            "..",
            ".",
            "...",
            "/",
            "//",
            "../",
            "./",
            "%2e",
            "%2E%2e",
            "%",
            "%41",
            "?",
            "#",
            "&",
            "=",
        ),
        *(
            ":",
            "@",
            "\\",
            "\t",
            "\n",
            " ",
            "\0",
            "\x1f",
            "|",
            "^",
            "`",
            "{",
            "'",
            '"',
            "<",
            ">",
            "ä",
            "日",
            "\ud800",
        ),
        *(
            "http:",
            "https://",
            "http://",
            "HTTP://",
            "ftp://",
            "a.test",
            "A.test",
            "b.test",
            "b.test.",
            "1.2",
        ),
        *(
            "xn--a",
            ":80",
            ":443",
            ":8443",
            "[::1]",
            "user@",
            "javascript:",
            "JaVa\tscript:",
            "mailto:x",
            "~",
            "x;y,z!",
            "%7e",
            "%2f",
            "utm_source=x",
            ";jsessionid=1",
            "PHPSESSID=",
            "sid=0123456789abcdef",
        ),
    ]
)
HREFS = st.lists(PIECES, max_size=7).map("".join)


def expected(hrefs: list[str], base: str) -> list[str]:
    links: dict[str, None] = {}
    for href in hrefs:
        # Without its fragment, so that one which cannot be written costs nothing.
        if written := href.partition("#")[0]:
            try:
                links[RULES.clean(canonicalise(written, base))] = None
            except (BadUrl, UnicodeEncodeError):
                continue
    return list(links)


@given(st.lists(HREFS, max_size=5), st.sampled_from(BASES))
@example(["../../../../x", "..", "../", "..//x", "../.x"], BASES[2])
@example(["x", "../x", "../../x"], BASES[3])
@example(["a#\ud800", "\ud800#a"], BASES[0])
@example(["http://b.test", "http://b.test/", "http:///b.test/x", "https:/x", "http:x"], BASES[1])
@example(["?", "/?", "/x?", "?x", "/x?y?", "a?b/../c", "/a?b/.."], BASES[1])
@example(["http://b.test./x", "http://user@b.test/x", "http://1.2/x", "http://b.test:80/x"], BASES[0])
@example(["/x?utm_source=1", "x;jsessionid=1/..;jsessionid=2", "?a&utm_medium=2&b", "/x?%7e"], BASES[1])
def test_links_are_what_canonicalise_and_the_rules_make_of_each(hrefs: list[str], base: str) -> None:
    assert canonical_links(hrefs, base, 100, RULES) == expected(hrefs, base)


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.sampled_from(BASES))
def test_any_text_is_resolved_as_canonicalise_resolves_it(href: str, base: str) -> None:
    assert canonical_links([href], base, 100, RULES) == expected([href], base)


@pytest.mark.parametrize(
    ("href", "base"),
    [
        ("/other/", "http://a.test/other/"),
        ("other/x#y", "http://a.test/dir/other/x"),
        ("//b.test", "http://b.test/"),
        ("https://b.test/x", "https://b.test/x"),
        ("javascript:alert(1)", "http://a.test/dir/page"),
        ("data:text/html,x", "http://a.test/dir/page"),
        ("file:///etc/passwd", "http://a.test/dir/page"),
        ("about:blank", "http://a.test/dir/page"),
        ("http://", "http://a.test/dir/page"),
        ("x" * 100_000, "http://a.test/dir/page"),
    ],
)
def test_a_base_is_resolved_and_one_that_cannot_be_used_is_ignored(href: str, base: str) -> None:
    assert base_of(href, "http://a.test/dir/page") == base


def test_a_link_that_is_too_long_is_dropped() -> None:
    fits = "/" + "x" * (MOST_URL_CHARS - len("http://a.test/"))

    links = canonical_links([fits, fits + "x", "/" + "ä" * 1000], "http://a.test/", 10, RULES)

    assert links == ["http://a.test" + fits]


def test_links_that_differ_only_in_what_the_rules_drop_are_one() -> None:
    hrefs = ["/x?utm_source=a", "/x", "/x?fbclid=b", "/x;jsessionid=c", "/%78"]

    assert canonical_links(hrefs, "http://a.test/", 10, RULES) == ["http://a.test/x"]
