"""The touches of Scrapy's private parts."""

from __future__ import annotations

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request, signals
from scrapy.downloadermiddlewares import cookies
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproj import seams


def test_cookies_need_no_list_from_the_web() -> None:
    seams.keep_cookies_at_home()

    assert cookies._split_domain.suffix_list_urls == ()
    assert cookies._split_domain("www.example.co.uk").suffix == "co.uk"


def test_a_cookie_for_a_public_suffix_is_still_refused() -> None:
    seams.keep_cookies_at_home()
    middleware = CookiesMiddleware()
    asked = Request("https://a.co.uk/")

    answer = Response("https://a.co.uk/", headers={"Set-Cookie": "all=1; Domain=co.uk"}, request=asked)
    middleware.process_response(asked, answer)
    other = Request("https://b.co.uk/")
    middleware.process_request(other)

    assert b"Cookie" not in other.headers


def test_who_listens_is_known_at_every_moment() -> None:
    crawler = get_crawler()
    listeners_of = seams.listeners(crawler)

    def listen() -> None: ...

    assert listeners_of(signals.bytes_received) is seams.NOBODY

    crawler.signals.connect(listen, signals.bytes_received)

    assert len(listeners_of(signals.bytes_received) or ()) == 1
    assert listeners_of(signals.headers_received) is seams.NOBODY

    crawler.signals.disconnect(listen, signals.bytes_received)

    assert listeners_of(signals.bytes_received) is seams.NOBODY


def test_who_listens_to_everything_is_not_overlooked() -> None:
    crawler = get_crawler()
    listeners_of = seams.listeners(crawler)

    def listen() -> None: ...

    for sender in (crawler.signals.sender, dispatcher.Any):
        dispatcher.connect(listen, sender=sender)

        assert listeners_of(signals.bytes_received) is None

        dispatcher.disconnect(listen, sender=sender)

    assert listeners_of(signals.bytes_received) is seams.NOBODY
