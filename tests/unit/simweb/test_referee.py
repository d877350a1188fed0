"""The referee finds each kind of wrong in a hand-written log, and nothing in a clean one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from protego import Protego

from crawlproj.simweb.accesslog import Request, read_log
from crawlproj.simweb.faults import ALWAYS
from crawlproj.simweb.graph import Kind, World, WorldSpec
from crawlproj.simweb.referee import Referee, Rules, Verdict
from crawlproj.simweb.sites import Robots

PORT = 8080
CALM = WorldSpec.calm(seed=3, domains=3, pages_per_domain=6, port=PORT)
GAP_MS = 100.0


def request(url: str, start_ms: float, *, lasts_ms: float = 10, status: int = 200, **more: object) -> Request:
    host = url.split("/")[2].partition(":")[0]
    return Request(start_ms, start_ms + lasts_ms, host, host, url, status, 500, **more)  # type: ignore[arg-type]


def clean_log(world: World, rules: Rules | None = None) -> list[Request]:
    """A perfect crawl: robots.txt first, then every expected URL, one domain after the other."""
    urls = sorted(Referee(world, [], rules=rules).expected())
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
    assert "nothing to object to" in verdict.report()


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


def test_a_page_asked_for_before_robots_is_named(log: list[Request]) -> None:
    robots, page, *rest = log
    swapped = [
        msgspec.structs.replace(page, start_ms=robots.start_ms, end_ms=robots.end_ms),
        msgspec.structs.replace(robots, start_ms=page.start_ms, end_ms=page.end_ms),
    ]

    assert f"1 asked for before robots.txt: {page.url}" in problem_of(judge(swapped + rest))


def test_a_robots_that_failed_tells_the_crawler_nothing(log: list[Request]) -> None:
    log[0] = msgspec.structs.replace(log[0], status=503)

    problem = problem_of(judge(log))

    assert "asked for before robots.txt" in problem
    assert log[1].url in problem


def test_two_requests_at_once_are_seen(log: list[Request]) -> None:
    first, second = log[1], log[2]
    log[1] = msgspec.structs.replace(first, end_ms=second.start_ms + 50)
    log[2] = msgspec.structs.replace(second, end_ms=second.end_ms + 50)

    referee = Referee(World(CALM), log)

    assert referee.max_concurrency()[first.domain] == 2
    assert referee.smallest_gap_ms()[first.domain] == pytest.approx(-50)
    assert "more than 1 at once" in problem_of(referee.verdict())
    assert referee.verdict(max_at_once=2).ok


def test_requests_to_different_domains_may_overlap(log: list[Request]) -> None:
    everything_at_1000 = {}
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


def test_a_function_may_say_the_gap_of_each_domain(log: list[Request]) -> None:
    strict = log[0].domain

    verdict = Referee(World(CALM), log).verdict(min_gap_ms=lambda domain: 200 if domain == strict else 0)

    assert strict in problem_of(verdict)


def test_a_url_tried_too_often_is_counted(log: list[Request]) -> None:
    last = log.pop()
    statuses = (500, 500, 500, 200)
    log += [request(last.url, last.start_ms + 500 * n, status=status) for n, status in enumerate(statuses)]

    assert "tried more than 3 times" in problem_of(judge(log))


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
    for url in referee.expected():
        page = world.page(url)
        assert page is not None
        linked |= {link.url for link in page.links}
    private = linked - referee.expected()
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
        expected = Referee(world, [], user_agent=agent, rules=Rules(seeds=seeds)).expected()
        return {url for url in expected if world.site(number).domain + ":" in url}

    assert of_domain("greedybot") == set()
    assert any("/staff/" in url for url in of_domain("crawlproj"))
    assert of_domain("otherbot") < of_domain("crawlproj")


@pytest.mark.parametrize("share", ["closed_share", "robots_5xx_share"])
def test_a_domain_that_lets_nobody_in_is_not_expected(share: str) -> None:
    overrides = {1: {share: 1.0, "permanent_share": 1.0}}
    world = World(WorldSpec.calm(domains=3, port=PORT, overrides=overrides))
    closed = f"http://{world.site(1).domain}:{PORT}/"

    referee = Referee(world, [request(closed, 5)])

    assert not any(url.startswith(closed) for url in referee.expected())
    assert closed in referee.forbidden()


def test_a_domain_whose_robots_recovers_is_expected() -> None:
    overrides = {1: {"robots_5xx_share": 1.0, "permanent_share": 0.0}}
    world = World(WorldSpec.calm(domains=3, port=PORT, overrides=overrides))

    assert f"http://{world.site(1).domain}:{PORT}/" in Referee(world, []).expected()


def test_crawl_delay_raises_the_required_gap() -> None:
    spec = WorldSpec.calm(domains=2, port=PORT, overrides={1: {"crawl_delay_share": 1.0}})
    world = World(spec)
    slow, quick = world.site(1).domain, world.site(0).domain
    delay_s = Protego.parse(world.robots_text(1)).crawl_delay("crawlproj")
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

    everything = Referee(world, []).expected()
    one_hop = Referee(world, [], rules=Rules(max_redirects=1)).expected()

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

    expected = Referee(world, []).expected()

    assert expected == Referee(world, [], rules=Rules(follow_nofollow=False)).expected()


def test_the_seeds_given_to_the_crawler_decide_what_is_expected() -> None:
    world = World(WorldSpec.calm(domains=20, port=PORT, cross_domain_share=0.0))
    leaf = f"http://{world.site(19).domain}:{PORT}/"

    expected = Referee(world, [], rules=Rules(seeds=(leaf,))).expected()

    assert len(expected) == world.site(19).pages


def test_a_log_that_is_being_written_can_be_read(tmp_path: Path, log: list[Request]) -> None:
    path = tmp_path / "access.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(log) + b'{"start_ms": 12')

    assert list(read_log(path)) == log
    assert Referee(World(CALM), path).verdict(min_gap_ms=GAP_MS).ok
