"""`parser` under a spider's name: what schedules spiders, such as scrapyd, schedules parsers with it.

It is `scrapy parser` from its first moment: the process is replaced, so its number, its end and the signals
it gets are those of the parser. Not a runner of our own: scrapyd imports that before it has the egg.
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
        # scrapyd adds the number of its job and, when one was asked for, the version of the egg.
        for name in ("_job", "_version"):
            kwargs.pop(name, None)
        command = parser_command(sys.orig_argv, kwargs, given_settings(crawler.settings))
        os.execv(sys.executable, command)


def parser_command(
    crawl_command: Sequence[str], arguments: dict[str, str], settings: dict[str, str]
) -> list[str]:
    """Return *crawl_command* made into one of `scrapy parser`, started by the same program.

    Arguments become options whether a parser has them or not: it is the one to refuse them.
    """
    program = crawl_command[: crawl_command.index("crawl")]
    return [
        *program,
        "parser",
        *(f"--{name}={value}" for name, value in arguments.items()),
        *(f"--set={name}={value}" for name, value in settings.items()),
    ]


def given_settings(settings: BaseSettings) -> dict[str, str]:
    """Return what was set on the command line; the rest the parser finds where we found it."""
    return {
        name: str(settings[name])
        for name in settings
        if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    }
