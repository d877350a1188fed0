from __future__ import annotations

import pytest
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from crawlproj import settings as project
from crawlproj.model.extra import Extra
from crawlproj.model.records import Lease
from crawlproj.spiders.web import WebSpider


@pytest.fixture
def crawler() -> Crawler:
    """The spider as `scrapy crawl web` makes it, with the settings of the project."""
    settings = Settings()
    settings.setmodule(project, priority="project")
    crawler = Crawler(WebSpider, settings)
    # As Scrapy's process does with a crawler that was made before: the spider's must go over them.
    crawler.settings.update(settings)
    return crawler


def test_nothing_but_http_can_be_downloaded_whatever_a_lease_says(crawler: Crawler) -> None:
    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")

    assert {scheme for scheme, handler in handlers.items() if handler} == {"http", "https"}


def test_everything_is_downloaded_past_the_address_guard(crawler: Crawler) -> None:
    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")

    assert {handler for handler in handlers.values() if handler} == {"crawlproj.download.handler.HttpHandler"}


def test_requests_name_their_contact(crawler: Crawler) -> None:
    middlewares = crawler.settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")

    assert middlewares["crawlproj.middlewares.UserAgentMiddleware"] == 500
    assert "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware" not in middlewares


def test_redirects_and_retries_are_left_to_the_frontier(crawler: Crawler) -> None:
    middlewares = crawler.settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")

    assert "scrapy.downloadermiddlewares.redirect.RedirectMiddleware" not in middlewares
    assert "scrapy.downloadermiddlewares.retry.RetryMiddleware" not in middlewares
    assert middlewares["crawlproj.middlewares.RetryLater"] == 840
    assert "crawlproj.middlewares.DomainFeedback" not in middlewares


@pytest.mark.parametrize("table", ["DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS"])
def test_scrapy_does_not_even_load_what_is_off(crawler: Crawler, table: str) -> None:
    named = {*crawler.settings[table], *crawler.settings[f"{table}_BASE"]}

    assert not any("cookies" in path or "referer" in path or "remote_control" in path for path in named)


def test_what_a_switch_turns_on_is_loaded() -> None:
    settings = Settings()
    settings.setmodule(project, priority="project")
    settings.set("TELNETCONSOLE_ENABLED", True, priority="cmdline")

    crawler = Crawler(WebSpider, settings)

    extensions = crawler.settings.get_component_priority_dict_with_base("EXTENSIONS")
    assert "scrapy.extensions.telnet.TelnetConsole" in extensions


def test_what_the_command_line_says_goes_over_the_spiders_own_settings() -> None:
    settings = Settings()
    settings.setmodule(project, priority="project")
    settings.set("CONCURRENT_ITEMS", 7, priority="cmdline")

    crawler = Crawler(WebSpider, settings)

    assert crawler.settings.getint("CONCURRENT_ITEMS") == 7


def test_a_start_url_brings_method_and_body_but_chooses_no_proxy_past_the_guard(crawler: Crawler) -> None:
    extra = Extra(
        request={
            "method": "POST",
            "body": {"$bytes": "cQ=="},
            "meta": {"proxy": "http://10.0.0.1:80", "bindaddress": "::1"},
        }
    )
    lease = Lease.from_token(f"1 1 a.test 0 0 http://a.test/ {extra.encode()}".encode(), 0, 1)

    request = WebSpider.from_crawler(crawler).request_of(lease)

    assert (request.method, request.body) == ("POST", b"q")
    assert {"proxy", "bindaddress"}.isdisjoint(request.meta)
