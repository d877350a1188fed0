"""What a Pacer keeps of domains it should forget."""

from __future__ import annotations

import tracemalloc

from crawlproj.model.records import Lease
from crawlproj.politeness.pacing import DelayRules, Ending, Pacer, Trouble

DEAD = Ending(error="dns", error_means=Trouble.SITE)


def lease(number: int) -> Lease:
    return Lease.from_token(f"{number} 1 d{number}.test 0 0 s/".encode(), 0, 1)


def meet_dead_domains(pacer: Pacer, numbers: range) -> None:
    """Have the robots.txt of each fail, so that it is parked for a day, and its URLs are given back."""
    for number in numbers:
        pacer.add(lease(number), 0.0)
        one = pacer.take(0.0)
        assert one is not None
        pacer.fetch_robots_first(one)
        assert pacer.robots_ended(one.domain, DEAD, 0.0)[1] == "failures"
        assert pacer.withdraw(domain=one.domain)


def test_domains_parked_for_a_day_take_no_memory_meanwhile() -> None:
    pacer = Pacer(DelayRules(give_up=1))
    meet_dead_domains(pacer, range(1000))
    tracemalloc.start()

    meet_dead_domains(pacer, range(1000, 4000))

    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # They would take 3 MB.
    assert grown_bytes < 300_000


def test_domains_that_wait_keep_their_turn_while_others_are_forgotten() -> None:
    pacer = Pacer(DelayRules(1.0, give_up=1))
    waiting = [lease(number) for number in range(10_000, 10_050)]
    for at, one in enumerate(waiting):
        one.wait_ms = 1000 + at
        pacer.add(one, 0.0)

    meet_dead_domains(pacer, range(1000))

    assert [pacer.take(1.1) for _ in waiting] == waiting
    assert pacer.take(1.1) is None
