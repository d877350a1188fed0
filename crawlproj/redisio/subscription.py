"""Messages of channels, across lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from crawlproj.redisio.answers import checked
from crawlproj.redisio.connection import exchange
from crawlproj.redisio.retry import Retry

#: A channel and its payload, or None: newly (re)connected, messages may have been missed.
Message = tuple[bytes, bytes] | None

#: After this long without a message, a PING tests the connection.
SILENCE_S = 15.0


class Subscription:
    """Messages as they come; None first and after every reconnect, when some may have been missed.

    Iterating may be cancelled (`asyncio.timeout` around `anext`) and resumed without losing a message.
    """

    def __init__(
        self, retry: Retry, connect: Callable[[], AbstractConnection], channels: Sequence[str]
    ) -> None:
        self._retry = retry
        self._new_connection = connect
        self._connection = connect()
        self._channels = channels
        #: When the last message came, or the last PING was sent.
        self._silent_since = 0.0
        self._is_pinged = False

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
                await self.disconnect() if self._is_pinged else await self._ping()
                self._silent_since = clock()
            except (RedisError, OSError):
                await self.disconnect()
            else:
                self._is_pinged = False
                self._silent_since = clock()
                if answer[0] == b"message":
                    return answer[1], answer[2]
        await self._retry.until_answered(self._connect)
        self._is_pinged = False
        self._silent_since = clock()
        return None

    async def _connect(self, answer_s: float) -> None:
        # A new one each time: in a Redis Cluster the server it was connected to may be gone for good.
        await self.disconnect()
        self._connection = self._new_connection()
        [answer] = await exchange(self._connection, [("SUBSCRIBE", *self._channels)], answer_s)
        checked(answer, self._retry.where)

    async def _ping(self) -> None:
        self._is_pinged = True
        try:
            await self._connection.send_command("PING")
        except (RedisError, OSError):
            await self.disconnect()

    async def disconnect(self) -> None:
        await self._connection.disconnect(nowait=True)
