"""Decisions of the supervisor about its children. Pure: time is an argument."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from crawlproj.errors import EXIT_NO_SEEDS, EXIT_RUN_MISMATCH, EXIT_USAGE, BadArgument

#: Exit codes that a restart would end with again.
FINAL = frozenset({EXIT_USAGE, EXIT_RUN_MISMATCH, EXIT_NO_SEEDS})
#: After this many deaths in a row a child is not restarted.
MOST_DEATHS = 5
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
#: A child that lived this long starts counting deaths from one.
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
    """Read ``--parsers``: 2, 1..4, or 1.. for up to one per core. 0: the shards parse inline."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise BadArgument(f"--parsers {text}: must be a number, or a range such as 1..4.")
    least = int(found[1])
    if not found[2]:
        return Range(least, least)
    most = int(found[3]) if found[3] else max(least, cores)
    if not 1 <= least <= most:
        raise BadArgument(
            f"--parsers {text}: a range starts at 1 or more and does not end below its start: 1..4."
        )
    return Range(least, most)


def amount_from(option: str, text: str | None, least: int) -> int | None:
    """Read a whole number from the command line; None when the option was not given."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < least:
        none = "; 0 means no limit" if least == 0 else ""
        raise BadArgument(f"--{option} {text}: must be a whole number, at least {least}{none}.")
    return int(text)


@dataclass(slots=True)
class Restarts:
    """When one child may be restarted."""

    deaths: int = 0
    #: When it may be restarted.
    next_at_s: float = 0.0

    def after_death(self, code: int, lived_s: float, now_s: float) -> bool:
        """Record a death; returns whether to restart."""
        self.deaths = 1 if lived_s >= _WELL_S else self.deaths + 1
        self.next_at_s = now_s + min(_FIRST_PAUSE_S * 2 ** (self.deaths - 1), _LONGEST_PAUSE_S)
        return code not in FINAL and self.deaths < MOST_DEATHS


def numbers_to_start(
    shards: int, ready_for: int, ours: Collection[int], elsewhere: Collection[int]
) -> list[int]:
    """Return the free shard numbers to start, so that we hold *ready_for* in all.

    The highest first: a lower free number may belong to another supervisor that is about to restart it.
    """
    held = sum(number < shards for number in ours)
    free = [n for n in reversed(range(shards)) if n not in ours and n not in elsewhere]
    return sorted(free[: max(0, ready_for - held)])
