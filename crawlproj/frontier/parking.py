"""Parked domains and trapped URLs: listed and released by people.

Both are read in batches, never all at once. What is parked or released meanwhile may be missed or listed
twice; everything else is listed once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from crawlproj.frontier.batches import Admitted
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.domain import DomainState
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, decode_entry
from crawlproj.model.urls import fingerprint
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs

#: Why a domain is parked.
DOMAIN_REASONS = ("failures", "retry_after", "byte_budget")
#: Why a URL is trapped when its turn comes: too many of its kind.
_LATE_REASONS = ("trap_shape", "trap_variants")
#: These, and those of URLs that look like traps before they are admitted.
URL_REASONS = ("trap_depth", "trap_parameters", "trap_repeat", *_LATE_REASONS)

#: Members of each partition read per round trip.
_PAGE = 100
#: The Scrapy priority of each lane.
_PRIORITIES = (1, 0, -1)


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter by domains and reason; empty ones match all."""

    domains: frozenset[str] = frozenset()
    reason: str = ""

    def matches(self, domain: str, reason: str) -> bool:
        return (not self.domains or domain in self.domains) and self.reason in ("", reason)


@dataclass(frozen=True, slots=True)
class ParkedDomain:
    """``back_ms``: when it is released by itself, None: never. ``urls``: parked with it, None: unknown."""

    partition: int
    domain: str
    reason: str
    failures: int
    back_ms: int | None
    urls: int | None = None


@dataclass(frozen=True, slots=True)
class TrappedUrl:
    """A URL trapped at ``trapped_ms``. ``member`` identifies it in its partition."""

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
        """Return it as a candidate that is not trapped again.

        Its mark lets it be admitted once, however often this is repeated. A URL that was leased before is in
        `seen`, so its mark is made from this trapping, with a '#', which no canonical URL has.
        """
        _, lane, domain, entry = self.member.split(" ", 3)
        extra = decode_entry(entry, domain)[3]
        is_late = self.reason in _LATE_REASONS
        return Candidate(
            self.url,
            self.depth,
            _PRIORITIES[int(lane)],
            extra._replace(is_freed=True),
            fingerprint(f"{self.url}#{self.trapped_ms}" if is_late else self.url),
        )


class Parking:
    """The parked domains and trapped URLs of one run. Any process may use it."""

    def __init__(self, client: RedisClient, run: str, partitions: int) -> None:
        self._client = client
        self._run = run
        self._partitions = partitions
        # Without a page budget: released URLs are wanted.
        self._frontier = Frontier(client, run, partitions)

    async def list_domains(self, choice: Choice, limit: int) -> tuple[list[ParkedDomain], int]:
        """Return the *limit* parked domains that are released soonest, and how many there are."""
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
        """Return the *limit* URLs trapped last, latest first, and how many there are."""
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

    async def release(self, choice: Choice) -> tuple[int, Admitted]:
        """Release parked domains and trapped URLs. Returns how many domains, and what became of the URLs."""
        # URLs first: those of a parked domain are then released together with it.
        urls = await self.release_urls(choice)
        return await self.release_domains(choice), urls

    async def release_domains(self, choice: Choice) -> int:
        """Release parked domains, each after its delay. Returns how many."""
        released = 0
        async for page in self._domains(choice):
            by_partition: dict[int, list[str]] = {}
            for parked in page:
                by_partition.setdefault(parked.partition, []).append(parked.domain)
            released += await self._frontier.unpark(by_partition)
        return released

    async def release_urls(self, choice: Choice) -> Admitted:
        """Admit trapped URLs again, and reopen their shapes for the next owners of their domains.

        Each is removed only after it was admitted, so this may be repeated after a crash: none is lost, and
        none admitted twice.
        """
        new = seen = 0
        async for page in self._urls(choice):
            admitted = await self._frontier.admit(trapped.candidate() for trapped in page)
            new, seen = new + admitted.new, seen + admitted.seen
            await self._client.pipeline(
                [("ZREM", keys.trapped(self._run, trapped.partition), trapped.member) for trapped in page]
            )
        await self._open_shapes(choice)
        return Admitted(new, seen)

    async def _open_shapes(self, choice: Choice) -> None:
        async for page in self._scan("HSCAN", keys.traps, choice):
            await self._client.pipeline(
                [
                    ("HDEL", keys.traps(self._run, partition), name)
                    for partition, shapes in page.items()
                    for name, reason in shapes
                    if choice.matches(name.partition(" ")[0], reason)
                ]
            )

    async def _domains(self, choice: Choice) -> AsyncIterator[list[ParkedDomain]]:
        async for page in self._scan("ZSCAN", keys.parked, choice):
            states = await self._client.pipeline(
                [
                    ("HMGET", keys.domains(self._run, partition), *(domain for domain, _ in members))
                    for partition, members in page.items()
                ]
            )
            found = []
            for (partition, members), known in zip(page.items(), states, strict=True):
                for (domain, back), text in zip(members, known, strict=True):
                    state = DomainState.decode(text.decode())
                    # It may have been released since the scan.
                    if state.parked and choice.matches(domain, state.parked):
                        back_ms = None if back == "inf" else int(float(back))
                        found.append(ParkedDomain(partition, domain, state.parked, state.fails, back_ms))
            yield found

    async def _urls(self, choice: Choice) -> AsyncIterator[list[TrappedUrl]]:
        async for page in self._scan("ZSCAN", keys.trapped, choice):
            found = (
                TrappedUrl.from_member(partition, member, int(float(at)))
                for partition, members in page.items()
                for member, at in members
            )
            yield [trapped for trapped in found if choice.matches(trapped.domain, trapped.reason)]

    async def _with_urls(self, parked: list[ParkedDomain]) -> list[ParkedDomain]:
        states = await self._client.pipeline(
            [("HGET", keys.domains(self._run, domain.partition), domain.domain) for domain in parked]
        )
        lengths = await self._client.pipeline(
            [
                ("LLEN", f"{keys.queue_prefix(self._run, domain.partition)}{lane}:{domain.domain}")
                for domain in parked
                for lane in range(len(_PRIORITIES))
            ]
        )
        lanes = len(_PRIORITIES)
        return [
            replace(domain, urls=len(few.splitlines()) + sum(lengths[at * lanes : (at + 1) * lanes]))
            for at, (domain, few) in enumerate(
                zip(parked, (DomainState.decode(text.decode()).waiting for text in states), strict=True)
            )
        ]

    async def _scan(
        self, command: str, key: Callable[[str, int], str], choice: Choice
    ) -> AsyncIterator[dict[int, list[tuple[str, str]]]]:
        """Yield batches of a key by partition: members with their score or value."""
        cursors: dict[int, bytes] = dict.fromkeys(
            {partition_of(domain, self._partitions) for domain in choice.domains} or range(self._partitions),
            b"0",
        )
        while cursors:
            answers = await self._client.pipeline(
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
