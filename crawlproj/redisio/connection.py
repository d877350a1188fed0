"""A connection to Redis: its options, from URL and settings, and one exchange of commands and answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import RedisError, ResponseError

from crawlproj.errors import BadSetting

Argument = str | bytes | int | float
Command = Sequence[Argument]

# Options of redis-py, in REDIS_PARAMS or the URL, that are not for users to set: the address, and whatever
# would make redis-py wait, retry or decode by itself.
_RESERVED = {
    *("host", "port", "path", "unix_socket_path", "url", "redis_cls", "max_connections", "timeout"),
    *("socket_timeout", "socket_connect_timeout", "retry", "retry_on_timeout", "retry_on_error"),
    *("health_check_interval", "encoding", "encoding_errors", "decode_responses", "protocol"),
}


class Connector:
    """Makes connections to one server."""

    def __init__(self, url: str, params: Mapping[str, object]) -> None:
        try:
            from_url = cast("dict[str, Any]", parse_url(url))
        except ValueError as exc:
            raise BadSetting(
                f"REDIS_URL={redact(url)!r} is not valid. Write redis://HOST:PORT/DB, rediss:// or unix:///PATH."
            ) from exc
        address: dict[str, Any] = {
            name: from_url.pop(name) for name in ("host", "port", "path") if name in from_url
        }
        self._class: type[AbstractConnection] = from_url.pop("connection_class", Connection)
        wanted: dict[str, object] = {**params, **from_url}
        self._options: dict[str, Any] = {
            **{name: value for name, value in wanted.items() if name not in _RESERVED},
            **address,
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "driver_info": None,
            "protocol": 2,
        }
        #: host:port or the path of the socket, for messages.
        self.where: str = (
            address.get("path") or f"{address.get('host', 'localhost')}:{address.get('port', 6379)}"
        )
        try:
            self.new()
        except (TypeError, RedisError) as exc:
            raise BadSetting(
                f"REDIS_PARAMS or REDIS_URL has an option that redis-py does not take: {exc}."
            ) from exc

    def new(self) -> AbstractConnection:
        """Return a connection that connects when it is first used."""
        return self._class(**self._options)


async def exchange(connection: AbstractConnection, commands: Sequence[Command], answer_s: float) -> list[Any]:
    """Send all commands, then read all answers; an error reply takes its place in the list."""
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
