"""Every touch of Scrapy's private parts, in one place and checked at the start; `fastpath` has its own check.

Scrapy has no public way to wake its engine, to learn that nothing more will come of a request, or that a
shutdown has begun. These are the seams where we do it; when a Scrapy release moves them, `attach` says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import scrapy
from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.statscollectors import MemoryStatsCollector, StatsCollector

from crawlproj.errors import CrawlError

#: Returned by what `listeners` returns when there are none.
NOBODY: list[Any] = []
_NOTHING: dict[object, list[Any]] = {}


class _InProgress(set[Request]):
    """The engine's set of requests on their way; tells when one has left for good."""

    def __init__(self, on_leave: Callable[[Request], None]) -> None:
        super().__init__()
        self._on_leave = on_leave

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._on_leave(request)


def attach(
    engine: ExecutionEngine, *, on_leave: Callable[[Request], None], on_closing: Callable[[], None]
) -> None:
    """Have *on_leave* called for each request after its last callback and item.

    *on_closing* is called when a close begins, before the requests in flight are waited for.
    """
    slot: Any = engine._slot
    try:
        if slot.inprogress or not callable(slot.close) or not callable(slot.nextcall.schedule):
            raise AttributeError("the engine is already at work")
    except AttributeError as exc:
        raise CrawlError(
            f"Scrapy {scrapy.__version__} is built otherwise than crawlproj knows ({exc}); "
            "use the locked version."
        ) from exc
    slot.inprogress = _InProgress(on_leave)
    close = slot.close

    def close_and_tell() -> Any:
        on_closing()
        return close()

    slot.close = close_and_tell


def keep_cookies_at_home() -> None:
    """Have Scrapy's cookies use the public-suffix list they came with.

    By itself it would be fetched from the web: blocking the loop, and past the address guard. A spider
    without cookies has not loaded them, and needs nothing.
    """
    cookies: Any = sys.modules.get("scrapy.downloadermiddlewares.cookies")
    if cookies is not None:
        # Not at module level: it takes long to import, and opens a socket.
        from tldextract import TLDExtract

        cookies._split_domain = TLDExtract(
            cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True
        )


def counter_of(stats: StatsCollector) -> Callable[..., None]:
    """Return what increments a stat: ``count(key, by=1)``.

    Scrapy's `inc_value` looks at every name it is asked for in three ways, eight times the cost of counting.
    """
    if type(stats) is not MemoryStatsCollector:
        return stats.inc_value
    get_values = partial(object.__getattribute__, stats, "_stats")

    def count(key: str, by: int = 1) -> None:
        values = get_values()
        if key in values:
            values[key] += by
        else:
            values[key] = by

    return count


def listeners(crawler: Crawler) -> Callable[[object], list[Any] | None]:
    """Return what returns pydispatch's references to who listens to a signal, None if some listen to all.

    To send a signal to nobody costs as much as a request takes to write.
    """
    connections, sender, everything = dispatcher.connections, id(crawler.signals.sender), dispatcher.Any
    from_all = id(everything)

    def listeners_of(signal: object) -> list[Any] | None:
        by_signal = connections.get(sender, _NOTHING)
        if from_all in connections or everything in by_signal:
            return None
        return by_signal.get(signal, NOBODY)  # type: ignore[no-any-return]  # pydispatch has no types

    return listeners_of


def wake(engine: ExecutionEngine) -> None:
    """Have the engine ask the scheduler soon."""
    if engine._slot is not None:
        engine._slot.nextcall.schedule()


def start_is_exhausted(engine: ExecutionEngine) -> bool:
    """Whether all start requests of the spider have reached the scheduler."""
    return engine._start is None


def stop_reactor() -> None:
    """Stop now, whatever is still in flight, as Scrapy does at a second Ctrl-C."""
    # Not at module level: importing it installs one.
    from twisted.internet import reactor

    cast(Any, reactor).stop()


def exit_with(code: int) -> None:
    """Make the process end with *code*: `scrapy crawl` itself only knows 0 and 1."""
    atexit.register(_leave, code)


def _leave(code: int) -> None:
    # Runs first of all exit handlers, having been registered last, so it does what the others would.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
