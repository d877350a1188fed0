"""Direct fetches: how many at a time, when they start, and what a shard that leaves does with them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from scrapy.utils.test import get_crawler

from crawlproj.download.client import client_of
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.records import Lease, Outcome, Settlement
from crawlproj.shard.direct import DirectFetches
from tests.patience import until
from tests.redis.shards import LONG, Shard, Shards, sites


class Fetches:
    """Direct fetches whose requests end when the test says so."""

    def __init__(self, shard: Shard, most: int) -> None:
        self.under_way: list[str] = []
        self.may_end = asyncio.Event()
        self.is_engine_running = True
        self.counts: Counter[str] = Counter()
        self._shard = shard
        client = client_of(get_crawler())
        self.direct = DirectFetches(
            shard.dispatcher, self._fetch, client, self._count, most, lambda: self.is_engine_running
        )

    def _count(self, name: str) -> None:
        self.counts[name] += 1

    async def _fetch(self, target: Lease | RobotsFetch) -> None:
        assert isinstance(target, Lease)
        self.under_way.append(target.url)
        await self.may_end.wait()
        self.under_way.remove(target.url)
        self._shard.dispatcher.settle(Settlement(target, Outcome.DONE))


@pytest.fixture
async def shard(shards: Shards) -> Shard:
    await shards.admit(*sites(5))
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.dispatcher.pacer.buffered == 5)
    return shard


async def test_no_more_are_under_way_than_allowed_and_the_next_starts_when_one_ends(shard: Shard) -> None:
    fetches = Fetches(shard, most=3)

    fetches.direct.wake()
    await until(lambda: fetches.under_way)
    first = len(fetches.under_way)
    fetches.may_end.set()
    await until(lambda: not shard.dispatcher.has_work)

    assert first == 3
    assert fetches.counts == {"scheduler/dequeued/redis": 5}


async def test_nothing_starts_while_the_engine_is_paused(shard: Shard) -> None:
    fetches = Fetches(shard, most=10)
    fetches.is_engine_running = False

    fetches.direct.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    paused = list(fetches.under_way)
    fetches.is_engine_running = True
    # As the engine does when it runs again.
    request = fetches.direct.next_request()
    await until(lambda: len(fetches.under_way) == 5)

    assert (paused, request) == ([], None)
    await fetches.direct.drain(0.0)


async def test_a_shard_that_leaves_waits_for_its_fetches_and_starts_none(shard: Shard) -> None:
    fetches = Fetches(shard, most=2)
    fetches.direct.wake()
    await until(lambda: len(fetches.under_way) == 2)

    asyncio.get_running_loop().call_later(0.05, fetches.may_end.set)
    have_all_ended = await fetches.direct.drain(30.0)

    assert have_all_ended
    assert (fetches.under_way, shard.held) == ([], 3)


async def test_fetches_that_take_too_long_are_cut_and_their_leases_returned(
    shard: Shard, shards: Shards
) -> None:
    fetches = Fetches(shard, most=2)
    fetches.direct.wake()
    await until(lambda: len(fetches.under_way) == 2)

    have_all_ended = await fetches.direct.drain(0.01)
    await shard.feed.close()

    assert not have_all_ended
    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased) == (5, 0)
