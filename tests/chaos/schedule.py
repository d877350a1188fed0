"""Which faults a run meets, and when: drawn from the seed before it begins. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    KILL = "kill"
    STOP = "stop"
    SET_BACK = "set-back"
    NETWORK = "network"
    RESIZE = "resize"
    PAUSE = "pause"
    CLOCK = "clock"
    MEMORY = "memory"
    DISK = "disk"
    MACHINE = "machine"


#: Where or how each kind strikes. Twice: twice as often.
HOWS: dict[Kind, Sequence[str]] = {
    Kind.KILL: ("shard", "shard", "parser", "parser", "supervisor", "redis"),
    Kind.STOP: ("shard", "shard", "parser", "supervisor", "redis"),
    Kind.SET_BACK: ("slow fsync", "older file"),
    Kind.NETWORK: ("cut", "lost answers", "stall", "slow"),
    Kind.RESIZE: ("shards",),
    Kind.PAUSE: ("run",),
    Kind.CLOCK: ("redis", "redis", "shard", "parser", "supervisor"),
    Kind.MEMORY: ("redis",),
    Kind.DISK: ("data", "redis"),
    Kind.MACHINE: ("same hostname", "same hostname", "another hostname"),
}
#: How long each lasts. Longer than a shard's hold, and than the supervisor's patience with a silent shard.
_LASTS_S: dict[Kind, tuple[float, float]] = {
    Kind.KILL: (0.1, 3.0),
    Kind.STOP: (0.5, 12.0),
    Kind.SET_BACK: (0.3, 8.0),
    Kind.NETWORK: (0.2, 6.0),
    Kind.RESIZE: (0.0, 0.0),
    Kind.PAUSE: (1.0, 6.0),
    Kind.CLOCK: (2.0, 10.0),
    Kind.MEMORY: (1.0, 6.0),
    Kind.DISK: (1.0, 6.0),
    Kind.MACHINE: (6.0, 15.0),
}
#: Half of the faults are kills, stops and breaks, which are what happens most.
_WEIGHTS: dict[Kind, int] = {Kind.KILL: 5, Kind.STOP: 3, Kind.NETWORK: 3, Kind.SET_BACK: 4, Kind.CLOCK: 2}
_CLOCK_STEPS_S = (1.0, 5.0, 60.0, 3600.0)
#: The part of a run that has faults: it must be under way, and it must have something left to do.
_FIRST, _LAST = 0.04, 0.85


@dataclass(frozen=True, slots=True)
class Fault:
    at_pages: int
    kind: Kind
    how: str
    lasts_s: float
    #: Chooses among several victims, and between two ways to end.
    pick: int
    #: Clocks: the step. Set-backs: how old the data is.
    step_s: float = 0.0

    def __str__(self) -> str:
        words = f"{self.kind} {self.how}"
        if self.kind is Kind.RESIZE:
            return f"{words}: {self.shards}"
        if self.step_s:
            words += f" {self.step_s:+g} s"
        return f"{words} ({self.lasts_s:g} s)"

    @property
    def shards(self) -> int:
        """How many shards a resize asks for."""
        return 1 + self.pick % 6


def draw(
    seed: int, kinds: Collection[Kind], pages: int, count: int, set_backs: int | None = None
) -> list[Fault]:
    """Return *count* faults of *kinds* in order, every kind at least once if *count* allows.

    *set_backs*: exactly so many of them are set-backs.
    """
    dice = random.Random(seed)
    # In the order of the class: what a set gives differs from process to process.
    chosen = [kind for kind in Kind if kind in kinds]
    if set_backs is not None:
        others = [kind for kind in chosen if kind is not Kind.SET_BACK]
        drawn = [Kind.SET_BACK] * set_backs + _kinds(dice, others, max(0, count - set_backs))
    else:
        drawn = _kinds(dice, chosen, count)
    dice.shuffle(drawn)
    marks = sorted(dice.uniform(_FIRST, _LAST) * pages for _ in drawn)
    return [_fault(dice, int(mark), kind) for mark, kind in zip(marks, drawn, strict=True)]


def _kinds(dice: random.Random, kinds: Sequence[Kind], count: int) -> list[Kind]:
    if not kinds:
        return []
    first = list(kinds)[:count]
    weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
    return first + dice.choices(kinds, weights, k=count - len(first))


def _fault(dice: random.Random, at_pages: int, kind: Kind) -> Fault:
    how = dice.choice(HOWS[kind])
    lasts_s = round(dice.uniform(*_LASTS_S[kind]), 1)
    pick = dice.randrange(1000)
    step_s = 0.0
    if kind is Kind.CLOCK:
        step_s = dice.choice(_CLOCK_STEPS_S) * dice.choice((-1, 1))
    elif kind is Kind.SET_BACK and how == "older file":
        step_s, lasts_s = -lasts_s, 0.2
    return Fault(at_pages, kind, how, lasts_s, pick, step_s)
