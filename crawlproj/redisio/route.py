"""Where commands go: to the one server there is. `redisio.cluster` has the same for a Redis Cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection

from crawlproj.redisio.answers import NotNow, is_read_only, text_of
from crawlproj.redisio.connection import Argument, Command, Connector
from crawlproj.redisio.keys import Stripe
from crawlproj.redisio.pool import Pool
from crawlproj.redisio.witness import Watch, Witness


class Route(Protocol):
    #: The stripes of every run.
    stripes: Sequence[Stripe]

    def watch(self, keys: Sequence[str]) -> Watch:
        """Return a watch that counts in *keys*."""

    async def send(
        self,
        commands: Sequence[Command],
        answer_s: float,
        watch: Watch | None,
        generation: int | None,
        *,
        together: bool = False,
    ) -> list[Any]:
        """Send *commands*; returns the answers in their order.

        In place of an answer there may be the exception that kept it from coming. *together*: all to the
        same server, as a transaction needs it. Raises SetBack as `Pool.exchange` does.
        """

    async def send_to_all(self, command: Command, answer_s: float) -> list[Any]:
        """Send *command* to every master."""

    def masters(self) -> Sequence[Pool]:
        """Return the connections to each master."""

    def pool_of(self, key: Argument) -> Pool:
        """Return the connections to the server that has *key*."""

    def note(self, answer: Any) -> None:
        """Take an answer of a pool that may say that the key is on another server."""

    def connect(self) -> AbstractConnection:
        """Return a new connection to a server that has the messages of all channels."""

    async def close(self) -> None: ...


class SingleServer:
    """A server, or the master that Sentinels name."""

    stripes: Sequence[Stripe] = (None,)

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._pool = Pool(connector.new, connector.where)
        self.connect = connector.new

    def watch(self, keys: Sequence[str]) -> Watch:
        return Watch(keys[:1], lambda key: None)

    async def send(
        self,
        commands: Sequence[Command],
        answer_s: float,
        watch: Watch | None,
        generation: int | None,
        *,
        together: bool = False,
    ) -> list[Any]:
        witness = watch.of(None) if watch else None
        if witness is None:
            return await self._pool.exchange([(command, None) for command in commands], answer_s)
        counted = [*((command, witness) for command in commands), (witness.count, witness)]
        *answers, count = await self._pool.exchange(counted, answer_s, watch, generation)
        acknowledge(witness, count)
        return answers

    async def send_to_all(self, command: Command, answer_s: float) -> list[Any]:
        return await self.send([command], answer_s, None, None)

    def masters(self) -> Sequence[Pool]:
        return [self._pool]

    def pool_of(self, key: Argument) -> Pool:
        return self._pool

    def note(self, answer: Any) -> None:
        pass

    async def close(self) -> None:
        await self._pool.close()
        await self._connector.close()


def acknowledge(witness: Witness, count: Any) -> None:
    """Pass the answer to the count of a round trip on to its witness."""
    if is_read_only(count):
        # What a replica answers may be older than what we know.
        raise NotNow(text_of(count))
    witness.acknowledge(count)
