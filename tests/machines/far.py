"""A Redis that is far away: `python -m tests.machines.far ADDRESS PORT REDIS_PORT ROUND_TRIP_S`."""

from __future__ import annotations

import asyncio
import sys

_CHUNK_BYTES = 1 << 16


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_s: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(_CHUNK_BYTES):
            loop.call_later(late_s, writer.write, data)
    except OSError:
        pass
    finally:
        loop.call_later(late_s, writer.close)


async def main(address: str, port: int, redis_port: int, round_trip_s: float) -> None:
    pipes: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection(address, redis_port)
        for source, sink in ((reader, redis_writer), (redis_reader, writer)):
            pipe = asyncio.create_task(_pipe(source, sink, round_trip_s / 2))
            pipes.add(pipe)
            pipe.add_done_callback(pipes.discard)

    async with await asyncio.start_server(serve, address, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
