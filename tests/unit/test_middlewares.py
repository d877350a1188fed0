"""The middlewares' own rules; how they settle leases is seen in the tests of whole crawls."""

from __future__ import annotations

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproj.download.endings import retry_after_s
from crawlproj.middlewares import DomainFeedback, RetryLater, UserAgentMiddleware

#: The time by the clock of the server.
DATE = b"Thu, 01 Jan 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"", None),
        (b"120", 120.0),
        (b" 7 ", 7.0),
        (b"0", 0.0),
        (b"Thu, 01 Jan 2026 12:01:30 GMT", 90.0),
        (b"Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        (b"Thu, 01 Jan 2026 13:00:10 +0100", 10.0),
        (b"-5", None),
        (b"1.5", None),
        (b"soon", None),
        (b"\xff\xfe", None),
        (b"\xb2", None),
        (b"Thu, 99 Foo 2026 12:01:30 GMT", None),
        (b"Thu, 01 Jan 99999999999999999999 12:01:30 GMT", None),
        (b"Thu, 01 Jan 2026 12:01:30 +99999999999999", None),
    ],
)
def test_retry_after_is_read_as_number_or_date(header: bytes, seconds: float | None) -> None:
    assert retry_after_s(header, DATE) == seconds


@pytest.mark.parametrize("middleware", [DomainFeedback, RetryLater])
def test_a_request_without_a_lease_passes_untouched(middleware: type[DomainFeedback]) -> None:
    # Such as a robots.txt, or what a spider downloads by itself; no scheduler has put a feed here.
    passing = middleware.from_crawler(Crawler(Spider))
    request = Request("https://a.test/")
    response = Response("https://a.test/", status=503, headers={"Retry-After": "5"})

    assert passing.process_response(request, response) is response
    passing.process_exception(request, TimeoutError())


def test_the_contact_is_part_of_the_user_agent() -> None:
    settings = {"USER_AGENT": "bot/1", "CRAWL_CONTACT": "me@a.test"}
    middleware = UserAgentMiddleware.from_crawler(get_crawler(settings_dict=settings))
    plain, own = Request("http://a.test/"), Request("http://a.test/", headers={"User-Agent": "mine"})

    middleware.process_request(plain)
    middleware.process_request(own)

    assert plain.headers["User-Agent"] == b"bot/1 (+me@a.test)"
    assert own.headers["User-Agent"] == b"mine"


@pytest.mark.filterwarnings("ignore:.*user_agent")
def test_a_spider_may_have_a_user_agent_of_its_own() -> None:
    middleware = UserAgentMiddleware.from_crawler(get_crawler(settings_dict={"USER_AGENT": "bot/1"}))
    spider, request = Spider("mine"), Request("http://a.test/")
    spider.user_agent = "mine/2"

    middleware.spider_opened(spider)
    middleware.process_request(request)

    assert request.headers["User-Agent"] == b"mine/2"
