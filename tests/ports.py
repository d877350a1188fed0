"""Ports for servers that must be given one, reserved until the server takes them.

A socket that is bound but not listening keeps its port: the kernel never picks it for another one.
A server that asks for it by number still gets it if it reuses addresses, as ours, Redis and Twisted do.
Until one listens, connections are refused.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

#: Below those that the kernel chooses itself.
_PORTS = range(20_000, 30_000)


class HeldPorts(ExitStack):
    """Holds ports until it is closed."""

    def hold(self, *offsets: int) -> int:
        """Return a port that was free, as were those at *offsets* from it."""
        while True:
            port = random.choice(_PORTS)
            with ExitStack() as held:
                try:
                    for offset in (0, *offsets):
                        held.enter_context(_held(port + offset))
                except OSError:
                    continue
                self.enter_context(held.pop_all())
            return port


def _held(port: int) -> socket.socket:
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    # Only now: before, this would not fail where another test holds the port.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
