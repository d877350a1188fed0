"""What was set aside: parked domains, and URLs taken for traps. People list them and let them go on.

Both are read in pages, never all at once. What is set aside or let go while they are read may be missed or
told twice; what was there all the time is told.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from crawlproj.frontier.frontier import Admitted, Frontier
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, decode_entry
from crawlproj.model.urls import fingerprint
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door, pairs

#: Why a domain is parked.
DOMAIN_REASONS = ("failures", "retry_after", "byte_budget")
#: Why a URL is taken for a trap: when its turn came, by how many there were of its kind.
_LATE_REASONS = ("trap_shape", "trap_variants")
#: The same, and by its looks, before it was admitted.
URL_REASONS = ("trap_depth", "trap_parameters", "trap_repeat", *_LATE_REASONS)

#: Members of each partition read in one round trip.
_PAGE = 100
#: The Scrapy priority of each lane.
_PRIORITIES = (1, 0, -1)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is of these domains and was set aside for this reason; of any, or for any, where none is named."""

    domains: frozenset[str] = frozenset()
    reason: str = ""

    def takes(self, domain: str, reason: str) -> bool:
        return (not self.domains or domain in self.domains) and self.reason in ("", reason)


@dataclass(frozen=True, slots=True)
class ParkedDomain:
    """``back_ms`` is when it comes back by itself, None: never. ``urls`` wait with it, None: not counted."""

    partition: int
    domain: str
    reason: str
    failures: int
    back_ms: int | None
    urls: int | None = None


@dataclass(frozen=True, slots=True)
class TrappedUrl:
    """A URL taken for a trap at ``trapped_ms``. ``member`` is what the partition knows it by."""

    partition: int
    member: str
    trapped_ms: int
    reason: str
    domain: str
    url: str
    depth: int

    @classmethod
    def from_member(cls, partition: int, member: str, trapped_ms: int) -> TrappedUrl:
        reason, _, domain, entry = member.split(" ", 3)
        depth, _, url, _ = decode_entry(entry, domain)
        return cls(partition, member, trapped_ms, reason, domain, url, depth)

    def candidate(self) -> Candidate:
        """Return it as a candidate that passes for no trap again.

        Its mark lets it be admitted once, however often this is repeated. `seen` has the URL itself if it
        was lent before; there the mark is one of this trapping, which no URL has: theirs are without '#'.
        """
        _, lane, domain, entry = self.member.split(" ", 3)
        extra = json.loads(decode_entry(entry, domain)[3] or "{}") | {"freed": True}
        is_late = self.reason in _LATE_REASONS
        return Candidate(
            self.url,
            self.depth,
            _PRIORITIES[int(lane)],
            json.dumps(extra, separators=(",", ":")),
            fingerprint(f"{self.url}#{self.trapped_ms}" if is_late else self.url),
        )


