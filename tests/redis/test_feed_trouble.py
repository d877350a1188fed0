"""The feed in trouble: domains parked and brought back, robots.txt that cannot be fetched, budgets, traps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from crawlproj.frontier.gate import RobotsFetch
from crawlproj.frontier.traps import TrapDetector
from crawlproj.model.extra import NO_EXTRA, Extra
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, decode_entry, new_mark
from crawlproj.politeness.pacing import DelayRules, Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from tests.patience import PATIENCE_S, until
from tests.redis.shards import LONG, PARTITIONS, RUN, Shard, Shards, ready_in_s, rules_of
from tests.waiting import lanes_of

#: Quick to give up, and parked for longer than a test takes.
QUICK = DelayRules(0.0, backoff_s=0.01, max_backoff_s=0.1, give_up=3, parked_s=600.0)
#: Holds are renewed often, which is when a parked domain is looked for.
BRIEF = replace(LONG, shard_lease_s=0.3)


def pages_of(domain: str, count: int) -> list[str]:
    return [f"https://{domain}/page-{chr(97 + number)}" for number in range(count)]


async def fail_until_parked(shards: Shards, shard: Shard, times: int = 3) -> None:
    for _ in range(times):
        shard.fail(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)
    assert list((await shards.parked()).values()) == ["failures"]


# -- parked for failures --


async def test_a_domain_that_fails_too_often_in_a_row_is_parked_with_its_urls_and_no_work_is_left(
    shards: Shards,
) -> None:
    await shards.admit(*pages_of("a.test", 5))
    shard = await shards.open(limits=LONG, rules=QUICK)

    await fail_until_parked(shards, shard)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.counts["parked"]) == (0, 0, 5)
    assert counters.outstanding == 0
    assert counters.counts["failed"] == 0
    assert shard.take() == []


async def test_the_only_url_of_a_domain_that_cannot_be_reached_is_parked_with_it(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=QUICK)

    for _ in range(2):
        await fail_until_parked(shards, shard, times=1 if await shards.unpark("a.test") else 3)

    counters = await shards.read_counters()
    assert (counters.counts["parked"], counters.counts["failed"]) == (1, 0)


async def test_a_url_that_gets_no_whole_answer_uses_up_its_tries(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=QUICK)

    for _ in range(3):
        shard.fail(await shard.take_one(), Ending(error="timeout"))
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.counts["parked"], counters.counts["failed"]) == (0, 1)


async def test_a_good_answer_between_failures_keeps_a_domain_going(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 8))
    shard = await shards.open(limits=LONG, rules=QUICK)

    for is_good in (False, False, True, False, False, True):
        lease = await shard.take_one()
        if is_good:
            shard.fetch(lease)
        else:
            shard.fail(lease)
    await until(lambda: not shard.dispatcher.leases.unsent)

    assert await shards.parked() == {}


async def test_a_parked_domain_comes_back_by_itself_when_its_time_has_come(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 5))
    shard = await shards.open(limits=BRIEF, rules=replace(QUICK, parked_s=0.2))
    await fail_until_parked(shards, shard)

    first = await shard.take_one()
    shard.fetch(first)
    urls = [first.url, *await fetch_all(shards, shard)]

    counters = await shards.read_counters()
    assert sorted(urls) == pages_of("a.test", 5)
    assert (counters.counts["done"], counters.counts["parked"], counters.waiting) == (5, 0, 0)


async def test_a_parked_domain_is_released_at_once_on_request(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 5))
    shard = await shards.open(limits=LONG, rules=QUICK)
    await fail_until_parked(shards, shard)

    assert await shards.unpark("a.test") == 1
    lease = await shard.take_one()

    assert lease.fails == 3
    assert shard.held == 1


async def test_a_domain_that_comes_back_and_fails_once_more_is_parked_again(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 5))
    shard = await shards.open(limits=LONG, rules=QUICK)
    await fail_until_parked(shards, shard)
    await shards.unpark("a.test")

    await fail_until_parked(shards, shard, times=1)

    assert (await shards.read_counters()).counts["parked"] == 5


async def test_other_domains_continue_while_one_is_parked(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 4))
    shard = await shards.open(limits=LONG, rules=QUICK)
    await fail_until_parked(shards, shard)

    await shards.admit("https://b.test/", "https://a.test/new")
    lease = await shard.take_one()

    assert lease.domain == "b.test"
    assert (await shards.read_counters()).counts["parked"] == 5


async def test_failures_in_a_row_are_counted_on_by_the_next_owner(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 5))
    first = await shards.open(limits=LONG, rules=QUICK)
    for _ in range(2):
        first.fail(await first.take_one())
    await first.feed.close()
    second = await shards.open(limits=LONG, rules=QUICK)

    await fail_until_parked(shards, second, times=1)


async def test_failures_in_a_row_survive_a_shard_that_closes_with_urls_in_memory(shards: Shards) -> None:
    await shards.admit("https://a.test/first")
    shard = await shards.open(limits=LONG, rules=replace(QUICK, backoff_s=1.0, max_backoff_s=1.0))
    shard.fetch(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)
    await shards.admit(*pages_of("a.test", 4))
    await until(lambda: shard.held == 4)
    shard.fail(await shard.take_one())
    assert shard.dispatcher.pacer.buffered == 3

    await shard.feed.close()

    assert (await shards.state("a.test"))[2] == "1"
    assert (await shards.read_counters()).waiting == 4


# -- throttled --


async def test_a_retry_after_longer_than_any_backoff_parks_the_domain_until_then(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 3))
    shard = await shards.open(limits=LONG, rules=replace(QUICK, give_up=8))

    shard.fail(await shard.take_one(), Ending(429, retry_after_s=500.0))
    await until(lambda: not shard.dispatcher.has_work)

    assert await shards.parked() == {"a.test": "retry_after"}
    [(_, back_ms)] = pairs(
        await shards.client.command(
            "ZRANGE", keys.parked(RUN, partition_of("a.test", PARTITIONS)), 0, -1, "WITHSCORES"
        )
    )
    seconds = int((await shards.client.command("TIME"))[0])
    assert 490 < float(back_ms) / 1000 - seconds <= 501
    assert (await shards.read_counters()).counts["parked"] == 3


async def test_a_delay_doubled_by_429s_is_kept_from_lease_to_lease_and_for_the_next_owner(
    shards: Shards,
) -> None:
    rules = replace(QUICK, delay_s=0.01, give_up=0)
    await shards.admit(*pages_of("a.test", 5))
    shard = await shards.open(limits=LONG, rules=rules)
    kept = []
    for _ in range(3):
        shard.fail(await shard.take_one(), Ending(429))
        await until(lambda: not shard.dispatcher.leases.unsent)
        kept.append((await shards.state("a.test"))[5])
    await shard.feed.close()

    later = await shards.open(limits=LONG, rules=rules)
    lease = await later.take_one()

    assert kept == ["20", "40", "80"]
    assert lease.delay_ms == 80
    assert later.dispatcher.pacer.delay_s("a.test") == 0.08


# -- robots.txt that cannot be fetched --


async def robots_shard(shards: Shards, *urls: str, rules: DelayRules = QUICK, retry_s: float = 0.05) -> Shard:
    await shards.admit(*urls)
    return await shards.open(limits=LONG, rules=rules, robots=RobotsCache(100, 3600.0, retry_s))


async def test_an_origin_without_robots_txt_fails_alone_while_others_of_its_domain_continue(
    shards: Shards,
) -> None:
    bad = [f"https://bad.a.test/{name}" for name in ("x", "y")]
    good = [f"https://good.a.test/{name}" for name in ("1", "2", "3", "4", "5", "6")]
    shard = await robots_shard(shards, *bad, *good)
    asked: list[str] = []
    fetched: list[str] = []

    def crawl() -> bool:
        for one in shard.take():
            if isinstance(one, RobotsFetch):
                asked.append(one.origin)
                ended = Ending(200) if "good" in one.origin else Ending(error="dns")
                rules = rules_of("", 200 if "good" in one.origin else None)
                shard.robots.learn(one, rules, ended)
            else:
                fetched.append(one.url)
                shard.fetch(one)
        return len(fetched) == len(good)

    await until(crawl)
    assert await shards.parked() == {}
    await until(lambda: crawl() and not shard.dispatcher.has_work and asked.count("https://bad.a.test") == 3)
    await until_nothing_waits(shards, crawl)

    counters = await shards.read_counters()
    assert fetched == good
    assert asked.count("https://good.a.test") == 1
    assert (counters.counts["done"], counters.counts["failed"], counters.counts["parked"]) == (6, 2, 0)
    assert counters.counts["reason:robots_unreachable"] == 2
    pages = await shards.client.command("LRANGE", keys.pages(RUN), 0, -1)
    assert pages.count(b"robots_unreachable") == 2


async def until_nothing_waits(shards: Shards, crawl: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (counters := await shards.read_counters()).waiting or counters.leased:
            crawl()


async def test_urls_that_wait_for_a_robots_txt_go_to_the_back_and_pay_no_attempt(shards: Shards) -> None:
    shard = await robots_shard(
        shards, "https://bad.a.test/x", "https://good.a.test/y", rules=replace(QUICK, give_up=9)
    )
    fetch = await shard.take_robots()

    shard.robots.learn(fetch, rules_of("", 503), Ending(503))
    await until(lambda: not shard.dispatcher.has_work)
    next_asked = await shard.take_robots()

    assert (fetch.origin, next_asked.origin) == ("https://bad.a.test", "https://good.a.test")
    _, [entry], _ = await lanes_of(shards.client, RUN, partition_of("a.test", PARTITIONS), "a.test")
    assert decode_entry(entry, "a.test") == (0, 0, "https://bad.a.test/x", NO_EXTRA)
    assert (await shards.read_counters()).counts["reason:retry_robots_http_503"] == 1


async def test_a_domain_where_nothing_answers_is_parked_with_all_its_urls(shards: Shards) -> None:
    shard = await robots_shard(shards, *pages_of("a.test", 4))

    for _ in range(3):
        fetch = await shard.take_robots()
        shard.robots.learn(fetch, rules_of("", None), Ending(error="dns"))
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert await shards.parked() == {"a.test": "failures"}
    assert (counters.counts["parked"], counters.counts["failed"], counters.waiting) == (4, 0, 0)


async def test_urls_of_such_a_domain_are_not_failed_when_it_is_released(shards: Shards) -> None:
    shard = await robots_shard(shards, *pages_of("a.test", 4), retry_s=0.2)
    for _ in range(3):
        fetch = await shard.take_robots()
        shard.robots.learn(fetch, rules_of("", None), Ending(error="dns"))
    await until(lambda: not shard.dispatcher.has_work)

    await shards.unpark("a.test")
    fetch = await shard.take_robots()
    shard.robots.learn(fetch, rules_of(""), Ending(200))
    lease = await shard.take_one()

    assert lease.attempt == 0
    counters = await shards.read_counters()
    assert (counters.counts["failed"], counters.admitted) == (0, 4)


async def test_a_released_domain_gets_its_robots_txt_fetched_at_once(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/", rules=replace(QUICK, give_up=1), retry_s=600.0)
    shard.robots.learn(await shard.take_robots(), rules_of("", None), Ending(error="dns"))
    await until(lambda: not shard.dispatcher.has_work)
    assert await shards.parked() == {"a.test": "failures"}

    await shards.unpark("a.test")
    shard.robots.learn(await shard.take_robots(), rules_of(""), Ending(200))

    assert (await shard.take_one()).url == "https://a.test/"


async def test_a_robots_txt_that_is_impossible_fails_what_needs_it_and_nothing_else(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://inside.a.test/1", "https://good.a.test/2")
    fetch = await shard.take_robots()

    shard.robots.fail(fetch, "address_refused")
    other = await shard.take_robots()

    counters = await shards.read_counters()
    assert other.origin == "https://good.a.test"
    assert (counters.counts["failed"], counters.counts["reason:address_refused"]) == (1, 1)
    assert await shards.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"address_refused"]
    assert (await shards.state("a.test"))[2] == "0"


# -- robots.txt shared and elsewhere --


async def test_what_one_shard_learnt_of_a_robots_txt_the_next_does_not_ask_for_again(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/no/1", "https://a.test/yes")
    fetch = await shard.take_robots()
    text = "User-agent: *\nDisallow: /no/\nCrawl-delay: 0.2"
    shard.robots.learn(fetch, rules_of(text), Ending(200))
    await shard.feed.close()

    second = await robots_shard(shards)
    lease = await second.take_one()

    assert lease.url == "https://a.test/yes"
    assert second.dispatcher.pacer.delay_s("a.test") == 0.2
    second.fetch(lease)
    await until(lambda: not second.dispatcher.has_work)
    assert (await shards.read_counters()).counts["reason:robots"] == 1


async def test_how_often_an_origin_failed_is_known_to_the_next_shard(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://bad.a.test/x", retry_s=0.01)
    for _ in range(2):
        shard.robots.learn(await shard.take_robots(), rules_of("", 500), Ending(500))
    await shard.feed.close()

    second = await robots_shard(shards, retry_s=0.01)
    second.robots.learn(await second.take_robots(), rules_of("", 500), Ending(500))
    await until(lambda: not second.dispatcher.has_work)

    assert (await shards.read_counters()).counts["reason:robots_unreachable"] == 1


async def test_a_robots_txt_that_redirects_to_another_domain_is_fetched_there_in_its_turn(
    shards: Shards,
) -> None:
    # Its own is not asked for again while this test fetches the other, also on a busy machine.
    shard = await robots_shard(shards, "https://a.test/no", "https://a.test/yes", retry_s=1.5)
    fetch = await shard.take_robots()

    shard.robots.redirect(fetch, "https://cdn.test/a/robots.txt", Ending(301))
    elsewhere = await take_lease_of(shard, "cdn.test")

    assert elsewhere.url == "https://cdn.test/a/robots.txt"
    assert elsewhere.extra == Extra(robots_for="https://a.test", hops=1)
    assert elsewhere.lane == 0

    shard.fetch(elsewhere)
    shard.robots.learn_elsewhere("https://a.test", rules_of("User-agent: *\nDisallow: /no"))
    lease = await take_lease_of(shard, "a.test")

    assert (lease.url, lease.attempt) == ("https://a.test/yes", 0)


async def take_lease_of(shard: Shard, domain: str) -> Lease:
    """Wait for a lease of *domain*; nothing else may be asked for meanwhile."""
    lease = await shard.take_one()
    assert lease.domain == domain
    return lease


async def test_what_another_process_learnt_for_an_origin_of_ours_is_heard_of(shards: Shards) -> None:
    await shards.run.set_shards(2)
    ours, theirs = two_domains_of_different_shards()
    await shards.admit(f"https://{ours}/page")
    one = await shards.open(0, limits=LONG, rules=QUICK, robots=RobotsCache(100, 3600.0, 0.3))
    other = await shards.open(1, limits=LONG, rules=QUICK, robots=RobotsCache(100, 3600.0, 0.3))
    fetch = await one.take_robots()

    one.robots.redirect(fetch, f"https://{theirs}/robots.txt", Ending(302))
    lease = await other.take_one()
    other.fetch(lease)
    other.robots.learn_elsewhere(f"https://{ours}", rules_of(""))

    assert (await one.take_one()).url == f"https://{ours}/page"


def two_domains_of_different_shards() -> tuple[str, str]:
    names = [f"d{number}.test" for number in range(30)]
    shard_of = {name: partition_of(name, PARTITIONS) % 2 for name in names}
    return next(n for n in names if not shard_of[n]), next(n for n in names if shard_of[n])


# -- put off --


async def test_a_lease_put_off_is_back_at_the_front_and_its_domain_waits(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 2))
    shard = await shards.open(limits=LONG, rules=QUICK)
    lease = await shard.take_one()

    shard.dispatcher.put_off(lease, 40.0)
    shard.settle(lease)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.counts["returned"], counters.queue_pages) == (2, 1, 0)
    [due_s] = await ready_in_s(shards, "a.test")
    assert 20 < due_s <= 40.1
    assert (await shards.state("a.test"))[2:5] == ["0", "2", "0"]


async def test_putting_off_returns_the_whole_chain_in_its_order(shards: Shards) -> None:
    await shards.admit("https://a.test/first")
    shard = await shards.open(limits=LONG, rules=QUICK)
    shard.fetch(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)
    await shards.admit(*pages_of("a.test", 4))
    await until(lambda: shard.held == 4)

    lease = await shard.take_one()
    shard.dispatcher.put_off(lease, 0.05)
    shard.settle(lease)
    again = []
    for _ in range(4):
        again.append(await shard.take_one())
        shard.fetch(again[-1])

    assert [one.url for one in again] == pages_of("a.test", 4)
    assert [one.attempt for one in again] == [0] * 4


# -- budgets, exclusions, traps --


async def test_a_domain_that_gave_all_its_bytes_is_parked_for_good(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 4), "https://b.test/")
    # With a delay, so that the first is settled before the second ends.
    shard = await shards.open(limits=LONG, rules=replace(QUICK, delay_s=0.15), domain_bytes=1000)
    taken = 0

    def crawl() -> bool:
        nonlocal taken
        for lease in shard.take_leases():
            taken += 1
            shard.dispatcher.request_ended(lease, Ending(200), 600)
            shard.settle(lease)
        return taken >= 3 and not shard.dispatcher.has_work

    await until(crawl)

    counters = await shards.read_counters()
    assert await shards.parked() == {"a.test": "byte_budget"}
    assert (counters.counts["done"], counters.counts["parked"], counters.waiting) == (3, 2, 0)
    assert (await shards.state("a.test"))[6] == "1200"


async def test_bytes_are_counted_over_owners(shards: Shards) -> None:
    await shards.admit(*pages_of("a.test", 4))
    for _ in range(2):
        shard = await shards.open(limits=LONG, rules=QUICK, domain_bytes=1000)
        lease = await shard.take_one()
        shard.dispatcher.request_ended(lease, Ending(200), 500)
        shard.settle(lease)
        await shard.feed.close()

    assert await shards.parked() == {"a.test": "byte_budget"}


async def test_a_url_excluded_after_it_was_admitted_is_skipped_with_a_row(shards: Shards) -> None:
    await shards.admit("https://a.test/private", "https://a.test/public")
    shard = await shards.open(
        limits=LONG, rules=QUICK, refusal=lambda url: "excluded" if "private" in url else None
    )

    lease = await shard.take_one()

    assert lease.url == "https://a.test/public"
    counters = await shards.read_counters()
    assert (counters.counts["skipped"], counters.counts["reason:excluded"]) == (1, 1)
    assert await shards.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"excluded"]


def calendar(count: int, first: int = 0) -> list[str]:
    return [f"https://a.test/day/2030-01-{number:02}" for number in range(first, first + count)]


async def fetch_all(shards: Shards, shard: Shard) -> list[str]:
    fetched: list[str] = []

    def crawl() -> None:
        for lease in shard.take_leases():
            fetched.append(lease.url)
            shard.fetch(lease)

    await until_nothing_waits(shards, crawl)
    return fetched


async def test_urls_of_a_shape_without_end_are_trapped_listed_and_have_a_row(shards: Shards) -> None:
    await shards.admit(*calendar(8))
    shard = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))

    fetched = await fetch_all(shards, shard)

    counters = await shards.read_counters()
    assert len(fetched) == 5
    assert (counters.counts["done"], counters.counts["trapped"]) == (5, 3)
    assert counters.counts["reason:trap_shape"] == 3
    name = keys.trapped(RUN, partition_of("a.test", PARTITIONS))
    listed = [member.decode() for member in await shards.client.command("ZRANGE", name, 0, -1)]
    left = set(calendar(8)) - set(fetched)
    assert sorted(member.rpartition("/")[2] for member in listed) == sorted(
        u.rpartition("/")[2] for u in left
    )
    assert {member.split(" ")[0] for member in listed} == {"trap_shape"}
    pages = await shards.client.command("LRANGE", keys.pages(RUN), 0, -1)
    assert pages.count(b"trap_shape") == 3


async def test_a_closed_shape_stays_closed_for_a_new_owner(shards: Shards) -> None:
    await shards.admit(*calendar(6))
    shard = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))
    await fetch_all(shards, shard)
    await shard.feed.close()
    await shards.admit(*calendar(3, first=10), "https://a.test/day")

    second = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))
    fetched = await fetch_all(shards, second)

    assert fetched == ["https://a.test/day"]
    assert (await shards.read_counters()).counts["trapped"] == 4


async def test_a_released_trapped_url_is_fetched(shards: Shards) -> None:
    await shards.admit(*calendar(6))
    shard = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))
    await fetch_all(shards, shard)

    shard.dispatcher.add([Candidate(calendar(6)[5], extra=Extra(is_freed=True), mark=new_mark())])
    lease = await shard.take_one()

    assert lease.url == calendar(6)[5]


async def test_a_url_tried_again_counts_once_for_its_shape(shards: Shards) -> None:
    await shards.admit(*calendar(5))
    shard = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))
    shard.fail(await shard.take_one(), Ending(500))

    fetched = await fetch_all(shards, shard)

    assert len(fetched) == 5
    assert (await shards.read_counters()).counts["trapped"] == 0


async def test_a_url_put_off_counts_once_for_its_shape(shards: Shards) -> None:
    await shards.admit(*calendar(5))
    shard = await shards.open(limits=LONG, rules=QUICK, traps=TrapDetector(5))
    for _ in range(4):
        lease = await shard.take_one()
        shard.dispatcher.put_off(lease, 0.01)
        shard.settle(lease)

    fetched = await fetch_all(shards, shard)

    assert len(fetched) == 5
    assert (await shards.read_counters()).counts["trapped"] == 0
