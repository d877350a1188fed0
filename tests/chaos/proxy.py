"""A TCP proxy in front of Redis: its connections are cut, stalled, slowed, robbed of answers, or vanish."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 1 << 16
#: Linux: a packet filter for one socket (`struct sock_fprog`); ours, one instruction long, drops everything.
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_DROP = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_DROP_ALL = struct.pack("HP", 1, ctypes.addressof(_DROP))


class Proxy:
    """Forwards to a unix socket. All methods but `start` and `close` take effect at once."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._writers: set[asyncio.StreamWriter] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = self._drops_answers = self._is_gone = False
        self._pause_s = 0.0

    async def start(self) -> int:
        """Listen on a free port, and return it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Close all connections, and every new one until `mend`."""
        self._is_cut = True
        self._close_all()

    def stall(self) -> None:
        """Keep the connections, and let nothing through."""
        self._flowing.clear()

    def slow(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def drop_answers(self) -> None:
        """Let requests through, and no answers."""
        self._drops_answers = True

    def vanish(self) -> None:
        """As if the link were cut: no packet gets through, in silence. Linux only."""
        self.stall()
        self._is_gone = True
        for end in self._our_ends():
            end.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _DROP_ALL)

    def mend(self) -> None:
        if self._is_gone:
            for end in self._our_ends():
                end.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
        if self._drops_answers or self._is_gone:
            # What follows a lost answer would be taken for it.
            self._close_all()
        self._is_cut = self._drops_answers = self._is_gone = False
        self._pause_s = 0.0
        self._flowing.set()

    async def close(self) -> None:
        self.mend()
        self.cut()
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def _our_ends(self) -> list[socket.socket]:
        """Return the sockets that clients connect to, and that of new connections."""
        ends = [*self._server.sockets, *(writer.get_extra_info("socket") for writer in self._writers)]
        return [end for end in ends if end.family == socket.AF_INET]

    def _close_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._is_cut:
                return
            upstream_reader, upstream_writer = await asyncio.open_unix_connection(self._upstream)
            self._writers.add(upstream_writer)
            try:
                pipes = [
                    asyncio.create_task(self._pipe(reader, upstream_writer)),
                    asyncio.create_task(self._pipe(upstream_reader, writer, is_answer=True)),
                ]
                self._pipes.update(pipes)
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                for pipe in pipes:
                    pipe.cancel()
                self._pipes.difference_update(pipes)
            finally:
                self._writers.discard(upstream_writer)
                upstream_writer.transport.abort()
        except OSError:
            # Redis is down: the client sees a connection that is closed at once.
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)
                await self._flowing.wait()
                if not (is_answer and self._drops_answers):
                    writer.write(data)
                    await writer.drain()
