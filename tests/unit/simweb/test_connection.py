"""A connection of the simulated web, at moments that a client can hardly choose."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from crawlproj.simweb.connection import Connection


class Gone(asyncio.Transport):
    """A connection whose other end left before it was looked at: it has no name any more."""

    is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 80)}.get(name, default)

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_client_that_left_before_it_was_answered_is_no_error() -> None:
    open_connections: set[Connection] = set()
    nothing = cast(Any, None)
    connection = Connection(nothing, nothing, open_connections, asyncio.get_running_loop())
    transport = Gone()

    connection.connection_made(transport)
    connection.connection_lost(None)

    assert transport.is_aborted
    assert open_connections == set()
