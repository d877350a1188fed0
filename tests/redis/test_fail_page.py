"""fail_page and replay_page: a page that fails is tried again, then kept as a dead letter to be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.pages.deadletters import DeadLetter, DeadLetters
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient

RUN = "web"


@pytest.fixture
async def queue(client: RedisClient) -> PageQueue:
    """A queue of three pages, all taken by the parser p."""
    await client.command("RPUSH", keys.pages(RUN), b"one", b"bad", b"two")
    await client.command("HSET", keys.page_counters(RUN), "queued_bytes", 9)
    queue = PageQueue(client, RUN)
    await queue.heartbeat("p", 0)
    await queue.take("p", 10)
    return queue


def letter(page: str = "1:2", error: str = "it is bad") -> DeadLetter:
    return DeadLetter(page, "https://a.test/", error, "p", 7)


async def bytes_queued(client: RedisClient) -> int:
    return int(await client.command("HGET", keys.page_counters(RUN), "queued_bytes"))


def test_a_dead_letter_is_named_by_its_page_however_often_it_failed() -> None:
    raws = (b"one", b"failed 1 one", b"two")

    one, again, two = (DeadLetter.of(raw, "https://a.test/", "bad", "p") for raw in raws)

    assert one.page == again.page != two.page


async def test_a_failed_page_waits_at_the_end_of_the_queue(client: RedisClient, queue: PageQueue) -> None:
    await client.command("RPUSH", keys.pages(RUN), b"later")

    is_dead = await queue.fail("p", b"bad", letter(), 3)

    assert not is_dead
    assert await client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"later", b"failed 1 bad"]
    assert await client.command("LRANGE", keys.pages_taken(RUN, "p"), 0, -1) == [b"one", b"two"]
    assert await bytes_queued(client) == len(b"failed 1 bad")


async def test_nothing_remembers_the_failures_of_a_page_that_was_stored(
    client: RedisClient, queue: PageQueue
) -> None:
    before = {*await client.command("KEYS", "*")}
    await queue.fail("p", b"bad", letter(), 3)
    await queue.take("p", 10)

    await queue.commit("p", "segment", 3)

    left = {*await client.command("KEYS", "*")} - before
    assert left == {keys.segments(RUN).encode()}


async def test_the_others_of_its_parser_can_still_be_committed(client: RedisClient, queue: PageQueue) -> None:
    await queue.fail("p", b"bad", letter(), 3)

    await queue.commit("p", "segment", 2)

    assert await client.command("LLEN", keys.pages_taken(RUN, "p")) == 0


async def test_a_page_that_failed_for_the_last_time_is_a_dead_letter(
    client: RedisClient, queue: PageQueue, tmp_path: Path
) -> None:
    outcomes = [await queue.fail("p", b"bad", letter(), 3)]
    for _ in range(2):
        [(_, raw)] = await queue.take("p", 10)
        outcomes.append(await queue.fail("p", raw, letter(), 3))

    assert outcomes == [False, False, True]
    dead = DeadLetters(client, RUN, tmp_path)
    assert await dead.list() == [letter()]
    assert await dead.envelope("1:2") == b"bad"
    assert await client.command("LLEN", keys.pages(RUN)) == 0
    assert await bytes_queued(client) == 0


async def test_failing_a_page_twice_by_a_lost_answer_counts_once(
    client: RedisClient, queue: PageQueue
) -> None:
    await queue.fail("p", b"bad", letter(), 3)
    await queue.fail("p", b"bad", letter(), 3)

    assert await client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"failed 1 bad"]


async def test_a_replayed_dead_letter_is_a_page_again_with_all_its_tries(
    client: RedisClient, queue: PageQueue, tmp_path: Path
) -> None:
    await queue.fail("p", b"bad", letter(), 1)
    dead = DeadLetters(client, RUN, tmp_path)

    assert await dead.replay("1:2")

    assert await dead.list() == []
    assert await dead.envelope("1:2") is None
    assert await client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"bad"]
    assert await bytes_queued(client) == 3
    assert not await dead.replay("1:2")


async def test_dead_letters_are_listed_oldest_first(
    client: RedisClient, queue: PageQueue, tmp_path: Path
) -> None:
    await queue.fail("p", b"one", DeadLetter("1:1", "", "", "p", 30), 1)
    await queue.fail("p", b"two", DeadLetter("1:3", "", "", "p", 10), 1)

    assert [dead.page for dead in await DeadLetters(client, RUN, tmp_path).list()] == ["1:3", "1:1"]
