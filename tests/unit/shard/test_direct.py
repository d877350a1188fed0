"""The direct way stands in for components that exist, and sends what they would send."""

from __future__ import annotations

import pytest
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

from crawlproj import settings as project
from crawlproj.download.client import BadRequestError
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.extra import NO_EXTRA, Extra
from crawlproj.model.records import Lease, encode_entry
from crawlproj.shard.direct import RequestWriter
from crawlproj.shard.ways import COVERED
from crawlproj.spiders.web import WebSpider

ROBOTS = RobotsFetch("http://a.test", "a.test", "http://a.test/robots.txt")


def writer_with(**changed: object) -> RequestWriter:
    settings = Settings()
    settings.setmodule(project, priority="project")
    settings.update({"CRAWL_CONTACT": "me@a.test", **changed}, priority="cmdline")
    crawler = Crawler(WebSpider, settings)
    spider = WebSpider.from_crawler(crawler)
    return RequestWriter(spider, spider.config, crawler.settings)


@pytest.fixture
def write() -> RequestWriter:
    return writer_with()


def lease_of(extra: Extra = NO_EXTRA, attempt: int = 0) -> Lease:
    entry = encode_entry("http://a.test/p?q=1", "a.test", 0, attempt, extra)
    return Lease.from_token(f"1 1 a.test {entry}".encode(), 0, 1)


@pytest.mark.parametrize("name", sorted(COVERED))
def test_what_the_direct_way_covers_exists(name: str) -> None:
    assert load_object(name).__name__ == name.rpartition(".")[2]


def test_a_page_is_requested_with_the_headers_of_the_settings_and_the_contact(write: RequestWriter) -> None:
    request = write(lease_of())

    head = request.wire.decode()
    assert head.startswith("GET /p?q=1 HTTP/1.1\r\nHost: a.test\r\nAccept: text/html")
    assert "User-Agent: crawlproj/0.1 (+me@a.test)\r\n\r\n" in head
    assert (request.cut, request.fails_on_loss) == (5_000_000, True)
    assert "text/html" in request.types


def test_a_cookie_of_a_redirect_is_sent_back(write: RequestWriter) -> None:
    assert b"\r\nCookie: a=1; b=2\r\n" in write(lease_of(Extra(cookie="a=1; b=2"))).wire


def test_the_last_attempt_takes_part_of_a_page(write: RequestWriter) -> None:
    assert not write(lease_of(attempt=2)).fails_on_loss


def test_a_sitemap_may_be_large_and_of_any_type(write: RequestWriter) -> None:
    request = write(lease_of(Extra(sitemap_level=1)))

    assert (request.cut, request.types) == (50_000_000, ())


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_robots_txt_is_read_as_far_as_it_counts(write: RequestWriter, is_elsewhere: bool) -> None:
    request = write(lease_of(Extra(robots_for="http://b.test")) if is_elsewhere else ROBOTS)

    assert (request.cut, request.types) == (512_001, ())


@pytest.mark.parametrize("target", [ROBOTS, lease_of()], ids=["robots", "page"])
def test_an_incomplete_body_fails_unless_the_setting_accepts_it(target: Lease | RobotsFetch) -> None:
    assert writer_with()(target).fails_on_loss
    assert not writer_with(DOWNLOAD_FAIL_ON_DATALOSS=False)(target).fails_on_loss


def test_headers_that_are_not_a_users_to_set_are_left_out() -> None:
    headers = {"Accept": "*/*", "Proxy-Authorization": "secret", "Host": "b.test", "Content-Length": "9"}

    head = writer_with(DEFAULT_REQUEST_HEADERS=headers)(ROBOTS).wire

    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:] if line]
    assert names == [b"Host", b"Accept", b"User-Agent"]
    assert b"b.test" not in head


def test_a_start_url_keeps_its_method_body_and_headers(write: RequestWriter) -> None:
    parts = {"method": "POST", "body": {"$bytes": "cQ=="}, "headers": {"Accept": "text/plain"}}

    request = write(lease_of(Extra(request=parts)))

    assert request.method == "POST"
    assert request.wire.startswith(b"POST /p?q=1 HTTP/1.1\r\nHost: a.test\r\nAccept: text/plain\r\n")
    assert b"\r\nContent-Length: 1\r\n\r\nq" in request.wire


def test_a_start_url_that_this_version_cannot_read_is_a_bad_request(write: RequestWriter) -> None:
    with pytest.raises(BadRequestError, match=r"a\.test"):
        write(lease_of(Extra(request={"_class": "subprocess.Popen"})))
