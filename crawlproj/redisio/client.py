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

from redis.exceptions import ResponseError

from crawlproj.config import Config
from crawlproj.errors import BadSetting, RedisFull
from crawlproj.redisio import embedded, keys
from crawlproj.redisio.answers import Full, NotNow, checked, is_full, is_temporary, text_of
from crawlproj.redisio.cluster import Cluster
from crawlproj.redisio.connection import Argument, Command, Connector, exchange
from crawlproj.redisio.pool import CONNECTIONS, Pool
from crawlproj.redisio.retry import ANSWER_S, Retry
from crawlproj.redisio.room import Memory, fullest, info_fields
from crawlproj.redisio.route import Route, SingleServer
from crawlproj.redisio.scripts import BadScript, Scripts
from crawlproj.redisio.servercheck import check_server
from crawlproj.redisio.subscription import Subscription
from crawlproj.redisio.witness import Watch

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The most a process has to a server: for calls, one to wait for pages or start URLs, one that subscribes.
MOST_CONNECTIONS = CONNECTIONS + 2
#: How often a full Redis, which refuses commands that block, is polled instead.
_FULL_POLL_S = 0.2


class RedisClient:
    """One per process, made by `open`. Answers are bytes, as Redis sends them.

    `run`, `run_many`, `command`, `pipeline` and `block` retry while Redis is unreachable, for *wait_s* after
    its last answer, then raise `RedisUnreachable`. They must be safe to repeat. A caller that is cancelled
    stops waiting, but its call is still carried out (except for `block`).

    A process that keeps what it has read calls `watch`, and passes the `generation` it relies on: its steps
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
        connector = Connector(url, params)
        self._is_cluster = connector.kind == "cluster"
        self._route: Route = Cluster(connector) if self._is_cluster else SingleServer(connector)
        self.where = connector.where
        self.retry = Retry(self.where, wait_s, data_dir, server)
        self._data_dir = data_dir
        self._scripts = scripts
        self._calls: set[asyncio.Task[Any]] = set()
        self._watch: Watch | None = None
        #: The stripes of every run in this Redis.
        self.stripes = self._route.stripes
        #: The run id of the server when it was opened; '' of a Redis Cluster, which has many.
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

    def watch(self, *witnesses: str) -> None:
        """Notice from now on when Redis is set back, by counting in the hashes *witnesses*; again: no change.

        In a Redis Cluster each is for the steps in its slot; on a single server the first is for all.
        """
        self._watch = self._watch or self._route.watch(witnesses)

    def stop_watching(self) -> None:
        self._watch = None

    @property
    def generation(self) -> int:
        """Rises each time Redis came back with older data than it had acknowledged, if we `watch`."""
        return self._watch.generation if self._watch else 0

    @property
    def incarnation(self) -> str:
        """Another one after Redis was restarted, or another server has taken over, if we `watch`."""
        return f"{self.server}.{self._watch.moves if self._watch else 0}"

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
        step = self._scripts.guarded(script) if self._is_cluster else self._scripts[script]
        commands: list[Command] = []
        for names, args in calls:
            if not step.takes(len(names)):
                raise BadScript(
                    f"{script}.lua takes {len(step.keys)} keys {step.keys}, not {len(names)}: {names}."
                )
            if self._is_cluster:
                names = [*names, keys.absent(names[0])]
            commands.append(("EVALSHA", step.sha, len(names), *names, *args))
        return await self._shielded(
            self._answers(commands, text=step.text, generation=generation, waits_for_room=waits_for_room)
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

        async def attempt(answer_s: float) -> Any:
            # Never 0, which means forever.
            left_s = max(round(deadline - loop.time(), 3), 0.01)
            with self._route.pool_of(args[1]).blocking() as connection:
                [answer] = await exchange(connection, [(*args, left_s)], left_s + answer_s)
            if is_full(answer):
                await asyncio.sleep(min(left_s, _FULL_POLL_S))
                return None
            self._route.note(answer)
            return checked(answer, self.where)

        return await self.retry.until_answered(attempt)

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Subscription]:
        """Subscribe to *channels* for as long as the context lasts; see `Subscription`."""
        subscription = Subscription(self.retry, self._route.connect, channels)
        try:
            yield subscription
        finally:
            await subscription.disconnect()

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
                await self._route.close()
        except TimeoutError:
            pass
        if self._data_dir is not None:
            await asyncio.to_thread(embedded.stop_if_unused, self._data_dir)

    async def _check(self) -> None:
        async def attempt(answer_s: float) -> list[bytes]:
            answers = await self._route.send_to_all(("INFO",), answer_s)
            infos: list[bytes] = [checked(answer, self.where) for answer in answers]
            if any(b"\nloading:1" in info for info in infos):
                raise NotNow("LOADING Redis is loading the dataset in memory")
            return infos

        infos = await self._shielded(self.retry.until_answered(attempt, is_first=True))
        for info in infos:
            fields = info_fields(info)
            check_server(fields, self.where, is_cluster=self._is_cluster)
            self.server = "" if self._is_cluster else fields["run_id"]

    async def _shielded(self, call: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(call, name="redis-call")
        self._calls.add(task)
        task.add_done_callback(self._end_call)
        return await asyncio.shield(task)

    def _end_call(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            # Looked at, or asyncio reports the failure of a call that nobody waits for any more.
            task.exception()

    async def _answers(
        self,
        commands: Sequence[Command],
        *,
        text: str = "",
        generation: int | None = None,
        waits_for_room: bool = True,
    ) -> list[Any]:
        """Return the answers in the order of *commands*; *text* is the script, for a Redis that lacks it."""
        answers: list[Any] = [None] * len(commands)
        unanswered = list(range(len(commands)))
        sent = list(commands)

        async def attempt(answer_s: float) -> None:
            nonlocal unanswered
            received = await self._send([sent[i] for i in unanswered], answer_s, generation)
            unanswered, asked = [], unanswered
            not_now, lost = "", None
            for i, answer in zip(asked, received, strict=True):
                answers[i] = answer
                if isinstance(answer, ResponseError):
                    problem = text_of(answer)
                    if text and problem.startswith("NOSCRIPT"):
                        unanswered.append(i)
                        sent[i] = ("EVAL", text, *sent[i][2:])
                    elif is_temporary(problem):
                        unanswered.append(i)
                        not_now = problem
                elif isinstance(answer, Exception):
                    unanswered.append(i)
                    lost = answer
            if not_now:
                try:
                    await self._check_room(received, answer_s)
                except Full as exc:
                    if waits_for_room:
                        raise
                    raise RedisFull(f"Redis at {self.where} {exc}.") from exc
            if lost is not None:
                raise lost
            if not_now:
                raise NotNow(not_now)

        while unanswered:
            await self.retry.until_answered(attempt)
        return [checked(answer, self.where) for answer in answers]

    async def _transaction(self, commands: Sequence[Command]) -> list[Any]:
        async def attempt(answer_s: float) -> list[Any]:
            *queued, executed = answers = await self._send(commands, answer_s, together=True)
            await self._check_room(answers, answer_s)
            # The error of a command that was not queued says more than that of EXEC.
            for answer in [*queued, executed]:
                checked(answer, self.where)
            return [checked(answer, self.where) for answer in executed]

        return await self.retry.until_answered(attempt)

    async def to_all(self, *args: Argument) -> list[Any]:
        """Send a command to each master, if there are several."""

        async def attempt(answer_s: float) -> list[Any]:
            answers = await self._route.send_to_all(args, answer_s)
            return [checked(answer, self.where) for answer in answers]

        return await self._shielded(self.retry.until_answered(attempt))

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Yield the keys that match *pattern*, in parts; some may come twice."""
        for pool in self._route.masters():
            cursor: bytes = b"0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)

                async def attempt(answer_s: float, pool: Pool = pool, sent: Command = command) -> Any:
                    [answer] = await pool.exchange([(sent, None)], answer_s)
                    return checked(answer, self.where)

                cursor, found = await self._shielded(self.retry.until_answered(attempt))
                yield found
                if cursor == b"0":
                    break

    async def read_memory(self) -> Memory:
        """Read the memory of Redis; of a Redis Cluster that of the master with the least room."""
        return fullest(await self.to_all("INFO", "memory"))

    async def _check_room(self, answers: Sequence[Any], answer_s: float) -> None:
        """Raise Full if one of *answers* says so."""
        if any(map(is_full, answers)):
            infos = await self._route.send_to_all(("INFO", "memory"), answer_s)
            raise Full(fullest([checked(info, self.where) for info in infos]))

    async def _send(
        self,
        commands: Sequence[Command],
        answer_s: float,
        generation: int | None = None,
        *,
        together: bool = False,
    ) -> list[Any]:
        asked_s = time.perf_counter()
        answers = await self._route.send(commands, answer_s, self._watch, generation, together=together)
        self.on_answer(time.perf_counter() - asked_s)
        for answer in answers:
            if together and isinstance(answer, Exception) and not isinstance(answer, ResponseError):
                raise answer
        return answers


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
