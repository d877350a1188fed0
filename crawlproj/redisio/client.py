"""The Redis client: every call of a process goes through one `RedisClient`, which waits out an outage.

Scripts and commands are safe to repeat, so a call whose answer was lost is simply sent again.
A call that was sent is never cancelled: what a script has claimed would have no owner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from crawlproj.config import Config
from crawlproj.errors import BadSetting, RedisFull, RedisRefused, SetBack
from crawlproj.redisio import embedded
from crawlproj.redisio.answers import Full, NotNow, checked, is_full, is_read_only, is_temporary, text_of
from crawlproj.redisio.connection import Argument, Command, Connector, exchange
from crawlproj.redisio.retry import ANSWER_S, Retry
from crawlproj.redisio.room import Memory, info_fields
from crawlproj.redisio.scripts import BadScript, Scripts
from crawlproj.redisio.servers import OLDEST_VERSION
from crawlproj.redisio.subscription import Subscription
from crawlproj.redisio.witness import Witness

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Connections for calls that are answered at once; blocking calls and subscriptions have their own.
CONNECTIONS = 4
#: The most a process has: those, one to wait for pages or start URLs, one that subscribes.
MOST_CONNECTIONS = CONNECTIONS + 2
#: How often a full Redis, which refuses commands that block, is polled instead.
_FULL_POLL_S = 0.2


class RedisClient:
    """One per process, made by `open`. Answers are bytes, as Redis sends them.

    `run`, `run_many`, `command`, `pipeline` and `block` retry while Redis is unreachable, for *wait_s* after
    its last answer, then raise `RedisUnreachable`. They must be safe to repeat. A caller that is cancelled
    stops waiting, but its call is still carried out (except for `block`).

    A process that keeps what Redis told it calls `watch`, and passes the `generation` it relies on: its steps
    raise `SetBack` once Redis has come back with older data.
    """

    def __init__(
        self,
        url: str,
        *,
        params: Mapping[str, object],
        wait_s: float,
        data_dir: Path | None,
        server: str | None,
        scripts: Scripts,
    ) -> None:
        self._connector = Connector(url, params)
        self.where = self._connector.where
        self.retry = Retry(self.where, wait_s, data_dir, server)
        self._data_dir = data_dir
        self._scripts = scripts
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free: list[AbstractConnection] = []
        self._free_blocking: list[AbstractConnection] = []
        self._calls: set[asyncio.Task[Any]] = set()
        self._witness: Witness | None = None
        #: The run id of the server: another one after every restart.
        self.server = ""
        #: Called with the seconds of every round trip.
        self.on_answer: Callable[[float], None] = lambda seconds: None

    @classmethod
    async def open(
        cls,
        *,
        url: str | None,
        data_dir: Path,
        server: str | None = None,
        params: Mapping[str, object] = {},
        wait_s: float = 300.0,
        scripts: Scripts | None = None,
    ) -> RedisClient:
        """Connect, and check the server's version and role; without *url*, the embedded one of *data_dir*."""
        own = data_dir if url is None else None
        if url is None:
            url, params = await asyncio.to_thread(embedded.ensure_running, data_dir, server=server), {}
        client = cls(
            url, params=params, wait_s=wait_s, data_dir=own, server=server, scripts=scripts or Scripts()
        )
        try:
            await client._check()
        except BaseException:
            await client.close()
            raise
        return client

    @classmethod
    async def connect(cls, config: Config) -> RedisClient:
        """Open the Redis that *config* names."""
        params = config.redis_params
        if config.redis_password_file is not None:
            params = {"password": _password_in(config.redis_password_file), **params}
        return await cls.open(
            url=config.redis_url,
            data_dir=config.data,
            server=config.redis_server,
            params=params,
            wait_s=config.redis_wait_seconds,
        )

    def watch(self, witness: str) -> None:
        """Notice from now on when Redis is set back, by counting in the hash *witness*; again: no change."""
        self._witness = self._witness or Witness(witness)

    def stop_watching(self) -> None:
        self._witness = None

    @property
    def generation(self) -> int:
        """Rises each time Redis came back with older data than it had acknowledged, if we `watch`."""
        return self._witness.generation if self._witness else 0

    async def run(
        self, script: str, keys: Sequence[str], args: Sequence[Argument], *, generation: int | None = None
    ) -> Any:
        [answer] = await self.run_many(script, [(keys, args)], generation=generation)
        return answer

    async def run_many(
        self,
        script: str,
        calls: Sequence[tuple[Sequence[str], Sequence[Argument]]],
        *,
        generation: int | None = None,
        waits_for_room: bool = True,
    ) -> list[Any]:
        """Run *script* once per call, in one round trip; answers in the order of *calls*.

        If one of them fails, all are carried out, then the first error is raised. Raises SetBack if
        *generation* is given and over. Without *waits_for_room* a full Redis raises RedisFull at once; some
        of the calls may have been carried out.
        """
        step = self._scripts[script]
        commands: list[Command] = []
        for keys, args in calls:
            if not step.takes(len(keys)):
                raise BadScript(
                    f"{script}.lua takes {len(step.keys)} keys {step.keys}, not {len(keys)}: {keys}."
                )
            commands.append(("EVALSHA", step.sha, len(keys), *keys, *args))
        load = ("SCRIPT LOAD", step.text)
        return await self._shielded(
            self._answers(commands, load=load, generation=generation, waits_for_room=waits_for_room)
        )

    async def command(self, *args: Argument, generation: int | None = None) -> Any:
        [answer] = await self._shielded(self._answers([args], generation=generation))
        return answer

    async def pipeline(
        self, commands: Sequence[Command], *, transaction: bool = False, waits_for_room: bool = True
    ) -> list[Any]:
        """Send several commands in one round trip; with *transaction*, all take effect or none.

        Without it they must not depend on each other: one that Redis cannot serve now is retried alone, or
        raises RedisFull as in `run_many`.
        """
        if not transaction:
            return await self._shielded(self._answers(commands, waits_for_room=waits_for_room))
        if not commands:
            return []
        return await self._shielded(self._transaction([("MULTI",), *commands, ("EXEC",)]))

    async def block(self, *args: Argument, timeout_s: float) -> Any:
        """Send a blocking command; its last argument, the timeout, is left out of *args*.

        None: it ran out, or Redis is full and does not block.

        If the connection is lost or the caller cancelled at the wrong moment, the command may have taken
        effect without an answer: use commands that leave what they took in Redis (BLMOVE, not BLPOP).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = self._free_blocking.pop() if self._free_blocking else self._connector.new()

        async def attempt(answer_s: float) -> Any:
            # Never 0, which means forever.
            left_s = max(round(deadline - loop.time(), 3), 0.01)
            [answer] = await exchange(connection, [(*args, left_s)], left_s + answer_s)
            if is_full(answer):
                await asyncio.sleep(min(left_s, _FULL_POLL_S))
                return None
            return checked(answer, self.where)

        try:
            return await self.retry.until_answered(attempt)
        finally:
            self._free_blocking.append(connection)

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Subscription]:
        """Subscribe to *channels* for as long as the context lasts; see `Subscription`."""
        connection = self._connector.new()
        try:
            yield Subscription(self.retry, connection, channels)
        finally:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Finish the calls in flight, for a few seconds at most, then disconnect.

        The last client of an embedded server stops it.
        """
        if self._calls and not self.retry.is_waiting:
            await asyncio.wait(self._calls, timeout=ANSWER_S)
        unfinished = list(self._calls)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        try:
            async with asyncio.timeout(ANSWER_S):
                for connection in [*self._free, *self._free_blocking]:
                    # Waits until it is closed, so that `stop_if_unused` does not count it.
                    await connection.disconnect()
        except TimeoutError:
            pass
        self._free.clear()
        self._free_blocking.clear()
        if self._data_dir is not None:
            await asyncio.to_thread(embedded.stop_if_unused, self._data_dir)

    async def _check(self) -> None:
        async def attempt(answer_s: float) -> bytes:
            [answer] = await self._on_a_connection([("INFO",)], answer_s)
            info: bytes = checked(answer, self.where)
            if b"\nloading:1" in info:
                raise NotNow("LOADING Redis is loading the dataset in memory")
            return info

        info = await self._shielded(self.retry.until_answered(attempt, is_first=True))
        fields = info_fields(info)
        self.server = fields["run_id"]
        version = fields["redis_version"]
        if tuple(map(int, version.split(".")[:2])) < OLDEST_VERSION[:2]:
            raise RedisRefused(f"Redis at {self.where} is version {version}; 6.2 or newer is needed.")
        if fields["role"] != "master":
            raise RedisRefused(
                f"Redis at {self.where} is a read-only replica. Use its master: "
                f"{fields.get('master_host')}:{fields.get('master_port')}."
            )
        if fields.get("cluster_enabled") == "1":
            raise RedisRefused(
                f"Redis at {self.where} is a node of a Redis Cluster, which is not supported yet. "
                "Use a single server."
            )
        policy = fields.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            logger.warning(
                "Redis at %s loses URLs when its memory is full: set maxmemory-policy to noeviction, not %s",
                self.where,
                policy,
                extra={"redis": self.where, "policy": policy},
            )

    async def _shielded(self, call: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(call, name="redis-call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)

    async def _answers(
        self,
        commands: Sequence[Command],
        *,
        load: Command | None = None,
        generation: int | None = None,
        waits_for_room: bool = True,
    ) -> list[Any]:
        """Return the answers in the order of *commands*; *load* is sent first if Redis lacks the script."""
        answers: list[Any] = [None] * len(commands)
        unanswered = list(range(len(commands)))
        first: list[Command] = []

        async def attempt(answer_s: float) -> None:
            nonlocal unanswered
            sent_now = [*first, *(commands[i] for i in unanswered)]
            received = await self._on_a_connection(sent_now, answer_s, generation)
            if first:
                checked(received.pop(0), self.where)
                first.clear()
            unanswered, sent = [], unanswered
            not_now = ""
            for i, answer in zip(sent, received, strict=True):
                answers[i] = answer
                if isinstance(answer, ResponseError):
                    text = text_of(answer)
                    if load is not None and text.startswith("NOSCRIPT"):
                        unanswered.append(i)
                        first[:] = [load]
                    elif is_temporary(text):
                        unanswered.append(i)
                        not_now = text
            if not_now:
                try:
                    await self._check_room(received, answer_s)
                except Full as exc:
                    if waits_for_room:
                        raise
                    raise RedisFull(f"Redis at {self.where} {exc}.") from exc
                raise NotNow(not_now)

        while unanswered:
            await self.retry.until_answered(attempt)
        return [checked(answer, self.where) for answer in answers]

    async def _transaction(self, commands: Sequence[Command]) -> list[Any]:
        async def attempt(answer_s: float) -> list[Any]:
            *queued, executed = answers = await self._on_a_connection(commands, answer_s)
            await self._check_room(answers, answer_s)
            # The error of a command that was not queued says more than that of EXEC.
            for answer in [*queued, executed]:
                checked(answer, self.where)
            return [checked(answer, self.where) for answer in executed]

        return await self.retry.until_answered(attempt)

    async def read_memory(self) -> Memory:
        return Memory.from_info(await self.command("INFO", "memory"))

    async def _check_room(self, answers: Sequence[Any], answer_s: float) -> None:
        """Raise Full if one of *answers* says so."""
        if any(map(is_full, answers)):
            [info] = await self._on_a_connection([("INFO", "memory")], answer_s)
            raise Full(Memory.from_info(checked(info, self.where)))

    async def _on_a_connection(
        self, commands: Sequence[Command], answer_s: float, generation: int | None = None
    ) -> list[Any]:
        async with self._slots:
            connection = self._free.pop() if self._free else self._connector.new()
            asked_s = time.perf_counter()
            witness = self._witness
            try:
                if witness is not None and not connection.is_connected:
                    await self._look(connection, witness, answer_s)
                if generation is not None and generation != self.generation:
                    raise SetBack(f"Redis at {self.where} was set back to older data.")
                if witness is None:
                    answers = await exchange(connection, commands, answer_s)
                else:
                    *answers, count = await exchange(connection, [*commands, witness.count], answer_s)
                    if is_read_only(count):
                        # What a replica answers may be older than what we know.
                        await connection.disconnect(nowait=True)
                        raise NotNow(text_of(count))
                    witness.acknowledge(count)
                if any(map(is_read_only, answers)):
                    # After a failover this is a replica; the same address leads to the new master.
                    await connection.disconnect(nowait=True)
                self.on_answer(time.perf_counter() - asked_s)
                return answers
            finally:
                # Last in, first out: after a restart of Redis, a retry does not meet another dead connection.
                self._free.append(connection)

    async def _look(self, connection: AbstractConnection, witness: Witness, answer_s: float) -> None:
        """Find out on a new connection whether Redis was set back."""
        expected = witness.expected()
        held, info = await exchange(connection, [witness.look, ("INFO", "server")], answer_s)
        if isinstance(held, ResponseError):
            # The next attempt must look again.
            await connection.disconnect(nowait=True)
        witness.compare(expected, checked(held, self.where), self.where)
        self.server = info_fields(checked(info, self.where))["run_id"]


def _password_in(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as exc:
        raise BadSetting(
            f"REDIS_PASSWORD_FILE={path!r} cannot be read: {exc.strerror}. Name the file that holds it."
        ) from exc


def pairs(flat: list[bytes] | dict[bytes, bytes]) -> list[tuple[str, str]]:
    """Return the fields of a hash, as RESP2 or RESP3 delivers them."""
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return [(name.decode(), value.decode()) for name, value in items]
