"""The referee finds each kind of wrong in a hand-written log, and nothing in a clean one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from protego import Protego

from crawlproj.simweb.accesslog import Request, read_log
from crawlproj.simweb.faults import ALWAYS, Fault
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind
from crawlproj.simweb.referee import Referee, Verdict
from crawlproj.simweb.sites import Robots
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.timing import Rules

PORT = 8080
CALM = WorldSpec.calm(seed=3, domains=3, pages_per_domain=6, port=PORT)
GAP_MS = 100.0


def request(url: str, start_ms: float, *, lasts_ms: float = 10, status: int = 200, **more: object) -> Request:
    host = url.split("/")[2].partition(":")[0]
    return Request(start_ms, start_ms + lasts_ms, host, host, url, status, 500, **more)  # type: ignore[arg-type]


def clean_log(world: World, rules: Rules | None = None) -> list[Request]:
    """A perfect crawl: robots.txt first, then every expected URL, one domain after the other."""
    urls = sorted(Referee(world, [], rules=rules).expected)
    log: list[Request] = []
    now_ms, known = 1000.0, set()
    for url in urls:
        page = world.page(url)
        assert page is not None
        robots = f"{'/'.join(url.split('/')[:3])}/robots.txt"
        if robots not in known:
            known.add(robots)
            log.append(request(robots, now_ms))
            now_ms += 10 + GAP_MS
        log.append(request(url, now_ms, status=page.status))
        now_ms += 10 + GAP_MS
    return log


def judge(log: list[Request], world: World | None = None, **rules: object) -> Verdict:
    referee = Referee(world or World(CALM), log, rules=Rules(**rules))  # type: ignore[arg-type]
    return referee.verdict(min_gap_ms=GAP_MS)


def problem_of(verdict: Verdict) -> str:
    assert len(verdict.problems) == 1, verdict.report()
    return verdict.problems[0]


@pytest.fixture
def log() -> list[Request]:
    return clean_log(World(CALM))


def test_a_clean_log_is_accepted(log: list[Request]) -> None:
    verdict = judge(log)

    assert verdict.ok
    assert "no violations" in verdict.report()


def test_a_missed_url_is_named(log: list[Request]) -> None:
    lost = log.pop()

    assert f"1 expected but not fetched: {lost.url}" in problem_of(judge(log))


def test_a_crawl_that_was_not_to_finish_may_miss(log: list[Request]) -> None:
    log.pop()

    verdict = Referee(World(CALM), log).verdict(min_gap_ms=GAP_MS, complete=False)

    assert verdict.ok


def test_a_second_fetch_is_counted(log: list[Request]) -> None:
    log.append(request(log[-1].url, log[-1].end_ms + GAP_MS))

    assert "fetched more than once" in problem_of(judge(log))
    assert Referee(World(CALM), log).fetched_twice() == {log[-1].url: 2}
    assert Referee(World(CALM), log).verdict(min_gap_ms=GAP_MS, twice_allowed=1).ok


@pytest.mark.parametrize("failed", [{"status": 429}, {"status": 500}, {"complete": False}])
def test_a_failed_fetch_does_not_make_a_second_one(log: list[Request], failed: dict[str, object]) -> None:
    last = log.pop()
    log.append(msgspec.structs.replace(last, **failed))
    log.append(request(last.url, last.end_ms + 2000))

    assert judge(log).ok


def test_robots_may_be_fetched_again(log: list[Request]) -> None:
    log.append(request(log[0].url, log[-1].end_ms + GAP_MS))

    assert judge(log).ok


def test_an_invented_url_is_forbidden(log: list[Request]) -> None:
    invented = log[0].url.replace("robots.txt", "no-such-page-1234.html")
    log.append(request(invented, log[-1].end_ms + GAP_MS, status=404))

    assert f"1 forbidden or invented: {invented}" in problem_of(judge(log))


def test_a_page_requested_before_robots_is_named(log: list[Request]) -> None:
    robots, page, *rest = log
    swapped = [
        msgspec.structs.replace(page, start_ms=robots.start_ms, end_ms=robots.end_ms),
        msgspec.structs.replace(robots, start_ms=page.start_ms, end_ms=page.end_ms),
    ]

    assert f"1 requested before robots.txt: {page.url}" in problem_of(judge(swapped + rest))


def test_a_failed_robots_txt_gives_the_crawler_no_delay(log: list[Request]) -> None:
    log[0] = msgspec.structs.replace(log[0], status=503)

    problem = problem_of(judge(log))

    assert "requested before robots.txt" in problem
    assert log[1].url in problem


def test_two_requests_at_once_are_seen(log: list[Request]) -> None:
    first, second = log[1], log[2]
    log[1] = msgspec.structs.replace(first, end_ms=second.start_ms + 50)
    log[2] = msgspec.structs.replace(second, end_ms=second.end_ms + 50)

    referee = Referee(World(CALM), log)

    assert referee.max_concurrency()[first.domain] == 2
    assert "more than 1 at once" in problem_of(referee.verdict())
    assert referee.verdict(max_at_once=2).ok


def test_requests_to_different_domains_may_overlap(log: list[Request]) -> None:
    everything_at_1000: dict[str, float] = {}
    moved = []
    for entry in log:
        start_ms = everything_at_1000.get(entry.domain, 1000.0)
        everything_at_1000[entry.domain] = start_ms + 10 + GAP_MS
        moved.append(msgspec.structs.replace(entry, start_ms=start_ms, end_ms=start_ms + 10))

    assert judge(moved).ok


def test_a_gap_that_is_too_small_is_measured(log: list[Request]) -> None:
    log[2] = msgspec.structs.replace(log[2], start_ms=log[2].start_ms - 30)

    assert f"{log[2].domain} (70 ms instead of 100)" in problem_of(judge(log))
    assert Referee(World(CALM), log).verdict(min_gap_ms=GAP_MS, tolerance_ms=31).ok


def test_an_answer_that_the_client_left_may_have_ended_a_little_earlier(log: list[Request]) -> None:
    log[1] = msgspec.structs.replace(log[1], left=True)
    sooner = msgspec.structs.replace(log[2], start_ms=log[2].start_ms - 30)
    much_sooner = msgspec.structs.replace(log[2], start_ms=log[2].start_ms - 60)

    assert judge([*log[:2], sooner, *log[3:]]).ok
    assert f"{log[2].domain} (80 ms instead of 100)" in problem_of(judge([*log[:2], much_sooner, *log[3:]]))


def test_a_function_may_say_the_gap_of_each_domain(log: list[Request]) -> None:
    strict = log[0].domain

    verdict = Referee(World(CALM), log).verdict(min_gap_ms=lambda domain: 200 if domain == strict else 0)

    assert strict in problem_of(verdict)


def test_a_url_tried_too_often_is_counted(log: list[Request]) -> None:
    last = log.pop()
    statuses = (500, 500, 500, 200)
    log += [request(last.url, last.start_ms + 500 * n, status=status) for n, status in enumerate(statuses)]

    assert "tried too often" in problem_of(judge(log))


def test_a_url_that_answers_429_may_be_tried_as_often_as_its_site() -> None:
    world = World(
        WorldSpec.calm(domains=1, pages_per_domain=30, port=PORT, throttle_share=0.3, permanent_share=1)
    )
    pages = filter(None, map(world.page, sorted(Referee(world, []).expected)))
    url = next(page.url for page in pages if page.fault is Fault.THROTTLE)
    tries = [request(url, 5000.0 * n, status=429) for n in range(7)]

    assert Referee(world, tries[:6]).tried_too_often() == {}
    assert Referee(world, tries).tried_too_often() == {url: 7}


def test_a_page_that_fails_once_is_missed_unless_it_was_tried_again() -> None:
    world = World(WorldSpec.calm(domains=1, pages_per_domain=30, port=PORT, error_500_share=0.3))
    log = clean_log(world)
    failing = next(i for i, r in enumerate(log) if (page := world.page(r.url)) and page.failures == 1)
    log[failing] = msgspec.structs.replace(log[failing], status=500, fault="500")

    verdict = judge(log, world)

    assert f"expected but not fetched: {log[failing].url}" in problem_of(verdict)
    assert Referee(world, log, rules=Rules(attempts=1)).verdict(min_gap_ms=GAP_MS).ok


def test_a_page_that_always_fails_must_be_tried() -> None:
    spec = WorldSpec.calm(domains=1, pages_per_domain=30, port=PORT, error_500_share=0.3, permanent_share=1.0)
    world = World(spec)
    log = []
    for entry in clean_log(world):
        page = world.page(entry.url)
        failing = page is not None and page.failures == ALWAYS
        log.append(msgspec.structs.replace(entry, status=500) if failing else entry)
    untried = next(entry for entry in log if entry.status == 500)

    assert judge(log, world).ok
    log.remove(untried)
    assert untried.url in problem_of(judge(log, world))


def test_retry_after_is_a_promise_of_the_whole_domain(log: list[Request]) -> None:
    world = World(replace(CALM, retry_after_s=2))
    first = log[1]
    log.insert(2, request(first.url, first.start_ms + 15, status=429, lasts_ms=0))
    late = [msgspec.structs.replace(e, start_ms=e.start_ms + 3000, end_ms=e.end_ms + 3000) for e in log[3:]]

    assert Referee(world, log).hurried() == {first.domain: pytest.approx(1905)}
    assert "Retry-After was ignored" in Referee(world, log).verdict().report()
    assert Referee(world, log[:3] + late).hurried() == {}


# -- robots.txt


def test_disallowed_pages_are_forbidden_and_not_expected() -> None:
    spec = WorldSpec.calm(
        domains=20, pages_per_domain=30, port=PORT, disallow_share=1.0, private_page_share=0.3
    )
    world = World(spec)
    referee = Referee(world, [])
    linked = set()
    for url in referee.expected:
        page = world.page(url)
        assert page is not None
        linked |= {link.url for link in page.links}
    private = linked - referee.expected
    assert private
    assert all("/private/" in url or "/staff/" in url for url in private)

    log = clean_log(world)
    forbidden = sorted(private)[0]
    log.append(request(forbidden, log[-1].end_ms + 1000))

    assert f"1 forbidden or invented: {forbidden}" in problem_of(judge(log, world))
    assert Referee(world, log, rules=Rules(obey_robots=False)).forbidden() == set()


def test_groups_of_robots_depend_on_the_agent() -> None:
    world = World(WorldSpec(domains=60, port=PORT, disallow_share=1.0, private_page_share=0.5))
    number = next(n for n in range(60) if world.site(n).robots is Robots.AGENTS and world.site(n).pages > 20)
    seeds = (world.seeds(60)[0], f"http://{world.site(number).domain}:{PORT}/")

    def of_domain(agent: str) -> set[str]:
        expected = Referee(world, [], user_agent=agent, rules=Rules(seeds=seeds)).expected
        return {url for url in expected if world.site(number).domain + ":" in url}

    assert of_domain("greedybot") == set()
    assert any("/staff/" in url for url in of_domain("crawlproj"))
    assert of_domain("otherbot") < of_domain("crawlproj")


@pytest.mark.parametrize("share", ["closed_share", "robots_5xx_share"])
def test_a_domain_that_disallows_everything_is_not_expected(share: str) -> None:
    overrides = {1: {share: 1.0, "permanent_share": 1.0}}
    world = World(WorldSpec.calm(domains=3, port=PORT, overrides=overrides))
    closed = f"http://{world.site(1).domain}:{PORT}/"

    referee = Referee(world, [request(closed, 5)])

    assert not any(url.startswith(closed) for url in referee.expected)
    assert closed in referee.forbidden()


def test_a_domain_whose_robots_recovers_is_expected() -> None:
    overrides = {1: {"robots_5xx_share": 1.0, "permanent_share": 0.0}}
    world = World(WorldSpec.calm(domains=3, port=PORT, overrides=overrides))

    assert f"http://{world.site(1).domain}:{PORT}/" in Referee(world, []).expected


def test_crawl_delay_raises_the_required_gap() -> None:
    spec = WorldSpec.calm(domains=2, port=PORT, overrides={1: {"crawl_delay_share": 1.0}})
    world = World(spec)
    slow, quick = world.site(1).domain, world.site(0).domain
    delay_s = Protego.parse(world.site(1).robots_text()).crawl_delay("crawlproj")
    assert delay_s is not None

    referee = Referee(world, clean_log(world))

    assert referee.required_gap_ms(slow, 50) == delay_s * 1000 >= 200
    assert referee.required_gap_ms(quick, 50) == 50
    assert f"{slow} (100 ms instead of {delay_s * 1000:.0f})" in problem_of(
        referee.verdict(min_gap_ms=GAP_MS)
    )


# -- redirects, traps, links


def test_redirects_and_their_targets_are_expected_up_to_the_limit() -> None:
    world = World(WorldSpec.calm(domains=4, pages_per_domain=60, port=PORT, redirect_share=0.5))

    everything = Referee(world, []).expected
    one_hop = Referee(world, [], rules=Rules(max_redirects=1)).expected

    hops = {url for url in everything if "/hop/" in url}
    assert hops
    assert any("/loop/" in url for url in everything)
    assert {url for url in one_hop if "/hop/" in url} < hops


def test_traps_and_files_are_allowed_but_never_expected() -> None:
    world = World(WorldSpec.calm(domains=2, pages_per_domain=40, port=PORT, trap_share=1.0, file_share=0.3))
    log = clean_log(world)
    home = world.page(world.seeds()[0])
    assert home is not None
    optional = [url for url, _ in home.links if (p := world.page(url)) and p.kind in (Kind.TRAP, Kind.FILE)]
    assert optional
    log += [request(url, log[-1].end_ms + 200 * n) for n, url in enumerate(optional, 1)]

    assert judge(log, world).ok


def test_no_page_depends_on_a_nofollow_link() -> None:
    world = World(WorldSpec.rough(domains=10, port=PORT, nofollow_share=0.5))

    expected = Referee(world, []).expected

    assert expected == Referee(world, [], rules=Rules(follow_nofollow=False)).expected


def test_the_seeds_given_to_the_crawler_decide_what_is_expected() -> None:
    world = World(WorldSpec.calm(domains=20, port=PORT, cross_domain_share=0.0))
    leaf = f"http://{world.site(19).domain}:{PORT}/"

    expected = Referee(world, [], rules=Rules(seeds=(leaf,))).expected

    assert len(expected) == world.site(19).pages


def test_a_log_that_is_being_written_can_be_read(tmp_path: Path, log: list[Request]) -> None:
    path = tmp_path / "access.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(log) + b'{"start_ms": 12')

    assert list(read_log(path)) == log
    assert Referee(World(CALM), path).verdict(min_gap_ms=GAP_MS).ok


# -- throttled and dead domains

THROTTLED = "throttled"


def throttled_world(**fields: Any) -> World:
    changes = {"throttle_all": 429} | fields
    return World(WorldSpec.calm(seed=3, domains=3, pages_per_domain=6, port=PORT, overrides={2: changes}))


def row(world: World, gaps_s: list[float], status: int = 429, **more: Any) -> list[Request]:
    """Requests for the home of domain 2, so far apart, all of them throttled."""
    home = f"http://{world.site(2).domain}:{PORT}/"
    log = [request(home + "robots.txt", 0.0, status=404)]
    for gap_s in [1.0, *gaps_s]:
        log.append(request(home, log[-1].end_ms + gap_s * 1000, status=status, fault=THROTTLED, **more))
    return log


def doubling(count: int) -> list[float]:
    return [2.0**n for n in range(count)]


def objections(world: World, log: list[Request], **rules: object) -> str:
    referee = Referee(world, log, rules=Rules(**rules))  # type: ignore[arg-type]
    return referee.verdict(min_gap_ms=500, complete=False).report()


@pytest.mark.parametrize("status", [429, 503])
def test_a_backoff_that_doubles_is_accepted(status: int) -> None:
    world = throttled_world(throttle_all=status)

    assert "no violations" in objections(world, row(world, doubling(12), status))


def test_a_backoff_that_does_not_grow_is_named() -> None:
    world = throttled_world()

    assert "pauses: " in (report := objections(world, row(world, [1, 2, 2, 2])))
    assert f"{world.site(2).domain} (pause 3 was 2000 ms instead of 2250)" in report


def test_a_pause_that_took_too_long_does_not_count_for_the_next() -> None:
    world = throttled_world()

    assert Referee(world, row(world, [1, 9, 4, 8])).stubborn() == {}


def test_a_backoff_stops_growing_at_its_cap() -> None:
    world = throttled_world()
    log = row(world, [1, 2, 4, 4, 4])

    assert Referee(world, log, rules=Rules(backoff_cap_s=4)).stubborn() == {}
    assert Referee(world, log, rules=Rules(backoff_cap_s=5)).stubborn() != {}


def test_a_success_ends_a_row_of_throttled_answers() -> None:
    world = throttled_world(throttle_requests=3)
    log = row(world, [1, 2])
    log.append(request(log[-1].url, log[-1].end_ms + 4000))
    again = row(world, [1, 2])[1:]
    shift_ms = log[-1].end_ms
    log += [
        msgspec.structs.replace(r, start_ms=r.start_ms + shift_ms, end_ms=r.end_ms + shift_ms) for r in again
    ]

    assert Referee(world, log).stubborn() == {}
    assert Referee(world, log).throttled_gaps_ms() == {world.site(2).domain: [1000.0, 2000.0]}


def test_a_rate_that_does_not_fall_tenfold_within_ten_requests_is_named() -> None:
    world = throttled_world()
    domain = world.site(2).domain
    slack = row(world, [0.5 * 1.2**n for n in range(9)])

    assert Referee(world, slack).rate_falls(500) == {domain: pytest.approx(1.2**8)}
    assert "not 10 times slower after 10 requests" in objections(world, slack, backoff_factor=1.1)
    assert "not 10 times" not in objections(world, slack, backoff_factor=1.1, backoff_cap_s=2)
    assert Referee(world, row(world, doubling(9))).rate_falls(500)[domain] == pytest.approx(512)


def test_a_rate_is_not_judged_by_fewer_than_ten_requests() -> None:
    world = throttled_world()

    assert Referee(world, row(world, [0.5 * 1.2**n for n in range(8)])).rate_falls(500) == {}


def test_the_time_of_a_retry_after_must_pass() -> None:
    world = throttled_world(throttle_retry_after="date")
    early, late = (row(world, [gap_s], quiet_until_ms=8000.0) for gap_s in (4, 7))
    domain = world.site(2).domain

    # The second request ended at 1020 ms and the third started 4 s later.
    assert Referee(world, early).hurried() == {domain: pytest.approx(2980)}
    assert "Retry-After was ignored" in objections(world, early)
    assert Referee(world, late).hurried() == {}


def test_a_throttled_answer_without_retry_after_promises_nothing() -> None:
    world = throttled_world(retry_after_s=100)

    assert Referee(world, row(world, doubling(3))).hurried() == {}


def test_pauses_need_not_grow_where_the_server_names_them() -> None:
    world = throttled_world(throttle_retry_after="seconds")

    assert Referee(world, row(world, [1, 1, 1], quiet_until_ms=1.0)).stubborn() == {}


def test_a_request_already_under_way_could_not_know_of_a_retry_after() -> None:
    world = throttled_world(throttle_retry_after="seconds")
    home = f"http://{world.site(2).domain}:{PORT}/"
    first = request(home, 0, lasts_ms=100, status=429, fault=THROTTLED, quiet_until_ms=5000.0)
    beside = request(home, 50, lasts_ms=100)

    assert Referee(world, [first, beside]).hurried() == {}


def test_throttled_requests_do_not_count_as_tries_of_their_url() -> None:
    world = throttled_world()

    assert Referee(world, row(world, doubling(9))).tried_too_often() == {}


@pytest.mark.parametrize("fields", [{"throttle_all": 429}, {"dead": "reset"}, {"dead": "hang"}])
def test_a_domain_that_never_answers_is_not_expected_and_may_be_tried(fields: dict[str, Any]) -> None:
    spec = WorldSpec.calm(domains=30, port=PORT, cross_domain_share=0.0, overrides={1: fields})
    world = World(spec)
    calm = Referee(World(replace(spec, overrides={})), []).expected
    home = f"http://{world.site(1).domain}:{PORT}/"

    referee = Referee(world, [request(home, 5, status=429, fault=THROTTLED)])

    # Domains 7 to 12 hang below domain 1; without its links they are still found.
    assert referee.expected == {url for url in calm if not url.startswith(home)}
    assert referee.forbidden() == set()


def test_a_domain_that_comes_back_is_expected() -> None:
    spec = WorldSpec.calm(domains=3, port=PORT)
    back: dict[int, dict[str, Any]] = {
        1: {"dead": "reset", "dead_attempts": 3},
        2: {"throttle_all": 503, "throttle_requests": 3},
    }

    assert Referee(World(replace(spec, overrides=back)), []).expected == Referee(World(spec), []).expected


def dead_log(world: World, count: int, every_s: float) -> list[Request]:
    domain = world.site(1).domain
    return [Request(n * every_s * 1000, n * every_s * 1000, domain, domain, "", 0, 0, "dead", 1, "", False)
            for n in range(count)]  # fmt: skip


def test_connections_to_a_dead_domain_are_counted_in_any_window() -> None:
    world = World(WorldSpec.calm(domains=2, port=PORT, overrides={1: {"dead": "reset"}}))
    domain = world.site(1).domain
    rare, often = dead_log(world, 30, every_s=401), dead_log(world, 30, every_s=399)

    assert Referee(world, rare).connections_to_the_dead() == {domain: 9}
    assert "no violations" in objections(world, rare)
    assert "dead domains with 10 connections or more: " in (report := objections(world, often))
    assert f"{domain} (10 in 3600 s)" in report
    assert "no violations" in objections(world, often, dead_connections=11)
    assert "no violations" in objections(world, often, dead_window_s=3000)


def test_connections_to_a_dead_domain_keep_their_distance() -> None:
    world = World(WorldSpec.calm(domains=2, port=PORT, overrides={1: {"dead": "reset"}}))

    assert "requested again too soon" in objections(world, dead_log(world, 2, every_s=0.4))


def test_a_crawl_delay_need_be_kept_up_to_a_cap() -> None:
    fields = {"crawl_delay_share": 1.0, "crawl_delay_min_s": 900.0, "crawl_delay_max_s": 900.0}
    world = World(WorldSpec.calm(domains=2, port=PORT, overrides={1: fields}))
    domain = world.site(1).domain

    assert Referee(world, []).required_gap_ms(domain, 0) == 300_000
    assert Referee(world, [], rules=Rules(crawl_delay_cap_s=1000)).required_gap_ms(domain, 0) == 900_000


# -- hostile domains


def hostile_world(**fields: object) -> World:
    return World(WorldSpec.calm(seed=3, domains=3, pages_per_domain=6, port=PORT, overrides={1: fields}))


def test_a_hostile_page_must_be_requested_and_need_not_succeed() -> None:
    world = hostile_world(hostile="slowloris")
    [hostile] = world.hostile_urls(1)
    log = clean_log(world)
    cut = [msgspec.structs.replace(r, status=0, complete=False) if r.url == hostile else r for r in log]

    assert judge(cut, world).ok
    assert hostile in problem_of(judge([r for r in log if r.url != hostile], world))


def test_a_domain_of_many_hostile_pages_may_be_given_up_after_one() -> None:
    world = hostile_world(hostile="reset")
    first, *others = world.hostile_urls(1)
    log = [r for r in clean_log(world) if r.url not in others]

    assert judge(log, world).ok
    assert f"{len(others) + 1} expected but not fetched" in problem_of(
        judge([r for r in log if r.url != first], world)
    )


def test_a_hostile_page_may_be_sent_in_full_more_than_once() -> None:
    world = hostile_world(hostile="header-flood")
    log = clean_log(world)
    log.append(request(world.hostile_urls(1)[0], log[-1].end_ms + GAP_MS))

    assert judge(log, world).ok


@pytest.mark.parametrize("kind", ["redirect-chain", "redirect-self"])
def test_redirects_without_end_must_be_left_at_the_limit(kind: str) -> None:
    world = hostile_world(hostile=kind)
    log = clean_log(world)
    page = world.page(world.hostile_urls(1)[0])
    for _ in range(6):
        assert page is not None
        assert page.location is not None
        log.append(request(page.location, log[-1].end_ms + GAP_MS, status=302))
        page = world.page(page.location)

    assert judge(log, world, max_redirects=6).ok
    assert f"redirects followed further than 5: {log[-1].url}" in problem_of(
        judge(log, world, max_redirects=5)
    )


@pytest.mark.parametrize("kind", ["slowloris", "reset", "garbage", "hang"])
def test_a_domain_whose_robots_is_out_of_reach_is_closed(kind: str) -> None:
    world = hostile_world(robots_hostile=kind)
    home = f"http://{world.site(1).domain}:{PORT}/"

    referee = Referee(world, [request(home, 5)])

    assert not any(url.startswith(home) for url in referee.expected)
    assert referee.forbidden() == {home}


@pytest.mark.parametrize("kind", ["endless-body", "bomb-gzip", "big", "drip"])
def test_a_crawler_may_make_of_half_a_robots_what_it_likes(kind: str) -> None:
    world = hostile_world(robots_hostile=kind)
    home = f"http://{world.site(1).domain}:{PORT}/"
    log = clean_log(world)
    assert not any(r.url.startswith(home) for r in log)
    log.append(request(home + "robots.txt", log[-1].end_ms + GAP_MS, complete=False, fault=kind))

    assert judge(log, world).ok
    assert judge([*log, request(home, log[-1].end_ms + GAP_MS)], world).ok


def test_the_rules_behind_a_redirected_robots_count() -> None:
    world = hostile_world(robots_hostile="redirect-other", disallow_share=1.0, private_page_share=0.5)
    log = clean_log(world)
    robots = world.page(f"http://{world.site(1).domain}:{PORT}/robots.txt")
    assert robots is not None
    assert robots.location is not None
    # Before the robots.txt of the domain that it leads to: it is not a page of that domain.
    log = [request(robots.url, 0, status=302), request(robots.location, 100), *log]

    assert any(r.url.startswith(f"http://{world.site(1).domain}:") for r in log)
    assert judge(log, world).ok


# -- sitemaps


@pytest.mark.parametrize("gzip", [True, False])
def test_pages_that_only_a_sitemap_lists_are_expected_if_it_is_read(gzip: bool) -> None:
    fields = {"sitemap_share": 1.0, "sitemap_only_share": 0.5, "sitemap_gzip": gzip}
    world = World(
        WorldSpec.calm(
            seed=3, domains=3, pages_per_domain=20, size_spread=0, port=PORT, overrides={1: fields}
        )
    )
    site = world.site(1)

    blind = Referee(world, []).expected
    reader = Referee(world, [], rules=Rules(sitemaps=True)).expected

    assert site.unlinked == 10
    assert len(reader - blind) == site.unlinked
    assert all(url.startswith(f"http://{site.domain}:") for url in reader - blind)
    assert Referee(world, [request(url, 5) for url in reader - blind]).forbidden() == set()
