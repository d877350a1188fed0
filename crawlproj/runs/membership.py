"""The members of a run: the supervisors that start its shards, each with as many as it brings.

A member is there as long as it is heard of. Shard numbers are given to members in one atomic step, by what
each brings; those of a member that is gone are given to others, and back when it returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from crawlproj.model.clock import boot_clock
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.connection import Argument
from crawlproj.redisio.names import ProcessName
from crawlproj.runs.record import Run

#: A member silent for longer is not shown, whatever the leases of its run.
_SHOWN_S = 60.0
_NO_LIMIT_MS = 10**12


def patience_s(shard_lease_s: float) -> float:
    """Return how long a member may be silent. No hurry: its domains are taken over before."""
    return max(2 * shard_lease_s, shard_lease_s + 10)


def heard_s(shard_lease_s: float) -> float:
    """Return how often a member that is alive is heard of, at least."""
    return max(5.0, shard_lease_s / 3)


@dataclass(frozen=True, slots=True)
class Member:
    """A supervisor, as it was last heard of. ``data``: its data directory; ``figures``: for people."""

    instance: str
    process: ProcessName
    #: By the clock of Redis.
    at_ms: int
    joined_ms: int
    #: How many it brings.
    shards: int
    data: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, instance: str, value: str) -> Member:
        at_ms, joined_ms, shards, text = value.split(" ", 3)
        known = json.loads(text)
        process, data = ProcessName.read(known.pop("process")), known.pop("data", "")
        return cls(instance, process, int(at_ms), int(joined_ms), int(shards), data, known)


@dataclass(frozen=True, slots=True)
class Given:
    """What a member was given: its numbers, of so many shards and members."""

    shards: int
    members: int
    numbers: tuple[int, ...]


class Membership:
    """This supervisor as a member that brings so many *shards*. *silent_s*: how long it may be silent."""

    def __init__(
        self,
        run: Run,
        process: ProcessName,
        shards: int,
        *,
        data: str,
        silent_s: float,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        #: Instances that count as members no more when we join.
        self.dead: set[str] = set()
        #: Whether there were others at any time.
        self.had_company = False
        self.process = process
        self._run = run
        self._shards = shards
        self.data = data
        self._silent_s = silent_s
        self._keys = [keys.run_record(run.name), keys.members(run.name), keys.numbers(run.name)]
        self._has_joined = False
        self._clock = clock
        self._kept_s = self._judges_from_s = clock()

    async def keep(
        self, held: Collection[int], elsewhere: Collection[int], figures: Mapping[str, object] | None = None
    ) -> Given:
        """Join, or stay a member; returns the shard numbers that are ours.

        *held*: the numbers of our own shards; *elsewhere*: those that processes of others hold. One of ours
        that is not given to us any more is given to nobody before we stop holding it.
        """
        now_s = self._clock()
        if now_s - self._kept_s > self._silent_s / 2:
            # Redis was unreachable, or we were suspended: the others may be late as well.
            self._judges_from_s = now_s + self._silent_s
        known = {"process": asdict(self.process), "data": self.data, **(figures or {})}
        arguments: list[Argument] = [
            self.process.instance,
            self._shards,
            json.dumps(known, separators=(",", ":")),
            int(self._silent_s * 1000) if now_s >= self._judges_from_s else _NO_LIMIT_MS,
            int(not self._has_joined),
            keys.wake_channel(self._run.name),
        ]
        lists = (self.dead, held, elsewhere)
        words = [" " + "".join(f"{one} " for one in each) for each in lists]
        shards, members, *numbers = await self._run.client.run(
            "keep_member", self._keys, [*arguments, *words]
        ) or (0, 1)
        self._has_joined, self._kept_s = True, now_s
        # Who is heard of again after all is one again.
        self.dead.clear()
        self.had_company |= members > 1 or bool(elsewhere)
        return Given(shards, members, tuple(numbers))

    async def leave(self, *, continues: bool) -> None:
        """Leave. *continues*: the run does not end, so what we brought goes with us, as far as it can."""
        arguments: list[Argument] = [self.process.instance, int(continues), keys.wake_channel(self._run.name)]
        await self._run.client.run("leave_run", self._keys, arguments)


async def read_members(run: Run, now_ms: int = 0, silent_s: float = _SHOWN_S) -> dict[str, Member]:
    """Return the members not known to be dead, and heard of within *silent_s*, the oldest first."""
    now_ms = now_ms or await server_ms(run.client)
    values = pairs(await run.client.command("HGETALL", keys.members(run.name)))
    members = (Member.decode(instance, value) for instance, value in values)
    alive = [m for m in members if now_ms - m.at_ms <= 1000 * silent_s and not m.process.is_dead()]
    return {member.instance: member for member in sorted(alive, key=lambda m: (m.joined_ms, m.instance))}


async def read_instances(run: Run) -> set[str]:
    """Return all members that are recorded, alive or not."""
    return {name.decode() for name in await run.client.command("HKEYS", keys.members(run.name))}


async def read_numbers(run: Run) -> dict[int, str]:
    """Return which shard number was given to which member."""
    return {
        int(number): name
        for number, name in pairs(await run.client.command("HGETALL", keys.numbers(run.name)))
    }
