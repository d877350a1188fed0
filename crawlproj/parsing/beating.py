"""Waiting for something that may take longer than a process may be silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


async def beating(
    work: Coroutine[Any, Any, None], beat: Callable[[], Awaitable[object]], every_s: float
) -> None:
    """Wait for *work*, and call *beat* meanwhile. What that raises is raised once *work* has ended."""
    task = asyncio.create_task(work, name="commit")
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            await beat()
    finally:
        # Never cut off: it would not be known what was recorded.
        await task
