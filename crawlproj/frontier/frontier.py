"""The frontier in Redis: admit, lease and settle, each one atomic step in a partition.

Every step may be repeated when its answer was lost: admit deduplicates, lease returns again what was not
received, settle counts a lease once.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crawlproj.config import Config
from crawlproj.frontier.batches import Admitted, grouped
from crawlproj.frontier.neighbours import Neighbours
from crawlproj.frontier.recent import Call, RecentAdmissions
from crawlproj.frontier.scope import RunOfFrontier, Sites
from crawlproj.model.clock import boot_clock
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement, encode_entry, lane_of
from crawlproj.model.urls import domain_of
from crawlproj.observe.crashpoints import passed
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.connection import Argument
from crawlproj.redisio.stripes import stripe_of

#: What `lease_urls` answers when other runs fetch than `neighbours` knows.
_OTHERS_FETCH = -2


@dataclass(slots=True)
class Hold:
    """A partition this process owns: its epoch, and the last lease received from it."""

    partition: int
    #: Its number and the owner: both must match in every step.
    epoch: str
    number: int
    #: How many leases of earlier owners were returned to the queue.
    reclaimed: int = 0
    #: For how long requests of others to its domains may still be in flight.
    others_ms: int = 0


@dataclass(slots=True, frozen=True)
class Taken:
    """A partition that another shard owns, ``until`` (ms) by the server's clock unless it renews that."""

    until: int


