"""The partition of a domain, and the shard that should own a partition."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b


def partition_of(domain: str, partitions: int) -> int:
    """Return the partition of *domain*: the same in every process, on every machine, forever."""
    return int.from_bytes(blake2b(domain.encode(), digest_size=8).digest(), "big") % partitions


def shard_of(partition: int, shards: int, alive: Collection[int]) -> int | None:
    """Return the shard that should own *partition* when the shards *alive* are running.

    Its home is ``partition % shards``. While that shard is down, the live ones share its partitions, so that
    no URL waits for a process that may never come back. None when no shard is alive.
    """
    home = partition % shards
    if home in alive:
        return home
    others = sorted(shard for shard in alive if shard < shards)
    return others[partition // shards % len(others)] if others else None


def partitions_of(shard: int, partitions: int, shards: int, alive: Collection[int]) -> set[int]:
    """Return the partitions *shard* should own."""
    return {p for p in range(partitions) if shard_of(p, shards, alive) == shard}
