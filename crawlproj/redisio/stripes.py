"""What is kept for each stripe of a run, read as one; see `redisio.keys`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from crawlproj.redisio.connection import Command
from crawlproj.redisio.keys import Stripe

#: A function of `keys`, with its run.
_KeyOf = Callable[[str, Stripe], str]


def stripe_of(client: RedisClient, partition: int) -> Stripe:
    """Return the stripe of the pages of *partition*."""
    return keys.stripe_of(partition) if len(client.stripes) > 1 else None


async def read_hash(client: RedisClient, run: str, key_of: _KeyOf) -> dict[str, str]:
    """Return the fields of a hash in all stripes; of a field in several, the value in one of them."""
    answers = await client.pipeline([("HGETALL", key_of(run, stripe)) for stripe in client.stripes])
    return {name: value for flat in answers for name, value in pairs(flat)}


async def read_page_counters(client: RedisClient, run: str) -> Counter[str]:
    answers = await client.pipeline(
        [("HGETALL", keys.page_counters(run, stripe)) for stripe in client.stripes]
    )
    total: Counter[str] = Counter()
    for flat in answers:
        total.update({name: int(value) for name, value in pairs(flat)})
    return total


async def read_page_queue(client: RedisClient, run: str) -> tuple[int, int]:
    """Return how many pages wait for a parser, and their size in bytes."""
    stripes = client.stripes
    answers = await client.pipeline(
        [
            *(("LLEN", keys.pages(run, stripe)) for stripe in stripes),
            *(("HGET", keys.page_counters(run, stripe), "queued_bytes") for stripe in stripes),
        ]
    )
    return sum(answers[: len(stripes)]), sum(int(size or 0) for size in answers[len(stripes) :])


async def read_groups(client: RedisClient, *groups: Sequence[Command]) -> list[list[Any]]:
    """Send groups of commands as one pipeline; returns the answers of each group."""
    answers = iter(await client.pipeline([command for group in groups for command in group]))
    return [list(islice(answers, len(group))) for group in groups]
