"""The story of a fetch, with an exchange of the test's own in place of the network."""

from __future__ import annotations

from collections import Counter

import pytest
from scrapy.exceptions import CannotResolveHostError, DownloadTimeoutError, ResponseDataLossError

from crawlproj.download.client import Answer, HttpRequest
from crawlproj.download.endings import ending_of
from crawlproj.download.errors import StaleConnectionError
from crawlproj.download.guard import AddressRefusedError, NoContactError
from crawlproj.errors import BadSetting
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.records import Lease, Page
from crawlproj.pages.envelope import unpack
from crawlproj.politeness.pacing import DelayRules, Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from tests.patience import until
from tests.redis.shards import LONG, RUN, Shard, Shards, ready_in_s, sites

HTML = {b"Content-Type": [b"text/html"]}


async def fetch(shard: Shard, *answers: Answer | Exception) -> None:
    """Fetch what comes next, so many times, with these answers."""
    left = list(answers)

    async def exchange(request: HttpRequest) -> Answer:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    fetcher = shard.fetcher(exchange)
    while left:
        taken: list[Lease | RobotsFetch] = []

        def take(taken: list[Lease | RobotsFetch] = taken) -> bool:
            if (target := shard.dispatcher.take()) is not None:
                taken.append(target)
            return bool(taken)

        await until(take)
        await fetcher.fetch_safely(taken[0])


async def queued(shards: Shards) -> list[Page]:
    pages = await shards.client.command("LRANGE", keys.pages(RUN), 0, -1)
    return [unpack(page) for page in pages]


async def open_with(shards: Shards, url: str = "https://a.test/", **more: object) -> Shard:
    await shards.admit(url)
    return await shards.open(limits=LONG, rules=DelayRules(0.0, backoff_s=30.0), **more)  # type: ignore[arg-type]


async def test_a_page_is_queued_in_the_step_that_settles_its_lease(shards: Shards) -> None:
    shard = await open_with(shards)

    await fetch(shard, Answer(200, HTML, b"<p>text", latency_s=0.25))
    await until(lambda: not shard.dispatcher.has_work)

    [page] = await queued(shards)
    assert (page.url, page.status, page.body, page.latency_ms) == ("https://a.test/", 200, b"<p>text", 250)
    counters = await shards.read_counters()
    assert (counters.counts["done"], counters.leased) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(503, {b"Retry-After": [b"30"]}), "retry_http_503"),
        (DownloadTimeoutError("slow"), "retry_timeout"),
    ],
)
async def test_what_may_end_better_is_retried_after_its_domain_has_rested(
    shards: Shards, answer: Answer | Exception, reason: str
) -> None:
    shard = await open_with(shards)

    await fetch(shard, answer)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.counts[f"reason:{reason}"], counters.waiting, await queued(shards)) == (1, 1, [])
    [due_s] = await ready_in_s(shards, "a.test")
    assert 15 < due_s <= 30.1


async def test_the_target_of_a_redirect_waits_for_the_turn_of_its_own_domain(shards: Shards) -> None:
    shard = await open_with(shards)

    await fetch(shard, Answer(301, {b"Location": [b"https://b.test/x"]}), Answer(200, HTML, b"<p>text"))
    await until(lambda: not shard.dispatcher.has_work)

    moved, page = await queued(shards)
    assert (moved.url, moved.status) == ("https://a.test/", 301)
    assert (page.url, page.redirected_from, page.hops) == ("https://b.test/x", "https://a.test/", 1)


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (Answer(200, HTML, b"<p>text"), {"response_received_count": 1, "item_scraped_count": 1}),
        (Answer(503), {}),
        (AddressRefusedError("inside"), {"item_scraped_count": 1}),
        (StaleConnectionError("closed"), {}),
    ],
    ids=["page", "retried", "failed", "put off"],
)
async def test_a_response_counts_when_it_is_not_retried_and_every_row_is_an_item(
    shards: Shards, answer: Answer | Exception, counts: dict[str, int]
) -> None:
    shard = await open_with(shards)
    counted: Counter[str] = Counter()

    def count(name: str) -> None:
        counted[name] += 1

    async def exchange(request: HttpRequest) -> Answer:
        if isinstance(answer, Exception):
            raise answer
        return answer

    await shard.fetcher(exchange, count=count).fetch_safely(await shard.take_one())

    assert counted == counts


