"""Dead letters beyond the limit are on disk: none is lost or doubled, whoever is killed when."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crawlproj.pages.deadletters import DeadLetter, DeadLetters
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.patience import PATIENCE_S

RUN = "web"
PROJECT = Path(__file__).parents[2]
#: More steps than any of its actions has.
MOST_STEPS = 60


@pytest.fixture
def letters(client: RedisClient, tmp_path: Path) -> DeadLetters:
    return DeadLetters(client, RUN, tmp_path / "deadletters")


async def bury(client: RedisClient, *names: str, body: bytes = b"\n\x00bad ") -> None:
    """Make dead letters, each named as its page, the first the oldest."""
    queue = PageQueue(client, RUN)
    await queue.heartbeat("p", 0)
    for at_ms, name in enumerate(names):
        raw = body + name.encode()
        await client.command("RPUSH", keys.pages(RUN), raw)
        await client.command("HINCRBY", keys.page_counters(RUN), "queued_bytes", len(raw))
        await queue.take("p", 1)
        await queue.fail("p", raw, DeadLetter(name, f"http://a.test/{name}", "bad", "p", at_ms), 1)


async def in_redis(client: RedisClient) -> set[str]:
    found = [
        set(await client.command(command, key, *more))
        for command, key, *more in (
            ("HKEYS", keys.dead_letters(RUN)),
            ("HKEYS", keys.dead_pages(RUN)),
            ("ZRANGE", keys.dead_ages(RUN), 0, -1),
        )
    ]
    assert found[0] == found[1] == found[2]
    return {name.decode() for name in found[0]}


async def size_in_redis(client: RedisClient) -> int:
    values = [
        value
        for key in (keys.dead_letters(RUN), keys.dead_pages(RUN))
        for value in await client.command("HVALS", key)
    ]
    return sum(map(len, values))


async def counter(client: RedisClient, name: str) -> int:
    return int(await client.command("HGET", keys.page_counters(RUN), name) or 0)


async def queued(client: RedisClient) -> list[str]:
    return [raw.split()[-1].decode() for raw in await client.command("LRANGE", keys.pages(RUN), 0, -1)]


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def names(letters: DeadLetters) -> list[str]:
    return [letter.page for letter in await letters.list()]


async def test_the_oldest_beyond_the_limit_are_on_disk_and_all_are_listed(
    client: RedisClient, letters: DeadLetters
) -> None:
    await bury(client, "a", "b", "c", "d")
    whole = await size_in_redis(client)

    await letters.make_room(whole // 2)

    assert await in_redis(client) == {"c", "d"}
    assert await names(letters) == ["a", "b", "c", "d"]
    assert [await letters.envelope(page) for page in "ad"] == [b"\n\x00bad a", b"\n\x00bad d"]
    assert await counter(client, "dead_bytes") == await size_in_redis(client) <= whole // 2
    assert await counter(client, "dead") == 4


async def test_below_the_limit_nothing_touches_the_disk(
    client: RedisClient, letters: DeadLetters, tmp_path: Path
) -> None:
    await bury(client, "a")

    await letters.make_room(10_000)

    assert await names(letters) == ["a"]
    assert files_in(tmp_path) == []


async def test_a_page_that_dies_again_counts_once(client: RedisClient) -> None:
    await bury(client, "a", "b")
    await bury(client, "b")

    assert await counter(client, "dead_bytes") == await size_in_redis(client)
    assert await counter(client, "dead") == 2


async def test_those_on_disk_are_replayed(client: RedisClient, letters: DeadLetters, tmp_path: Path) -> None:
    await bury(client, "a", "b", "c")
    await letters.make_room(0)
    await bury(client, "d")

    assert await letters.replay("a", "d", "none") == 2

    assert await queued(client) == ["a", "d"]
    assert await names(letters) == ["b", "c"]
    assert await counter(client, "queued_bytes") == 2 * len(b"\n\x00bad a")
    assert await counter(client, "dead") == 2
    assert len(files_in(tmp_path / "deadletters")) == 2
    assert await letters.replay("a") == 0


async def test_one_in_redis_and_on_disk_is_one(client: RedisClient, letters: DeadLetters) -> None:
    """As after Redis was set back to before it was moved."""
    await bury(client, "a")
    await letters.make_room(0)
    await bury(client, "a")

    listed = await names(letters)
    replayed = await letters.replay("a")

    assert (listed, replayed) == (["a"], 1)
    assert await names(letters) == []
    assert await queued(client) == ["a"]


async def test_one_that_another_machine_replays_meanwhile_does_not_stay_on_disk(
    client: RedisClient, letters: DeadLetters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(client, "a")
    elsewhere = DeadLetters(client, RUN, tmp_path / "elsewhere")
    run = client.run

    async def late(script: str, *args: object) -> object:
        if script == "move_letter":
            await elsewhere.replay("a")
        return await run(script, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "run", late)

    await letters.make_room(0)

    assert await names(letters) == []
    assert await queued(client) == ["a"]
    assert files_in(tmp_path / "deadletters") == []


async def test_a_disk_that_refuses_leaves_them_in_redis(
    client: RedisClient, letters: DeadLetters, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await bury(client, "a")
    (tmp_path / "deadletters").write_text("not a directory")

    await letters.make_room(0)

    assert await in_redis(client) == {"a"}
    assert "dead letters stay in Redis" in caplog.text


async def test_two_that_move_at_once_move_each_once(
    client: RedisClient, letters: DeadLetters, tmp_path: Path
) -> None:
    await bury(client, *"abcdefgh")
    other = DeadLetters(client, RUN, tmp_path / "deadletters")

    await asyncio.gather(letters.make_room(0), other.make_room(0))

    assert await names(letters) == list("abcdefgh")
    assert await in_redis(client) == set()
    assert len(files_in(tmp_path / "deadletters")) == 8


def die(redis_url: str, directory: Path, action: str, step: int) -> bool:
    """Returns whether it was killed."""
    command = [sys.executable, "-m", "tests.redis.dying_mover", redis_url, directory, action, str(step)]
    code = subprocess.run(command, cwd=PROJECT, check=False, timeout=PATIENCE_S).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


async def test_a_mover_killed_at_any_moment_loses_none_and_lists_none_twice(
    client: RedisClient, redis_url: str, letters: DeadLetters, tmp_path: Path
) -> None:
    for step in range(1, MOST_STEPS):
        await client.command("FLUSHDB")
        await bury(client, "a", "b")

        was_killed = await asyncio.to_thread(die, redis_url, tmp_path / "deadletters", "make_room", step)

        assert await names(letters) == ["a", "b"], step
        await letters.make_room(0)
        assert await in_redis(client) == set()
        assert await names(letters) == ["a", "b"], step
        assert await client.command("EXISTS", keys.dead_moves(RUN)) == 0
        assert await letters.replay("a", "b") == 2
        assert files_in(tmp_path / "deadletters") == []
        if not was_killed:
            break
    assert 10 < step < MOST_STEPS - 1


async def test_a_replay_killed_at_any_moment_loses_none_and_doubles_none(
    client: RedisClient, redis_url: str, letters: DeadLetters, tmp_path: Path
) -> None:
    for step in range(1, MOST_STEPS):
        await client.command("FLUSHDB")
        await bury(client, "a", "b")
        await letters.make_room(0)
        await bury(client, "c")

        was_killed = await asyncio.to_thread(die, redis_url, tmp_path / "deadletters", "replay", step)

        # What was replayed may have been parsed and stored before the command is repeated.
        done = await queued(client)
        await client.command("DEL", keys.pages(RUN))
        left = await names(letters)
        assert Counter([*done, *left]) == Counter("abc"), step
        await letters.replay("a", "b", "c")
        assert Counter([*done, *await queued(client)]) == Counter("abc"), step
        assert await names(letters) == []
        if not was_killed:
            break
    assert 8 < step < MOST_STEPS - 1
