from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from crawlproj.model.records import Page
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.runs import Run
from crawlproj.storage import read_pages

ROOT = Path(__file__).parents[3]
PAGES = 300


async def start_parser(redis_url: str, data: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "scrapy",
            "parser",
            "-s",
            f"REDIS_URL={redis_url}",
            "-s",
            f"CRAWL_DATA={data}",
        ),
        *("-s", "CRAWL_PARSE_BATCH=4", "-s", "CRAWL_SEGMENT_PAGES=8", "-s", "LOG_LEVEL=WARNING"),
        cwd=ROOT,
        env={**os.environ, "SCRAPY_SETTINGS_MODULE": "crawlproj.settings"},
        stderr=asyncio.subprocess.PIPE,
    )


async def test_a_parser_killed_in_full_run_loses_no_page_and_stores_none_twice(
    door: Door, redis_url: str, tmp_path: Path
) -> None:
    run = await Run.open(door, "web", partitions=64)
    body = b"<a href='/x'>x</a>" + b"<p>word" * 500
    for number in range(PAGES):
        page = Page(
            f"http://a.test/{number}", "web", "a.test", 0, 200, 0, 0, {"content-type": "text/html"}, body
        )
        await door.command("RPUSH", keys.pages("web"), pack(page))
    queue = PageQueue(door, "web")

    victim = await start_parser(redis_url, tmp_path)
    while len(await queue.segments()) < 10:
        assert victim.returncode is None
        await asyncio.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    await victim.communicate()
    left = await queue.unstored()
    last = await start_parser(redis_url, tmp_path)
    while await queue.unstored():
        assert last.returncode is None
        await asyncio.sleep(0.01)
    await run.set_state("finished")
    _, said = await last.communicate()

    stored = Counter(row["url"] for row in read_pages(tmp_path / "runs" / "web" / "pages"))
    assert left > 0
    assert stored == {f"http://a.test/{number}": 1 for number in range(PAGES)}
    assert last.returncode == 0
    assert b"taken back" in said
