"""The answers to requests for robots.txt: what a shard makes of redirects, errors and sitemaps."""

from __future__ import annotations

from collections import Counter

from scrapy.exceptions import DownloadTimeoutError

from crawlproj.download.client import Answer, HttpRequest
from crawlproj.download.guard import AddressRefusedError
from crawlproj.politeness.pacing import DelayRules
from crawlproj.politeness.robots import RobotsCache
from tests.patience import until
from tests.redis.shards import LONG, Shard, Shards

PAGE = Answer(200, {b"Content-Type": [b"text/html"]}, b"<p>text")
FORBIDS_X = Answer(200, {}, b"User-agent: *\nDisallow: /x\n")


def to(url: str) -> Answer:
    return Answer(301, {b"Location": [url.encode()]})


class Web:
    """Answers by URL; any other URL is a page."""

    def __init__(self, answers: dict[str, Answer | Exception], *, follows_sitemaps: bool = False) -> None:
        self.requested: list[str] = []
        self.counts: Counter[str] = Counter()
        self._answers = answers
        self._follows_sitemaps = follows_sitemaps

    async def exchange(self, request: HttpRequest) -> Answer:
        self.requested.append(request.url)
        answer = self._answers.get(request.url, PAGE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _count(self, name: str) -> None:
        self.counts[name] += 1

    async def crawl(self, shard: Shard, last: str, times: int = 1) -> None:
        """Fetch whatever is due, until *last* was requested so often."""
        fetcher = shard.fetcher(self.exchange, count=self._count, follows_sitemaps=self._follows_sitemaps)
        while self.requested.count(last) < times:
            await until(lambda: shard.dispatcher.pacer.due_in_s(shard.dispatcher.clock()) == 0)
            while (target := shard.dispatcher.take()) is not None:
                await fetcher.fetch_safely(target)


async def open_with(shards: Shards, *urls: str) -> Shard:
    await shards.admit(*urls)
    rules = DelayRules(0.0, backoff_s=0.05)
    return await shards.open(limits=LONG, rules=rules, robots=RobotsCache(100, 60.0, 0.05))


async def test_redirects_within_a_domain_are_followed_five_times_and_then_there_are_no_rules(
    shards: Shards,
) -> None:
    shard = await open_with(shards, "https://a.test/x")
    web = Web({f"https://a.test/{n}": to(f"/{n + 1}") for n in range(9)})
    web._answers["https://a.test/robots.txt"] = to("/0")

    await web.crawl(shard, "https://a.test/x")

    assert web.requested[1:] == [*(f"https://a.test/{n}" for n in range(5)), "https://a.test/x"]


async def test_rules_in_another_domain_apply_to_the_origin_that_redirected_there(shards: Shards) -> None:
    shard = await open_with(shards, "https://a.test/x", "https://a.test/y")
    web = Web(
        {
            "https://a.test/robots.txt": to("https://b.test/one"),
            "https://b.test/one": to("https://c.test/two"),
            "https://c.test/two": FORBIDS_X,
        }
    )

    await web.crawl(shard, "https://a.test/y")
    await shards.counted("skipped", 1)

    assert "https://a.test/x" not in web.requested
    # Each answer was received; only the page is an item.
    assert web.counts == {"response_received_count": len(web.requested), "item_scraped_count": 1}


async def test_redirects_through_other_domains_end_as_well(shards: Shards) -> None:
    shard = await open_with(shards, "https://a.test/x")
    web = Web({f"https://d{n}.test/": to(f"https://d{n + 1}.test/") for n in range(9)})
    web._answers["https://a.test/robots.txt"] = to("https://d0.test/")

    await web.crawl(shard, "https://a.test/x")

    # The origin may have asked again meanwhile, and begun another such walk.
    assert {url for url in web.requested if "a.test" not in url} == {f"https://d{n}.test/" for n in range(5)}


async def test_a_robots_txt_elsewhere_that_cannot_be_fetched_says_nothing(shards: Shards) -> None:
    shard = await open_with(shards, "https://a.test/x")
    web = Web(
        {
            "https://a.test/robots.txt": to("https://b.test/robots.txt"),
            "https://b.test/robots.txt": DownloadTimeoutError("slow"),
        }
    )

    # The last of its attempts settles it.
    await web.crawl(shard, "https://b.test/robots.txt", times=3)

    assert shard.dispatcher.gate.trouble("https://a.test")[0] > 0
    assert "https://a.test/x" not in web.requested


async def test_urls_behind_a_robots_txt_that_may_never_be_fetched_fail(shards: Shards) -> None:
    shard = await open_with(shards, "https://a.test/x")
    web = Web({"https://a.test/robots.txt": AddressRefusedError("inside")})

    await web.crawl(shard, "https://a.test/robots.txt")
    await shards.counted("failed", 1)

    assert (await shards.read_counters()).counts["reason:address_refused"] == 1


async def test_only_sitemaps_of_the_own_domain_are_followed(shards: Shards) -> None:
    shard = await open_with(shards, "https://a.test/x")
    robots = b"Sitemap: /one.xml\nSitemap: https://b.test/two.xml\nSitemap: https://w.a.test/three.xml\n"
    web = Web({"https://a.test/robots.txt": Answer(200, {}, robots)}, follows_sitemaps=True)

    await web.crawl(shard, "https://w.a.test/three.xml")
    await until(lambda: not shard.take() and not shard.dispatcher.has_work)

    assert {url for url in web.requested if url.endswith(".xml")} == {
        "https://a.test/one.xml",
        "https://w.a.test/three.xml",
    }
