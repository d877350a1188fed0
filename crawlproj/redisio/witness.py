"""Notices when Redis comes back with older data than this process has seen: it was set back.

Redis carries out all writes in one order, so what a crash or a stale replica takes away is the end of that
order. The client counts its round trips in Redis, each behind the steps it carries. If the last count that
was acknowledged is still there, so is everything else that was. A Redis Cluster has such an order for each
slot, so there is a count in each slot that the client's steps use.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from crawlproj.redisio.connection import Command

logger = logging.getLogger(__name__)


class Witness:
    """The count of one client, in the hash *key*."""

    def __init__(self, key: str, client: str) -> None:
        self._key = key
        self._client = client
        self.acknowledged = 0
        #: False: a full Redis did not count, so the next break may be a set-back that cannot be noticed.
        self.is_sure = True
        #: The run id of the server that was last looked at.
        self.server = ""

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
            self.acknowledged = max(self.acknowledged, answer)
        else:
            self.is_sure = False


class Watch:
    """The witnesses of one client, in the hashes *keys*; each is for the commands in the same group."""

    def __init__(self, keys: Iterable[str], group_of: Callable[[str], object]) -> None:
        #: Rises each time Redis was set back. What was known before must be read again.
        self.generation = 0
        #: How often the data was found on another server than before, or on the same one restarted.
        self.moves = 0
        client = secrets.token_hex(6)
        self._of = {group_of(key): Witness(key, client) for key in keys}

    def of(self, group: object) -> Witness | None:
        return self._of.get(group)

    def expected(self, witness: Witness) -> tuple[int, int]:
        """Return what to pass to `compare`, as of when `look` is sent."""
        return self.generation, witness.acknowledged

    def compare(
        self, witness: Witness, expected: tuple[int, int], answer: Any, where: str, server: str
    ) -> None:
        """Take the answer to `look`, and the run id of the server that gave it."""
        if server != witness.server:
            self.moves += bool(witness.server)
            witness.server = server
        generation, acknowledged = expected
        held = int(answer or 0)
        # Another connection may have noticed in the meantime.
        if generation != self.generation or (held >= acknowledged and witness.is_sure):
            return
        self.generation += 1
        witness.acknowledged, witness.is_sure = held, True
        logger.warning(
            "Redis at %s was set back: it lost what it had acknowledged. What it lost is fetched again",
            where,
            extra={"redis": where, "acknowledged": acknowledged, "held": held},
        )