class Parking:
    """What one run has set aside. Any process may look, and let it go on."""

    def __init__(self, door: Door, run: str, partitions: int) -> None:
        self._door = door
        self._run = run
        self._partitions = partitions
        # Without a budget of pages: whoever names a URL wants it.
        self._frontier = Frontier(door, run, partitions)

    async def list_domains(self, choice: Choice, limit: int) -> tuple[list[ParkedDomain], int]:
        """Return the *limit* parked domains that come back soonest, and how many there are."""
        first: list[ParkedDomain] = []
        total = 0
        async for page in self._domains(choice):
            total += len(page)
            first = heapq.nsmallest(
                limit,
                dict.fromkeys([*first, *page]),
                key=lambda parked: (math.inf if parked.back_ms is None else parked.back_ms, parked.domain),
            )
        return await self._with_urls(first), total

    async def list_urls(self, choice: Choice, limit: int) -> tuple[list[TrappedUrl], int]:
        """Return the *limit* URLs last taken for traps, latest first, and how many there are."""
        latest: list[TrappedUrl] = []
        total = 0
        async for page in self._urls(choice):
            total += len(page)
            latest = heapq.nsmallest(
                limit,
                dict.fromkeys([*latest, *page]),
                key=lambda trapped: (-trapped.trapped_ms, trapped.url),
            )
        return latest, total

    async def release_domains(self, choice: Choice) -> int:
        """Let parked domains go on, each after its delay. Returns how many."""
        released = 0
        async for page in self._domains(choice):
            by_partition: dict[int, list[str]] = {}
            for parked in page:
                by_partition.setdefault(parked.partition, []).append(parked.domain)
            released += await self._frontier.unpark(by_partition)
        return released

    async def release_urls(self, choice: Choice) -> Admitted:
        """Let URLs taken for traps be fetched, and open their shapes for whoever owns their domains next.

        Each is forgotten only after it was admitted, so this may be repeated after a crash: none is lost, and
        none admitted twice.
        """
        new = seen = 0
        async for page in self._urls(choice):
            admitted = await self._frontier.admit(trapped.candidate() for trapped in page)
            new, seen = new + admitted.new, seen + admitted.seen
            await self._door.pipeline(
                [("ZREM", keys.trapped(self._run, trapped.partition), trapped.member) for trapped in page]
            )
        await self._open_shapes(choice)
        return Admitted(new, seen)

    async def _open_shapes(self, choice: Choice) -> None:
        async for page in self._scan("HSCAN", keys.traps, choice):
            await self._door.pipeline(
                [
                    ("HDEL", keys.traps(self._run, partition), name)
                    for partition, shapes in page.items()
                    for name, reason in shapes
                    if choice.takes(name.partition(" ")[0], reason)
                ]
            )

    async def _domains(self, choice: Choice) -> AsyncIterator[list[ParkedDomain]]:
        async for page in self._scan("ZSCAN", keys.parked, choice):
            states = await self._door.pipeline(
                [
                    ("HMGET", keys.domains(self._run, partition), *(domain for domain, _ in members))
                    for partition, members in page.items()
                ]
            )
            found = []
            for (partition, members), known in zip(page.items(), states, strict=True):
                for (domain, back), state in zip(members, known, strict=True):
                    _, _, failures, *_, reason = state.decode().split(" ")
                    # A moment ago it was parked; now it may go on.
                    if reason != "-" and choice.takes(domain, reason):
                        back_ms = None if back == "inf" else int(float(back))
                        found.append(ParkedDomain(partition, domain, reason, int(failures), back_ms))
            yield found

    async def _urls(self, choice: Choice) -> AsyncIterator[list[TrappedUrl]]:
        async for page in self._scan("ZSCAN", keys.trapped, choice):
            found = (
                TrappedUrl.from_member(partition, member, int(float(at)))
                for partition, members in page.items()
                for member, at in members
            )
            yield [trapped for trapped in found if choice.takes(trapped.domain, trapped.reason)]

    async def _with_urls(self, parked: list[ParkedDomain]) -> list[ParkedDomain]:
        lengths = await self._door.pipeline(
            [
                ("LLEN", f"{keys.queue_prefix(self._run, domain.partition)}{lane}:{domain.domain}")
                for domain in parked
                for lane in range(len(_PRIORITIES))
            ]
        )
        lanes = len(_PRIORITIES)
        return [
            replace(domain, urls=sum(lengths[at * lanes : (at + 1) * lanes]))
            for at, domain in enumerate(parked)
        ]

    async def _scan(
        self, command: str, key: Callable[[str, int], str], choice: Choice
    ) -> AsyncIterator[dict[int, list[tuple[str, str]]]]:
        """Yield pages of a key of every partition that may matter: members with their score or value."""
        cursors: dict[int, bytes] = dict.fromkeys(
            {partition_of(domain, self._partitions) for domain in choice.domains} or range(self._partitions),
            b"0",
        )
        while cursors:
            answers = await self._door.pipeline(
                [
                    (command, key(self._run, partition), cursor, "COUNT", _PAGE)
                    for partition, cursor in cursors.items()
                ]
            )
            yield {
                partition: pairs(flat) for partition, (_, flat) in zip(cursors, answers, strict=True) if flat
            }
            cursors = {
                partition: cursor
                for partition, (cursor, _) in zip(cursors, answers, strict=True)
                if cursor != b"0"
            }
