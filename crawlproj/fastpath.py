"""The short way of a request through Scrapy: one asyncio task, from the scheduler to the item pipeline.

Scrapy's own way passes about forty coroutines, deferreds and tasks, most of them for what a paced broad crawl
never does: slots with delays, items that wait, signals nobody listens to. This one does the same steps in the
same order, and hands over to Scrapy's own code wherever a user has put something of theirs in between; see
docs/fast.md. It is refused when Scrapy is not the one these steps were written for.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from typing import Any

import scrapy
from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request, signals
from scrapy.core.downloader import Downloader
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Scraper
from scrapy.crawler import Crawler
from scrapy.exceptions import _InvalidOutput
from scrapy.extensions.corestats import CoreStats
from scrapy.http import Response
from scrapy.logformatter import LogFormatter
from scrapy.utils.defer import ensure_awaitable, maybe_deferred_to_future
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.misc import warn_on_generator_with_return_value
from twisted.python.failure import Failure

from crawlproj import seams

logger = logging.getLogger(__name__)

#: Scrapy's steps that ours stand in for, and what their source looked like when ours were written.
_STEPS: tuple[Callable[..., Any], ...] = (
    ExecutionEngine._start_scheduled_requests,
    ExecutionEngine._start_scheduled_request,
    ExecutionEngine._handle_downloader_output,
    ExecutionEngine._download,
    Downloader.fetch,
    Downloader._enqueue_request,
    Downloader._download,
    DownloaderMiddlewareManager.download_async,
    DownloaderMiddlewareManager._process_request,
    DownloaderMiddlewareManager._process_response,
    Scraper.enqueue_scrape,
    Scraper._scrape,
    Scraper.call_spider_async,
    Scraper.handle_spider_output_async,
    Scraper._process_spidermw_output_async,
    Scraper.start_itemproc_async,
    CoreStats.item_scraped,
    CoreStats.response_received,
)
_KNOWN = frozenset({"5bef99d549fbf7ae"})
#: Scrapy's own listeners that only count, and what.
_COUNTS = {
    CoreStats.item_scraped: "item_scraped_count",
    CoreStats.response_received: "response_received_count",
}
#: Stands for the end of what a callback yields, which may be None.
_END = object()


class CannotTakeOver(Exception):
    """Why requests must go Scrapy's own way."""


@cache
def digest_of_steps() -> str:
    """Return a digest of the source of the steps we stand in for."""
    try:
        source = "".join(inspect.getsource(inspect.unwrap(step)) for step in _STEPS)
    except (OSError, TypeError) as exc:
        raise CannotTakeOver(f"the source of Scrapy cannot be read ({exc})") from exc
    return sha256(source.encode()).hexdigest()[:16]


def check(engine: ExecutionEngine) -> None:
    """Raise CannotTakeOver unless *engine* and its parts are those we know."""
    if digest_of_steps() not in _KNOWN:
        raise CannotTakeOver(f"Scrapy {scrapy.__version__} does these steps otherwise")
    parts = (
        (engine, ExecutionEngine),
        (engine.downloader, Downloader),
        (engine.downloader.middleware, DownloaderMiddlewareManager),
        (engine.scraper, Scraper),
    )
    for part, known in parts:
        if type(part) is not known:
            raise CannotTakeOver(f"{type(part).__qualname__} is in the place of Scrapy's {known.__name__}")


def take_over(crawler: Crawler, engine: ExecutionEngine) -> None:
    """Have all requests of *engine* go the short way from now on, or say why they cannot."""
    try:
        check(engine)
    except CannotTakeOver as exc:
        logger.warning("requests go Scrapy's own way, at about half the speed: %s", exc)
        return
    engine._start_scheduled_request = FastPath(crawler, engine).start  # type: ignore[method-assign]


