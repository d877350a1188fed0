"""Decisions of the supervisor about its children. Pure: time is an argument."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
#: How often a supervisor looks at its run, as a share of the age of the run, and at most how often.
_LOOK_SHARE, _LEAST_LOOK_S = 0.2, 0.3
#: Limits stored with the run: --max-...
LIMITS = ("pages", "seconds", "bytes")
#: What a supervisor gives to its shards.
_SHARD_ARGUMENTS = frozenset({"shard", "shards", "run"})
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


def arguments_from(pairs: Sequence[str], spider: str | None) -> dict[str, str]:
    """Read ``-a NAME=VALUE``, the arguments of *spider*."""
    if wrong := next((pair for pair in pairs if "=" not in pair), ""):
        raise BadArgument(f"-a {wrong}: write -a NAME=VALUE.")
    arguments = dict(pair.split("=", 1) for pair in pairs)
    if pairs and not spider:
        raise BadArgument(f"-a {pairs[0]}: arguments are for a spider of your own; name it with --spider.")
    if taken := sorted(_SHARD_ARGUMENTS & arguments.keys()):
        raise BadArgument(f"-a {taken[0]} is given to each shard by `scrapy run` itself; leave it out.")
    return arguments


def amount_from(option: str, text: str | None, least: int) -> int | None:
    """Read a whole number from the command line; None when the option was not given."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < least:
        none = "; 0 means no limit" if least == 0 else ""
        raise BadArgument(f"--{option} {text}: must be a whole number, at least {least}{none}.")
    return int(text)


def limits_from(options: object) -> dict[str, int | None]:
    """Read ``--max-pages`` and the other limits that are stored with the run."""
    return {name: amount_from(f"max-{name}", getattr(options, f"max_{name}"), 0) for name in LIMITS}


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


def longest_pause_s(age_s: float) -> float:
    """Return how long a supervisor may look away from a run of that age: a small one is over soon."""
    return max(_LEAST_LOOK_S, _LOOK_SHARE * age_s)
