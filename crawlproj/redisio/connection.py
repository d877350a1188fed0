"""A connection to Redis: its options, from URL and settings, and one exchange of commands and answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from crawlproj.errors import BadSetting, RedisRefused
from crawlproj.redisio.answers import text_of

Argument = str | bytes | int | float
Command = Sequence[Argument]

#: How long one Sentinel may take to connect, and to answer; several are asked within `retry.ANSWER_S`.
_SENTINEL_S = 1.0

# Options of redis-py, in REDIS_PARAMS or the URL, that are not for users to set: the address, and whatever
# would make redis-py wait, retry or decode by itself.
_RESERVED = {
    *("host", "port", "path", "unix_socket_path", "url", "redis_cls", "max_connections", "timeout"),
    *("socket_timeout", "socket_connect_timeout", "retry", "retry_on_timeout", "retry_on_error"),
    *("health_check_interval", "encoding", "encoding_errors", "decode_responses", "protocol"),
}


#: Several addresses: nodes of a cluster, or Sentinels and what they call the master.
_SEVERAL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<kind>cluster|sentinel)://(?P<user>[^@/?]*@)?(?P<hosts>[^@/?]+)"
    r"(?:/(?P<master>[^/?]*))?(?P<rest>(?:/\d*)?(?:\?.*)?)"
)
_FORMS = (
    "redis://HOST:PORT/DB, rediss:// or unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT "
    "or redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB"
)


class Connector:
    """Makes connections to the server, or the servers, that *url* names."""

    def __init__(self, url: str, params: Mapping[str, object]) -> None:
        several = _SEVERAL.fullmatch(url)
        hosts = several["hosts"].split(",") if several else []
        first = (
            f"{several['scheme']}://{several['user'] or ''}{hosts[0]}{several['rest']}" if several else url
        )
        #: `cluster`, `sentinel`, or '' for a single server.
        self.kind: str = several["kind"] if several else ""
        master = (several["master"] or "") if several else ""
        try:
            from_url = cast("dict[str, Any]", parse_url(first))
            #: Hosts and ports: of nodes of the cluster, or Sentinels.
            self.addresses = [_address_of(host, 26379 if self.kind == "sentinel" else 6379) for host in hosts]
            if bool(master) != (self.kind == "sentinel") or (self.kind == "cluster" and "db" in from_url):
                raise ValueError("a cluster has no database, a sentinel URL names the master")
        except ValueError as exc:
            raise BadSetting(f"REDIS_URL={redact(url)!r} is not valid. Write {_FORMS}.") from exc
        address: dict[str, Any] = {
            name: from_url.pop(name) for name in ("host", "port", "path") if name in from_url
        }
        self._class: type[Connection] = from_url.pop("connection_class", Connection)
        wanted: dict[str, object] = {**params, **from_url}
        self._options: dict[str, Any] = {
            **{name: value for name, value in wanted.items() if name not in _RESERVED},
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "driver_info": None,
            "protocol": 2,
        }
        #: host:port or the path of the socket, for messages.
        self.where: str = (
            address.get("path") or f"{address.get('host', 'localhost')}:{address.get('port', 6379)}"
        )
        if several:
            self.where = ",".join(f"{host}:{port}" for host, port in self.addresses) + f"/{master}".rstrip(
                "/"
            )
        sentinel = {name: self._options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        self._sentinels: Sentinel | None = None
        try:
            if self.kind == "sentinel":
                self.new = self._managed_by_sentinels(master, sentinel)
            else:
                self.new = lambda: self._class(**self._options, **address)
            self.new()
        except (TypeError, RedisError) as exc:
            raise BadSetting(
                f"REDIS_PARAMS or REDIS_URL has an option that redis-py does not take: {exc}."
            ) from exc

    async def close(self) -> None:
        """Close the connections to Sentinels."""
        if self._sentinels is not None:
            await self._sentinels.aclose()

    def to(self, host: str, port: int) -> AbstractConnection:
        """Return a connection to another node of the cluster."""
        return self._class(**self._options, host=host, port=port)

    @property
    def cluster_options(self) -> dict[str, Any]:
        """What `RedisCluster` takes of the options."""
        options = {name: value for name, value in self._options.items() if name != "db"}
        return {**options, "ssl": issubclass(self._class, SSLConnection)}

    def _managed_by_sentinels(
        self, master: str, sentinel: Mapping[str, object]
    ) -> Callable[[], AbstractConnection]:
        is_tls = issubclass(self._class, SSLConnection)
        shared = {
            name: value
            for name, value in self._options.items()
            if name not in ("db", "username", "password", "credential_provider", "driver_info")
        }
        known = {**shared, **{name: value for name, value in sentinel.items() if value}, "ssl": is_tls}
        # One that is dead or hangs leaves time to ask the others.
        known |= {"retry": Retry(NoBackoff(), 0), "socket_timeout": _SENTINEL_S}
        known["socket_connect_timeout"] = _SENTINEL_S
        self._sentinels = _Sentinels(self.addresses, sentinel_kwargs=known)  # type: ignore[no-untyped-call]
        masters = SentinelConnectionPool(  # type: ignore[no-untyped-call]  # redis-py has no types for it
            master,
            self._sentinels,
            connection_class=SentinelManagedSSLConnection if is_tls else SentinelManagedConnection,
            **self._options,
        )
        return lambda: masters.connection_class(**masters.connection_kwargs)


class _Sentinels(Sentinel):
    """redis-py's, but one that fails costs little time, and what is wrong is said in words."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Ask one after the other, the one that answered last time first.

        Raises RedisRefused if there is no answer and one refused to give any.
        """
        failed: RedisError | None = None
        refused: RedisRefused | None = None
        for sentinel in tuple(self.sentinels):
            # One that hangs is not the first to be asked the next time.
            self._move(sentinel, len(self.sentinels))
            options = sentinel.connection_pool.connection_kwargs
            where = f"{options['host']}:{options['port']}"
            try:
                masters = cast("dict[str, dict[str, Any]]", await sentinel.sentinel_masters())
            except AuthenticationError as exc:
                refused = RedisRefused(
                    f"The Sentinel at {where} refused access: {text_of(exc).rstrip('.')}. "
                    "Check sentinel_password in REDIS_URL."
                )
            except ResponseError as exc:
                refused = RedisRefused(
                    f"The server at {where} is not a Sentinel, or refuses to name a master: {exc}. "
                    "Check REDIS_URL."
                )
            except (RedisError, OSError) as exc:
                failed = failed or RedisConnectionError(f"the Sentinel at {where}: {exc}")
            else:
                state = masters.get(service_name)
                if state and self.check_master_state(state, service_name):
                    self._move(sentinel, 0)
                    return state["ip"], state["port"]
                failed = MasterNotFoundError(f"No master found for {service_name!r}")
        raise failed or refused or MasterNotFoundError("There are no Sentinels")

    def _move(self, sentinel: Any, place: int) -> None:
        self.sentinels.remove(sentinel)
        self.sentinels.insert(place, sentinel)


def _address_of(text: str, port: int) -> tuple[str, int]:
    """Return host and port of an address in a URL. Raises ValueError."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or port


async def exchange(connection: AbstractConnection, commands: Sequence[Command], answer_s: float) -> list[Any]:
    """Send all commands, then read all answers; an error reply takes its place in the list."""
    answers: list[Any] = []
    try:
        async with asyncio.timeout(answer_s):
            if not connection.is_connected:
                # Sending would connect as well, but without asking the Sentinels.
                await connection.connect()  # type: ignore[no-untyped-call]
            try:
                await connection.send_packed_command(_packed(commands))
            except AttributeError as exc:
                # What Python 3.13.0 says of a transport that has died while idle.
                raise RedisConnectionError("The connection was closed.") from exc
            for _ in commands:
                try:
                    answers.append(await connection.read_response())
                except ResponseError as exc:
                    answers.append(exc)
    except BaseException:
        # Part of an answer may be left in it.
        await connection.disconnect(nowait=True)
        raise
    return answers


def redact(url: str) -> str:
    """Return *url* without user and password, for messages."""
    return re.sub(r"((?:password|username)=)[^&]*", r"\1***", re.sub(r"//.*@", "//***@", url))


def _packed(commands: Sequence[Command]) -> bytes:
    """Return the commands in Redis' protocol, at a third of the cost of redis-py's own packing."""
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
