"""The middlewares' own rules; what they tell the feed is seen in the tests of whole crawls."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.stats import DownloaderStats
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproj.download.endings import retry_after_s
from crawlproj.middlewares import DomainFeedback, Introduction, RetryLater, TrafficStats

NOW_S = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
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
def test_retry_after_is_read_as_number_or_date(header: bytes | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW_S) == seconds


@pytest.mark.parametrize("middleware", [DomainFeedback, RetryLater])
def test_a_request_without_a_lease_passes_untouched(middleware: type[DomainFeedback]) -> None:
    # Such as a robots.txt, or what a spider downloads by itself; no scheduler has put a feed here.
    passing = middleware.from_crawler(Crawler(Spider))
    request = Request("https://a.test/")
    response = Response("https://a.test/", status=503, headers={"Retry-After": "5"})

    assert passing.process_response(request, response) is response
    passing.process_exception(request, TimeoutError())


def test_a_mistake_of_ours_is_logged_with_its_traceback_once_and_trouble_of_a_site_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feedback = RetryLater.from_crawler(Crawler(Spider))
    request = Request("https://a.test/")

    for error in (TypeError("exchange() got an unexpected argument"), TypeError("again"), TimeoutError()):
        feedback.process_exception(request, error)

    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "unexpected argument" in caplog.text


def test_traffic_has_the_names_and_counts_of_scrapys_own_stats_and_the_bytes_of_the_wire() -> None:
    headers = {"User-Agent": "me", "X-Two": ["a", "bc"]}
    request = Request("http://a.test/path?q=1", headers=headers, method="PUT", body=b"12345")
    response = Response("http://a.test/", headers={"Server": "s", "Set-Cookie": ["1", "2"]}, body=b"body")
    counted = []
    for kind in (DownloaderStats, TrafficStats):
        crawler = get_crawler()
        middleware = kind.from_crawler(crawler)
        middleware.process_request(request)
        middleware.process_response(request, response)
        middleware.process_exception(request, TimeoutError())
        counted.append(dict(crawler.stats.get_stats()))

    scrapys, ours = counted
    sent = b"PUT /path?q=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: me\r\nX-Two: a\r\nX-Two: bc\r\n\r\n12345"
    came = b"HTTP/1.1 200 OK\r\nServer: s\r\nSet-Cookie: 1\r\nSet-Cookie: 2\r\n\r\nbody"
    assert ours.pop("downloader/request_bytes") == len(sent)
    assert ours.pop("downloader/response_bytes") == len(came)
    del scrapys["downloader/request_bytes"], scrapys["downloader/response_bytes"]
    assert ours == scrapys


def test_usual_headers_are_set_where_a_request_has_none_of_its_own() -> None:
    settings = {"DEFAULT_REQUEST_HEADERS": {"Accept": "text/html", "X-None": None}, "USER_AGENT": "bot/1"}
    introduction = Introduction.from_crawler(get_crawler(settings_dict=settings))
    plain, own = Request("http://a.test/"), Request("http://a.test/", headers={"accept": "image/png"})

    introduction.process_request(plain)
    introduction.process_request(own)
    plain.headers.appendlist("Accept", "text/plain")
    other = Request("http://a.test/")
    introduction.process_request(other)

    assert own.headers.getlist("Accept") == [b"image/png"]
    assert own.headers["User-Agent"].startswith(b"bot/1")
    assert "X-None" not in own.headers
    assert other.headers.getlist("Accept") == [b"text/html"]


@pytest.mark.filterwarnings("ignore:.*user_agent")
def test_a_spider_may_have_a_user_agent_of_its_own() -> None:
    introduction = Introduction.from_crawler(get_crawler(settings_dict={"USER_AGENT": "bot/1"}))
    spider, request = Spider("mine"), Request("http://a.test/")
    spider.user_agent = "mine/2"

    introduction.spider_opened(spider)
    introduction.process_request(request)

    assert request.headers["User-Agent"] == b"mine/2"
