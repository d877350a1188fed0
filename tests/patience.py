"""How long a test waits for what must happen."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

#: A limit on failures only: nothing takes so long, not even on a machine that does many other things besides.
PATIENCE_S = 240.0


async def until(condition: Callable[[], object]) -> None:
    """Wait until *condition*, which may be asynchronous, gives something true."""
    # Not by the clock of the loop, which some tests put forward.
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < deadline_s, "it did not come true in time"
        await asyncio.sleep(0.005)
