"""What the Scrapy components of a shard share: set when the scheduler opens, looked up by crawler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler

from crawlproj.config import Config
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.feed import Feed
from crawlproj.model.records import Lease
from crawlproj.runs import Run
from crawlproj.runs.telemetry import Telemetry
from crawlproj.shard.results import Results


@runtime_checkable
class PageSpider(Protocol):
    """A spider whose responses go to parsers as pages, such as `web`.

    Other spiders handle links, exclusions and traps themselves.
    """

    #: Whether this one process is the whole crawl.
    is_single: bool

    def check_arguments(self) -> None:
        """Raise BadArgument for a spider argument that does not exist."""

    def request_of(self, lease: Lease) -> Request:
        """Return the request for *lease*."""

    async def admit_seeds(self) -> None:
        """Admit its seeds, if it has any. May be called again."""


@dataclass(frozen=True, slots=True)
class ShardContext:
    config: Config
    run: Run
    feed: Feed
    telemetry: Telemetry
    #: The rules for URLs, and the results of responses; only a `PageSpider` uses them.
    rules: AdmissionRules
    results: Results
    #: Called with the new options when the rules of the run change.
    on_change: list[Callable[[Config], None]] = field(default_factory=list)
    #: What must end before a finished run is deleted: the parser in this process.
    drains: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


_contexts: WeakKeyDictionary[Crawler, ShardContext] = WeakKeyDictionary()


def set_context(crawler: Crawler, context: ShardContext) -> None:
    _contexts[crawler] = context


def context_of(crawler: Crawler) -> ShardContext:
    return _contexts[crawler]


def find_context(crawler: Crawler) -> ShardContext | None:
    """Return the context; None when the shard could not start."""
    return _contexts.get(crawler)
