"""The direct way: pages of the spider `web` are fetched beside Scrapy's engine, one task each.

Scrapy's own way passes about forty coroutines, deferreds and tasks, most of which a paced broad crawl
has no use for. `shard/ways.py` decides whether anything would be missed without it; see docs/direct.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from scrapy import Request
from scrapy.downloadermiddlewares.stats import get_header_size, get_status_size
from scrapy.http import Headers
from scrapy.settings import BaseSettings
from scrapy.utils.python import global_object_name, without_none_values

from crawlproj.config import Config
from crawlproj.download.client import (
    Answer,
    BadRequestError,
    HttpClient,
    HttpRequest,
    header_lines,
    target_of,
    write_request,
)
from crawlproj.download.handler import http_request_of
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.records import Lease
from crawlproj.shard.context import PageSpider
from crawlproj.shard.requests import body_limits
from crawlproj.shard.robotstxt import ROBOTS_CUT

logger = logging.getLogger(__name__)


class RequestWriter:
    """Writes the requests that the spider `web` and our middlewares would make together."""

    def __init__(self, spider: PageSpider, config: Config, settings: BaseSettings) -> None:
        self._spider = spider
        self._defaults = without_none_values(settings["DEFAULT_REQUEST_HEADERS"])
        self._fails_on_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self.change(config)

    def change(self, config: Config) -> None:
        self._config = config
        self._headers = Headers({**self._defaults, "User-Agent": config.contact_user_agent})
        self._lines = header_lines(self._headers.items())

    def __call__(self, fetched: Lease | RobotsFetch) -> HttpRequest:
        target = target_of(fetched.url)
        if isinstance(fetched, RobotsFetch) or fetched.extra.robots_for:
            wire = write_request(target, self._lines)
            return HttpRequest(
                fetched.url, target.origin, wire, cut=ROBOTS_CUT, fails_on_loss=self._fails_on_loss
            )
        limits = body_limits(fetched, self._config)
        fails_on_loss = self._fails_on_loss and not limits.is_last_attempt
        extra = fetched.extra
        if extra.request:
            try:
                request = self._spider.request_of(fetched)
            except Exception as exc:
                # Not the site's fault: what is stored is not what this version can read.
                raise BadRequestError(f"cannot make a request for {fetched.url}: {exc!r}") from exc
            for name, values in self._headers.items():
                request.headers.setdefault(name, values)
            return http_request_of(request, fails_on_loss=fails_on_loss)
        lines = self._lines
        if extra.cookie:
            lines = [b"Cookie: " + extra.cookie.encode("latin-1", "replace"), *lines]
        wire = write_request(target, lines)
        return HttpRequest(fetched.url, target.origin, wire, "GET", limits.cut, limits.types, fails_on_loss)


class CountedExchange:
    """Sends requests with *client*, and keeps the statistics of Scrapy's DownloaderStats."""

    def __init__(self, client: HttpClient, count: Callable[..., None], *, logs: bool) -> None:
        self._client = client
        self._count = count
        self._logs = logs

    async def __call__(self, request: HttpRequest) -> Answer:
        count = self._count
        count("downloader/request_count")
        count(f"downloader/request_method_count/{request.method}")
        count("downloader/request_bytes", len(request.wire))
        try:
            answer = await self._client.fetch(request)
        except Exception as exc:
            count("downloader/exception_count")
            count(f"downloader/exception_type_count/{global_object_name(type(exc))}")
            raise
        count("downloader/response_count")
        count(f"downloader/response_status_count/{answer.status}")
        header_bytes = get_header_size(answer.headers)  # type: ignore[arg-type]  # any mapping will do
        size = header_bytes + get_status_size(answer.status) + 4 + len(answer.body)
        count("downloader/response_bytes", size)
        if self._logs:
            facts = {"url": request.url, "status": answer.status, "bytes": len(answer.body)}
            logger.debug("fetched", extra=facts)
        return answer


@dataclass(slots=True, eq=False)
class DirectFetches:
    """Starts a task for everything that may be fetched, at most *most* at a time.

    *may_start* is false while Scrapy's engine is paused, not started yet, or closing.
    """

    dispatcher: Dispatcher
    fetch: Callable[[Lease | RobotsFetch], Coroutine[None, None, None]]
    client: HttpClient
    count: Callable[..., None]
    most: int
    may_start: Callable[[], bool]
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _is_due: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def next_request(self) -> Request | None:
        """The engine calls this when it starts and when it was paused; it has nothing to fetch itself."""
        self.wake()
        return None

    def wake(self) -> None:
        """Start fetches in the loop's next iteration; several calls before that are one."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_due = False
        if not self.may_start():
            return
        while len(self._tasks) < self.most and (target := self.dispatcher.take()) is not None:
            if isinstance(target, Lease):
                self.count("scheduler/dequeued/redis")
            task = self._loop.create_task(self.fetch(target))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake()

    async def drain(self, seconds: float) -> bool:
        """Wait up to *seconds* for fetches in flight. Returns whether all of them ended."""
        self.most = 0
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.client.close()
        return not late
