"""Notices when Redis comes back with older data than this process has been told about: it was set back.

Redis carries out all writes in one order, so what a crash or a stale replica takes away is the end of that
order. The client counts its round trips in Redis, each behind the steps it carries. If the last count that
was acknowledged is still there, so is everything else that was.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from crawlproj.redisio.connection import Command

logger = logging.getLogger(__name__)


class Witness:
    """The count of one client, in the hash *key*."""

    def __init__(self, key: str) -> None:
        #: Rises each time Redis was set back. What was known before must be read again.
        self.generation = 0
        self._key = key
        self._client = secrets.token_hex(6)
        self._acknowledged = 0
        #: False: a full Redis did not count, so the next break may be a set-back that cannot be noticed.
        self._is_sure = True

    @property
    def count(self) -> Command:
        """The command that goes behind the steps of a round trip."""
        return "HINCRBY", self._key, self._client, 1

    @property
    def look(self) -> Command:
        """The command that goes first on every new connection, alone."""
        return "HGET", self._key, self._client

    def acknowledge(self, answer: Any) -> None:
        """Take the answer to `count`."""
        if isinstance(answer, int):
            self._acknowledged = max(self._acknowledged, answer)
        else:
            self._is_sure = False

    def expected(self) -> tuple[int, int]:
        """Return what to pass to `compare`, as of when `look` is sent."""
        return self.generation, self._acknowledged

    def compare(self, expected: tuple[int, int], answer: Any, where: str) -> None:
        """Take the answer to `look`."""
        generation, acknowledged = expected
        held = int(answer or 0)
        # Another connection may have noticed in the meantime.
        if generation != self.generation or (held >= acknowledged and self._is_sure):
            return
        self.generation += 1
        self._acknowledged, self._is_sure = held, True
        logger.warning(
            "Redis at %s was set back: it lost what it had acknowledged. What it lost is fetched again",
            where,
            extra={"redis": where, "acknowledged": acknowledged, "held": held},
        )
