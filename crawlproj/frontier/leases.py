"""The leases a shard holds, each in one state, and the settlements that Redis does not have yet.

::

                add            hand_out              end               settle            sent
     Redis ----------> WAITING ----------> IN_FLIGHT ------> ENDED -----------> outbox ---------> Redis
                          |                    |                                  ^
                          +--------------------+----------------------------------+
                           settle: refused before its request, returned, or stuck

A lease is settled once; later calls are ignored. Memory only; no clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from crawlproj.model.records import Lease, Outcome, Settlement

#: Bytes of pages in the outbox at which nothing more is fetched, and those sent in one round trip.
_FULL_BYTES, _BATCH_BYTES = 32_000_000, 8_000_000


class LeaseState(Enum):
    #: Its domain is not due yet.
    WAITING = "waiting"
    #: Its request is in flight.
    IN_FLIGHT = "in_flight"
    #: Its request has ended, and its domain rests; the page is being made.
    ENDED = "ended"


@dataclass(slots=True)
class HeldLease:
    lease: Lease
    state: LeaseState = LeaseState.WAITING
    handed_out_s: float = math.inf
    #: When its domain may be requested next; set once its request has ended.
    next_at_s: float = 0.0
    fetched_bytes: int = 0


class Leases:
    """All leases of a shard, from their arrival until Redis has their settlements."""

    def __init__(self) -> None:
        self._held: dict[bytes, HeldLease] = {}
        self._outbox: list[tuple[Settlement, float]] = []
        self._outbox_bytes = 0
        #: Per partition, the leases held and those in the outbox.
        self._by_partition: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(list(self._held.values()))

    def get(self, lease: Lease) -> HeldLease | None:
        """Return *lease* as it is held; None if it was settled, or dropped: tokens repeat in a new epoch."""
        held = self._held.get(lease.token)
        return held if held is not None and held.lease.epoch == lease.epoch else None

    def add(self, lease: Lease) -> None:
        self._held[lease.token] = HeldLease(lease)
        self._by_partition[lease.partition] += 1

    def hand_out(self, lease: Lease, now_s: float) -> None:
        held = self._held[lease.token]
        held.state, held.handed_out_s = LeaseState.IN_FLIGHT, now_s

    def end(self, held: HeldLease, next_at_s: float, fetched_bytes: int = 0) -> None:
        held.state, held.next_at_s, held.fetched_bytes = LeaseState.ENDED, next_at_s, fetched_bytes

    def settle(self, settlement: Settlement, next_at_s: float) -> bool:
        """Put *settlement* into the outbox; returns False when its lease was settled before."""
        lease = settlement.lease
        if self.get(lease) is None:
            return False
        del self._held[lease.token]
        settlement.delay_ms, settlement.fails = lease.delay_ms, lease.fails
        self._send_later(settlement, next_at_s)
        return True

    def publish_delay(self, lease: Lease, delay_s: float) -> None:
        """Publish the delay of the lease's domain to Redis before the lease is settled."""
        self._send_later(Settlement(lease, Outcome.PACED, delay_ms=int(delay_s * 1000)), 0.0)

    def _send_later(self, settlement: Settlement, next_at_s: float) -> None:
        self._outbox.append((settlement, next_at_s))
        self._outbox_bytes += len(settlement.page)

    # -- the outbox --

    @property
    def unsent(self) -> int:
        return len(self._outbox)

    @property
    def is_full(self) -> bool:
        return self._outbox_bytes >= _FULL_BYTES

    def is_empty(self, partition: int) -> bool:
        """Whether Redis has no leases of *partition*."""
        return not self._by_partition[partition]

    def next_batch(self, most: int, now_s: float) -> list[Settlement]:
        """Return the oldest in the outbox, up to *most* and as many as one round trip should carry."""
        batch: list[Settlement] = []
        batch_bytes = 0
        for settlement, next_at_s in self._outbox[:most]:
            settlement.wait_ms = max(0, math.ceil((next_at_s - now_s) * 1000))
            batch.append(settlement)
            batch_bytes += len(settlement.page)
            if batch_bytes >= _BATCH_BYTES:
                break
        return batch

    def drop_outbox(self) -> None:
        """Forget what was to be sent: Redis no longer has those leases as we know them."""
        self._outbox.clear()
        self._outbox_bytes = 0
        self._by_partition.clear()

    def sent(self, batch: list[Settlement]) -> None:
        """Remove the batch that `next_batch` returned: Redis has it."""
        del self._outbox[: len(batch)]
        for settlement in batch:
            self._outbox_bytes -= len(settlement.page)
            if settlement.outcome is not Outcome.PACED:
                self._by_partition[settlement.lease.partition] -= 1
