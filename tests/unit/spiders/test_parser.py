"""The spider `parser`: what it makes of the command that started it."""

from __future__ import annotations

import pytest
from scrapy.settings import Settings

from crawlproj.spiders.parser import given_settings, parser_command


@pytest.mark.parametrize(
    ("started_by", "program"),
    [
        (["python", "-m", "scrapyd.runner", "crawl", "parser"], ["python", "-m", "scrapyd.runner"]),
        (["python", "bin/scrapy", "crawl", "parser", "-a", "run=crawl"], ["python", "bin/scrapy"]),
    ],
)
def test_the_parser_is_started_by_the_program_that_was_to_crawl(
    started_by: list[str], program: list[str]
) -> None:
    assert parser_command(started_by, {}, {}) == [*program, "parser"]


def test_arguments_become_options_and_settings_go_along() -> None:
    command = parser_command(["scrapy", "crawl", "parser"], {"run": "news"}, {"CRAWL_DATA": "elsewhere"})

    assert command == ["scrapy", "parser", "--run=news", "--set=CRAWL_DATA=elsewhere"]


def test_only_command_line_settings_are_passed_on() -> None:
    settings = Settings({"CRAWL_RUN": "from the project"})
    settings.set("CRAWL_DATA", "elsewhere", priority="cmdline")

    assert given_settings(settings) == {"CRAWL_DATA": "elsewhere"}