class FastPath:
    """Stands in for the engine's way from a scheduled request to its end.

    Where an item pipeline is the only one and names its ``plain_item``, items of that type are given to it
    directly: it must be synchronous, and return them. An item it raises at is given to it again by Scrapy,
    who tells of it. All others get theirs from Scrapy.
    """

    def __init__(self, crawler: Crawler, engine: ExecutionEngine) -> None:
        slot, spider = engine._slot, crawler.spider
        assert slot is not None
        assert spider is not None
        self._engine, self._slot, self._spider = engine, slot, spider
        self._downloader, self._scraper = engine.downloader, engine.scraper
        self._listeners = _Listeners(crawler)
        self._listeners_of = seams.listeners(crawler)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Request, asyncio.Task[None]] = {}
        self._is_turn_due = False
        self._has_own_formatter = type(engine.logformatter) is not LogFormatter
        self._logs_pages = True
        self._process_request = self._calls_of("process_request")
        self._process_response = self._calls_of("process_response")
        of_spider = self._scraper.spidermw.methods
        self._has_spider_middlewares = any(
            any(of_spider[name])
            for name in ("process_spider_input", "process_spider_output", "process_spider_exception")
        )
        self._plain_callbacks: set[Callable[..., Any]] = set()
        self._plain_item: type | None = None
        self._pipeline: Any = None
        pipelines = self._scraper.itemproc.methods["process_item"]
        if len(pipelines) == 1:
            self._pipeline = pipelines[0]
            self._plain_item = getattr(getattr(self._pipeline, "__self__", None), "plain_item", None)

    def _calls_of(self, step: str) -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
        """Return the methods of the downloader middlewares for *step*, and how to call each."""
        middlewares: Any = self._downloader.middleware
        wants_spider = middlewares._mw_methods_requiring_spider
        return [
            (method, partial(method, spider=self._spider) if method in wants_spider else method)
            for method in middlewares.methods[step]
        ]

    # -- the engine's turn --

    def start(self) -> bool:
        """Start the next scheduled request; returns whether there was one."""
        request = self._slot.scheduler.next_request()
        if request is None:
            if self._listeners_of(signals.scheduler_empty) is not seams.NOBODY:
                self._listeners.tell(signals.scheduler_empty)
            return False
        self._slot.add_request(request)
        self._downloader.active.add(request)
        self._tasks[request] = self._loop.create_task(self._go(request))
        return True

    async def _go(self, request: Request) -> None:
        try:
            result: Response | Request | Failure
            try:
                result = await self._fetch(request)
            except Exception:  # noqa: BLE001  # the request's errback gets it
                result = _failure()
            finally:
                self._downloader.active.remove(request)
            if isinstance(result, Request):
                self._engine.crawl(result)
            elif isinstance(result, Failure):
                await maybe_deferred_to_future(self._scraper.enqueue_scrape(result, request))
            else:
                self._receive(result, request)
                await self._scrape(result, request)
        except Exception:
            logger.exception("a request was lost on its way", extra={"url": request.url})
        finally:
            del self._tasks[request]
            if not self._is_turn_due:
                self._is_turn_due = True
                self._loop.call_soon(self._turn)
            self._slot.remove_request(request)

    def _turn(self) -> None:
        self._is_turn_due = False
        # Scrapy's lines about single pages are of level DEBUG, and its logger takes all: handlers choose.
        self._logs_pages = self._has_own_formatter or _hears_debug(logger)
        self._engine._start_scheduled_requests()

    # -- downloader --

    async def _fetch(self, request: Request) -> Response | Request:
        """Pass *request* through the downloader middlewares, and download it between them."""
        result: Any = None
        try:
            for method, call in self._process_request:
                result = call(request=request)
                if result is not None:
                    result = await ensure_awaitable(result, _warn=_name(method))
                    _check_output(method, result, Response, Request, type(None))
                if result is not None:
                    break
            else:
                result = await self._download(request)
        except Exception as exc:  # noqa: BLE001  # raised again, unless a middleware makes something of it
            result = await self._downloader.middleware._process_exception(exc, request)
        if isinstance(result, Request):
            return result
        for method, call in self._process_response:
            result = call(request=request, response=result)
            if not isinstance(result, Response):
                result = await ensure_awaitable(result, _warn=_name(method))
                _check_output(method, result, Response, Request)
                if isinstance(result, Request):
                    return result
        response: Response = result
        return response

    async def _download(self, request: Request) -> Response:
        tell, listeners_of = self._listeners.tell, self._listeners_of
        if listeners_of(signals.request_reached_downloader) is not seams.NOBODY:
            tell(signals.request_reached_downloader, request=request)
        handlers = self._downloader.handlers
        try:
            scheme = request.url.partition(":")[0]
            handler = handlers._handlers.get(scheme)
            if handler is None or scheme in handlers._old_style_handlers:
                response = await handlers.download_request_async(request)
            else:
                response = await handler.download_request(request)
            if listeners_of(signals.response_downloaded) is not seams.NOBODY:
                tell(signals.response_downloaded, response=response, request=request)
            return response
        finally:
            if listeners_of(signals.request_left_downloader) is not seams.NOBODY:
                tell(signals.request_left_downloader, request=request)

    def _receive(self, response: Response, request: Request) -> None:
        if response.request is None:
            response.request = request
        if self._logs_pages:
            said = self._engine.logformatter.crawled(response.request, response, self._spider)
            if said is not None:
                logger.log(*logformatter_adapter(said), extra={"spider": self._spider})
        if not self._listeners.tell_own(signals.response_received):
            self._listeners.tell(signals.response_received, response=response, request=response.request)

    # -- spider and items --

    async def _scrape(self, response: Response, request: Request) -> None:
        assert response.request is not None
        callback = response.request.callback
        if self._has_spider_middlewares or callback is None or not self._is_plain(callback):
            await maybe_deferred_to_future(self._scraper.enqueue_scrape(response, request))
            return
        slot = self._scraper.slot
        assert slot is not None
        # As Scrapy does: no new requests while those who take items are behind.
        size = max(len(response.body), slot.MIN_RESPONSE_SIZE)
        slot.active_size += size
        try:
            await self._process(callback, response, request)
        finally:
            slot.active_size -= size

    async def _process(self, callback: Callable[..., Any], response: Response, request: Request) -> None:
        """Call the spider with *response*, and hand on what it yields."""
        assert response.request is not None
        outputs: Any = None
        while True:
            try:
                if outputs is None:
                    outputs = callback(response, **response.request.cb_kwargs)
                output = next(outputs, _END)
            except Exception:  # noqa: BLE001  # the spider's, and told as such
                self._scraper.handle_spider_error(_failure(), request, response)
                return
            if output is _END:
                return
            if type(output) is self._plain_item:
                await self._hand_on(output, response)
            else:
                await self._scraper._process_spidermw_output_async(output, response)

    def _is_plain(self, callback: Callable[..., Any]) -> bool:
        """Whether *callback* is a generator of the usual kind: one that awaits nothing."""
        if callback in self._plain_callbacks:
            return True
        if not inspect.isgeneratorfunction(callback):
            return False
        warn_on_generator_with_return_value(self._spider, callback)
        self._plain_callbacks.add(callback)
        return True

    async def _hand_on(self, item: Any, response: Response) -> None:
        try:
            self._pipeline(item)
        except Exception:  # noqa: BLE001  # Scrapy makes of it what it is: an error, or an item that was dropped
            await self._scraper.start_itemproc_async(item, response=response)
            return
        if self._logs_pages:
            said = self._engine.logformatter.scraped(item, response, self._spider)
            if said is not None:
                logger.log(*logformatter_adapter(said), extra={"spider": self._spider, "item": item})
        if not self._listeners.tell_own(signals.item_scraped):
            await self._engine.signals.send_catch_log_async(
                signals.item_scraped, item=item, response=response, spider=self._spider
            )


