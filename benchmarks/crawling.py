"""A shard, and after it a parser, on sites of a page_server: what each costs and how much memory it takes.

They run one after the other, so that they do not disturb each other: no parser runs while the shard fetches,
and the parser finds all pages in the queue. Their start is left out.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from measuring import RedisServer, process_cpu_s
from page_server import PageServer
from processes import start_scrapy

from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run

RUN = "web"
PARTITIONS = 64
PATIENCE_S = 1800.0
_LOOK_S = 0.1
_ADMIT_AT_ONCE = 20_000
_SPARE = 3000
#: Pages a parser has before its time is taken.
_PARSED_FIRST = 100
_ASIDE = "bench:aside"
_UNBOUNDED = str(10**12)


@dataclass(frozen=True, slots=True)
class Web:
    """What there is to crawl, and how much of it is: *first* pages before the time is taken, then *pages*."""

    sites: int
    pages: int
    first: int = 500
    #: URLs in all; never fewer than are to be fetched, and some more, since a shard does not stop at once.
    urls: int = 0
    links: int = 10
    page_bytes: int = 10_000
    tls: bool = False
    close_after: int = 0
    shards: int = 1
    parse: bool = True
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def urls_each(self) -> int:
        return math.ceil(max(self.urls, self.first + self.pages + _SPARE) / self.sites)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in ms a page, of all shards together; memory is that of the largest shard, after its last page."""

    shard_ms: float
    fetch_redis_ms: float
    shard_mb: float
    parser_ms: float = 0.0
    parse_redis_ms: float = 0.0
    parser_mb: float = 0.0


async def crawl(redis_server: str, web: Web) -> Cost:
    with (
        RedisServer(redis_server) as redis,
        PageServer(
            links=web.links, page_bytes=web.page_bytes, tls=web.tls, close_after=web.close_after
        ) as server,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        client = await RedisClient.open(url=redis.url, data_dir=Path())
        run = await Run.open(client, RUN, partitions=PARTITIONS)
        await admit_pages(Frontier(client, RUN, PARTITIONS), server, range(web.sites), web.urls_each)
        try:
            shard_ms, redis_ms, shard_mb = await _fetch(run, redis, web, Path(folder))
            if not web.parse:
                return Cost(shard_ms, redis_ms, shard_mb)
            return Cost(shard_ms, redis_ms, shard_mb, *await _parse(run, redis, Path(folder), web.pages))
        finally:
            await client.close()


async def admit_pages(frontier: Frontier, server: PageServer, sites: range, urls_each: int) -> None:
    """Admit pages of *sites*, in slices, so that those of a site do not all come at once."""
    batch: list[Candidate] = []
    for first in range(0, urls_each, 100):
        for site in sites:
            batch += [
                Candidate(server.url(site, page), 1) for page in range(first, min(first + 100, urls_each))
            ]
            if len(batch) >= _ADMIT_AT_ONCE:
                await frontier.admit(batch)
                batch = []
    await frontier.admit(batch)


async def _fetch(run: Run, redis: RedisServer, web: Web, folder: Path) -> tuple[float, float, float]:
    arguments = [f"-ashards={web.shards}"] if web.shards > 1 else []
    shards = [
        start(["crawl", "web", f"-ashard={number}", *arguments], redis, folder, web.settings)
        for number in range(web.shards)
    ]
    try:

        async def until(pages: int) -> tuple[int, float, float]:
            await _until(lambda: _fetched(run, pages), shards)
            fetched = (await run.read_counters()).fetched
            return fetched, sum(process_cpu_s(shard.pid) for shard in shards), redis.cpu_s()

        before, before_s, redis_before_s = await until(web.first)
        after, after_s, redis_after_s = await until(before + web.pages)
        largest_mb = max(resident_mb(shard.pid) for shard in shards)
    finally:
        for shard in shards:
            shard.kill()
            shard.wait()
    fetched = after - before
    return (
        1000 * (after_s - before_s) / fetched,
        1000 * (redis_after_s - redis_before_s) / fetched,
        largest_mb,
    )


async def _fetched(run: Run, pages: int) -> bool:
    """Whether all shards have begun and so many pages are fetched."""
    counters = await run.read_counters()
    return counters.owned == PARTITIONS and counters.fetched >= pages


async def _parse(run: Run, redis: RedisServer, folder: Path, most: int) -> tuple[float, float, float]:
    client, pages, queue = run.client, keys.pages(RUN), PageQueue(run.client, RUN)
    await client.command("RENAME", pages, _ASIDE)
    # Those that came before the time was taken are too many of many sites.
    await client.command("LTRIM", _ASIDE, -most - _PARSED_FIRST, -1)
    await client.pipeline([("LMOVE", _ASIDE, pages, "LEFT", "RIGHT")] * _PARSED_FIRST)
    left = int(await client.command("LLEN", _ASIDE))
    guard = start(["parser", "--run", RUN], redis, folder, {})
    try:
        await _until(lambda: _all_parsed(run, queue), [guard])
        parser = _child_of(guard.pid)
        before_s, redis_before_s = process_cpu_s(parser), redis.cpu_s()
        await client.command("RENAME", _ASIDE, pages)
        await _until(lambda: _all_parsed(run, queue), [guard])
        used_s, redis_s = process_cpu_s(parser) - before_s, redis.cpu_s() - redis_before_s
        return 1000 * used_s / left, 1000 * redis_s / left, resident_mb(parser)
    finally:
        guard.send_signal(signal.SIGTERM)
        guard.wait()


async def _all_parsed(run: Run, queue: PageQueue) -> bool:
    """Whether nothing is queued or taken; if only open segments hold pages, they are asked to be closed."""
    if await queue.length():
        return False
    if not (await run.read_counters()).unstored:
        return True
    await run.ask_to_commit()
    return False


async def _until(is_so: Callable[[], Awaitable[bool]], processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await is_so():
        for process in processes:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}.")
        if time.monotonic() > deadline:
            raise RuntimeError(f"This took more than {PATIENCE_S:g} s.")
        await asyncio.sleep(_LOOK_S)


def start(
    arguments: list[str], redis: RedisServer, folder: Path, settings: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start ``scrapy`` *arguments* for our sites, without a delay or limits unless *settings* say so."""
    usual = {
        "CRAWL_DATA": str(folder),
        "REDIS_URL": redis.url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "CRAWL_SCOPE": "everything",
        "DOWNLOAD_VERIFY_CERTIFICATES": "0",
        "DOWNLOAD_DELAY": "0",
        "CRAWL_MAX_BODY": "4000000",
        "CRAWL_TRAP_VARIANTS": _UNBOUNDED,
        "LOG_LEVEL": "ERROR",
    }
    # No parser runs: the queue must not be the limit.
    for name in ("SOFT", "HARD", "SOFT_BYTES", "HARD_BYTES"):
        usual[f"CRAWL_PAGE_QUEUE_{name}"] = _UNBOUNDED
    return start_scrapy(arguments, usual | settings, log=None)


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _child_of(guard: int) -> int:
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
