"""A lease has one state at a time, is settled once, and is kept until Redis has its settlement."""

from __future__ import annotations

import pytest

from crawlproj.frontier.leases import Leases, LeaseState
from crawlproj.model.records import Lease, Outcome, Settlement


def lease_of(number: int, partition: int = 0, epoch: str = "1:a") -> Lease:
    return Lease.from_token(f"{number} 1 a.test 0 0 s/{number}".encode(), partition, epoch, 2, 700)


@pytest.fixture
def leases() -> Leases:
    return Leases()


def test_a_lease_goes_from_waiting_through_its_request_to_its_settlement(leases: Leases) -> None:
    lease = lease_of(1)
    states = []

    leases.add(lease)
    held = leases.get(lease)
    assert held is not None
    states.append(held.state)
    leases.hand_out(lease, 5.0)
    states.append(held.state)
    leases.end(held, 9.0, 100)
    states.append(held.state)

    assert states == [LeaseState.WAITING, LeaseState.IN_FLIGHT, LeaseState.ENDED]
    assert leases.settle(Settlement(lease, Outcome.DONE), 9.0)
    assert (len(leases), leases.unsent, leases.get(lease)) == (0, 1, None)


def test_a_lease_of_an_earlier_epoch_is_not_the_one_that_has_its_token_now(leases: Leases) -> None:
    leases.add(lease_of(1, epoch="2:a"))

    assert leases.get(lease_of(1, epoch="1:a")) is None
    assert not leases.settle(Settlement(lease_of(1, epoch="1:a"), Outcome.DONE), 0.0)
    assert (len(leases), leases.unsent) == (1, 0)


def test_a_lease_is_settled_once(leases: Leases) -> None:
    leases.add(lease_of(1))

    settled = [leases.settle(Settlement(lease_of(1), Outcome.DONE), 0.0) for _ in range(2)]

    assert settled == [True, False]
    assert leases.unsent == 1


def test_a_settlement_says_how_its_domain_fares_and_when_it_is_due(leases: Leases) -> None:
    leases.add(lease_of(1))
    leases.settle(Settlement(lease_of(1), Outcome.DONE), 12.5)

    [settlement] = leases.next_batch(10, now_s=10.0)

    assert (settlement.wait_ms, settlement.delay_ms, settlement.fails) == (2500, 700, 2)
    assert leases.next_batch(10, now_s=20.0)[0].wait_ms == 0


def test_a_partition_is_empty_only_when_redis_has_its_last_settlement(leases: Leases) -> None:
    leases.add(lease_of(1, partition=3))
    leases.publish_delay(lease_of(1, partition=3), 2.0)
    leases.settle(Settlement(lease_of(1, partition=3), Outcome.DONE), 0.0)

    before = leases.is_empty(3)
    leases.sent(leases.next_batch(10, 0.0))

    assert (before, leases.is_empty(3), leases.unsent) == (False, True, 0)


def test_a_batch_carries_no_more_pages_than_a_round_trip_should_and_at_least_one(leases: Leases) -> None:
    for number in range(4):
        leases.add(lease_of(number))
        leases.settle(Settlement(lease_of(number), Outcome.DONE, page=bytes(7_000_000)), 0.0)

    sizes = []
    while batch := leases.next_batch(10, 0.0):
        sizes.append(len(batch))
        leases.sent(batch)

    assert sizes == [2, 2]


def test_the_outbox_is_full_by_the_bytes_of_its_pages(leases: Leases) -> None:
    full = []
    for number in range(3):
        leases.add(lease_of(number))
        leases.settle(Settlement(lease_of(number), Outcome.DONE, page=bytes(16_000_000)), 0.0)
        full.append(leases.is_full)

    leases.sent(leases.next_batch(10, 0.0))
    leases.sent(leases.next_batch(10, 0.0))

    assert full == [False, True, True]
    assert not leases.is_full
