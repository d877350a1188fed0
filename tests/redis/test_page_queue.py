"""The page queue, and with it the scripts take_pages, commit_segment and reclaim_pages."""

from __future__ import annotations

import asyncio

import pytest

from crawlproj.errors import Fenced
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from tests.patience import PATIENCE_S

RUN = "web"


@pytest.fixture
def queue(client: RedisClient) -> PageQueue:
    return PageQueue(client, RUN)


async def push(client: RedisClient, *pages: bytes) -> None:
    await client.command("RPUSH", keys.pages(RUN), *pages)


async def counter(client: RedisClient, name: str) -> int:
    return int(await client.command("HGET", keys.page_counters(RUN), name) or 0)


async def test_pages_are_taken_oldest_first(client: RedisClient, queue: PageQueue) -> None:
    await push(client, b"1", b"2", b"3")
    await queue.heartbeat("p", 0)

    first = await queue.take("p", 2)
    second = await queue.take("p", 2)
    third = await queue.take("p", 2)

    assert (first, second, third) == ([(None, b"1"), (None, b"2")], [(None, b"3")], [])


async def test_a_page_is_taken_by_one_parser(client: RedisClient, queue: PageQueue) -> None:
    await push(client, *(b"%d" % number for number in range(100)))
    others = [PageQueue(client, RUN) for _ in range(4)]
    for number, other in enumerate(others):
        await other.heartbeat(f"p{number}", 0)

    taken = await asyncio.gather(*(other.take(f"p{number}", 30) for number, other in enumerate(others)))

    assert sorted(int(page) for pages in taken for _, page in pages) == list(range(100))


