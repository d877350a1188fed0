"""Our settings in a Scrapy project of others: below its own, components side by side."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from scrapy.settings import Settings

from crawlproj.addon import CrawlprojAddon, wire
from crawlproj.console import load_command


def project(**values: Any) -> Settings:
    settings = Settings()
    settings.setdict(values, priority="project")
    return settings


def test_a_project_with_the_one_line_gets_our_scheduler_client_and_politeness() -> None:
    settings = project(ADDONS={"crawlproj.addon.CrawlprojAddon": 300}, LOG_INSTALL_ROOT_HANDLER=False)

    CrawlprojAddon.update_pre_crawler_settings(settings)

    assert settings["SCHEDULER"] == "crawlproj.scheduler.Scheduler"
    assert settings["DOWNLOAD_HANDLERS"]["https"] == "crawlproj.download.handler.HttpHandler"
    assert "crawlproj.pipelines.PageQueuePipeline" in settings["ITEM_PIPELINES"]
    assert settings["DOWNLOAD_DELAY"] == 1.0
    assert settings["ROBOTSTXT_OBEY"] is True
    assert settings["COMMANDS_MODULE"] == "crawlproj.commands"


def test_commands_of_ours_that_scrapy_starts_there_have_our_defaults_not_scrapys() -> None:
    command = load_command("run")
    command.settings = project(ADDONS={"crawlproj.addon.CrawlprojAddon": 300}, DOWNLOAD_DELAY=7)
    parser = argparse.ArgumentParser()
    command.add_options(parser)

    command.process_options([], parser.parse_args(["-s", "CRAWL_CHAIN=3"]))

    names = ("ROBOTSTXT_OBEY", "DOWNLOAD_VERIFY_CERTIFICATES", "USER_AGENT", "DOWNLOAD_DELAY", "CRAWL_CHAIN")
    assert [command.settings[name] for name in names] == [True, True, "crawlproj/0.1", 7, "3"]


@pytest.mark.parametrize(
    ("name", "value"), [("DOWNLOAD_DELAY", 7), ("USER_AGENT", "mine"), ("CRAWL_DATA", "elsewhere")]
)
def test_what_the_project_sets_is_kept(name: str, value: object) -> None:
    settings = project(**{name: value})

    wire(settings)

    assert settings[name] == value


def test_what_a_person_types_is_kept() -> None:
    settings = project(DOWNLOAD_DELAY=7)
    settings.set("DOWNLOAD_DELAY", "9", priority="cmdline")

    wire(settings)

    assert settings["DOWNLOAD_DELAY"] == "9"


def test_components_of_the_project_and_ours_are_used_together() -> None:
    settings = project(
        ITEM_PIPELINES={"shop.pipelines.Prices": 100},
        DOWNLOADER_MIDDLEWARES={"crawlproj.middlewares.DomainFeedback": 12},
        SPIDER_MODULES=["shop.spiders"],
    )

    wire(settings)

    assert dict(settings["ITEM_PIPELINES"]) == {
        "shop.pipelines.Prices": 100,
        "crawlproj.pipelines.PageQueuePipeline": 900,
    }
    assert settings["DOWNLOADER_MIDDLEWARES"]["crawlproj.middlewares.DomainFeedback"] == 12
    assert settings["DOWNLOADER_MIDDLEWARES"]["crawlproj.middlewares.UserAgentMiddleware"] == 500
    assert settings["SPIDER_MODULES"] == ["shop.spiders", "crawlproj.spiders"]


def test_names_of_our_own_project_are_not_passed_on() -> None:
    settings = project()

    wire(settings)

    assert (settings["BOT_NAME"], settings["NEWSPIDER_MODULE"]) == ("scrapybot", "")


def test_wiring_twice_changes_nothing() -> None:
    settings = project(ITEM_PIPELINES={"shop.pipelines.Prices": 100})
    wire(settings)
    once = settings.copy_to_dict()

    wire(settings)

    assert settings.copy_to_dict() == once
