"""The sites of a run: the hosts of its seeds, with all hosts below them. Kept in Redis, not in memory.

A run may have hundreds of thousands of seeds. Each process remembers only the hosts it has met lately, and
asks Redis about the others, all of a batch of links in one round trip.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from crawlproj.config import Config
from crawlproj.errors import RedisFull
from crawlproj.model.extra import NO_EXTRA
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate
from crawlproj.model.urls import domain_of_host, host_of, origin_of
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms

#: How many origins are remembered, inside and outside.
_MOST_ORIGINS = 65_536
#: How often a process looks for new sites.
_LOOK_S = 1.0
#: Up to so many sites are shown by name.
_FEW = 3
#: Sites per script call.
_AT_ONCE = 1000


class RunOfFrontier(Protocol):
    """What a frontier needs of a run; it must not import `runs`."""

    client: RedisClient
    name: str
    partitions: int
    server: str


@dataclass(frozen=True, slots=True)
class SiteList:
    """How many sites a run has, and their names if they are few."""

    count: int
    names: tuple[str, ...] = ()


async def list_sites(client: RedisClient, run: str, partitions: int) -> SiteList:
    everywhere = [keys.sites(run, partition) for partition in range(partitions)]
    counts = await client.pipeline([("SCARD", name) for name in everywhere])
    if sum(counts) > _FEW:
        return SiteList(sum(counts))
    filled = [name for name, count in zip(everywhere, counts, strict=True) if count]
    found = await client.pipeline([("SMEMBERS", name) for name in filled]) if filled else []
    return SiteList(sum(counts), tuple(sorted(site.decode() for sites in found for site in sites)))


class Sites:
    """The scope of one run, for one process. With *counts* it counts refused links in Redis itself."""

    def __init__(
        self,
        client: RedisClient,
        run: str,
        partitions: int,
        *,
        counts: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._run = run
        self._partitions = partitions
        self._counts = counts
        self._clock = clock
        #: Origins.
        self._inside: set[str] = set()
        self._outside: set[str] = set()
        self._looked_s = -math.inf
        self._changed = b""
        self._generation = client.generation

    @classmethod
    def of(cls, run: RunOfFrontier, config: Config, *, counts: bool = False) -> Sites | None:
        """Return the scope of *run*; None if it is another one than its sites."""
        if config.scope != "sites":
            return None
        return cls(run.client, run.name, run.partitions, counts=counts)

    def knows_outside(self, url: str) -> bool:
        """Whether a link to *url* is known to lead out of the sites."""
        return origin_of(url) in self._outside

    async def within(self, candidates: Iterable[Candidate]) -> tuple[list[Candidate], int]:
        """Return those *candidates* that may be fetched, and how many may not.

        Seeds, and what seeds redirect to, add their site; robots.txt and sitemaps may be anywhere.
        """
        self._forget_if_set_back()
        await self._look()
        inside, outside = self._inside, self._outside
        kept: list[Candidate] = []
        opened: set[str] = set()
        unknown: defaultdict[str, list[Candidate]] = defaultdict(list)
        refused = 0
        for one in candidates:
            origin = origin_of(one.url)
            if origin in inside or (one.extra is not NO_EXTRA and one.extra.kind != "page"):
                kept.append(one)
            elif not one.depth:
                opened.add(origin)
                kept.append(one)
            elif origin in outside:
                refused += 1
            else:
                unknown[origin].append(one)
        if opened:
            await self._open(opened)
        for origin, is_inside in (await self._ask(unknown)).items() if unknown else ():
            _remember(inside if is_inside else outside, {origin})
            kept += unknown[origin] if is_inside else ()
            refused += 0 if is_inside else len(unknown[origin])
        if refused and self._counts:
            await self._count(refused)
        return kept, refused

    async def _open(self, origins: set[str]) -> None:
        by_partition: defaultdict[int, list[str]] = defaultdict(list)
        for host in {_host(origin) for origin in origins}:
            by_partition[self._partition_of(host)].append(site_of(host))
        calls = [
            ([keys.sites(self._run, partition)], sites[start : start + _AT_ONCE])
            for partition, sites in by_partition.items()
            for start in range(0, len(sites), _AT_ONCE)
        ]
        if any(await self._client.run_many("open_sites", calls)):
            now_ms = await server_ms(self._client)
            await self._client.run("write_fields", [keys.run_record(self._run)], ["sites_ms", now_ms])
        _remember(self._inside, origins)
        self._outside -= origins

    async def _ask(self, origins: Iterable[str]) -> dict[str, bool]:
        """Return whether each of *origins* is one of a site."""
        hosts = [_host(origin) for origin in origins]
        answers = await self._client.pipeline(
            [
                ("SMISMEMBER", keys.sites(self._run, self._partition_of(host)), *at_and_above(host))
                for host in hosts
            ]
        )
        return {origin: any(answer) for origin, answer in zip(origins, answers, strict=True)}

    async def _count(self, refused: int) -> None:
        count = ("HINCRBY", keys.page_counters(self._run, self._client.stripes[0]), "filtered:scope", refused)
        # A number for people, so it does not wait for room.
        with suppress(RedisFull):
            await self._client.pipeline([count], waits_for_room=False)

    async def _look(self) -> None:
        """Forget what was outside if sites were added since."""
        if self._clock() - self._looked_s < _LOOK_S:
            return
        self._looked_s = self._clock()
        changed = await self._client.command("HGET", keys.run_record(self._run), "sites_ms") or b""
        if changed != self._changed:
            self._changed = changed
            self._outside.clear()

    def _forget_if_set_back(self) -> None:
        if self._client.generation != self._generation:
            self._generation = self._client.generation
            self._inside.clear()
            self._outside.clear()

    def _partition_of(self, host: str) -> int:
        return partition_of(domain_of_host(host), self._partitions)


def site_of(host: str) -> str:
    """Return the site that a seed of *host* adds: without www., unless that is of another domain."""
    bare = host.removeprefix("www.")
    return bare if domain_of_host(bare) == domain_of_host(host) else host


def at_and_above(host: str) -> list[str]:
    """Return *host* and the names above it, up to its domain: what is above that belongs to others."""
    domain = domain_of_host(host)
    names = [host]
    while names[-1] != domain and "." in names[-1]:
        names.append(names[-1].partition(".")[2])
    return names


def _host(origin: str) -> str:
    return host_of(f"{origin}/")


def _remember(known: set[str], origins: set[str]) -> None:
    if len(known) + len(origins) > _MOST_ORIGINS:
        known.clear()
    known |= origins
