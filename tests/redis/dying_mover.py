"""Moves dead letters and is killed: ``dying_mover.py REDIS_URL DIRECTORY make_room|replay STEP``.

It dies before its STEP-th call to Redis or change of a file; with a STEP that never comes it ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawlproj.pages.deadletters import DeadLetters
from crawlproj.redisio.client import RedisClient


async def main(url: str, directory: Path, action: str, fatal_step: int) -> None:
    client = await RedisClient.open(url=url, data_dir=directory)
    letters = DeadLetters(client, "web", directory)
    pages = [letter.page for letter in await letters.list()]
    step = 0

    def deadly(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal step
            step += 1
            if step == fatal_step:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*args, **options)

        return wrapped

    for owner, name in (
        *((os, name) for name in ("fsync", "rename", "unlink")),
        *((Path, name) for name in ("open", "rename", "unlink")),
        *((RedisClient, name) for name in ("command", "pipeline", "run")),
    ):
        setattr(owner, name, deadly(getattr(owner, name)))
    await (letters.make_room(0) if action == "make_room" else letters.replay(*pages))
    fatal_step = 0
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
