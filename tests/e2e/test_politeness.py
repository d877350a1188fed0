"""What a site operator sees in his log, judged by it: pauses, backing off, dead sites, robots.txt, limits."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawlproj.simweb.accesslog import Request
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.timing import Rules
from crawlproj.storage import read_pages

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


# -- pauses, whichever shard fetches

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
    assert [s for s in survivors if s.log.count("acquired ") > 1]


def test_pauses_and_crawl_delays_are_kept_when_two_shards_become_four(crew_of: Callable[..., Any]) -> None:
    # Long enough for processes to start on a busy machine.
    long = dataclasses.replace(
        PACED, domains=16, pages_per_domain=70, size_spread=0.0, crawl_delay_min_s=0.25, crawl_delay_max_s=0.3
    )
    crew = crew_of(long, DOWNLOAD_DELAY="0.2")
    crew.start(shards=2)
    crew.wait_for_fetched(20)

    assert crew.scrapy("shards", "4").wait() == 0
    added = [crew.shard(number) for number in (2, 3)]
    for shard in added:
        crew.wait_until(lambda shard=shard: shard.says("holding 16"), "a new shard has its partitions")
    fetched_before = crew.status()["fetched"]
    crew.finish()

    crew.assert_content()
    assert_crawl_delays_were_met(crew)
    assert not {2, 3}.isdisjoint(page["shard"] for page in crew.pages())
    assert crew.status()["fetched"] > fetched_before


def test_two_runs_on_one_redis_keep_the_pauses_of_a_domain_together(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(dataclasses.replace(PACED, domains=8, pages_per_domain=8))

    for run in ("first", "second"):
        crew.scrapy("crawl", "web", f"-arun={run}", f"-aseeds={crew.seeds_file}", name=run)
    crew.finish()

    assert_crawl_delays_were_met(crew)
    pages = [request.url for request in crew.referee().requests if not request.url.endswith("/robots.txt")]
    assert set(Counter(pages).values()) == {2}
    crew.assert_polite(twice_at_most=len(pages))


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
#: Settings of the crawl below.
LONGEST_PAUSE_S = 1.5
THROTTLED_RULES = Rules(backoff_factor=1.3, backoff_cap_s=LONGEST_PAUSE_S)

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
        BACK_PARKED: {"dead": "reset", "dead_attempts": 4},
        DEAD_RESET: {"dead": "reset"},
        DEAD_HUNG: {"dead": "hang"},
        DEAD_PAGES: {"dead": "reset", "dead_robots": False},
    },
)
GIVE_UP, PARKED_S = 4, 3
#: An hour of parking and six failures, quickly: while one is parked it sees those, and one more as it ends.
DEAD_RULES = Rules(dead_connections=GIVE_UP + 2, dead_window_s=PARKED_S)


@pytest.fixture(scope="module")
def in_trouble(shared_crew_of: Callable[..., Any]) -> dict[str, Any]:
    """A crawl of sites that throttle and one of dead sites, side by side: both wait most of the time."""
    crews = {
        "throttled": shared_crew_of(
            THROTTLED,
            CRAWL_MAX_BACKOFF_SECONDS=str(LONGEST_PAUSE_S),
            CRAWL_MAX_DELAY_SECONDS=str(LONGEST_PAUSE_S),
            CRAWL_GIVE_UP_FAILURES="12",
        ),
        "dead": shared_crew_of(
            DEAD,
            CRAWL_GIVE_UP_FAILURES=str(GIVE_UP),
            CRAWL_PARKED_SECONDS=str(PARKED_S),
            # A machine that is busy for as long makes a request late that we have given up.
            CRAWL_HEADER_SECONDS="2",
        ),
    }
    for crew in crews.values():
        crew.start(shards=2)
    for crew in crews.values():
        crew.finish()
    return crews


@pytest.fixture(scope="module")
def throttled(in_trouble: dict[str, Any]) -> Any:
    return in_trouble["throttled"]


@pytest.fixture(scope="module")
def dead(in_trouble: dict[str, Any]) -> Any:
    return in_trouble["dead"]


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


def test_dead_sites_disturb_no_other_and_those_that_come_back_are_crawled_to_the_end(dead: Any) -> None:
    dead.assert_polite(DEAD_RULES)


def test_a_dead_site_is_retried_while_the_run_continues(dead: Any) -> None:
    requests = log_of(dead, BACK_PARKED)

    assert [request.fault for request in requests[:5]] == [Fault.DEAD] * 4 + [""]
    parked_once, parked_again = pauses_ms(requests[:5])[-2:]
    assert parked_once >= PARKED_S * 1000 - 5
    assert parked_again >= 2 * PARKED_S * 1000 - 5


@pytest.mark.parametrize("number", [DEAD_RESET, DEAD_HUNG, DEAD_PAGES])
def test_a_dead_site_sees_few_connections_at_growing_pauses(dead: Any, number: int) -> None:
    attempts = [request for request in log_of(dead, number) if request.fault == Fault.DEAD]
    if number == DEAD_PAGES:
        # Its robots.txt was answered: what then meets the kept connection says nothing of the site yet.
        attempts = attempts[1:]

    # From start to start: a busy server learns late that we have given up. At least: they may be longer.
    pauses = [after.start_ms - before.start_ms for before, after in pairwise(attempts)]

    assert len(attempts) >= GIVE_UP
    backoff_ms = float(dead.settings["CRAWL_BACKOFF_SECONDS"]) * 1000
    assert pauses[0] >= backoff_ms - 5
    assert pauses[1] >= 2 * backoff_ms - 5
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


# -- robots.txt

(
    BROKEN_FOR_A_WHILE,
    BROKEN,
    MOVES_FOR_EVER,
    RULES_ELSEWHERE,
    CLOSED_ELSEWHERE,
    BIG,
    ENDLESS,
    RESETS,
    GOES_ROUND,
    LAST,
) = range(8, 27, 2)  # The domain after it serves what redirects elsewhere.
SITEMAP_ONLY = {"sitemap_share": 1.0, "sitemap_only_share": 1.0}
ROBOTS = WorldSpec.calm(
    seed=9,
    domains=LAST + 1,
    pages_per_domain=6,
    size_spread=0.0,
    overrides={
        1: SITEMAP_ONLY,
        BROKEN_FOR_A_WHILE: {"robots_5xx_share": 1.0, "permanent_share": 0.0, "transient_failures": 2},
        BROKEN: {"robots_5xx_share": 1.0, "permanent_share": 1.0},
        MOVES_FOR_EVER: {"robots_hostile": "redirect-self"},
        RULES_ELSEWHERE: {
            "robots_hostile": "redirect-other",
            "disallow_share": 1.0,
            "private_page_share": 0.5,
            "pages_per_domain": 20,
        },
        CLOSED_ELSEWHERE: {"robots_hostile": "redirect-other", "closed_share": 1.0},
        GOES_ROUND: {"robots_hostile": "redirect-loop"},
        BIG: {"robots_hostile": "big"},
        ENDLESS: {"robots_hostile": "endless-body"},
        RESETS: {"robots_hostile": "reset"},
    },
)


#: Nine seconds of failures: time for shards to come back on a busy machine, while other domains are asked.
ROBOTS_GIVE_UP = 6


@pytest.fixture(scope="module")
def ruled(shared_crew_of: Callable[..., Any]) -> Any:
    """A crawl whose shards are stopped and started again when most robots.txt are known."""
    # Slow enough for something to be left when they are stopped.
    crew = shared_crew_of(ROBOTS, CRAWL_GIVE_UP_FAILURES=str(ROBOTS_GIVE_UP), DOWNLOAD_DELAY="0.2")
    shards = crew.start(shards=2)
    crew.wait_for_fetched(60)
    for shard in shards:
        shard.send(signal.SIGTERM)
    for shard in shards:
        assert shard.wait() == 0, shard.log
    assert crew.status()["waiting"] > 0
    crew.shard(0)
    crew.shard(1)
    crew.finish()
    return crew


def test_no_robots_txt_however_odd_makes_a_crawl_impolite_or_incomplete(ruled: Any) -> None:
    ruled.assert_polite()


def test_pages_behind_a_robots_txt_that_was_broken_for_a_while_come_later(ruled: Any) -> None:
    broken, again, read, *pages = log_of(ruled, BROKEN_FOR_A_WHILE)

    assert [broken.status, again.status, read.status] == [503, 503, 200]
    assert len(paths(pages)) == 6


@pytest.mark.parametrize("number", [BROKEN, RESETS, CLOSED_ELSEWHERE])
def test_nothing_is_requested_where_robots_txt_forbids_it_or_is_unreachable(ruled: Any, number: int) -> None:
    assert log_of(ruled, number)
    assert pages_asked(ruled, number) == []


def test_a_robots_txt_that_moves_for_ever_is_followed_five_times_and_then_is_none(ruled: Any) -> None:
    hops = {path.partition("?n=")[2] for path in paths(log_of(ruled, MOVES_FOR_EVER)) if "redirect" in path}

    assert hops == {"1", "2", "3", "4", "5"}
    assert len(paths(log_of(ruled, MOVES_FOR_EVER))) == 1 + 5 + 6


def test_a_robots_txt_that_goes_round_three_domains_ends_and_is_none(ruled: Any) -> None:
    asked = [request for request in ruled.referee().requests if "redirect-loop" in request.url]
    begun = [request for request in log_of(ruled, GOES_ROUND) if request.url.endswith("/robots.txt")]

    # It may begin anew while another domain keeps it waiting, up to the failures after which we give up.
    assert 4 <= len(asked) <= 5 * ROBOTS_GIVE_UP
    behind = [ruled.simweb.world.site(GOES_ROUND + number).domain for number in (1, 2)]
    assert {request.domain for request in asked} == set(behind)
    # The round comes by here, too.
    assert len(begun) <= 3 * ROBOTS_GIVE_UP
    assert len(paths(pages_asked(ruled, GOES_ROUND))) == 6


def test_rules_that_are_kept_in_another_domain_are_obeyed(ruled: Any) -> None:
    asked = paths(pages_asked(ruled, RULES_ELSEWHERE))

    hidden = [path for path in asked if path.startswith(("private/", "staff/"))]

    assert len(asked) > 5
    assert hidden == []
    assert ruled.status()["by_reason"]["robots"] > 5


def test_a_robots_txt_without_end_is_read_as_far_as_the_limit(ruled: Any) -> None:
    for number in (BIG, ENDLESS):
        [robots] = [request for request in log_of(ruled, number) if request.url.endswith("/robots.txt")]
        assert not robots.complete
        assert len(pages_asked(ruled, number)) == 6


def test_shards_that_are_started_again_ask_no_robots_txt_again(ruled: Any) -> None:
    answered = Counter(
        request.url
        for request in ruled.referee().requests
        if request.url.endswith("/robots.txt") and request.status in (200, 404) and not request.fault
    )

    assert len(answered) > 10
    assert max(answered.values()) == 1


def test_pages_that_only_a_sitemap_names_are_not_fetched_unless_asked_for(ruled: Any) -> None:
    asked = {request.url for request in log_of(ruled, 1)}

    only_in_sitemap = set(ruled.simweb.world.sitemap_urls(1)) - ruled.referee().expected

    assert len(only_in_sitemap) == 6
    assert asked.isdisjoint(only_in_sitemap)
    assert "sitemap" not in "".join(asked)


def test_with_the_setting_sitemaps_are_read_also_from_an_index_and_gzipped(
    crew_of: Callable[..., Any],
) -> None:
    world = WorldSpec.calm(
        seed=9,
        domains=4,
        pages_per_domain=6,
        overrides={1: SITEMAP_ONLY, 2: SITEMAP_ONLY | {"sitemap_gzip": True}},
    )
    crew = crew_of(world, CRAWL_SITEMAPS="true")

    crew.start(shards=1)
    crew.finish()

    crew.assert_polite(Rules(sitemaps=True))
    assert "sitemap-0.xml.gz" in paths(log_of(crew, 2))


def html(*links: str, head: str = "") -> tuple[int, dict[str, str], bytes]:
    body = "".join(f"<a href={link}>{link}</a> " for link in links)
    page = (
        f"<html><head><title>t</title>{head}</head><body><p>Some words to be stored. {body}</p></body></html>"
    )
    return 200, {"Content-Type": "text/html"}, page.encode()


def test_rules_at_another_address_of_the_site_and_noindex_are_obeyed(
    echo: Any, scrapy: Callable[..., Any], tmp_path: Path
) -> None:
    status, headers, body = html()
    echo.answers = {
        "/robots.txt": [(302, {"Location": "/rules.txt"}, b"")],
        "/rules.txt": [(200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /secret")],
        "/": [html("/plain", "/secret", "/meta", "/tagged")],
        "/plain": [html()],
        "/meta": [html(head="<meta name=robots content=noindex>")],
        "/tagged": [(status, headers | {"X-Robots-Tag": "noindex"}, body)],
    }
    (tmp_path / "seeds.txt").write_text(f"{echo.url}/\n")

    processes = [scrapy("crawl", "web", f"-aseeds={tmp_path / 'seeds.txt'}"), scrapy("parser")]
    for process in processes:
        assert process.wait() == 0, process.log

    rows = {row["url"].removeprefix(echo.url): row for row in read_pages(tmp_path / "data/runs/web/pages")}
    assert [seen.path for seen in echo.log][:2] == ["/robots.txt", "/rules.txt"]
    assert sorted(seen.path for seen in echo.log[2:]) == ["/", "/meta", "/plain", "/tagged"]
    assert min(echo.gaps_s()) >= 0.095
    assert {path: row["error"] for path, row in rows.items() if row["error"]} == {
        "/secret": "robots",
        "/meta": "noindex",
        "/tagged": "noindex",
    }
    assert {path for path, row in rows.items() if row["text"]} == {"/", "/plain"}


# -- what is left out, and where it ends


def start_from_one_seed(*crews: Any) -> None:
    for crew in crews:
        crew.seeds_file.write_text(f"{crew.simweb.seeds(1)[0]}\n")
        crew.start(shards=1)


def urls_asked(crew: Any) -> set[str]:
    """All URLs that were asked for, without robots.txt."""
    return {request.url for request in crew.referee().requests if not request.url.endswith("/robots.txt")}


NAMES = WorldSpec.calm(
    seed=4, domains=6, pages_per_domain=12, size_spread=0.0, naming="name", cross_domain_share=0.4
)


SUBDOMAINS = {"www.d00000.test", "blog.d00000.test"}


@pytest.fixture(scope="module")
def scoped(shared_crew_of: Callable[..., Any]) -> dict[str, Any]:
    """Crawls in every scope, side by side."""
    crews = {
        scope: shared_crew_of(
            NAMES,
            TWISTED_DNS_RESOLVER="crawlproj.simweb.names.SimwebResolver",
            CRAWL_SCOPE=scope,
            CRAWL_SCOPE_DOMAINS="d00000.test,d00003.test",
        )
        for scope in ("seeds", "host", "domain", "list")
    }
    start_from_one_seed(*crews.values())
    for crew in crews.values():
        crew.finish()
    return crews


@pytest.mark.parametrize(
    ("scope", "hosts", "pages"),
    [
        ("seeds", {"d00000.test"}, 1),
        ("host", {"d00000.test"}, 6),
        ("domain", {"d00000.test"} | SUBDOMAINS, 12),
        ("list", {"d00000.test", "d00003.test"} | SUBDOMAINS, 24),
    ],
)
def test_every_link_in_scope_is_followed_and_no_other(
    scoped: dict[str, Any], scope: str, hosts: set[str], pages: int
) -> None:
    asked = urls_asked(scoped[scope])

    assert {url.split("/")[2].partition(":")[0] for url in asked} == hosts
    assert len(asked) == pages


def test_what_is_excluded_while_it_waits_is_skipped_and_says_so(
    crew_of: Callable[..., Any], tmp_path: Path
) -> None:
    exclusions = tmp_path / "exclusions.txt"
    exclusions.write_text("# nobody yet\n")
    crew = crew_of(WorldSpec.calm(seed=3, domains=2, pages_per_domain=60), CRAWL_EXCLUDE_FILE=str(exclusions))
    crew.start(shards=1)
    crew.wait_for_fetched(10)

    exclusions.write_text(f"{crew.simweb.world.site(0).domain}\n")
    crew.finish()

    status = crew.status()
    skipped = [page for page in crew.pages() if page["error"] == "excluded"]
    assert status["by_reason"]["excluded"] == len(skipped) > 0
    assert {page["domain"] for page in skipped} == {crew.simweb.world.site(0).domain}
    assert len(pages_asked(crew, 0)) < crew.simweb.world.site(0).pages
    assert len(pages_asked(crew, 1)) == crew.simweb.world.site(1).pages


BUDGET_PAGES, BUDGET_BYTES = 7, 60_000
TRAP_VARIANTS = 4


@pytest.fixture(scope="module")
def limited(shared_crew_of: Callable[..., Any]) -> dict[str, Any]:
    """Crawls with limits, side by side."""
    large = WorldSpec.calm(seed=3, domains=3, pages_per_domain=40, size_spread=0.0)
    crews = {
        "pages": shared_crew_of(large, CRAWL_DOMAIN_PAGES=str(BUDGET_PAGES)),
        "bytes": shared_crew_of(large, CRAWL_DOMAIN_BYTES=str(BUDGET_BYTES)),
        "traps": shared_crew_of(
            WorldSpec.calm(seed=3, domains=3, pages_per_domain=5, trap_share=1.0),
            DOWNLOAD_DELAY="0.05",
            CRAWL_TRAP_VARIANTS=str(TRAP_VARIANTS),
            CRAWL_TRAP_DEPTH="5",
        ),
    }
    start_from_one_seed(*crews.values())
    for crew in crews.values():
        crew.finish()
    return crews


def test_a_domain_gives_no_more_pages_than_its_budget(limited: dict[str, Any]) -> None:
    crew = limited["pages"]

    assert [len(pages_asked(crew, number)) for number in range(3)] == [BUDGET_PAGES] * 3


def test_a_domain_that_gave_all_its_bytes_is_parked_and_the_run_ends(limited: dict[str, Any]) -> None:
    crew = limited["bytes"]

    for number in range(3):
        sent = sum(request.bytes for request in pages_asked(crew, number))
        # The last page may be one too many, of 24 KB at most.
        assert BUDGET_BYTES <= sent < BUDGET_BYTES + 50_000
        assert len(pages_asked(crew, number)) < 40
    assert crew.status()["parked"] > 0


def test_a_crawl_of_traps_ends_by_itself_with_what_it_left_out_listed(limited: dict[str, Any]) -> None:
    crew = limited["traps"]

    crew.assert_polite()
    assert crew.status()["state"] == "finished"
    assert crew.status()["trapped"] > 0
    for number in range(3):
        asked = Counter(path.partition("/")[0] for path in paths(pages_asked(crew, number)))
        assert asked["calendar"] == TRAP_VARIANTS
        # Numbers and ids are mostly real, so there may be ten times as many.
        assert asked["session"] == 10 * TRAP_VARIANTS
        assert 0 < asked["deep"] < 200