async def test_taking_waits_for_the_first_page(client: RedisClient, queue: PageQueue) -> None:
    await queue.heartbeat("p", 0)
    waiting = asyncio.create_task(queue.take("p", 5, wait_s=PATIENCE_S))
    while b"flags=b" not in await client.command("CLIENT", "LIST"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    await push(client, b"1", b"2")

    assert await waiting == [(None, b"1"), (None, b"2")]
    assert await queue.length() == 0


async def test_all_waiting_parsers_wake_and_no_page_is_taken_twice(client: RedisClient) -> None:
    queues = {f"p{number}": PageQueue(client, RUN) for number in range(3)}
    for parser, queue in queues.items():
        await queue.heartbeat(parser, 0)
    waiting = [
        asyncio.create_task(queue.take(parser, 1, wait_s=PATIENCE_S)) for parser, queue in queues.items()
    ]
    while (await client.command("CLIENT", "LIST")).count(b"flags=b") < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    await push(client, b"1", b"2", b"3")

    assert sorted(await asyncio.gather(*waiting)) == [[(None, b"1")], [(None, b"2")], [(None, b"3")]]


async def test_waiting_has_a_limit(queue: PageQueue) -> None:
    await queue.heartbeat("p", 0)

    assert await queue.take("p", 1, wait_s=0.05) == []


async def test_pages_whose_answer_was_lost_come_again(client: RedisClient, queue: PageQueue) -> None:
    await push(client, b"1", b"2", b"3", b"4", b"5")
    await queue.heartbeat("p", 0)
    await queue.take("p", 2)
    lost = PageQueue(client, RUN)
    lost._held["p", None], lost._heartbeats["p"] = 2, "{}"
    assert await lost.take("p", 2) == [(None, b"3"), (None, b"4")]

    again = await queue.take("p", 2)

    assert again == [(None, b"3"), (None, b"4")]
    assert await queue.length() == 1


async def test_a_commit_acknowledges_the_oldest_and_records_the_segment(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1", b"2", b"3")
    await queue.heartbeat("p", 0)
    await queue.take("p", 3)

    await queue.commit("p", "p-1.jsonl", 2, {"stored": 2, "links": 7})

    assert await client.command("LRANGE", keys.pages_taken(RUN, "p"), 0, -1) == [b"3"]
    assert await client.command("HGET", keys.segments(RUN), "p-1.jsonl") == b"2"
    assert (await counter(client, "stored"), await counter(client, "links")) == (2, 7)
    assert await queue.take("p", 3) == []


async def test_a_repeated_commit_changes_nothing(client: RedisClient, queue: PageQueue) -> None:
    await push(client, b"1", b"2", b"3", b"4")
    await queue.heartbeat("p", 0)
    await queue.take("p", 4)
    await queue.commit("p", "p-1.jsonl", 2, {"stored": 2})

    await queue.commit("p", "p-1.jsonl", 2, {"stored": 2})

    assert await client.command("LLEN", keys.pages_taken(RUN, "p")) == 2
    assert await counter(client, "stored") == 2


async def test_pages_of_a_silent_parser_return_to_the_head_in_their_order(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1", b"2", b"3", b"4")
    await queue.heartbeat("dead", 1_000)
    await queue.heartbeat("alive", 25_000)
    await queue.take("dead", 2)
    await queue.take("alive", 1)

    dead = await queue.reclaim_dead(now_ms=31_001, silent_ms=30_000)

    assert dead == {"dead": 2}
    assert await client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"1", b"2", b"4"]
    assert await queue.parsers() == {"alive"}
    assert await counter(client, "taken_back") == 2


async def test_a_parser_is_silent_by_our_own_clock_if_that_of_redis_was_set_back(client: RedisClient) -> None:
    now_s = 0.0
    queue = PageQueue(client, RUN, clock=lambda: now_s)
    await push(client, b"1")
    await queue.heartbeat("dead", 3_600_000)
    await queue.take("dead", 1)
    assert await queue.reclaim_dead(now_ms=1_000, silent_ms=30_000) == {}

    now_s = 30.0
    assert await queue.reclaim_dead(now_ms=31_000, silent_ms=30_000) == {}
    now_s = 30.1
    assert await queue.reclaim_dead(now_ms=31_100, silent_ms=30_000) == {"dead": 1}


async def test_what_we_took_under_an_earlier_name_is_returned(client: RedisClient, queue: PageQueue) -> None:
    process = ProcessName.of_this()
    await push(client, b"1")
    await queue.heartbeat("p", 3_600_000, process)
    await queue.take("p", 1)
    again = PageQueue(client, RUN)
    await again.heartbeat("p.1", 1_000, process)

    assert await again.reclaim_dead(now_ms=1_000, silent_ms=30_000) == {"p": 1}
    assert await again.parsers() == {"p.1"}


async def test_a_parser_that_was_silent_just_as_long_as_it_may_keeps_its_pages(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1")
    await queue.heartbeat("p", 1_000)
    await queue.take("p", 1)

    assert await queue.reclaim_dead(now_ms=31_000, silent_ms=30_000) == {}


async def test_a_parser_that_shows_a_heartbeat_at_the_last_moment_keeps_its_pages(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1")
    await queue.heartbeat("p", 1_000)
    await queue.take("p", 1)
    [(_, parsers)] = await queue._registers()
    [judged_by] = parsers.values()
    await queue.heartbeat("p", 40_000)

    assert await queue._reclaim(None, "p", judged_by) == -1
    assert await queue.length() == 0


async def test_a_parser_whose_pages_were_reclaimed_can_neither_commit_nor_take(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1", b"2", b"3")
    await queue.heartbeat("p", 0)
    await queue.take("p", 2)
    await PageQueue(client, RUN).reclaim_dead(now_ms=60_000, silent_ms=30_000)

    with pytest.raises(Fenced, match="parser p"):
        await queue.heartbeat("p", 60_000)
    with pytest.raises(Fenced, match=r"p-1\.jsonl"):
        await queue.commit("p", "p-1.jsonl", 2)
    with pytest.raises(Fenced, match="parser p"):
        await queue.take("p", 1)

    assert await queue.segments() == {}
    assert await queue.length() == 3


async def test_a_parser_that_was_removed_takes_no_pages_though_it_holds_none(
    client: RedisClient, queue: PageQueue
) -> None:
    """Otherwise a list nobody knows of would hold them; `renew_parser` does not register it again."""
    await push(client, b"1")
    await queue.heartbeat("p", 0)
    await PageQueue(client, RUN).reclaim_dead(now_ms=60_000, silent_ms=30_000)

    with pytest.raises(Fenced, match="parser p"):
        await queue.take("p", 1)

    assert (await queue.length(), await queue.parsers()) == (1, set())


async def test_a_fenced_parser_can_start_over_under_another_name(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"1")
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)
    await PageQueue(client, RUN).reclaim_dead(now_ms=60_000, silent_ms=30_000)

    await queue.abandon("p")
    await queue.heartbeat("p.1", 0)

    assert await queue.take("p.1", 1) == [(None, b"1")]


async def test_a_parser_that_leaves_gives_its_pages_back(client: RedisClient, queue: PageQueue) -> None:
    await push(client, b"1", b"2")
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)

    await queue.leave("p")

    assert await queue.length() == 2
    assert await queue.parsers() == set()


async def test_unstored_pages_are_those_waiting_and_those_held(client: RedisClient, queue: PageQueue) -> None:
    await push(client, b"1", b"2", b"3", b"4")
    await queue.heartbeat("p", 0)
    await queue.heartbeat("q", 0)
    await queue.take("p", 2)
    await queue.take("q", 1)
    run = Run(client, RUN, 1)
    held = (await run.read_counters()).unstored
    await queue.commit("p", "p-1.jsonl", 2)

    assert (held, (await run.read_counters()).unstored) == (4, 2)


async def test_the_clock_is_that_of_redis(client: RedisClient, queue: PageQueue) -> None:
    before = int((await client.command("TIME"))[0]) * 1000

    assert before <= await queue.now_ms() <= before + 5_000


async def test_the_bytes_in_the_queue_are_counted_by_every_script_that_changes_it(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, b"12345", b"123")
    await client.command("HSET", keys.page_counters(RUN), "queued_bytes", 8)
    await queue.heartbeat("p", 0)

    await queue.take("p", 1)
    after_take = await counter(client, "queued_bytes")
    await queue.leave("p")

    assert (after_take, await counter(client, "queued_bytes")) == (3, 8)


async def test_a_batch_of_large_pages_ends_with_the_page_that_makes_it_large(
    client: RedisClient, queue: PageQueue
) -> None:
    await push(client, *(bytes([number]) * 3_000_000 for number in range(5)))
    await queue.heartbeat("p", 0)

    taken = [[page[0] for _, page in await queue.take("p", 32)] for _ in range(3)]

    assert taken == [[0, 1, 2], [3, 4], []]