class _Listeners:
    """Who listens to a signal. Sending one to nobody costs Scrapy 6 us, and one to its own counters 16."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._crawler = crawler
        self._spider = crawler.spider
        self._references_to = seams.listeners(crawler)
        self._count = seams.counter_of(crawler.stats)
        #: By signal: pydispatch's references when we looked last, and what those behind them count.
        self._own: dict[object, tuple[list[Any], list[str] | None]] = {}

    def tell(self, signal: object, **facts: Any) -> None:
        self._crawler.signals.send_catch_log(signal, spider=self._spider, **facts)

    def tell_own(self, signal: object) -> bool:
        """Count for Scrapy's own listeners. Returns False, having told nobody, if there are others."""
        references = self._references_to(signal)
        if not references:
            return references is not None
        known = self._own.get(signal)
        if known is None or known[0] != references:
            known = self._own[signal] = list(references), self._counts_of(references)
        names = known[1]
        if names is None:
            return False
        for name in names:
            self._count(name)
        return True

    def _counts_of(self, references: list[Any]) -> list[str] | None:
        """Return the stats that those behind *references* count, None if one does anything else."""
        names: list[str] = []
        for reference in references:
            receiver: Any = reference() if isinstance(reference, dispatcher.WEAKREF_TYPES) else reference
            name = _COUNTS.get(getattr(receiver, "__func__", receiver))
            if name is None or receiver.__self__.stats is not self._crawler.stats:
                return None
            names.append(name)
        return names


def _hears_debug(logger: logging.Logger) -> bool:
    """Whether a handler would take a line of level DEBUG."""
    if not logger.isEnabledFor(logging.DEBUG):
        return False
    place: logging.Logger | None = logger
    while place is not None:
        if any(handler.level <= logging.DEBUG for handler in place.handlers):
            return True
        place = place.parent if place.propagate else None
    return False


def _failure() -> Failure:
    """Return the exception being handled as Scrapy's errbacks take it."""
    return Failure()  # type: ignore[no-untyped-call]


def _name(method: Callable[..., Any] | None) -> str:
    return getattr(method, "__qualname__", repr(method))


def _check_output(method: Callable[..., Any] | None, output: Any, *kinds: type) -> None:
    if not isinstance(output, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise _InvalidOutput(f"Middleware {_name(method)} must return {names}, got {type(output).__name__}")
