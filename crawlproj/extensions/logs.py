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
from crawlproj.download.guard import AddressRefusedError, NoContactError
from crawlproj.errors import BadSetting, StoreUnavailable
from crawlproj.model.secrets import masked
from crawlproj.observe.logs import JsonLine, make_handler

#: What Scrapy lists at its start, over many lines.
_INVENTORY = ("Overridden settings:\n", "Enabled ", "Versions:\n")

#: Logs that a robots.txt could not be fetched; what it is fetched for is logged, too.
_ROBOTS_LOGGER = "scrapy.downloadermiddlewares.robotstxt"


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
    # Raises BadSetting, which is one line; Scrapy's own check of it is a traceback.
    load_config({"LOG_LEVEL": settings.get("LOG_LEVEL")})
    file = settings.get("LOG_FILE")
    if not file and not settings.getbool("LOG_ENABLED"):
        return logging.NullHandler()
    if file and not settings.getbool("LOG_FILE_APPEND"):
        Path(file).unlink(missing_ok=True)
    own_format = settings.get("LOG_FORMAT") if settings.getpriority("LOG_FORMAT") else None
    path, datefmt = Path(file) if file else None, settings.get("LOG_DATEFORMAT")
    try:
        handler = make_handler(_form(settings), path, fmt=own_format, datefmt=datefmt)
    except OSError as exc:
        wrong = f"Cannot write the log {file}: {exc.strerror}. Choose another file with LOG_FILE."
        raise StoreUnavailable(wrong) from exc
    handler.setLevel(settings.get("LOG_LEVEL"))
    handler.addFilter(_without_inventory(handler))
    handler.addFilter(_without_refused)
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


def _without_refused(record: logging.LogRecord) -> bool:
    """A filter: a refused address is one line, without a traceback, and none for its robots.txt."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, AddressRefusedError | NoContactError) or not record.name.startswith("scrapy."):
        return True
    record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", None, None
    return record.name != _ROBOTS_LOGGER


def _form(settings: BaseSettings) -> str:
    try:
        # This setting alone: errors in others are then reported in the right format.
        return load_config({"CRAWL_LOG": settings.get("CRAWL_LOG")}).log
    except BadSetting:
        # The scheduler or the command reports bad settings.
        return "auto"
