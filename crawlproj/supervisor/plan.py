"""What the supervisor decides about its children, without doing it. Pure: time is an argument."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from crawlproj.errors import EXIT_NO_SEEDS, EXIT_RUN_MISMATCH, EXIT_USAGE, BadArgument

#: Exit codes that the next try would end with, too.
_FINAL = frozenset({EXIT_USAGE, EXIT_RUN_MISMATCH, EXIT_NO_SEEDS})
#: How often in a row a child may die.
MOST_DEATHS = 5
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
#: Who lived this long did not die in a row.
_WELL_S = 60.0
_COUNT = re.compile(r"(\d{1,4})(\.\.(\d{1,4})?)?")


@dataclass(frozen=True, slots=True)
class Range:
    """How many processes there may be."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"


def parsers_from(text: str, cores: int) -> Range:
    """Read ``--parsers``: 2, 1..4, or 1.. for as many as there are cores. 0: the shards parse themselves."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise BadArgument(f"--parsers {text}: give a number, or the least and the most: 1..4.")
    least = int(found[1])
    if not found[2]:
        return Range(least, least)
    most = int(found[3]) if found[3] else max(least, cores)
    if not 1 <= least <= most:
        raise BadArgument(f"--parsers {text}: the least is at least 1, and the most not below it: 1..4.")
    return Range(least, most)


def amount_from(option: str, text: str | None, least: int) -> int | None:
    """Read a whole number of the command line; None when it was not given."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < least:
        none = "; 0 means no limit" if least == 0 else ""
        raise BadArgument(f"--{option} {text}: give a whole number from {least}{none}.")
    return int(text)


@dataclass(slots=True)
class Deaths:
    """The deaths of one child in a row."""

    count: int = 0
    #: When it may be started again.
    again_at_s: float = 0.0

    def died(self, code: int, lived_s: float, now_s: float) -> bool:
        """Note a death; returns whether there is hope."""
        self.count = 1 if lived_s >= _WELL_S else self.count + 1
        self.again_at_s = now_s + min(_FIRST_PAUSE_S * 2 ** (self.count - 1), _LONGEST_PAUSE_S)
        return code not in _FINAL and self.count < MOST_DEATHS


def numbers_to_start(
    shards: int, ready_for: int, ours: Collection[int], elsewhere: Collection[int]
) -> list[int]:
    """Return the free shard numbers to take, when we are ready to hold *ready_for* in all.

    The highest first: a lower one that is free may be another's, who is about to start it again.
    """
    held = sum(number < shards for number in ours)
    free = [n for n in reversed(range(shards)) if n not in ours and n not in elsewhere]
    return sorted(free[: max(0, ready_for - held)])
