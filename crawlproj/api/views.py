"""Views of jobs that are shared: however many clients look at one, Redis is asked once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from crawlproj.api.problems import Refused
from crawlproj.api.view import read_job
from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.redisio.client import RedisClient

logger = logging.getLogger(__name__)

#: How old a view may be that is returned again: streams read one every second.
FRESH_S = 1.0
#: While a disk is busy, Redis may not answer for seconds. So long an older view is returned, up to this age.
_STALE_S = 5.0
_PATIENCE_S = 0.05
#: Jobs whose last view is kept.
_MOST_KEPT = 1000
_EVERY_S = 1.0
#: Clients that get an event before other requests have their turn.
_AT_ONCE = 5
#: A comment after this time of silence, so that proxies keep the connection and clients notice its loss.
_ALIVE_S = 15.0
#: Event streams at once.
MOST_STREAMS = 1000
#: What changes by itself, and is no reason to publish a view.
_AGES = ("processes", "ran_seconds")


class JobViews:
    """The last views of jobs, and those who wait for the next."""

    def __init__(self, client: RedisClient, config: Config) -> None:
        self._client = client
        self._config = config
        self._kept: dict[str, tuple[float, dict[str, Any] | None]] = {}
        self._reading: dict[str, asyncio.Task[dict[str, Any] | None]] = {}
        self._pollers: dict[str, _Poller] = {}
        self._streams = 0

    async def get(self, job: str, max_age_s: float = FRESH_S) -> dict[str, Any] | None:
        """Return a view of *job* that is at most *max_age_s* old; None if there is no such job.

        It may be some seconds older if Redis is slow, unless *max_age_s* is 0.
        """
        at_s, view = self._kept.get(job, (float("-inf"), None))
        age_s = time.monotonic() - at_s
        if age_s <= max_age_s:
            return view
        reading = self._reading.get(job)
        if reading is None or not max_age_s:
            reading = asyncio.create_task(self._read(job), name=f"view-{job}")
            # Nobody may be left to hear of an error.
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._reading[job] = reading
        if max_age_s and age_s <= _STALE_S:
            await asyncio.wait([reading], timeout=_PATIENCE_S)
            if not reading.done():
                return view
        return await asyncio.shield(reading)

    async def _read(self, job: str) -> dict[str, Any] | None:
        started_s = time.monotonic()
        try:
            view = await read_job(self._client, self._config, job)
        finally:
            if self._reading.get(job) is asyncio.current_task():
                del self._reading[job]
        self._kept.pop(job, None)
        if view is not None:
            self._kept[job] = (started_s, view)
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return view

    def forget(self, job: str) -> None:
        """Read *job* anew next time: it was changed."""
        self._kept.pop(job, None)
        self._reading.pop(job, None)
        if poller := self._pollers.get(job):
            poller.hurry.set()

    async def events(self, job: str) -> AsyncIterator[bytes]:
        """Yield the view of *job* as server-sent events, at once and whenever it has changed.

        A slow client gets the newest view next, not all that it missed.
        """
        self._streams += 1
        poller = self._pollers.get(job)
        if poller is None:
            poller = self._pollers[job] = _Poller(self, job)
        poller.clients += 1
        seen = 0
        try:
            while True:
                if seen == poller.version:
                    try:
                        async with asyncio.timeout(_ALIVE_S):
                            await poller.next_event()
                    except TimeoutError:
                        yield b": alive\n\n"
                        continue
                seen = poller.version
                yield poller.event
                if poller.is_over:
                    return
        finally:
            self._streams -= 1
            poller.clients -= 1
            if not poller.clients:
                self._pollers.pop(job, None)
                await poller.stop()

    def check_room(self) -> None:
        if self._streams >= MOST_STREAMS:
            raise Refused(429, f"{MOST_STREAMS:,} event streams are open.", headers={"Retry-After": "10"})

    async def close(self) -> None:
        pollers, self._pollers = list(self._pollers.values()), {}
        for poller in pollers:
            await poller.stop()


class _Poller:
    """Reads one job every second while somebody listens."""

    def __init__(self, views: JobViews, job: str) -> None:
        self.clients = 0
        self.version = 0
        self.event = b""
        self.is_over = False
        self.hurry = asyncio.Event()
        self._views = views
        self._job = job
        self._waiting: list[asyncio.Future[None]] = []
        self._task = asyncio.create_task(self._poll(), name=f"events-{job}")

    async def next_event(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        last: object = None
        while not self.is_over:
            self.hurry.clear()
            try:
                view = await self._views.get(self._job, 0)
            except CrawlError as exc:
                logger.warning("cannot read a job: %s", exc, extra={"run": self._job})
            else:
                shown = view and {name: value for name, value in view.items() if name not in _AGES}
                is_live = view is not None and view["state"] == "processing"
                if is_live or shown != last or not self.version:
                    last = shown
                    await self._publish(view)
            try:
                async with asyncio.timeout(_EVERY_S):
                    await self.hurry.wait()
            except TimeoutError:
                pass

    async def _publish(self, view: dict[str, Any] | None) -> None:
        self.is_over = view is None
        if view is None:
            self.event = b'event: gone\ndata: {"id":' + msgspec.json.encode(self._job) + b"}\n\n"
        else:
            self.event = b"event: job\ndata: " + msgspec.json.encode(view) + b"\n\n"
        self.version += 1
        waiting, self._waiting = self._waiting, []
        for number, one in enumerate(waiting):
            if not one.done():
                one.set_result(None)
            if number % _AT_ONCE == 0:
                # Other requests are answered in between.
                await asyncio.sleep(0)
