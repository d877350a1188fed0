"""Scrapy's settings that count for less in a run, or not at all, and what to set instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLevelNamesMapping
from typing import NamedTuple, Protocol

from crawlproj.errors import Problem

_FALSE = ("false", "0", "no", "off")


class Unused(NamedTuple):
    """Why a setting has no effect, and what has; ``fine`` are values that a run keeps anyway."""

    instead: str
    fine: tuple[str, ...] = ()
    #: Own spiders are crawled with Scrapy's components, which use it.
    only_web: bool = False


#: Settings of Scrapy that people set and a run does not use. What a run uses otherwise is in docs/tools.md.
UNUSED: Mapping[str, Unused] = {
    "AUTOTHROTTLE_ENABLED": Unused("slow sites are given more time anyway: CRAWL_DELAY_FACTOR", _FALSE),
    "CONCURRENT_REQUESTS_PER_DOMAIN": Unused(
        'a domain gets one request at a time; your own: DOWNLOAD_SLOTS={"example.org": {"concurrency": 8}}',
        ("1",),
    ),
    "CONCURRENT_REQUESTS_PER_IP": Unused("requests to one address are spaced by CRAWL_IP_DELAY", ("0",)),
    "DOWNLOAD_DELAY_JITTER": Unused("delays are kept exactly: DOWNLOAD_DELAY", ("0", "0.0")),
    "DUPEFILTER_CLASS": Unused("Redis finds duplicates, by REQUEST_FINGERPRINTER_CLASS"),
    "LOGSTATS_INTERVAL": Unused("CRAWL_FIGURES_SECONDS says how often progress is logged", ("0", "0.0")),
    "ROBOTSTXT_PARSER": Unused("robots.txt is read by RFC 9309 (docs/robots.md)"),
    "SCHEDULER_DISK_QUEUE": Unused("URLs wait in Redis, by priority and domain"),
    "SCHEDULER_MEMORY_QUEUE": Unused("URLs wait in Redis, by priority and domain"),
    "SCHEDULER_PRIORITY_QUEUE": Unused("URLs wait in Redis, by priority and domain"),
    "CLOSESPIDER_PAGECOUNT": Unused("the limit of a run is --max-pages", ("0",), only_web=True),
    "CLOSESPIDER_TIMEOUT": Unused("the limit of a run is --max-seconds", ("0", "0.0"), only_web=True),
    "COMPRESSION_ENABLED": Unused("pages are decompressed by the parsers", ("true", "1"), only_web=True),
    "DEPTH_PRIORITY": Unused(
        "URLs wait by domain, in the order in which they were found", ("0",), only_web=True
    ),
    "DOWNLOAD_MAXSIZE": Unused("longer pages are cut at CRAWL_MAX_BODY", only_web=True),
    "HTTPAUTH_USER": Unused("use a spider of your own for sites with a login", ("",), only_web=True),
    "HTTPCACHE_ENABLED": Unused("pages are not cached; a run never fetches one twice", _FALSE, only_web=True),
    "JOBDIR": Unused("a run resumes by its name: --run", only_web=True),
    "METAREFRESH_ENABLED": Unused("such redirects are links", ("true", "1"), only_web=True),
    "REDIRECT_ENABLED": Unused("CRAWL_MAX_REDIRECTS=0 follows none", ("true", "1"), only_web=True),
    "REDIRECT_MAX_TIMES": Unused("set CRAWL_MAX_REDIRECTS", only_web=True),
    "RETRY_EXCEPTIONS": Unused("which errors are retried is fixed (docs/politeness.md)", only_web=True),
    "RETRY_HTTP_CODES": Unused("which statuses are retried is fixed (docs/politeness.md)", only_web=True),
    "RETRY_PRIORITY_ADJUST": Unused("retries wait behind the other URLs of their domain", only_web=True),
    "URLLENGTH_LIMIT": Unused("set CRAWL_MAX_URL", only_web=True),
}


class GivenSettings(Protocol):
    """What we need of Scrapy's settings."""

    def get(self, name: str, /) -> object: ...

    def getpriority(self, name: str, /) -> int | None: ...


def unused_settings(settings: GivenSettings, spider: str) -> list[str]:
    """Return a sentence for every setting that somebody has given and a run of *spider* does not use."""
    return [
        f"{name} has no effect in a run{' of the spider web' if unused.only_web else ''}: {unused.instead}."
        for name, unused in sorted(UNUSED.items())
        if (settings.getpriority(name) or 0) > 0
        and (value := settings.get(name)) is not None
        and str(value).lower() not in unused.fine
        and (spider == "web" or not unused.only_web)
    ]


def log_level_problems(values: Mapping[str, object]) -> list[Problem]:
    """Return what is wrong with LOG_LEVEL, which Scrapy and `logging` refuse only once processes start."""
    level = values.get("LOG_LEVEL")
    if level is None or isinstance(level, int) or str(level) in getLevelNamesMapping():
        return []
    wrong = f"LOG_LEVEL={level!r} is not a log level."
    return [Problem("LOG_LEVEL", str(level), wrong, "Choose from DEBUG, INFO, WARNING, ERROR, CRITICAL.")]


def attempts_by_retries(values: Mapping[str, object]) -> tuple[int | None, list[Problem]]:
    """Return the attempts per URL that RETRY_ENABLED and RETRY_TIMES stand for, None if not given."""
    if str(values.get("RETRY_ENABLED", True)).lower() in _FALSE:
        return 1, []
    given = values.get("RETRY_TIMES")
    if given is None:
        return None, []
    if not str(given).isdecimal() or int(str(given)) > 99:
        wrong = f"RETRY_TIMES={given!r} is not a number of retries."
        return None, [Problem("RETRY_TIMES", str(given), wrong, "Give a whole number from 0 to 99.")]
    return int(str(given)) + 1, []
