"""The HTTP/1.1 server of a simulated web: one process serves every host of 127.0.0.0/8.

It listens on all interfaces, as nothing else covers a whole /8, and aborts any connection that did not
arrive at a loopback address.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from crawlproj.simweb.accesslog import AccessLog
from crawlproj.simweb.answers import Answers
from crawlproj.simweb.connection import Connection
from crawlproj.simweb.graph import World
from crawlproj.simweb.spec import WorldSpec

_FLUSH_EVERY_S = 0.1
_IDLE_S = 75.0


async def serve(
    spec: WorldSpec, log_path: Path, ready: Callable[[World], None], *, with_parent: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT, or, *with_parent*, until the parent process is gone.

    *ready* is called with the world and its real port once connections are accepted.
    """
    parent = os.getppid()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # Pages consist of many small long-lived objects; the defaults would collect all the time.
    gc.set_threshold(100_000, 20, 50)
    listener = socket.create_server(("0.0.0.0", spec.port), backlog=4096)
    world = World(dataclasses.replace(spec, port=listener.getsockname()[1]))
    log = AccessLog(log_path)
    answers = Answers(world)
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(answers, log, connections, loop), sock=listener, backlog=4096
    )
    ready(world)
    while not stop.is_set():
        try:
            async with asyncio.timeout(_FLUSH_EVERY_S):
                await stop.wait()
        except TimeoutError:
            log.flush()
            if with_parent and os.getppid() != parent:
                stop.set()
            for connection in [c for c in connections if c.is_idle_since(loop.time() - _IDLE_S)]:
                connection.close()
    server.close()
    for connection in list(connections):
        connection.close()
    log.close()
