from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.download.cookies import cookie_header

NOW_S = 1_800_000_000.0


def header(*set_cookies: bytes, url: str = "http://www.a.test/x", before: str = "") -> str:
    return cookie_header(set_cookies, url, NOW_S, before)


def test_names_and_values_are_sent_back_and_nothing_else() -> None:
    assert header(b"a=1; Path=/; HttpOnly", b" b = x=y ;SameSite=Lax", b'c="q"') == 'a=1; b=x=y; c="q"'


def test_a_cookie_set_again_is_replaced_and_what_was_there_stays() -> None:
    assert header(b"a=2", before="a=1; b=1") == "b=1; a=2"


@pytest.mark.parametrize(
    "end",
    [
        b"Max-Age=0",
        b"max-age=-1",
        b"Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        b"expires=Thu, 01-Jan-1970 00:00:01 GMT",
        b"Max-Age=00; Expires=Fri, 01 Jan 2100 00:00:00 GMT",
    ],
)
def test_a_cookie_that_the_server_ends_is_not_sent(end: bytes) -> None:
    assert header(b"a=; " + end, before="a=1; b=1") == "b=1"


@pytest.mark.parametrize(
    "attribute",
    [
        b"Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        b"Expires=Fri, 01 Jan 2100 00:00:00 GMT",
        b"Expires=soon",
        b"Max-Age=x",
        b"Domain=a.test",
        b"Domain=.A.test",
        b"Domain=www.a.test",
    ],
)
def test_a_cookie_that_lives_here_is_sent(attribute: bytes) -> None:
    assert header(b"a=1; " + attribute) == "a=1"


@pytest.mark.parametrize("cookie", [b"a=1; Domain=b.test", b"a=1; domain=ww.a.test", b"a=1; Secure"])
def test_a_cookie_for_others_or_for_https_is_not_sent(cookie: bytes) -> None:
    assert header(cookie) == ""


def test_a_secure_cookie_is_sent_over_https() -> None:
    assert header(b"a=1; Secure", url="https://a.test/") == "a=1"


@pytest.mark.parametrize("cookie", [b"", b"a", b"=1", b"a=1\r\nX: y", b"a\x00=1", b"a=\x7f"])
def test_invalid_cookies_are_left_out(cookie: bytes) -> None:
    assert header(cookie) == ""


def test_cookies_beyond_4_kb_are_left_out() -> None:
    large = [b"%d=%s" % (number, b"x" * 1000) for number in range(10)]

    assert len(header(*large)) < 4096
    assert header(b"a=" + b"x" * 5000, b"b=1") == "b=1"
    assert len(header(b"a=" + b"x" * 4094)) == 4096


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"a=1", b"; secure", b"b=2;Max-Age=0"])))
def test_any_set_cookie_gives_a_header_that_is_one_line(set_cookies: list[bytes]) -> None:
    found = header(*set_cookies)

    assert all(" " <= character != "\x7f" for character in found)
    assert header(before=found) == found
