"""A parser that is killed at a step of its first commit: ``dying_parser.py REDIS_URL DATA STEP COUNT``.

It dies when STEP comes for the COUNT-th time; with a STEP that never comes it reads all pages and leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from crawlproj.config import load_config
from crawlproj.parsing.worker import Parser, new_parser_name
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run


async def main(url: str, data: Path, fatal_step: str, count: int) -> None:
    seen = 0

    def die_at(step: str) -> None:
        nonlocal seen
        seen += step == fatal_step
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    async def is_over() -> bool:
        return True

    config = load_config(
        {
            "CRAWL_DATA": str(data),
            "PAGE_STORE": "parquet,jsonl",
            "CRAWL_PARSE_BATCH": 8,
            "CRAWL_SEGMENT_PAGES": 16,
        }
    )
    client = await RedisClient.open(url=url, data_dir=data)
    run = await Run.find(client, "web")
    parser = Parser(run, config, new_parser_name(), is_over, on_commit_step=die_at)
    await parser.run()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
