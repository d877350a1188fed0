"""The connections of a process to one server: a few, each for one exchange at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from crawlproj.errors import SetBack
from crawlproj.redisio.answers import checked, is_read_only
from crawlproj.redisio.connection import Command, exchange
from crawlproj.redisio.room import info_fields
from crawlproj.redisio.witness import Watch, Witness

#: Connections for calls that are answered at once; blocking calls and subscriptions have their own.
CONNECTIONS = 4

#: A command, and the witness of its slot if that is watched.
Watched = tuple[Command, Witness | None]


class Pool:
    """*connect* returns a connection that connects when it is first used; *where* is for messages."""

    def __init__(self, connect: Callable[[], AbstractConnection], where: str) -> None:
        self.where = where
        self.connect = connect
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free: list[AbstractConnection] = []
        self._free_blocking: list[AbstractConnection] = []
        #: The witnesses looked at on each connection since it was made.
        self._looked: dict[AbstractConnection, set[Witness]] = {}

    async def exchange(
        self,
        commands: Sequence[Watched],
        answer_s: float,
        watch: Watch | None = None,
        generation: int | None = None,
    ) -> list[Any]:
        """Send *commands*, the counts of their witnesses among them; before, look whether *watch* holds.

        Raises SetBack if it does not and *generation* is over.
        """
        async with self._slots:
            connection = self._free.pop() if self._free else self.connect()
            if not connection.is_connected:
                self._looked[connection] = set()
            try:
                refused: dict[Witness, ResponseError] = {}
                if watch is not None:
                    refused = await self._look(connection, watch, commands, answer_s)
                    if generation is not None and generation != watch.generation:
                        raise SetBack(f"Redis at {self.where} was set back to older data.")
                sent = [command for command, witness in commands if witness not in refused]
                answers = iter(await exchange(connection, sent, answer_s) if sent else [])
                received = [
                    next(answers) if witness not in refused else refused[witness] for _, witness in commands
                ]
                if any(map(is_read_only, received)):
                    # After a failover this is a replica; the same address leads to the new master.
                    await connection.disconnect(nowait=True)
                return received
            finally:
                # Last in, first out: after a restart of Redis, a retry does not meet another dead connection.
                self._free.append(connection)

    async def _look(
        self, connection: AbstractConnection, watch: Watch, commands: Sequence[Watched], answer_s: float
    ) -> dict[Witness, ResponseError]:
        """Find out on a new connection whether Redis was set back.

        Returns the witnesses that are on another server, or on their way there, with what this one answered.
        """
        looked = self._looked[connection]
        missing = {witness: None for _, witness in commands if witness and witness not in looked}
        if not missing:
            return {}
        expected = [watch.expected(witness) for witness in missing]
        *held, info = await exchange(
            connection, [*(witness.look for witness in missing), ("INFO", "server")], answer_s
        )
        server = info_fields(checked(info, self.where))["run_id"]
        refused = {}
        for witness, before, answer in zip(missing, expected, held, strict=True):
            if is_redirect(answer):
                refused[witness] = answer
                continue
            if isinstance(answer, ResponseError):
                # The next attempt must look again.
                await connection.disconnect(nowait=True)
            watch.compare(witness, before, checked(answer, self.where), self.where, server)
            looked.add(witness)
        return refused

    def look_again(self, witness: Witness) -> None:
        """Look at *witness* again before the next steps that it counts."""
        for looked in self._looked.values():
            looked.discard(witness)

    @contextmanager
    def blocking(self) -> Iterator[AbstractConnection]:
        """Lend a connection for a command that blocks."""
        connection = self._free_blocking.pop() if self._free_blocking else self.connect()
        try:
            yield connection
        finally:
            self._free_blocking.append(connection)

    async def close(self) -> None:
        for connection in [*self._free, *self._free_blocking]:
            # Waits until it is closed, so that `stop_if_unused` does not count it.
            await connection.disconnect()
        self._free.clear()
        self._free_blocking.clear()
        self._looked.clear()


def is_redirect(answer: Any) -> bool:
    """Whether a node of a Redis Cluster answered that the slot is on another, or on its way there."""
    return isinstance(answer, (MovedError, AskError, TryAgainError))
