"""Logs of a Scrapy process in our format (`observe.logs`), from the first line on.

An add-on, because only those run before Scrapy sets up logging. Scrapy's settings (LOG_FILE, LOG_LEVEL,
LOG_ENABLED, LOG_FORMAT, LOG_SHORT_NAMES) keep their meaning; a LOG_FILE is rotated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from scrapy.settings import BaseSettings
from scrapy.utils.log import TopLevelFormatter, configure_logging

from crawlproj.config import load_config
from crawlproj.errors import BadSetting
from crawlproj.model.secrets import masked
from crawlproj.observe.logs import JsonLine, make_handler

#: What Scrapy lists at its start, over many lines.
_INVENTORY = ("Overridden settings:\n", "Enabled ", "Versions:\n")


class ProcessLog:
    """Replaces Scrapy's log handler by ours."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        if settings.getbool("LOG_INSTALL_ROOT_HANDLER"):
            settings.set("LOG_INSTALL_ROOT_HANDLER", False, priority="cmdline")
            logging.root.setLevel(logging.NOTSET)
            logging.root.addHandler(_handler(settings))


def set_up_logging(settings: BaseSettings) -> None:
    """The same for a command that has no crawler."""
    ProcessLog.update_pre_crawler_settings(settings)
    configure_logging(settings)  # type: ignore[arg-type]  # it only reads them


def _handler(settings: BaseSettings) -> logging.Handler:
    file = settings.get("LOG_FILE")
    if not file and not settings.getbool("LOG_ENABLED"):
        return logging.NullHandler()
    if file and not settings.getbool("LOG_FILE_APPEND"):
        Path(file).unlink(missing_ok=True)
    own_format = settings.get("LOG_FORMAT") if settings.getpriority("LOG_FORMAT") else None
    handler = make_handler(
        _form(settings), Path(file) if file else None, fmt=own_format, datefmt=settings.get("LOG_DATEFORMAT")
    )
    handler.setLevel(settings.get("LOG_LEVEL"))
    handler.addFilter(_without_inventory(handler))
    if settings.getbool("LOG_SHORT_NAMES"):
        handler.addFilter(TopLevelFormatter(["scrapy"]))
    return handler


def _without_inventory(handler: logging.Handler) -> Callable[[logging.LogRecord], bool]:
    """Return a filter: no secrets in Scrapy's lists, and in JSON the lists only at LOG_LEVEL=DEBUG."""
    is_brief = isinstance(handler.formatter, JsonLine) and handler.level > logging.DEBUG

    def is_logged(record: logging.LogRecord) -> bool:
        if not record.name.startswith("scrapy.") or not str(record.msg).startswith(_INVENTORY):
            return True
        record.msg, record.args = masked(record.getMessage()), None
        return not is_brief

    return is_logged


def _form(settings: BaseSettings) -> str:
    try:
        # This setting alone: errors in others are then reported in the right format.
        return load_config({"CRAWL_LOG": settings.get("CRAWL_LOG")}).log
    except BadSetting:
        # The scheduler or the command reports bad settings.
        return "auto"
