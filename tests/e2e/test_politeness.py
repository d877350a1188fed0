"""What a site operator sees in his log, judged by it: pauses, backing off, dead sites, robots.txt, limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from crawlproj.simweb.accesslog import Request
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.referee import Rules
from crawlproj.simweb.spec import WorldSpec

pytestmark = pytest.mark.e2e


def log_of(crew: Any, number: int) -> list[Request]:
    """The requests that domain *number* saw, in order."""
    domain = crew.simweb.world.site(number).domain
    return [request for request in crew.referee().requests if request.domain == domain]


def pages_asked(crew: Any, number: int) -> list[Request]:
    return [request for request in log_of(crew, number) if not request.url.endswith("/robots.txt")]


def pauses_ms(requests: list[Request]) -> list[float]:
    return [after.start_ms - before.end_ms for before, after in pairwise(requests)]


def paths(requests: list[Request]) -> set[str]:
    return {request.url.split("/", 3)[3] for request in requests}


# -- pauses, whoever fetches

PACED = WorldSpec(
    seed=3,
    domains=12,
    pages_per_domain=20,
    size_spread=0.3,
    latency_ms=20,
    throttle_share=0.0,
    # Half of the domains ask for two to four times our delay.
    crawl_delay_share=0.5,
    crawl_delay_min_s=0.2,
    crawl_delay_max_s=0.4,
)


def assert_crawl_delays_were_met(crew: Any) -> None:
    """A guard for the tests: there were Crawl-delays to keep, and the domains were asked often enough."""
    world = crew.simweb.world
    delayed = [n for n in range(world.spec.domains) if world.site(n).crawl_delay_s]
    assert len([n for n in delayed if len(pages_asked(crew, n)) > 5]) >= 3


def test_pauses_and_crawl_delays_are_kept_by_three_shards_when_one_is_killed(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(PACED)
    *survivors, victim = crew.start(shards=3)
    crew.wait_for_fetched(60)

    victim.kill()
    crew.finish()

    crew.assert_content(twice_at_most=PACED.domains)
    assert_crawl_delays_were_met(crew)
    assert [s for s in survivors if s.log.count("took ") > 1]


def test_pauses_and_crawl_delays_are_kept_when_two_shards_become_four(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(dataclasses.replace(PACED, domains=16, pages_per_domain=32))
    crew.start(shards=2)
    crew.wait_for_fetched(60)

    assert crew.scrapy("shards", "4").wait() == 0
    added = [crew.shard(number) for number in (2, 3)]
    for shard in added:
        crew.wait_until(lambda shard=shard: shard.says("holding 16"), "a new shard has its partitions")
    fetched_before = crew.status()["fetched"]
    crew.finish()

    crew.assert_content()
    assert_crawl_delays_were_met(crew)
    assert {2, 3} <= {page["shard"] for page in crew.pages()}
    assert crew.status()["fetched"] > fetched_before


# -- sites that throttle

SECONDS, DATE, LONG_503, SLOWED_429, SLOWED_503, ALWAYS_429, ALWAYS_503, THROTTLED_ROBOTS = range(6, 14)
THROTTLED = WorldSpec.calm(
    seed=6,
    domains=14,
    pages_per_domain=4,
    size_spread=0.0,
    overrides={
        SECONDS: {"throttle_all": 429, "throttle_retry_after": "seconds", "throttle_requests": 2},
        DATE: {"throttle_all": 429, "throttle_retry_after": "date", "throttle_requests": 2},
        # More often than a URL is tried.
        LONG_503: {"throttle_all": 503, "throttle_retry_after": "seconds", "throttle_requests": 4},
        SLOWED_429: {"throttle_all": 429, "throttle_requests": 10},
        SLOWED_503: {"throttle_all": 503, "throttle_requests": 10},
        ALWAYS_429: {"throttle_all": 429},
        ALWAYS_503: {"throttle_all": 503},
        THROTTLED_ROBOTS: {"throttle_all": 429, "throttle_requests": 2, "throttle_robots": True},
    },
)
#: What the crawl below was told.
LONGEST_PAUSE_S = 1.5
THROTTLED_RULES = Rules(backoff_factor=1.3, backoff_cap_s=LONGEST_PAUSE_S)


@pytest.fixture(scope="module")
def throttled(shared_crew_of: Callable[..., Any]) -> Any:
    crew = shared_crew_of(
        THROTTLED,
        CRAWL_MAX_BACKOFF_SECONDS=str(LONGEST_PAUSE_S),
        CRAWL_MAX_DELAY_SECONDS=str(LONGEST_PAUSE_S),
        CRAWL_GIVE_UP_FAILURES="12",
    )
    crew.start(shards=2)
    crew.finish()
    return crew


def test_sites_that_throttle_for_a_while_are_crawled_to_the_end_and_politely(throttled: Any) -> None:
    throttled.assert_polite(THROTTLED_RULES)


@pytest.mark.parametrize("number", [SECONDS, DATE, LONG_503])
def test_retry_after_is_waited_for(throttled: Any, number: int) -> None:
    requests = pages_asked(throttled, number)

    refused = [request for request in requests if request.quiet_until_ms]

    assert len(refused) == THROTTLED.overrides[number]["throttle_requests"]
    for refusal, after in zip(refused, requests[1:], strict=False):
        assert after.start_ms >= refusal.quiet_until_ms - 5


@pytest.mark.parametrize("number", [SLOWED_429, SLOWED_503, ALWAYS_429, ALWAYS_503])
def test_a_site_that_answers_nothing_else_is_asked_ten_times_less_within_ten_requests(
    throttled: Any, number: int
) -> None:
    falls = throttled.referee(THROTTLED_RULES).rate_falls(100)

    assert falls[throttled.simweb.world.site(number).domain] >= 10


@pytest.mark.parametrize("number", [SLOWED_429, SLOWED_503])
def test_a_site_that_throttled_us_stays_slow_for_a_while(throttled: Any, number: int) -> None:
    served = [request for request in pages_asked(throttled, number) if request.fault != Fault.THROTTLED]

    assert len(served) == 4
    assert min(pauses_ms(served)) > 10 * 100


def test_a_home_page_refused_more_often_than_a_url_is_tried_is_not_lost(throttled: Any) -> None:
    home = f"{throttled.simweb.world.site(LONG_503).base_url(throttled.simweb.world.site(LONG_503).domain)}/"

    stored = [page["status"] for page in throttled.pages() if page["url"] == home]

    assert THROTTLED.overrides[LONG_503]["throttle_requests"] > Rules().attempts
    assert stored == [200]


def test_a_site_that_throttles_for_ever_is_parked_with_its_urls_and_the_run_ends(throttled: Any) -> None:
    status = throttled.status()

    assert status["state"] == "finished"
    assert status["parked"] >= 2
    for number in (ALWAYS_429, ALWAYS_503):
        assert len(pages_asked(throttled, number)) == 12


# -- sites that are dead

SLOW, BACK_RESET, BACK_HUNG, BACK_PARKED, DEAD_RESET, DEAD_HUNG, DEAD_PAGES = range(8, 15)
DEAD = WorldSpec.calm(
    seed=8,
    domains=15,
    pages_per_domain=5,
    size_spread=0.0,
    overrides={
        # Keeps the run going until the parked ones have come back.
        SLOW: {
            "crawl_delay_share": 1,
            "crawl_delay_min_s": 0.9,
            "crawl_delay_max_s": 0.9,
            "pages_per_domain": 18,
        },
        BACK_RESET: {"dead": "reset", "dead_attempts": 2},
        BACK_HUNG: {"dead": "hang", "dead_attempts": 2},
        BACK_PARKED: {"dead": "reset", "dead_attempts": 5},
        DEAD_RESET: {"dead": "reset"},
        DEAD_HUNG: {"dead": "hang"},
        DEAD_PAGES: {"dead": "reset", "dead_robots": False},
    },
)
GIVE_UP, PARKED_S = 4, 3
#: An hour of parking and six failures, quickly: while one is parked it sees those, and one more as it ends.
DEAD_RULES = Rules(dead_connections=GIVE_UP + 2, dead_window_s=PARKED_S)


@pytest.fixture(scope="module")
def dead(shared_crew_of: Callable[..., Any]) -> Any:
    crew = shared_crew_of(
        DEAD,
        CRAWL_GIVE_UP_FAILURES=str(GIVE_UP),
        CRAWL_PARKED_SECONDS=str(PARKED_S),
        CRAWL_HEADER_SECONDS="0.5",
        # A request on a kept connection that ends without a byte is sent again at once, as by any browser.
        CRAWL_IDLE_PER_HOST="0",
    )
    crew.start(shards=2)
    crew.finish()
    return crew


def test_dead_sites_disturb_no_other_and_those_that_come_back_are_crawled_to_the_end(dead: Any) -> None:
    dead.assert_polite(DEAD_RULES)


def test_a_site_parked_as_dead_is_tried_again_while_the_run_goes_on(dead: Any) -> None:
    requests = log_of(dead, BACK_PARKED)

    assert [request.fault for request in requests[:6]] == [Fault.DEAD] * 5 + [""]
    assert min(pauses_ms(requests[:6])[GIVE_UP - 1 :]) >= PARKED_S * 1000 - 5


@pytest.mark.parametrize("number", [DEAD_RESET, DEAD_HUNG, DEAD_PAGES])
def test_a_dead_site_sees_few_connections_at_growing_pauses(dead: Any, number: int) -> None:
    attempts = [request for request in log_of(dead, number) if request.fault == Fault.DEAD]

    pauses = pauses_ms(attempts)

    assert len(attempts) >= GIVE_UP
    assert pauses[0] < pauses[1] < pauses[2]
    assert all(pause >= PARKED_S * 1000 - 5 for pause in pauses[GIVE_UP - 1 :])


def test_a_run_ends_without_its_dead_sites_and_keeps_their_urls(
    dead: Any, json_of: Callable[[str], Any]
) -> None:
    command = dead.scrapy("status", "--json", name="status")
    assert command.wait() == 0
    status = json_of(command.log)

    assert status["state"] == "finished"
    assert status["parked"] > 0
    assert status["leased"] == 0
    # One of them may have come back as the run ended.
    assert status["parked"] + status["waiting"] >= 3
