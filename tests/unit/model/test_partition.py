"""Partitions: every domain in one, every one with one owner among the living."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.partition import partition_of, partitions_of, shard_of

partition_counts = st.integers(1, 256)
shard_counts = st.integers(1, 20)
living = st.sets(st.integers(0, 25))


@given(partition_counts, shard_counts, living)
def test_every_partition_has_exactly_one_owner_among_the_living(
    count: int, shards: int, alive: set[int]
) -> None:
    entitled = {shard for shard in alive if shard < shards}

    owned = [p for shard in range(26) for p in partitions_of(shard, count, shards, alive)]

    assert sorted(owned) == (list(range(count)) if entitled else [])
    assert {shard_of(p, shards, alive) for p in range(count)} <= (entitled or {None})


@given(partition_counts, shard_counts, living)
def test_a_partition_is_at_home_while_its_home_is_alive(count: int, shards: int, alive: set[int]) -> None:
    for partition in range(count):
        if partition % shards in alive:
            assert shard_of(partition, shards, alive) == partition % shards


@given(partition_counts, shard_counts, living, st.integers(0, 25))
def test_a_death_takes_nothing_from_the_homes_of_the_living(
    count: int, shards: int, alive: set[int], dead: int
) -> None:
    for shard in alive - {dead}:
        home = {p for p in range(count) if p % shards == shard}

        assert home <= partitions_of(shard, count, shards, alive - {dead})


@given(shard_counts, st.integers(0, 19))
def test_the_first_death_moves_only_what_the_dead_shard_had(shards: int, dead: int) -> None:
    everyone = set(range(shards))

    moved = {p for p in range(128) if shard_of(p, shards, everyone) != shard_of(p, shards, everyone - {dead})}

    assert moved == {p for p in range(128) if p % shards == dead}


@given(st.integers(2, 20), st.integers(0, 19))
def test_what_a_dead_shard_had_is_shared_evenly(shards: int, dead: int) -> None:
    dead %= shards
    heirs = set(range(shards)) - {dead}

    shares = [len(partitions_of(shard, 64 * shards, shards, heirs)) - 64 for shard in heirs]

    assert sum(shares) == 64
    assert max(shares) - min(shares) <= 1


def test_domains_spread_over_all_partitions() -> None:
    counts = [0] * 64
    for number in range(64_000):
        counts[partition_of(f"domain{number}.test", 64)] += 1

    assert min(counts) > 850
    assert max(counts) < 1150
