"""When a shard reads its pages itself."""

from __future__ import annotations

import pytest
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from crawlproj import settings as project
from crawlproj.shard.single import parses_inline
from crawlproj.spiders.web import WebSpider


def spider_of(setting: str, **arguments: str) -> WebSpider:
    settings = Settings()
    settings.setmodule(project, priority="project")
    settings.set("CRAWL_PARSE", setting, priority="cmdline")
    return WebSpider.from_crawler(Crawler(WebSpider, settings), **arguments)


@pytest.mark.parametrize(
    ("setting", "arguments", "is_inline"),
    [
        ("auto", {}, True),
        ("auto", {"seeds": "seeds.txt", "run": "news"}, True),
        ("auto", {"shard": "0"}, False),
        ("auto", {"shards": "2"}, False),
        ("inline", {"shard": "0", "shards": "2"}, True),
        ("processes", {}, False),
    ],
)
def test_a_shard_without_a_number_parses_inline_by_default(
    setting: str, arguments: dict[str, str], is_inline: bool
) -> None:
    spider = spider_of(setting, **arguments)

    assert parses_inline(spider, spider.config) is is_inline


def test_a_shard_that_was_not_numbered_is_the_only_one() -> None:
    spider = spider_of("auto")

    assert (spider.shard, spider.shards) == ("0", "1")