async def test_a_connection_that_went_stale_is_nobodys_fault(shards: Shards) -> None:
    shard = await open_with(shards)

    await fetch(shard, StaleConnectionError("closed"), Answer(200, HTML, b"<p>text"))
    await until(lambda: not shard.dispatcher.has_work)

    [page] = await queued(shards)
    assert (page.status, page.attempt) == (200, 0)


async def test_no_site_is_blamed_when_none_can_be_reached_and_a_person_is_notified(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    await shards.admit(*sites(21))
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, backoff_s=300.0, give_up=1))

    await fetch(shard, Answer(200, HTML, b"<p>text"), *[CannotResolveHostError("no such host")] * 20)
    await until(lambda: not shard.dispatcher.has_work)

    # The first fifteen might have been their own fault; then it is our network.
    assert len(await shards.parked()) == 15
    counters = await shards.read_counters()
    assert (counters.waiting, counters.counts["failed"]) == (5, 0)
    [said] = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert said.startswith("no site can be reached (cannot_resolve_host); our own network may be down")


async def test_sites_that_answer_badly_do_not_look_like_a_network_that_is_down(shards: Shards) -> None:
    is_outage = (await open_with(shards)).dispatcher.is_outage
    is_outage("a.test", Ending(200))

    ending = ending_of(Answer(error=ResponseDataLossError("half")))

    assert not any(is_outage(f"d{number}.test", ending) for number in range(40))


async def test_a_request_that_breaks_by_a_bug_of_ours_is_retried_and_logged_once_per_kind(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    await shards.admit(*sites(3))
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, backoff_s=300.0))

    await fetch(shard, KeyError("x"), KeyError("y"), TypeError("z"))
    await until(lambda: not shard.dispatcher.has_work)

    assert caplog.text.count("a download failed because of a bug") == 2
    assert (await shards.read_counters()).waiting == 3


async def test_a_missing_contact_stops_the_shard_and_loses_no_url(shards: Shards) -> None:
    shard = await open_with(shards)

    await fetch(shard, NoContactError("set CRAWL_CONTACT"))
    await shard.feed.close()

    [(_, error)] = shard.ends
    assert isinstance(error, BadSetting)
    assert (await shards.read_counters()).waiting == 1


async def test_a_bug_of_ours_costs_the_url_which_has_a_row_that_says_so(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    shard = await open_with(shards)
    broken = Answer(200, {b"Content-Type": None}, b"")  # type: ignore[dict-item]

    await fetch(shard, broken)
    await until(lambda: not shard.dispatcher.has_work)

    [page] = await queued(shards)
    assert page.error == "internal_error"
    assert "a fetch failed because of a bug" in caplog.text


async def test_a_robots_txt_comes_first_and_decides(shards: Shards) -> None:
    shard = await open_with(shards, robots=RobotsCache(100, 60.0, 1.0))

    await fetch(shard, Answer(200, {}, b"User-agent: *\nDisallow: /\n"))
    await until(lambda: not shard.take() and not shard.dispatcher.has_work)

    # What this shard makes for a URL that is not fetched.
    assert await shards.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"robots"]
    assert (await shards.read_counters()).counts["skipped"] == 1


@pytest.mark.parametrize(
    "answer",
    [Answer(200, {b"Content-Encoding": None}), Answer(301, {b"Location": [7]})],  # type: ignore[dict-item, list-item]
)
async def test_a_robots_txt_that_cannot_be_read_frees_its_domain(
    shards: Shards, caplog: pytest.LogCaptureFixture, answer: Answer
) -> None:
    shard = await open_with(shards, robots=RobotsCache(100, 60.0, 1.0))

    await fetch(shard, answer)
    await until(lambda: not shard.dispatcher.has_work)

    assert "cannot read a robots.txt" in caplog.text
    assert (await shards.read_counters()).counts["reason:retry_robots_unreadable"] == 1


async def test_a_host_that_does_not_resolve_fails_for_good_when_its_attempts_are_used_up(
    shards: Shards,
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, backoff_s=0.1, give_up=1))

    await fetch(shard, CannotResolveHostError("no such host"))
    await until(lambda: not shard.dispatcher.has_work)

    assert await shards.parked() == {"a.test": "failures"}
