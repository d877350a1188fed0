"""The world of the model as one value: Redis, shards, parsers, disks, sites, and what may still go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.model.steps import GRACE, Message, Partition, Redis, pass_time

#: What may be taken out, to see that the explorer misses it.
FIXES = frozenset(
    {
        "owner in epoch",
        "shards start over",
        "leases by token",
        "parsers start over",
        "withdrawal",
        "candidates before settlement",
        "links before commit",
        "record before rename",
        "rests after a set-back",
        "rests are published",
        "rests of unknown domains",
        "unsure at first",
        "nothing is leased at first",
        "flight after a set-back",
        "delay and flight",
        "another name",
        "a name is used once",
        "files of the living are kept",
        "leases return after a lapse",
        "calm after a restart",
        "rests are said again",
        "flight for another's partition",
        "ours after a flight",
    }
)


class Held(NamedTuple):
    """A lease in the memory of a shard."""

    partition: int
    epoch: tuple[int, str]
    number: int
    url: str
    #: waiting, in flight, ended
    state: str = "waiting"
    #: Ticks until its domain is due; once its request is in flight, until it must end.
    wait: int = 0
    #: What was requested; another URL only if a fix is taken out.
    requested: str = ""


class Shard(NamedTuple):
    name: str
    #: How many processes had this number before.
    life: int = 0
    restarts: int = 0
    #: up, draining (its requests end), resting (it publishes rests once more), suspended, down
    state: str = "up"
    #: Whether Redis acknowledged something since the snapshot; and whether it has lost that.
    is_ahead: bool = False
    was_set_back: bool = False
    seeds: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    #: Partition -> epoch and the last number received.
    holds: tuple[tuple[int, tuple[tuple[int, str], int]], ...] = ()
    leases: tuple[Held, ...] = ()
    #: Domain -> ticks, of the requests this shard has ended.
    rests: tuple[tuple[str, int], ...] = ()
    map: tuple[str, ...] = ()
    #: False after a suspension, until its holds are renewed.
    may_fetch: bool = True
    #: Since it last renewed its holds: whether one has expired, and whether Redis was restarted.
    has_lapsed: bool = False
    has_new_server: bool = False
    #: Partitions that nobody else has had since it had them, as far as it knows.
    ours: frozenset[int] = frozenset()
    #: Those in which requests of others may still be in flight, for so many ticks.
    fresh: tuple[tuple[int, int], ...] = ()
    #: Ticks in which it leases nothing: others may yet say which domains must rest.
    calm: int = 0
    #: Partitions for which it has yet to publish rests; and for how many ticks it has put that off.
    unsaid: tuple[int, ...] = ()
    silent: int = 0
    #: The message whose answer was lost: it is sent again before any other.
    pending: Message | None = None

    @property
    def owner(self) -> str:
        return f"{self.name}{self.life}.{self.restarts}"

    def heir_of(self, partition: int) -> tuple[str, ...]:
        earlier = [f"{self.name}{life}" for life in range(self.life)]
        own = range(self.restarts) if partition in self.ours else ()
        return (*earlier, *(f"{self.name}{self.life}.{n}" for n in own))


class Parser(NamedTuple):
    name: str
    disk: int = 0
    life: int = 0
    #: starting, recovering, up, abandoning (its name), down
    state: str = "starting"
    restarts: int = 0
    is_ahead: bool = False
    was_set_back: bool = False
    heartbeat: int = 1
    #: Pages taken; so many of them are in the open segment.
    held: tuple[str, ...] = ()
    rows: int = 0
    segment: int = 1
    #: A recorded segment that is not renamed yet, with its pages.
    unnamed: tuple[str, tuple[str, ...]] | None = None
    known: frozenset[str] = frozenset()
    #: Links to be admitted after a commit, if that fix is taken out.
    late_links: tuple[str, ...] = ()
    #: What a recovery has read so far: files, then living parsers and recorded segments.
    files: tuple[frozenset[str], frozenset[str]] | None = None
    records: tuple[frozenset[str], frozenset[str]] | None = None
    pending: Message | None = None

    @property
    def process(self) -> str:
        return f"{self.name}{self.life}" + (f".{self.restarts}" if self.restarts else "")

    @property
    def open_segment(self) -> str:
        return f"{self.process}-{self.segment}"


class Disk(NamedTuple):
    """Files by segment, each with its pages."""

    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    published: tuple[tuple[str, tuple[str, ...]], ...] = ()


class World(NamedTuple):
    redis: Redis
    #: What Redis will hold after the next set-back, once that is decided.
    snapshot: Redis | None
    server: int
    shards: tuple[Shard, ...]
    parsers: tuple[Parser, ...]
    disks: tuple[Disk, ...]
    #: Domain -> ticks in which it must not be requested.
    rests: tuple[tuple[str, int], ...]
    #: Copies that arrive late.
    late: tuple[Message, ...]
    #: Kind -> how often it may still happen.
    faults: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Scene:
    """A small world to explore: the web, the processes, and how often each fault may happen."""

    name: str
    #: URL -> its links, or the target of its redirect.
    web: Mapping[str, tuple[str, ...] | str]
    seeds: tuple[str, ...]
    shards: str = ""
    parsers: str = ""
    #: Parsers that share a disk have the same number.
    disks: tuple[int, ...] = (0,)
    #: The partition of each domain.
    partitions: Mapping[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    faults: Mapping[str, int] = field(default_factory=dict)
    #: The steps of which a copy may come late; none: any.
    late: tuple[str, ...] = ()
    #: The fixes taken out.
    without: frozenset[str] = frozenset()
    #: Steps that have been taken when the exploration begins.
    after: tuple[str, ...] = ()
    #: 0: all states.
    depth: int = 0

    @property
    def pages(self) -> list[str]:
        """The pages that must be stored in the end."""
        found, left = set(), list(self.seeds)
        while left:
            url = left.pop()
            if url not in found:
                found.add(url)
                content = self.web[url]
                left += [content] if isinstance(content, str) else content
        return sorted(url for url in found if not isinstance(self.web[url], str))

    def start(self) -> World:
        count = max(self.partitions.values()) + 1
        owners = tuple((self.shards or "-")[n % len(self.shards or "-")] for n in range(count))
        shards = [Shard(name, map=owners) for name in self.shards]
        if shards:
            shards[0] = shards[0]._replace(seeds=self.seeds)
        redis = Redis(tuple(Partition() for _ in range(count)), owners)
        return World(
            redis,
            None,
            0,
            tuple(shards),
            tuple(Parser(name, self.disks[n % len(self.disks)]) for n, name in enumerate(self.parsers)),
            tuple(Disk() for _ in range(max(self.disks) + 1)),
            (),
            (),
            tuple(sorted(self.faults.items())),
        )


def fewer(rests: tuple[tuple[Any, int], ...]) -> tuple[tuple[Any, int], ...]:
    return tuple((name, left - 1) for name, left in rests if left > 1)


def tick(world: World) -> World | None:
    """Return the world a tick later; None if something must happen before."""
    shards = []
    for shard in world.shards:
        if any(held.state == "in flight" and held.wait == 0 for held in shard.leases):
            return None
        leases = tuple(held._replace(wait=held.wait - 1) if held.wait else held for held in shard.leases)
        is_late = (shard.state in ("up", "draining", "resting") and shard.was_set_back) or (
            shard.state == "draining" and bool(shard.unsaid)
        )
        if is_late and shard.silent == GRACE:
            return None
        renews = shard.state == "down" or (shard.state == "up" and shard.may_fetch)
        shards.append(
            shard._replace(
                leases=leases,
                rests=fewer(shard.rests),
                fresh=fewer(shard.fresh),
                calm=max(0, shard.calm - (shard.state != "suspended")),
                has_new_server=shard.has_new_server and not renews,
                silent=shard.silent + is_late,
            )
        )
    return world._replace(
        redis=pass_time(world.redis),
        snapshot=world.snapshot and pass_time(world.snapshot),
        shards=tuple(shards),
        rests=fewer(world.rests),
    )


def is_requested(world: World, domain: str) -> bool:
    return any(held.state == "in flight" and held.url[0] == domain for s in world.shards for held in s.leases)
