"""Where commands go in a Redis Cluster: each to the master of its slot, in one round trip per master.

redis-py finds the nodes and keeps the map of slots. It is not used to send: its pipelines refuse scripts by
their hash, and the count of a witness must follow its steps on the same connection.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from crawlproj.errors import RedisRefused
from crawlproj.redisio.answers import NotNow, text_of
from crawlproj.redisio.connection import Argument, Command, Connector
from crawlproj.redisio.keys import STRIPES, Stripe, slot_of
from crawlproj.redisio.pool import Pool, is_redirect
from crawlproj.redisio.route import acknowledge
from crawlproj.redisio.witness import Watch, Witness

#: Commands without a key: any node may answer, so the one of this slot does.
_KEYLESS = {"PUBLISH", "TIME", "INFO", "PING", "SCAN", "CLIENT", "ECHO", "DBSIZE", "CONFIG"}
_ANY_SLOT = 0
#: How often a command follows redirections before it waits like any that cannot be served now.
_MOST_HOPS = 5


@dataclass
class _Sent:
    command: Command
    slot: int
    witness: Witness | None = None
    #: The node that the slot is moving to, which has the key already.
    asked: Pool | None = None
    answer: Any = field(default=None)


class Cluster:
    stripes: Sequence[Stripe] = tuple(range(STRIPES))

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        starts = [ClusterNode(host, port) for host, port in connector.addresses]
        self._nodes = RedisCluster(
            startup_nodes=starts, require_full_coverage=False, **connector.cluster_options
        ).nodes_manager
        #: Those of the URL; redis-py forgets them when it has found others.
        self._starts = dict(self._nodes.startup_nodes)
        self._pools: dict[tuple[str, int], Pool] = {}
        #: Where the steps that a witness counts went last.
        self._homes: dict[Witness, Pool] = {}
        #: The map of slots is to be read again: a node did not answer.
        self._is_stale = True
        self._turn = itertools.count()

    def watch(self, keys: Sequence[str]) -> Watch:
        return Watch(keys, slot_of)

    async def send(
        self,
        commands: Sequence[Command],
        answer_s: float,
        watch: Watch | None,
        generation: int | None,
        *,
        together: bool = False,
    ) -> list[Any]:
        await self._refresh_if_stale(answer_s)
        sent = [_Sent(command, _slot_of(command)) for command in commands]
        if together:
            [slot] = {one.slot for one in sent if one.command[0] not in ("MULTI", "EXEC")}
            for one in sent:
                one.slot = slot
        counts: list[_Sent] = []
        if watch is not None:
            for one in sent:
                one.witness = watch.of(one.slot)
            witnesses = {one.witness: one.slot for one in sent if one.witness}
            counts = [_Sent(witness.count, slot, witness) for witness, slot in witnesses.items()]
        await self._send([*sent, *counts], answer_s, watch, generation, hops=1 if together else _MOST_HOPS)
        for one in counts:
            # Of a node that did not answer nothing is known, and a moving slot is counted in the next time.
            if one.witness is not None and not _is_lost(one.answer):
                acknowledge(one.witness, one.answer)
        if together and any(is_redirect(one.answer) for one in sent):
            raise NotNow("TRYAGAIN the slot is on another node")
        return [one.answer for one in sent]

    async def _send(
        self, sent: list[_Sent], answer_s: float, watch: Watch | None, generation: int | None, hops: int
    ) -> None:
        for _ in range(hops):
            by_pool: defaultdict[Pool, list[_Sent]] = defaultdict(list)
            for one in sent:
                by_pool[one.asked or self._home_of(one)].append(one)
            results = await asyncio.gather(
                *(_exchange(pool, group, answer_s, watch, generation) for pool, group in by_pool.items()),
                return_exceptions=True,
            )
            for result, group in zip(results, by_pool.values(), strict=True):
                if isinstance(result, (RedisError, OSError, TimeoutError, NotNow)):
                    self._is_stale = True
                    for one in group:
                        one.answer = result
                elif isinstance(result, BaseException):
                    raise result
            sent = [one for one in sent if isinstance(one.answer, (MovedError, AskError))]
            for one in sent:
                one.asked = None
                # A MovedError is an AskError, too.
                if not isinstance(one.answer, MovedError):
                    one.asked = self._pool_at(one.answer.host, one.answer.port)
                elif one.answer.slot_id in self._nodes.slots_cache:
                    await self._nodes.move_slot(one.answer)
                else:
                    self._is_stale = True
            if not sent:
                return
        for one in sent:
            one.answer = TryAgainError(f"{text_of(one.answer)} redirected too often")

    async def send_to_all(self, command: Command, answer_s: float) -> list[Any]:
        await self._refresh_if_stale(answer_s)
        answers = await asyncio.gather(*(self._ask(pool, command, answer_s) for pool in self.masters()))
        return [answer for [answer] in answers]

    async def _ask(self, pool: Pool, command: Command, answer_s: float) -> list[Any]:
        try:
            return await pool.exchange([(command, None)], answer_s)
        except (RedisError, OSError, TimeoutError):
            self._is_stale = True
            raise

    def pool_of(self, key: Argument) -> Pool:
        return self._pool_of(slot_of(str(key)))

    def note(self, answer: Any) -> None:
        self._is_stale |= isinstance(answer, (MovedError, AskError))

    def connect(self) -> AbstractConnection:
        """Return a connection to one master after the other: messages reach all of them."""
        masters = self.masters()
        return masters[next(self._turn) % len(masters)].connect()

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()
        await self._nodes.aclose()
        await self._nodes.aclose("startup_nodes")

    async def _refresh_if_stale(self, answer_s: float) -> None:
        if not self._is_stale:
            return
        for name, node in self._starts.items():
            self._nodes.startup_nodes.setdefault(name, node)
        try:
            async with asyncio.timeout(answer_s):
                await self._nodes.initialize()
        except RedisClusterException as exc:
            # What the last node said; redis-py wraps an error reply once more.
            said = exc.__cause__
            if isinstance(said, RedisClusterException):
                said = said.__context__
            if "cluster support disabled" in str(said):
                raise RedisRefused(
                    f"Redis at {self._connector.where} is not a Redis Cluster. Write redis:// in REDIS_URL, "
                    "not redis+cluster://, or name nodes of one."
                ) from exc
            if isinstance(said, RedisError):
                raise said from exc
            raise RedisConnectionError(str(exc)) from exc
        self._is_stale = False
        living = {(str(node.host), int(node.port)) for node in self._nodes.nodes_cache.values()}
        for address in self._pools.keys() - living:
            await self._pools.pop(address).close()

    def masters(self) -> list[Pool]:
        nodes = {nodes[0].name: nodes[0] for nodes in self._nodes.slots_cache.values()}
        return [self._pool_at(node.host, int(node.port)) for node in nodes.values()]

    def _pool_of(self, slot: int) -> Pool:
        try:
            node = self._nodes.get_node_from_slot(slot)
        except (KeyError, RedisError) as exc:
            self._is_stale = True
            raise NotNow(f"CLUSTERDOWN no node has slot {slot}") from exc
        return self._pool_at(node.host, int(node.port))

    def _home_of(self, one: _Sent) -> Pool:
        """Return the master of its slot; one that was not its master meanwhile is looked at again."""
        pool = self._pool_of(one.slot)
        if one.witness and self._homes.get(one.witness) is not pool:
            # Our connections to it may be older than what it has taken over from others.
            pool.look_again(one.witness)
            self._homes[one.witness] = pool
        return pool

    def _pool_at(self, host: str, port: int) -> Pool:
        pool = self._pools.get((host, port))
        if pool is None:
            pool = self._pools[host, port] = Pool(
                lambda: self._connector.to(host, port), f"{self._connector.where} (node {host}:{port})"
            )
        return pool


async def _exchange(
    pool: Pool, group: list[_Sent], answer_s: float, watch: Watch | None, generation: int | None
) -> None:
    watched: list[tuple[Command, Witness | None]] = []
    for one in group:
        if one.asked:
            watched.append((("ASKING",), None))
        watched.append((one.command, None if one.asked else one.witness))
    answers = iter(await pool.exchange(watched, answer_s, watch, generation))
    for one in group:
        if one.asked:
            next(answers)
        one.answer = next(answers)


def _slot_of(command: Command) -> int:
    name = str(command[0])
    if name in _KEYLESS:
        return _ANY_SLOT
    if name in ("EVALSHA", "EVAL"):
        return slot_of(str(command[3])) if command[2] else _ANY_SLOT
    if len(command) == 1:
        return _ANY_SLOT
    key = command[1]
    return slot_of(key if isinstance(key, bytes) else str(key))


def _is_lost(answer: Any) -> bool:
    """Whether a count was not carried out, and neither were the steps before it."""
    if isinstance(answer, ResponseError):
        return is_redirect(answer) or isinstance(answer, (ClusterDownError, MasterDownError))
    return isinstance(answer, Exception)
