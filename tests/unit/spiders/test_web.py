from __future__ import annotations

from scrapy.crawler import Crawler

from crawlproj.spiders.web import WebSpider


def test_nothing_but_http_can_be_downloaded_whatever_a_lease_says() -> None:
    crawler = Crawler(WebSpider)

    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")

    assert {scheme for scheme, handler in handlers.items() if handler} == {"http", "https"}
