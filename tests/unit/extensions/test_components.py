"""A spider's own tables of components are added to ours; what they switch off is off."""

from __future__ import annotations

from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.project import get_project_settings

from crawlproj.extensions.components import SpiderComponents
from crawlproj.spiders.web import WebSpider


class MyMiddleware:
    pass


def settings_of(spider: type[Spider] = Spider, **custom: Any) -> Settings:
    """The settings of a crawl whose spider has *custom* settings."""
    crawler = Crawler(
        type("Mine", (spider,), {"custom_settings": custom} if custom else {}), get_project_settings()
    )
    SpiderComponents().update_settings(crawler.settings)
    return crawler.settings


def paths(settings: Settings, table: str) -> list[Any]:
    return list(build_component_list(settings.get_component_priority_dict_with_base(table)))


def test_a_middleware_of_a_spider_keeps_ours_and_keeps_scrapys_robots_txt_off() -> None:
    settings = settings_of(DOWNLOADER_MIDDLEWARES={MyMiddleware: 543})

    found = paths(settings, "DOWNLOADER_MIDDLEWARES")

    assert MyMiddleware in found
    assert "crawlproj.middlewares.DomainFeedback" in map(path_of, found)
    assert "crawlproj.middlewares.UserAgentMiddleware" in map(path_of, found)
    assert "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware" not in map(path_of, found)


def test_a_handler_of_a_spider_keeps_our_http_client_unless_it_replaces_it() -> None:
    ours, mine = "crawlproj.download.handler.HttpHandler", "mine.Handler"

    kept = settings_of(DOWNLOAD_HANDLERS={"s3": None})["DOWNLOAD_HANDLERS"]
    replaced = settings_of(DOWNLOAD_HANDLERS={"http": mine})["DOWNLOAD_HANDLERS"]

    assert dict(kept) == {"http": ours, "https": ours, "s3": None}
    assert dict(replaced) == {"http": mine, "https": ours}


def test_what_a_spider_switches_off_is_off() -> None:
    settings = settings_of(DOWNLOADER_MIDDLEWARES={"crawlproj.middlewares.UserAgentMiddleware": None})

    found = map(path_of, paths(settings, "DOWNLOADER_MIDDLEWARES"))

    assert "crawlproj.middlewares.UserAgentMiddleware" not in found


def test_a_spider_without_tables_and_the_spider_web_are_left_as_they_are() -> None:
    for spider in (Spider, WebSpider):
        before = Crawler(spider, get_project_settings()).settings.copy_to_dict()

        assert settings_of(spider).copy_to_dict() == before


def path_of(component: Any) -> str:
    return component if isinstance(component, str) else f"{component.__module__}.{component.__qualname__}"
