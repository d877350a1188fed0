"""The touches of Scrapy's private parts."""

from __future__ import annotations

from scrapy import Request
from scrapy.downloadermiddlewares import cookies
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response

from crawlproj.shard import seams


def test_cookies_need_no_list_from_the_web() -> None:
    seams.use_bundled_suffix_list()

    assert cookies._split_domain.suffix_list_urls == ()
    assert cookies._split_domain("www.example.co.uk").suffix == "co.uk"


def test_a_cookie_for_a_public_suffix_is_still_refused() -> None:
    seams.use_bundled_suffix_list()
    middleware = CookiesMiddleware()
    asked = Request("https://a.co.uk/")

    answer = Response("https://a.co.uk/", headers={"Set-Cookie": "all=1; Domain=co.uk"}, request=asked)
    middleware.process_response(asked, answer)
    other = Request("https://b.co.uk/")
    middleware.process_request(other)

    assert b"Cookie" not in other.headers
