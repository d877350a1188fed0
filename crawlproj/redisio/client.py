"""The door to Redis: every call of a process goes through one `Door`, which waits while Redis is away.

Scripts and commands are written to be repeatable, so a call whose answer was lost is simply sent again.
No call is ever cancelled on the wire: what a script has claimed would have no owner.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from crawlproj.errors import BadSetting, CrawlError, Fenced, RedisAway, RedisRefused
from crawlproj.redisio import embedded
from crawlproj.redisio.scripts import BadScript, Scripts

logger = logging.getLogger(__name__)

T = TypeVar("T")
Argument = str | bytes | int | float
Command = Sequence[Argument]
#: A channel and its payload, or None: newly (re)connected, messages may have been missed.
Message = tuple[bytes, bytes] | None

#: Connections for calls that are answered at once; blocking calls and subscriptions have their own.
CONNECTIONS = 4
#: How many a process has at most: those, one to wait for pages or start URLs, one that listens.
MOST_CONNECTIONS = CONNECTIONS + 2
#: How long one try may take before the connection is given up; doubled while tries time out.
ANSWER_S = 5.0
LONGEST_ANSWER_S = 60.0
#: The same for the first try at the start, where a person is waiting.
FIRST_ANSWER_S = 1.5
SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
#: A silent subscription asks after this time whether Redis is still there.
SILENCE_S = 15.0

# Answers that mean "not now". Inside a script, Redis 6.2 wraps them: "Error running script ...: -OOM ...".
_NOT_NOW = re.compile(
    r"(?:^|[ :]-)(?:LOADING|BUSY|MISCONF|OOM|READONLY|MASTERDOWN|NOREPLICAS|TRYAGAIN|CLUSTERDOWN|UNBLOCKED)\b"
)
_FORBIDDEN = re.compile(r"(?:^|[ :]-)(?:NOAUTH|WRONGPASS|NOPERM|DENIED)\b")

# Options of redis-py (in REDIS_PARAMS or the URL) that are ours to decide: the address, and whatever would
# make it wait, repeat or decode behind our back.
_OURS = {
    *("host", "port", "path", "unix_socket_path", "url", "redis_cls", "max_connections", "timeout"),
    *("socket_timeout", "socket_connect_timeout", "retry", "retry_on_timeout", "retry_on_error"),
    *("health_check_interval", "encoding", "encoding_errors", "decode_responses", "protocol"),
}


class ScriptError(CrawlError):
    """Redis answered a script or a command with an error that waiting does not cure."""


class _NotNow(Exception):
    """Redis answered, and cannot serve us for the moment."""


class Door:
    """One per process, made by `open`. Answers are bytes, as Redis sends them.

    `run`, `run_many`, `command`, `pipeline` and `block` wait while Redis is away, up to *wait_s* after it was
    last seen, then raise `RedisAway`. They must be safe to repeat. A caller that is cancelled waits no
    longer, but its call is still carried out (`block` excepted).
    """

    def __init__(
        self,
        url: str,
        *,
        params: Mapping[str, object],
        wait_s: float,
        data_dir: Path | None,
        scripts: Scripts,
    ) -> None:
        self._connection_class, self._options = _connection_options(url, params)
        #: host:port or the path of the socket; what people are told.
        self.where = _where(self._options)
        self._wait_s = wait_s
        #: Where the embedded server lives, which we start again when it dies; None for a server of others.
        self._data_dir = data_dir
        self._scripts = scripts
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._free: list[AbstractConnection] = []
        self._free_blocking: list[AbstractConnection] = []
        self._calls: set[asyncio.Task[Any]] = set()
        #: Calls that have failed at least once and are being repeated.
        self._waiting: set[object] = set()
        #: When a call last succeeded, and when the first of those waiting now failed.
        self._last_seen = self._away_since = 0.0
        self._reviving = asyncio.Lock()
        #: Grows with every try that was not answered: who answers next may be another server, or set back.
        self.breaks = 0
        #: Told the seconds of every round trip, and of every try that was not answered.
        self.on_answer: Callable[[float], None] = lambda seconds: None
        self.on_break: Callable[[], None] = lambda: None

    @classmethod
    async def open(
        cls,
        *,
        url: str | None,
        data_dir: Path,
        params: Mapping[str, object] = {},
        wait_s: float = 300.0,
        start_wait_s: float = 0.0,
        scripts: Scripts | None = None,
    ) -> Door:
        """Connect and check that this Redis will do; without *url*, the embedded one of *data_dir*.

        *start_wait_s* is how long a Redis that is not there yet is waited for.
        """
        if url is None:
            address = await asyncio.to_thread(embedded.ensure_running, data_dir)
            door = cls(address, params={}, wait_s=wait_s, data_dir=data_dir, scripts=scripts or Scripts())
        else:
            door = cls(url, params=params, wait_s=wait_s, data_dir=None, scripts=scripts or Scripts())
        try:
            await door._check(start_wait_s)
        except BaseException:
            await door.close()
            raise
        return door

    @property
    def is_away(self) -> bool:
        return bool(self._waiting)

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        [answer] = await self.run_many(script, [(keys, args)])
        return answer

    async def run_many(
        self, script: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[Any]:
        """Run *script* once per call, in one round trip; answers in the order of *calls*.

        If one of them fails, all are carried out, then the first error is raised.
        """
        step = self._scripts[script]
        commands: list[Command] = []
        for keys, args in calls:
            if len(keys) != len(step.keys):
                raise BadScript(
                    f"{script}.lua takes {len(step.keys)} keys {step.keys}, not {len(keys)}: {keys}."
                )
            commands.append(("EVALSHA", step.sha, len(keys), *keys, *args))
        return await self._shielded(self._answers(commands, load=("SCRIPT LOAD", step.text)))

    async def command(self, *args: Argument) -> Any:
        [answer] = await self._shielded(self._answers([args]))
        return answer

    async def pipeline(self, commands: Sequence[Command], *, transaction: bool = False) -> list[Any]:
        """Several commands in one round trip; with *transaction*, all of them at once or none.

        Without it they must not depend on each other: one that Redis cannot do now is repeated alone.
        """
        if not transaction:
            return await self._shielded(self._answers(commands))
        if not commands:
            return []
        return await self._shielded(self._transaction([("MULTI",), *commands, ("EXEC",)]))

    async def block(self, *args: Argument, timeout_s: float) -> Any:
        """A blocking command whose last argument is its timeout (left out of *args*); None when it ran out.

        If the connection is lost or the caller cancelled at the wrong moment, the command may have been
        carried out unseen: use commands that leave what they took in Redis (BLMOVE, not BLPOP).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = self._free_blocking.pop() if self._free_blocking else self._new_connection()

        async def attempt(answer_s: float) -> Any:
            # Never 0, which means for ever.
            left_s = max(round(deadline - loop.time(), 3), 0.01)
            [answer] = await _exchange(connection, [(*args, left_s)], left_s + answer_s)
            return self._checked(answer)

        try:
            return await self._until_answered(attempt)
        finally:
            self._free_blocking.append(connection)

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Subscription]:
        """Messages of *channels*, for as long as the context lasts; see `Subscription`."""
        connection = self._new_connection()
        try:
            yield Subscription(self, connection, channels)
        finally:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Let the calls on the wire come to their end, a few seconds at most, then disconnect.

        The last one to leave an embedded server stops it.
        """
        if self._calls and not self.is_away:
            await asyncio.wait(self._calls, timeout=ANSWER_S)
        unfinished = list(self._calls)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        try:
            async with asyncio.timeout(ANSWER_S):
                for connection in [*self._free, *self._free_blocking]:
                    # Waits until it is really closed, so that `stop_if_unused` does not count us.
                    await connection.disconnect()
        except TimeoutError:
            pass
        self._free.clear()
        self._free_blocking.clear()
        if self._data_dir is not None:
            await asyncio.to_thread(embedded.stop_if_unused, self._data_dir)

    async def _check(self, start_wait_s: float) -> None:
        async def attempt(answer_s: float) -> str:
            [answer] = await self._on_a_connection([("INFO",)], answer_s)
            info: str = self._checked(answer).decode()
            if "\nloading:1" in info:
                raise _NotNow("LOADING Redis is loading the dataset in memory")
            return info

        info = await self._shielded(
            self._until_answered(attempt, wait_s=start_wait_s, answer_s=FIRST_ANSWER_S)
        )
        fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        version = fields["redis_version"]
        if tuple(map(int, version.split(".")[:2])) < embedded.OLDEST_VERSION[:2]:
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
                "Redis at %s drops URLs when its memory is full: set maxmemory-policy to noeviction, not %s",
                self.where,
                policy,
                extra={"redis": self.where, "policy": policy},
            )

    async def _shielded(self, call: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(call, name="redis-call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)

    async def _answers(self, commands: Sequence[Command], *, load: Command | None = None) -> list[Any]:
        """Answers aligned with *commands*; *load* is sent first when Redis does not know the script."""
        answers: list[Any] = [None] * len(commands)
        unanswered = list(range(len(commands)))
        first: list[Command] = []

        async def attempt(answer_s: float) -> None:
            nonlocal unanswered
            received = await self._on_a_connection([*first, *(commands[i] for i in unanswered)], answer_s)
            if first:
                self._checked(received.pop(0))
                first.clear()
            unanswered, sent = [], unanswered
            not_now = ""
            for i, answer in zip(sent, received, strict=True):
                answers[i] = answer
                if isinstance(answer, ResponseError):
                    text = _text(answer)
                    if load is not None and text.startswith("NOSCRIPT"):
                        unanswered.append(i)
                        first[:] = [load]
                    elif _NOT_NOW.search(text):
                        unanswered.append(i)
                        not_now = text
            if not_now:
                raise _NotNow(not_now)

        while unanswered:
            await self._until_answered(attempt)
        return [self._checked(answer) for answer in answers]

    async def _transaction(self, commands: Sequence[Command]) -> list[Any]:
        async def attempt(answer_s: float) -> list[Any]:
            *queued, executed = await self._on_a_connection(commands, answer_s)
            # What kept a command out of the queue says more than EXEC, which then only says that it did.
            for answer in [*queued, executed]:
                self._checked(answer)
            return [self._checked(answer) for answer in executed]

        return await self._until_answered(attempt)

    async def _on_a_connection(self, commands: Sequence[Command], answer_s: float) -> list[Any]:
        async with self._slots:
            connection = self._free.pop() if self._free else self._new_connection()
            asked_s = time.perf_counter()
            try:
                answers = await _exchange(connection, commands, answer_s)
                self.on_answer(time.perf_counter() - asked_s)
                return answers
            finally:
                # Used last, taken first: after a restart of Redis a repeat does not meet another dead one.
                self._free.append(connection)

    def _new_connection(self) -> AbstractConnection:
        return self._connection_class(**self._options)

    async def _until_answered(
        self,
        attempt: Callable[[float], Awaitable[T]],
        *,
        wait_s: float | None = None,
        answer_s: float | None = None,
    ) -> T:
        """Repeat *attempt* until Redis answers; say once that it is away, and once that it is back.

        The time is counted from when a call, of whomever, last went through, or with *wait_s* from now.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        answer_s = answer_s or ANSWER_S
        pause_s = 0.0
        me = object()
        try:
            while True:
                is_gone = False
                patience_s = self._wait_s if wait_s is None else wait_s
                try:
                    answer = await attempt(answer_s)
                except _NotNow as exc:
                    trouble = f"cannot serve us now ({exc})"
                    patience_s = self._wait_s
                    pause_s = pause_s or SHORTEST_PAUSE_S
                except TimeoutError:
                    trouble = f"did not answer in {answer_s:g} s"
                    answer_s = min(2 * answer_s, LONGEST_ANSWER_S)
                    pause_s = pause_s or SHORTEST_PAUSE_S
                except (RedisError, OSError) as exc:
                    trouble = self._trouble_of(exc)
                    is_gone = True
                else:
                    self._last_seen = clock()
                    self._tell_back(me)
                    return answer
                self.breaks += 1
                self.on_break()
                # A lost connection is first made anew at once, and nobody is told: servers close idle ones.
                if pause_s:
                    if not self._waiting:
                        self._away_since = clock()
                    away_s = clock() - (max(self._last_seen, self._away_since) if wait_s is None else started)
                    if away_s >= patience_s:
                        raise RedisAway(f"Redis at {self.where} {trouble}. {self._remedy()}")
                    self._tell_away(me, trouble, patience_s)
                    await asyncio.sleep(min(pause_s, patience_s - away_s))
                    if is_gone:
                        await self._revive()
                pause_s = min(max(2 * pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        finally:
            self._waiting.discard(me)

    def _tell_away(self, me: object, trouble: str, patience_s: float) -> None:
        if not self._waiting:
            logger.warning(
                "Redis at %s %s; waiting up to %g s",
                self.where,
                trouble,
                patience_s,
                extra={"redis": self.where, "wait_s": patience_s},
            )
        self._waiting.add(me)

    def _tell_back(self, me: object) -> None:
        if me in self._waiting:
            self._waiting.discard(me)
            if not self._waiting:
                logger.info("Redis at %s is back", self.where, extra={"redis": self.where})

    async def _revive(self) -> None:
        """Start the embedded server again if it died; one call does it for all."""
        if self._data_dir is None or self._reviving.locked():
            return
        async with self._reviving:
            try:
                await asyncio.to_thread(embedded.ensure_running, self._data_dir, wait_s=ANSWER_S)
            except RedisAway as exc:
                logger.debug("the embedded Redis did not start", extra={"reason": str(exc)})

    def _checked(self, answer: Any) -> Any:
        """The answer of one command, or the error it stands for."""
        if not isinstance(answer, ResponseError):
            return answer
        text = _text(answer)
        if text.startswith("FENCED"):
            raise Fenced(text)
        if _NOT_NOW.search(text):
            raise _NotNow(text)
        if _FORBIDDEN.search(text):
            raise self._refused(text) from answer
        raise ScriptError(text) from answer

    def _trouble_of(self, exc: Exception) -> str:
        """What went wrong with a connection, if waiting may cure it; raises if not."""
        # redis-py wraps what goes wrong in the handshake of a unix socket.
        while isinstance(exc.__cause__, RedisError):
            exc = exc.__cause__
        text = _text(exc)
        if _NOT_NOW.search(text):
            return f"cannot serve us now ({text})"
        if isinstance(exc, InvalidResponse):
            raise RedisRefused(
                f"What answers at {self.where} is not Redis ({text}). Check REDIS_URL."
            ) from exc
        if isinstance(exc, (AuthenticationError, ResponseError)):
            raise self._refused(text) from exc
        if not isinstance(exc, (RedisConnectionError, OSError)):
            raise exc
        return f"did not answer ({text})"

    def _refused(self, text: str) -> RedisRefused:
        if text.startswith("NOAUTH"):
            remedy = "Put the password into REDIS_URL (redis://:PASSWORD@HOST:PORT) or REDIS_PARAMS."
        elif text.startswith("NOPERM"):
            remedy = "Give this user the right to run scripts and all commands on our keys, or use another."
        else:
            remedy = "Check user, password and database in REDIS_URL and REDIS_PARAMS."
        return RedisRefused(f"Redis at {self.where} refused us: {text.rstrip('.')}. {remedy}")

    def _remedy(self) -> str:
        if self._data_dir is not None:
            return f"See {self._data_dir / 'redis' / 'redis.log'}."
        return "Start it, or set REDIS_URL to where it runs; without REDIS_URL an embedded one is used."


class Subscription:
    """Messages as they come; None first and after every reconnect, when some may have been missed.

    Iterating may be cancelled (`asyncio.timeout` around `anext`) and taken up again without losing a message.
    """

    def __init__(self, door: Door, connection: AbstractConnection, channels: Sequence[str]) -> None:
        self._door = door
        self._connection = connection
        self._channels = channels
        #: Since when nothing was heard; starts anew when we ask whether anybody is there.
        self._silent_since = 0.0
        self._is_asked = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        clock = asyncio.get_running_loop().time
        while self._connection.is_connected:
            try:
                async with asyncio.timeout_at(self._silent_since + SILENCE_S):
                    answer = await self._connection.read_response(disconnect_on_error=False)
            except TimeoutError:
                # A connection whose other end vanished is silent, too.
                await self._give_up() if self._is_asked else await self._ask()
                self._silent_since = clock()
            except (RedisError, OSError):
                await self._give_up()
            else:
                self._is_asked = False
                self._silent_since = clock()
                if answer[0] == b"message":
                    return answer[1], answer[2]
        await self._door._until_answered(self._connect)
        self._is_asked = False
        self._silent_since = clock()
        return None

    async def _connect(self, answer_s: float) -> None:
        [answer] = await _exchange(self._connection, [("SUBSCRIBE", *self._channels)], answer_s)
        self._door._checked(answer)

    async def _ask(self) -> None:
        self._is_asked = True
        try:
            await self._connection.send_command("PING")
        except (RedisError, OSError):
            await self._give_up()

    async def _give_up(self) -> None:
        await self._connection.disconnect(nowait=True)


def redact(url: str) -> str:
    """*url* without user and password, fit for a message."""
    return re.sub(r"((?:password|username)=)[^&]*", r"\1***", re.sub(r"//.*@", "//***@", url))


def _connection_options(
    url: str, params: Mapping[str, object]
) -> tuple[type[AbstractConnection], dict[str, Any]]:
    try:
        from_url = cast("dict[str, Any]", parse_url(url))
    except ValueError as exc:
        raise BadSetting(
            f"REDIS_URL={redact(url)!r} is not valid. Write redis://HOST:PORT/DB, rediss:// or unix:///PATH."
        ) from exc
    address: dict[str, Any] = {
        name: from_url.pop(name) for name in ("host", "port", "path") if name in from_url
    }
    connection_class: type[AbstractConnection] = from_url.pop("connection_class", Connection)
    wanted: dict[str, object] = {**params, **from_url}
    options: dict[str, Any] = {
        **{name: value for name, value in wanted.items() if name not in _OURS},
        **address,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "driver_info": None,
        "protocol": 2,
    }
    try:
        connection_class(**options)
    except (TypeError, RedisError) as exc:
        raise BadSetting(
            f"REDIS_PARAMS or REDIS_URL has an option that redis-py does not take: {exc}."
        ) from exc
    return connection_class, options


def _where(options: Mapping[str, Any]) -> str:
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


async def _exchange(
    connection: AbstractConnection, commands: Sequence[Command], answer_s: float
) -> list[Any]:
    """Send all, then read all; an error that is an answer stands in its place in the list."""
    answers: list[Any] = []
    try:
        async with asyncio.timeout(answer_s):
            await connection.send_packed_command(_packed(commands))
            for _ in commands:
                try:
                    answers.append(await connection.read_response())
                except ResponseError as exc:
                    answers.append(exc)
    except BaseException:
        # Half an answer may be left in it.
        await connection.disconnect(nowait=True)
        raise
    return answers


def _packed(commands: Sequence[Command]) -> bytes:
    """The commands as Redis reads them, at a third of what redis-py's own packing costs."""
    lines: list[bytes] = []
    for name, *arguments in commands:
        words = str(name).split()
        lines.append(b"*%d" % (len(words) + len(arguments)))
        for argument in (*words, *arguments):
            if isinstance(argument, str):
                data = argument.encode()
            else:
                data = argument if isinstance(argument, bytes) else repr(argument).encode()
            lines.append(b"$%d" % len(data))
            lines.append(data)
    lines.append(b"")
    return b"\r\n".join(lines)


def _text(exc: BaseException) -> str:
    """The answer as Redis wrote it; redis-py cuts off the code of those it knows, and ERR helps nobody."""
    code = getattr(exc, "status_code", None)
    return f"{code} {exc}" if code and code != "ERR" else str(exc).removeprefix("ERR ")


def pairs(flat: list[bytes] | dict[bytes, bytes]) -> list[tuple[str, str]]:
    """Return the fields of a hash, however the protocol's version delivers them."""
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return [(name.decode(), value.decode()) for name, value in items]
