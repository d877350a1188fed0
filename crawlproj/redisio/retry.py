"""Retrying while Redis is unreachable: how long, how often, and what is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from redis.exceptions import RedisError

from crawlproj.errors import RedisFull, RedisUnreachable
from crawlproj.redisio import embedded
from crawlproj.redisio.answers import Full, NotNow, reason_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How long one attempt may take before its connection is closed; doubled while attempts time out.
ANSWER_S = 5.0
LONGEST_ANSWER_S = 60.0
SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Retry:
    """One for all calls of a client: they share the deadline, the log lines and the restart of the server."""

    def __init__(self, where: str, wait_s: float, data_dir: Path | None, server: str | None) -> None:
        self.where = where
        self._wait_s = wait_s
        #: Where the embedded server lives, which is restarted when it dies; None for any other server.
        self._data_dir = data_dir
        self._server = server
        #: Calls that have failed at least once and are being retried.
        self._waiting: set[object] = set()
        #: When a call last succeeded, and when the first of those waiting now failed.
        self._last_answer = self._down_since = 0.0
        self._restarting = asyncio.Lock()
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    async def until_answered(self, attempt: Callable[[float], Awaitable[T]], *, is_first: bool = False) -> T:
        """Repeat *attempt* until Redis answers; log once that it is unreachable, and once that it is back.

        Gives up when no call at all has succeeded for as long as we wait; when *is_first*, at once, unless
        Redis answered that it cannot serve yet.
        """
        clock = asyncio.get_running_loop().time
        answer_s = ANSWER_S
        pause_s = 0.0
        me = object()
        try:
            while True:
                is_lost = is_full = False
                patience_s = 0.0 if is_first else self._wait_s
                try:
                    answer = await attempt(answer_s)
                except NotNow as exc:
                    is_full = isinstance(exc, Full)
                    reason = str(exc) if is_full else f"cannot serve requests now ({exc})"
                    patience_s = self._wait_s
                    pause_s = pause_s or SHORTEST_PAUSE_S
                except TimeoutError:
                    reason = f"did not answer in {answer_s:g} s"
                    answer_s = min(2 * answer_s, LONGEST_ANSWER_S)
                    pause_s = pause_s or SHORTEST_PAUSE_S
                except (RedisError, OSError) as exc:
                    reason = reason_of(exc, self.where)
                    is_lost = True
                else:
                    self._last_answer = clock()
                    self._log_back(me)
                    return answer
                self.on_failure()
                # The first retry after a lost connection is immediate and not logged: idle ones get closed.
                if pause_s:
                    if not self._waiting:
                        self._down_since = clock()
                    down_s = clock() - max(self._last_answer, self._down_since)
                    if down_s >= patience_s and is_full:
                        raise RedisFull(f"Redis at {self.where} {reason}.")
                    if down_s >= patience_s:
                        raise RedisUnreachable(f"Redis at {self.where} {reason}. {self._remedy()}")
                    self._log_down(me, reason, patience_s)
                    await asyncio.sleep(min(pause_s, patience_s - down_s))
                    if is_lost:
                        await self._restart_embedded()
                pause_s = min(max(2 * pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        finally:
            self._waiting.discard(me)

    def _log_down(self, me: object, reason: str, patience_s: float) -> None:
        if not self._waiting:
            logger.warning(
                "Redis at %s %s; retrying for up to %g s",
                self.where,
                reason,
                patience_s,
                extra={"redis": self.where, "wait_s": patience_s},
            )
        self._waiting.add(me)

    def _log_back(self, me: object) -> None:
        if me in self._waiting:
            self._waiting.discard(me)
            if not self._waiting:
                logger.info("Redis at %s is back", self.where, extra={"redis": self.where})

    async def _restart_embedded(self) -> None:
        """Start the embedded server again if it died; one call does it for all."""
        if self._data_dir is None or self._restarting.locked():
            return
        async with self._restarting:
            try:
                await asyncio.to_thread(
                    embedded.ensure_running, self._data_dir, server=self._server, wait_s=ANSWER_S
                )
            except RedisUnreachable as exc:
                logger.debug("the embedded Redis did not start", extra={"reason": str(exc)})

    def _remedy(self) -> str:
        if self._data_dir is not None:
            return f"See {self._data_dir / 'redis' / 'redis.log'}."
        return "Start it, or set REDIS_URL to its address; without REDIS_URL an embedded one is used."
