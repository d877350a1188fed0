"""The middlewares' own rules; what they tell the feed is seen in the tests of whole crawls."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawlproj.download.endings import retry_after_s
from crawlproj.middlewares import DomainFeedback, RetryLater

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
