"""How much memory Redis has left, and what to say when it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Redis has room again at this part of the share from which on it is short of it: no flutter in between.
_AGAIN = 0.97


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a Redis server in bytes; ``most`` is its `maxmemory`, 0 for no limit."""

    used: int = 0
    most: int = 0

    @classmethod
    def from_info(cls, info: bytes) -> Memory:
        """Read the answer to ``INFO memory``."""
        fields = info_fields(info)
        return cls(int(fields.get("used_memory", 0)), int(fields.get("maxmemory", 0)))

    @property
    def share(self) -> float:
        """The part of the limit that is used; 0 without a limit."""
        return self.used / self.most if self.most else 0.0

    @property
    def is_full(self) -> bool:
        """Whether Redis refuses to store more."""
        return 0 < self.most < self.used

    def __str__(self) -> str:
        """Say that it is full, and what to do."""
        return (
            f"is full: it uses {self.used / 1e6:,.1f} MB of {self.most / 1e6:,.1f} MB (maxmemory). "
            "Raise maxmemory, or delete a run that is not needed: scrapy runs --delete NAME"
        )


def fullest(infos: Sequence[bytes]) -> Memory:
    """Return the memory of the server with the least room, from the answers to ``INFO memory``.

    If one has no limit, it is all that they use together.
    """
    known = [Memory.from_info(info) for info in infos]
    if all(memory.most for memory in known):
        return max(known, key=lambda memory: memory.share)
    return Memory(sum(memory.used for memory in known))


def info_fields(info: bytes) -> dict[str, str]:
    """Return what INFO answered."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


def brim_of(share: float) -> float:
    """Return the share from which on Redis is nearly full: half-way between *share* and all."""
    return (1 + share) / 2


class Room:
    """Whether Redis is short of room: from *share* of its limit on, until it is a little below that."""

    def __init__(self, share: float) -> None:
        self._share = share
        self.is_short = False

    def update(self, memory: Memory) -> bool:
        """Record the memory of Redis; returns whether it is short of room."""
        self.is_short = memory.share >= self._share * (_AGAIN if self.is_short else 1.0)
        return self.is_short
