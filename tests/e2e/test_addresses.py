"""Domains that share a server (CRAWL_IP_DELAY): judged by the server's own log, which sees one address."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from crawlproj.redisio import embedded, keys
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.one_address import ADDRESS

pytestmark = pytest.mark.e2e

DELAY_S = 0.1
SHARED = {
    "TWISTED_DNS_RESOLVER": "tests.e2e.one_address.OneAddressResolver",
    "CRAWL_IP_DELAY": str(DELAY_S),
    "DOWNLOAD_DELAY": "0.05",
}


def world(**fields: Any) -> WorldSpec:
    return WorldSpec.calm(
        **({"seed": 6, "domains": 10, "pages_per_domain": 4, "naming": "name", "latency_ms": 20} | fields)
    )


def gaps_ms(crew: Any) -> list[float]:
    """The time from the end of each request to the start of the next, of all domains together."""
    requests = sorted(read_log(crew.simweb.log_path), key=lambda request: request.start_ms)
    return [after.start_ms - before.end_ms for before, after in pairwise(requests)]


def test_ten_domains_of_one_server_are_asked_one_at_a_time_by_two_shards(crew_of: Callable[..., Any]) -> None:
    # With such a lease the first shard does not do the work of the second one while that starts.
    crew = crew_of(world(), **SHARED, CRAWL_SHARD_LEASE_SECONDS="60")

    crew.start(shards=2)
    crew.finish()

    assert min(gaps_ms(crew)) >= DELAY_S * 1000
    assert len({page["shard"] for page in crew.pages()}) == 2
    assert {page["error"] or "" for page in crew.pages()} == {""}
    assert {page["attempt"] for page in crew.pages()} == {0}
    crew.assert_content()


def test_without_the_setting_the_server_sees_several_at_once(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(world(latency_ms=100), **(SHARED | {"CRAWL_IP_DELAY": "0"}))

    crew.start(shards=2)
    crew.finish()

    assert min(gaps_ms(crew)) < 0
    crew.assert_content()


def test_a_killed_shard_does_not_lock_the_address_for_longer_than_its_request_might_take(
    crew_of: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    spec = world(latency_ms=50, pages_per_domain=6)
    crew = crew_of(spec, **SHARED, DOWNLOAD_TIMEOUT="3", CRAWL_SHARD_LEASE_SECONDS="2")
    _, victim = crew.start(shards=2)
    crew.wait_for_fetched(10)

    def is_inside() -> bool:
        """Stop it where it is; if the address is held then, and stays so, it is by this one."""
        victim.send(signal.SIGSTOP)
        url, name = embedded.ensure_running(crew.data), keys.address("web", ADDRESS)
        token = ask(url, "HGET", name, "token")
        # Several times as long as the server takes to answer anybody.
        time.sleep(0.4)
        if token and ask(url, "HGET", name, "token") == token:
            return True
        victim.send(signal.SIGCONT)
        return False

    crew.wait_until(is_inside, "the shard is killed in the middle of a request")
    victim.kill()
    crew.finish()

    gaps = gaps_ms(crew)
    assert min(gaps) >= DELAY_S * 1000
    # The survivor, too, must learn from Redis that it may go: 3 s of flight, and what it takes to come.
    assert 1000 < max(gaps) < 3000 + 15_000
    crew.assert_content(twice_at_most=spec.domains)
