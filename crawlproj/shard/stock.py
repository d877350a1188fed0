"""Scrapy's own way: leases become requests of its unpatched engine.

Used by other spiders, and by `web` when the user has added components. Our middleware, the spider and the
pipeline write the result of a request into the settlement in its meta, which is settled when the engine is
done with it. robots.txt is fetched by `crawlproj.shard.fetch`, through Scrapy's downloader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import InitVar, dataclass, field

from scrapy import Request, Spider
from scrapy.core.engine import ExecutionEngine

from crawlproj.download.client import Answer, HttpRequest, target_of
from crawlproj.download.handler import answer_of
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.records import Lease, Outcome, Settlement
from crawlproj.shard import seams
from crawlproj.shard.context import PageSpider
from crawlproj.shard.items import ScrapedItems
from crawlproj.shard.kept import KeptRequests, is_kept
from crawlproj.shard.requests import SETTLEMENT, decode_request
from crawlproj.shard.robotstxt import ROBOTS_CUT

logger = logging.getLogger(__name__)

#: One slot for all our requests: the frontier is the clock, so Scrapy's slots must add no delay.
_SLOT = "*"
#: What every request of ours carries. Scrapy's AutoThrottle would slow the slot, and with it all domains.
_PACED = {"download_slot": _SLOT, "download_paced": True, "autothrottle_dont_adjust_delay": True}
#: The status and redirect of a robots.txt must not be handled by Scrapy.
_AS_IT_IS = {"handle_httpstatus_all": True, "dont_redirect": True, "dont_retry": True}


def write_robots(target: Lease | RobotsFetch) -> HttpRequest:
    """Return the request for a robots.txt; Scrapy's downloader writes it by its own rules."""
    return HttpRequest(target.url, target_of(target.url).origin, b"", cut=ROBOTS_CUT)


async def exchange_by_engine(engine: ExecutionEngine, request: HttpRequest) -> Answer:
    """Send *request* through Scrapy's downloader and its middlewares."""
    meta = {**_PACED, **_AS_IT_IS, "download_cut": request.cut}
    return answer_of(await engine.download_async(Request(request.url, dont_filter=True, meta=meta)))


@dataclass(slots=True, eq=False)
class StockFetches:
    """Gives Scrapy's engine requests for leases, and settles them when it is done."""

    engine: ExecutionEngine
    spider: Spider
    dispatcher: Dispatcher
    kept: KeptRequests
    fetch_robots: Callable[[Lease | RobotsFetch], Coroutine[None, None, None]]
    count: Callable[..., None]
    items: ScrapedItems
    most: int
    on_closing: InitVar[Callable[[], None]]
    _robots_tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self, on_closing: Callable[[], None]) -> None:
        slot = {"concurrency": self.most, "delay": 0, "jitter": 0}
        self.engine.downloader.per_slot_settings[_SLOT] = slot
        seams.use_bundled_suffix_list()
        seams.attach(self.engine, on_leave=self._on_leave, on_closing=on_closing)

    def next_request(self) -> Request | None:
        if (unpaced := self.kept.next_unpaced()) is not None:
            return unpaced
        while len(self._robots_tasks) < self.most and (target := self.dispatcher.take()) is not None:
            if isinstance(target, Lease):
                self.count("scheduler/dequeued/redis")
            if isinstance(target, RobotsFetch) or target.extra.robots_for:
                task = asyncio.create_task(self.fetch_robots(target))
                self._robots_tasks.add(task)
                task.add_done_callback(self._on_robots_done)
                continue
            try:
                if is_kept(target) and self.kept.find(target) is None:
                    self._miss(target)
                    continue
                return self._request_of(target)
            except Exception as exc:  # noqa: BLE001  # the spider's code may have changed since the request was stored
                logger.error("lease dropped: cannot make a request for %s: %r", target.url, exc)
                self.dispatcher.settle(Settlement(target, Outcome.FAILED, "bad_request"))
        return None

    def _on_robots_done(self, task: asyncio.Task[None]) -> None:
        self._robots_tasks.discard(task)
        self.wake()

    def wake(self) -> None:
        seams.wake(self.engine)

    async def drain(self, seconds: float) -> bool:
        """End the fetches of robots.txt; the engine has waited for all others."""
        for task in self._robots_tasks:
            task.cancel()
        await asyncio.gather(*self._robots_tasks, return_exceptions=True)
        return True

    def _request_of(self, lease: Lease) -> Request:
        spider = self.spider
        request = self.kept.find(lease)
        if request is None and isinstance(spider, PageSpider):
            request = spider.request_of(lease)
        elif request is None:
            request = decode_request(lease.url, lease.extra.request, spider)
        request.meta.update(_PACED)
        request.meta["depth"] = lease.depth
        request.meta[SETTLEMENT] = Settlement(lease, Outcome.DONE)
        return request

    def _miss(self, lease: Lease) -> None:
        """End a lease whose request another process kept."""
        if seams.start_is_exhausted(self.engine):
            logger.error("request lost: %s was kept in the memory of a process that has ended", lease.url)
            self.dispatcher.settle(Settlement(lease, Outcome.FAILED, "request_lost"))
        else:
            # A start request, perhaps, that is still to be yielded again.
            self.dispatcher.settle(Settlement(lease, Outcome.RETRY, "retry_request", is_attempt=False))

    def _on_leave(self, request: Request) -> None:
        """The engine is done with a request."""
        settlement = request.meta.get(SETTLEMENT)
        if isinstance(settlement, Settlement):
            self.items.attach(settlement)
            self.dispatcher.settle(settlement)
            self.kept.drop(settlement.lease)
        self.kept.left(request)
