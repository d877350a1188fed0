"""Whose turn at an IP address it is not gives back what it was lent, and costs no try."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scrapy import Request
from scrapy.exceptions import CannotResolveHostError
from scrapy.http import Response

from crawlproj.download.client import Answer, HttpRequest
from crawlproj.download.errors import AddressBusyError
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.middlewares import DomainFeedback, RetriedLater, RetryLater
from crawlproj.model.records import Outcome, Settlement
from crawlproj.politeness.pacing import DelayRules, Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.shard.requests import SETTLEMENT
from tests.patience import until
from tests.redis.shards import LONG, Shard, Shards, ready_in_s, rules_of

QUICK = DelayRules(0.0, backoff_s=0.01, max_backoff_s=0.1, give_up=3, parked_s=600.0)
IP = "192.0.2.1"


def cache() -> RobotsCache:
    return RobotsCache(100, 3600.0, 0.3)


async def put_off(shard: Shard, fetch: RobotsFetch, wait_s: float) -> None:
    """Fetch a robots.txt whose address is busy."""

    async def exchange(request: HttpRequest) -> Answer:
        raise AddressBusyError(IP, wait_s)

    await shard.fetcher(exchange).fetch(fetch)


@pytest.mark.parametrize("middleware", [DomainFeedback, RetryLater])
async def test_a_url_whose_address_is_busy_is_returned_with_its_wait_and_no_row(
    shards: Shards, middleware: type[DomainFeedback]
) -> None:
    await shards.admit("https://a.test/1", "https://a.test/2")
    shard = await shards.open(limits=LONG, rules=QUICK)
    lease = await shard.take_one()
    request = Request(lease.url, meta={SETTLEMENT: Settlement(lease, Outcome.DONE)})

    middleware(shard.crawler()).process_exception(request, AddressBusyError(IP, 40.0))
    shard.settle(lease)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.queue_pages) == (2, 0, 0)
    assert counters.counts["retried"] == counters.counts["failed"] == 0
    [due_s] = await ready_in_s(shards, "a.test")
    assert 20 < due_s <= 40.1


async def test_a_returned_url_counts_as_a_first_attempt_again(shards: Shards) -> None:
    await shards.admit("https://a.test/1", "https://a.test/2")
    shard = await shards.open(limits=LONG, rules=QUICK)

    tries = []
    for _ in range(10):
        lease = await shard.take_one()
        tries.append((lease.url, lease.attempt, lease.fails))
        shard.dispatcher.put_off(lease, 0.01)
        shard.settle(lease)

    assert set(tries) == {("https://a.test/1", 0, 0)}


async def test_a_robots_txt_whose_address_is_busy_has_its_domain_wait_and_is_fetched_again(
    shards: Shards,
) -> None:
    await shards.admit("https://a.test/1", "https://a.test/2")
    shard = await shards.open(limits=LONG, rules=QUICK, robots=cache())
    fetch = await shard.take_robots()

    await put_off(shard, fetch, 40.0)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.queue_pages) == (2, 0, 0)
    [due_s] = await ready_in_s(shards, "a.test")
    assert 20 < due_s <= 40.1
    assert (await shards.state("a.test"))[2] == "0"


async def test_a_robots_txt_put_off_many_times_is_still_fetched_and_then_obeyed(shards: Shards) -> None:
    await shards.admit("https://a.test/1")
    shard = await shards.open(limits=LONG, rules=QUICK, robots=cache())

    for _ in range(10):
        fetch = await shard.take_robots()
        assert fetch.url == "https://a.test/robots.txt"
        await put_off(shard, fetch, 0.01)
    shard.robots.learn(await shard.take_robots(), rules_of(""), Ending(200))

    lease = await shard.take_one()
    assert (lease.url, lease.attempt) == ("https://a.test/1", 0)


async def test_a_redirected_robots_txt_that_was_put_off_continues_from_there(shards: Shards) -> None:
    await shards.admit("https://a.test/1")
    shard = await shards.open(limits=LONG, rules=QUICK, robots=cache())
    shard.robots.redirect(await shard.take_robots(), "https://www.a.test/robots.txt", Ending(302))

    moved = await shard.take_robots()
    await put_off(shard, moved, 0.01)

    assert moved.url == "https://www.a.test/robots.txt"
    assert await shard.take_robots() == moved


async def test_sites_are_not_blamed_when_none_can_be_reached_any_more(shards: Shards) -> None:
    await shards.admit(*(f"https://d{number:02}.test/" for number in range(30)))
    shard = await shards.open(limits=LONG, rules=replace(QUICK, backoff_s=600.0, max_backoff_s=600.0))
    middleware = RetryLater(shard.crawler())
    leases = await shard.take_some(30)
    requests = [Request(lease.url, meta={SETTLEMENT: Settlement(lease, Outcome.DONE)}) for lease in leases]

    middleware.process_response(requests[0], Response(leases[0].url))
    for request in requests[1:]:
        with pytest.raises(RetriedLater):
            middleware.process_exception(request, CannotResolveHostError("no network"))
    for request in requests:
        shard.dispatcher.settle(request.meta[SETTLEMENT])
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    # The first of them look like any site that is dead.
    assert (counters.counts["retry"], counters.counts["returned"]) == (15, 14)
    due_s = await ready_in_s(shards, *(lease.domain for lease in leases[16:]))
    assert all(20 < seconds <= 30.1 for seconds in due_s)
