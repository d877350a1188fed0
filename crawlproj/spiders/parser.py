"""A parser under a spider's name, for what can only schedule spiders, such as scrapyd.

It replaces its process by `scrapy parser`, so pid, exit code and signals are those of the parser. Not done by
our own runner, because scrapyd imports that before it has the egg.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings


class ParserSpider(Spider):
    """Becomes a parser: ``scrapy crawl parser -a run=NAME`` is ``scrapy parser --run NAME``."""

    name = "parser"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> NoReturn:
        # scrapyd adds the id of its job and, if given, the version of the egg.
        for name in ("_job", "_version"):
            kwargs.pop(name, None)
        command = parser_command(sys.orig_argv, kwargs, given_settings(crawler.settings))
        os.execv(sys.executable, command)


def parser_command(
    crawl_command: Sequence[str], arguments: dict[str, str], settings: dict[str, str]
) -> list[str]:
    """Return *crawl_command* turned into one of `scrapy parser`, run by the same program.

    All arguments become options: the parser itself refuses unknown ones.
    """
    program = crawl_command[: crawl_command.index("crawl")]
    return [
        *program,
        "parser",
        *(f"--{name}={value}" for name, value in arguments.items()),
        *(f"--set={name}={value}" for name, value in settings.items()),
    ]


def given_settings(settings: BaseSettings) -> dict[str, str]:
    """Return the settings of the command line; the parser reads the others itself."""
    return {
        name: str(settings[name])
        for name in settings
        if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    }