class Frontier:
    """One run's frontier.

    The time of a partition passes by the clock of its owner, so that nobody who sets a clock can shorten a
    rest; ``now_ms`` replaces it in tests. ``generation`` is that of the client whose data we rely on, None if
    we keep nothing: see `RedisClient`.
    """

    def __init__(
        self,
        client: RedisClient,
        run: str,
        partitions: int,
        *,
        domain_pages: int = 0,
        domain_bytes: int = 0,
        trapped_urls: int = 100_000,
        server: str = "",
        now_ms: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.client = client
        self.run = run
        self.partitions = partitions
        self.domain_pages = domain_pages
        self.domain_bytes = domain_bytes
        self._trapped_urls = max(1, trapped_urls // partitions)
        #: The run id of the Redis in which the run was created.
        self._server = server
        self.generation: int | None = None
        #: Other runs whose domains rest together with ours; None: each for itself.
        self.neighbours: Neighbours | None = None
        #: The sites that links are kept to; None: all may be admitted.
        self.sites: Sites | None = None
        self._now_ms = now_ms
        self._clock = clock
        #: What to add to our clock to get the time of each partition we own.
        self._offsets_ms: dict[int, float] = {}
        self._known_keys: dict[int, list[str]] = {}
        self._recent = RecentAdmissions() if len(client.stripes) > 1 else None

    @classmethod
    def of(cls, run: RunOfFrontier, config: Config) -> Frontier:
        """Return the frontier of *run*, with the budgets that *config* sets."""
        return cls(
            run.client,
            run.name,
            run.partitions,
            domain_pages=config.domain_pages,
            domain_bytes=config.domain_bytes,
            trapped_urls=config.parked_urls,
            server=run.server,
        )

    async def admit(
        self, candidates: Iterable[Candidate], *, waits_for_room: bool = True, even_when_full: bool = False
    ) -> Admitted:
        """Admit *candidates* that are new and in scope. Any process may, at any time.

        Without *waits_for_room* a full Redis raises RedisFull at once, with any of them admitted.
        *even_when_full* is for a few that cannot wait: Redis takes them beyond its limit.
        """
        outside = 0
        if self.sites is not None:
            candidates, outside = await self.sites.within(candidates)
        calls = [
            (self._admit_keys(partition), [*self._admit_head(partition), int(even_when_full), *arguments])
            for partition, arguments in grouped(candidates, self.partitions)
        ]
        if not calls:
            return Admitted(out_of_scope=outside)
        answers = await self._run("admit_urls", calls, waits_for_room=waits_for_room)
        if self._recent is not None:
            self._recent.add(calls)
        passed("candidates_admitted")
        new, seen, over_budget = (sum(column) for column in zip(*answers, strict=True))
        return Admitted(new, seen, over_budget, outside)

    async def readmit(self) -> int:
        """Admit again what was admitted lately if Redis may have lost it; returns how many it had lost."""
        return await self._recent.readmit(self.client) if self._recent else 0

    async def lease(
        self,
        wanted: Sequence[tuple[Hold, int]],
        *,
        chain: int,
        chain_ms: int,
        behind: int = 2**31,
        ahead_ms: int = 0,
    ) -> tuple[list[Lease], dict[int, int]]:
        """Lease up to the wanted number of URLs of each partition, a chain of each domain that is due.

        Domains due within *ahead_ms* are included: each lease says when it is due. Per partition at most
        *behind* leases are behind the first of their chain. A domain stays checked out until all its leases
        are settled. Returns the leases, and for each partition the ms until its next domain is due (-1:
        none). Raises Fenced or SetBack.
        """
        beside = self.neighbours
        version = beside.version if beside else ""
        calls: list[Call] = []
        for hold, count in wanted:
            names = [*self._keys(hold.partition), *(beside.keys_of(hold.partition) if beside else ())]
            head: list[Argument] = [hold.epoch, self._now(hold.partition), count, chain, chain_ms]
            calls.append((names, [*head, hold.number, behind, ahead_ms, version]))
        leases: list[Lease] = []
        due_in_ms: dict[int, int] = {}
        for (hold, _), answer in zip(wanted, await self._run("lease_urls", calls), strict=True):
            due_in_ms[hold.partition] = int(answer[0])
            for at in range(1, len(answer), 5):
                token, *numbers = answer[at : at + 5]
                lease = Lease.from_token(token, hold.partition, hold.epoch, *map(int, numbers))
                hold.number = max(hold.number, lease.number)
                leases.append(lease)
        if beside and _OTHERS_FETCH in due_in_ms.values():
            await beside.announce()
            due_in_ms = {partition: 0 if ms == _OTHERS_FETCH else ms for partition, ms in due_in_ms.items()}
        if leases:
            passed("leased")
        return leases, due_in_ms

    async def settle(self, settlements: Iterable[Settlement]) -> tuple[dict[int, int], dict[int, list[str]]]:
        """Close leases, in the order given, and put their pages onto the page queue in the same step.

        Returns for each partition the ms until its next domain is due, and the domains whose byte budget is
        spent: they are to be parked. Raises Fenced or SetBack.
        """
        grouped: defaultdict[tuple[int, str], list[str | bytes | int]] = defaultdict(list)
        for settlement in settlements:
            lease = settlement.lease
            again = ""
            if settlement.outcome is Outcome.RETRY:
                attempt = lease.attempt + settlement.is_attempt
                again = encode_entry(lease.url, lease.domain, lease.depth, attempt, lease.extra)
            grouped[lease.partition, lease.epoch] += (
                lease.token,
                settlement.outcome.value,
                settlement.reason,
                settlement.wait_ms,
                settlement.delay_ms,
                settlement.fails,
                settlement.fetched_bytes,
                again,
                settlement.page,
            )
        calls = [
            (
                [
                    *self._keys(partition),
                    keys.trapped(self.run, partition),
                    keys.pages(self.run, stripe_of(self.client, partition)),
                    keys.page_counters(self.run, stripe_of(self.client, partition)),
                ],
                [epoch, self._now(partition), self.domain_bytes, self._trapped_urls, *arguments],
            )
            for (partition, epoch), arguments in grouped.items()
        ]
        answers = await self._run("settle_urls", calls)
        passed("settled")
        due_in_ms: dict[int, int] = {}
        spent: dict[int, list[str]] = {}
        for (partition, _), answer in zip(grouped, answers, strict=True):
            due_in_ms[partition] = int(answer[0])
            if answer[2:]:
                spent[partition] = [domain.decode() for domain in answer[2:]]
        return due_in_ms, spent

    async def trap(self, urls: Mapping[str, tuple[int, str]], *, waits_for_room: bool = True) -> None:
        """Park URLs (with depth and reason) that look like traps, instead of admitting them.

        On a full Redis as `admit`.
        """
        by_partition: defaultdict[int, list[str | int]] = defaultdict(list)
        now_ms = self._now_ms() or await server_ms(self.client)
        for url, (depth, reason) in urls.items():
            domain = domain_of(url)
            entry = f"{reason} {lane_of(0)} {domain} {encode_entry(url, domain, depth, 0)}"
            by_partition[partition_of(domain, self.partitions)] += (now_ms, entry)
        await self.client.pipeline(
            [
                command
                for partition, members in by_partition.items()
                for command in (
                    ("ZADD", keys.trapped(self.run, partition), "NX", *members),
                    ("ZREMRANGEBYRANK", keys.trapped(self.run, partition), 0, -1 - self._trapped_urls),
                )
            ],
            waits_for_room=waits_for_room,
        )

    async def park(self, hold: Hold, domains: Iterable[tuple[str, str, int]]) -> int:
        """Park (domain, reason, ms; -1: for good), each with its URLs. Returns how many. Raises Fenced."""
        arguments: list[Argument] = [hold.epoch, self._now(hold.partition)]
        arguments += [part for domain in domains for part in domain]
        [parked] = await self._run("park_domains", [(self._parking_keys(hold.partition), arguments)])
        passed("parked")
        return int(parked)

    async def unpark(self, domains: Mapping[int, Sequence[str]]) -> int:
        """Release parked domains, by partition; an empty list means those that are due. Returns how many.

        Any process may.
        """
        calls: list[tuple[list[str], list[str | int]]] = [
            (
                self._parking_keys(partition),
                [self._now_if_ours(partition), _wall_ms(), keys.wake_channel(self.run), partition, *names],
            )
            for partition, names in domains.items()
        ]
        return sum(await self._run("unpark_domains", calls))

    async def acquire(
        self,
        partition: int,
        owner: str,
        *,
        ttl_ms: int,
        delay_ms: int,
        delays_ms: Mapping[str, int],
        heir_of: Iterable[str] = (),
        flight_ms: int = 0,
        silent_flight_ms: int | None = None,
        expired: int = 0,
        was_ours: bool | None = None,
    ) -> Hold | Taken:
        """Become the owner of *partition* if it is free, or its owner is known to be dead: one of *heir_of*,
        or the one whose hold, until *expired*, was not renewed for as long as it lasts.

        Leases of earlier owners return to the queue, and each of their domains waits a full delay; plus
        *silent_flight_ms* (or *flight_ms*) if the owner may be suspended, with a request in flight. Every
        domain waits, for *flight_ms*, if Redis was restarted since the last owner came, and may have lost
        requests; unless *was_ours* says that nobody else can have sent any. None: we have just started, and
        it is ours by the map.
        """
        known_dead = "".join(f" {name} " for name in heir_of)
        arguments: list[Argument] = [
            owner,
            self._now_ms(),
            ttl_ms,
            delay_ms,
            json.dumps(dict(delays_ms)),
            known_dead,
        ]
        arguments += [
            flight_ms,
            _wall_ms(),
            expired,
            "" if was_ours is None else int(was_ours),
            self._server,
            flight_ms if silent_flight_ms is None else silent_flight_ms,
        ]
        [answer] = await self._run("acquire_partition", [(self._keys(partition), arguments)])
        if not answer[0]:
            return Taken(int(answer[3]))
        self._offsets_ms[partition] = int(answer[3]) - self._clock() * 1000
        passed("partition_acquired")
        return Hold(partition, answer[0].decode(), int(answer[1]), int(answer[2]), int(answer[4]))

    async def rest(self, waits_ms: Mapping[str, int]) -> None:
        """Let domains rest for so long, wherever they are. Any process may."""
        by_partition: defaultdict[int, list[Argument]] = defaultdict(list)
        for domain, wait_ms in waits_ms.items():
            by_partition[partition_of(domain, self.partitions)] += (domain, wait_ms)
        calls: list[Call] = [
            (self._keys(partition)[:3], [self._now_ms(), _wall_ms(), *waits])
            for partition, waits in by_partition.items()
        ]
        await self._run("rest_domains", calls)

    async def renew(self, holds: Sequence[Hold], ttl_ms: int) -> tuple[dict[int, int], list[int]]:
        """Renew the partitions held. Raises Fenced or SetBack.

        Returns the ms until each has a domain due, and the partitions with a parked domain that is due.
        """
        if self.neighbours is not None:
            await self.neighbours.announce()
        calls: list[Call] = [
            (
                self._renew_keys(hold.partition),
                [hold.epoch, self._now(hold.partition), ttl_ms, self._now_ms(), _wall_ms()],
            )
            for hold in holds
        ]
        answers = await self._run("renew_partition", calls)
        due_in_ms = {hold.partition: int(answer[0]) for hold, answer in zip(holds, answers, strict=True)}
        return due_in_ms, [hold.partition for hold, answer in zip(holds, answers, strict=True) if answer[1]]

    async def release(self, holds: Sequence[Hold]) -> None:
        """Release partitions. Their leases must have been settled."""
        calls = [(self._keys(hold.partition)[:1], [hold.epoch]) for hold in holds]
        await self._run("release_partition", calls)
        if calls:
            passed("partitions_released")

    async def _run(self, script: str, calls: Sequence[Call], *, waits_for_room: bool = True) -> list[Any]:
        if not calls:
            return []
        return await self.client.run_many(
            script, calls, generation=self.generation, waits_for_room=waits_for_room
        )

    def _now(self, partition: int) -> int:
        """Return the time of a partition that we own."""
        return self._now_ms() or int(self._clock() * 1000 + self._offsets_ms[partition])

    def _now_if_ours(self, partition: int) -> int:
        return self._now(partition) if partition in self._offsets_ms else self._now_ms()

    def _keys(self, partition: int) -> list[str]:
        known = self._known_keys.get(partition)
        if known is None:
            known = self._known_keys[partition] = [
                keys.meta(self.run, partition),
                keys.ready(self.run, partition),
                keys.domains(self.run, partition),
                keys.leases(self.run, partition),
                keys.queue_prefix(self.run, partition),
                keys.newcomers(self.run, partition),
            ]
        return known

    def _parking_keys(self, partition: int) -> list[str]:
        meta, ready, domains, _, queue, _ = self._keys(partition)
        return [meta, ready, domains, keys.parked(self.run, partition), queue]

    def _admit_keys(self, partition: int) -> list[str]:
        meta, ready, domains, _, queue, newcomers = self._keys(partition)
        return [meta, ready, domains, keys.seen_prefix(self.run, partition), queue, newcomers]

    def _renew_keys(self, partition: int) -> list[str]:
        meta, ready, *_, newcomers = self._keys(partition)
        return [meta, ready, keys.parked(self.run, partition), newcomers]

    def _admit_head(self, partition: int) -> list[str | int]:
        return [self._now_ms(), self.domain_pages, keys.wake_channel(self.run), partition]


def _wall_ms() -> int:
    return int(time.time() * 1000)
