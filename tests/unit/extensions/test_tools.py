"""Which crawls belong to a run: those of the project's spiders, and none of Scrapy's own commands."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider
from scrapy.commands import bench, runspider
from scrapy.crawler import Crawler
from scrapy.utils.project import get_project_settings

from crawlproj.extensions.tools import ToolSettings, belongs_to_a_run
from crawlproj.spiders.web import WebSpider

SCRAPYS = "scrapy.core.scheduler.Scheduler"
ROBOTS = "crawlproj.extensions.robotstxt.RobotsTxtMiddleware"
LOG_STATS = "scrapy.extensions.logstats.LogStats"


class Mine(Spider):
    name = "mine"


def with_start_of(module: str) -> type[Spider]:
    """A spider whose `start` was replaced, as commands do it."""

    async def start(spider: Spider) -> None: ...

    start.__module__ = module
    return type("Mine", (Mine,), {"start": start})


def crawler_of(spider: type[Spider], *, crawling: bool = True, **settings: Any) -> Crawler:
    project = get_project_settings()
    project.setdict(settings, priority="command")
    if "SCHEDULER" in settings:
        project.set("SCHEDULER", settings["SCHEDULER"], priority="cmdline")
    crawler = Crawler(spider, project)
    crawler.crawling = crawling
    return crawler


#: The commands of Scrapy's that send requests, and a scheduler of a user's.
TOOLS = {
    "shell": crawler_of(Mine, crawling=False),
    "fetch": crawler_of(with_start_of("scrapy.commands.fetch")),
    "ScrapyRT": crawler_of(with_start_of("scrapyrt.core")),
    "bench": crawler_of(bench._BenchSpider),
    "runspider": crawler_of(Mine, **runspider.Command.default_settings),
    "-s SCHEDULER": crawler_of(Mine, SCHEDULER=SCRAPYS),
}


@pytest.mark.parametrize("spider", [Mine, WebSpider])
def test_a_crawl_of_the_projects_spiders_belongs_to_a_run(spider: type[Spider]) -> None:
    crawler = crawler_of(spider)
    before = crawler.settings.copy_to_dict()

    ToolSettings.from_crawler(crawler).update_settings(crawler.settings)

    assert belongs_to_a_run(crawler)
    assert crawler.settings.copy_to_dict() == before


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_has_scrapys_scheduler_robots_txt_and_log(tool: str) -> None:
    crawler = TOOLS[tool]

    assert not belongs_to_a_run(crawler)
    ToolSettings.from_crawler(crawler).update_settings(crawler.settings)

    assert crawler.settings["SCHEDULER"] == SCRAPYS
    assert crawler.settings["DOWNLOADER_MIDDLEWARES"][ROBOTS] == 100
    assert crawler.settings["EXTENSIONS"][LOG_STATS] == 0


def test_a_benchmark_may_reach_its_server_at_full_speed_and_other_tools_are_slow() -> None:
    for tool in ("bench", "fetch"):
        ToolSettings.from_crawler(TOOLS[tool]).update_settings(TOOLS[tool].settings)

    assert TOOLS["bench"].settings["CRAWL_ALLOW_ADDRESSES"] == ("127.0.0.0/8", "::1")
    assert TOOLS["bench"].settings.getfloat("DOWNLOAD_DELAY") == 0
    assert not TOOLS["fetch"].settings["CRAWL_ALLOW_ADDRESSES"]
    assert TOOLS["fetch"].settings.getfloat("DOWNLOAD_DELAY") == 1
    assert TOOLS["fetch"].settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == 1
