"""How late a loop is."""

from __future__ import annotations

import asyncio
import time

from crawlproj.observe.lag import LoopLag


async def test_what_blocks_the_loop_is_noticed() -> None:
    lag = LoopLag(window_s=10)
    await asyncio.sleep(0.4)

    # The loop is to wake 0.1 s from now, and is kept from it: this is what is measured.
    time.sleep(0.4)  # noqa: ASYNC251
    await asyncio.sleep(0.01)

    assert 0.2 < lag.worst_s < 5
    lag.close()
