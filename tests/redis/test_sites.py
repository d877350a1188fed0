"""The scope `sites` (open_sites): links to the hosts of seeds, to all hosts below them, and to no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crawlproj.config import load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.scope import Sites, list_sites
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.redis.setbacks import Backup

RUN = "web"
#: One, so that no site is out of reach because it is in another.
PARTITIONS = 1


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, RUN, partitions=PARTITIONS)


def frontier_of(run: Run, **options: Any) -> Frontier:
    frontier = Frontier.of(run, load_config({}))
    frontier.sites = Sites(run.client, RUN, PARTITIONS, **options)
    return frontier


async def is_followed(frontier: Frontier, url: str) -> bool:
    return (await frontier.admit([Candidate(url, 1)])).new == 1


@pytest.mark.parametrize(
    ("seed", "url", "expected"),
    [
        ("https://example.org/a", "http://example.org:8080/b", True),
        ("https://example.org/", "https://www.example.org/", True),
        ("https://example.org/", "https://docs.v2.example.org/", True),
        ("https://www.example.org/", "https://example.org/", True),
        ("https://www.example.org/", "https://shop.example.org/", True),
        ("https://docs.example.org/", "https://old.docs.example.org/", True),
        ("https://docs.example.org/", "https://example.org/", False),
        ("https://docs.example.org/", "https://www.docs.example.org/", True),
        ("https://example.org/", "https://badexample.org/", False),
        ("https://example.org/", "https://example.org.evil.test/", False),
        ("https://example.org/", "https://example.com/", False),
        # Others' sites are below a public suffix, even if somebody has a page there.
        ("https://github.io/", "https://someone.github.io/", False),
        ("https://www.co.uk/", "https://someone.co.uk/", False),
        ("https://www.co.uk/", "https://www.co.uk/deep", True),
        ("http://127.0.0.1/", "http://127.0.0.1:99/", True),
        ("http://127.0.0.1/", "http://127.0.0.2/", False),
    ],
)
async def test_a_link_is_followed_to_the_host_of_a_seed_and_all_below(
    run: Run, seed: str, url: str, expected: bool
) -> None:
    await frontier_of(run).admit([Candidate(seed)])

    assert await is_followed(frontier_of(run), url) is expected


async def test_every_process_knows_the_sites_that_any_of_them_added(run: Run) -> None:
    await frontier_of(run).admit([Candidate("https://a.test/"), Candidate("https://b.test/")])

    elsewhere = frontier_of(run)

    assert await is_followed(elsewhere, "https://b.test/deep")
    assert not await is_followed(elsewhere, "https://c.test/")


async def test_where_a_seed_redirects_to_is_a_site_and_where_a_link_does_is_not(run: Run) -> None:
    frontier = frontier_of(run)
    of_seed = Candidate("https://new.test/", 0, extra=Extra(hops=1, redirected_from="https://old.test/"))
    of_link = Candidate("https://ads.test/", 1, extra=Extra(hops=1, redirected_from="https://new.test/x"))

    admitted = await frontier.admit([of_seed, of_link])

    assert (admitted.new, admitted.out_of_scope) == (1, 1)
    assert await is_followed(frontier, "https://new.test/about")


async def test_a_robots_txt_or_a_sitemap_elsewhere_is_fetched_and_adds_no_site(run: Run) -> None:
    frontier = frontier_of(run)
    robots = Candidate("https://cdn.test/robots.txt", extra=Extra(robots_for="https://a.test"))
    sitemap = Candidate("https://maps.test/1.xml", extra=Extra(sitemap_level=1))

    admitted = await frontier.admit([robots, sitemap])

    assert admitted.new == 2
    assert not await is_followed(frontier, "https://cdn.test/page")
    assert not await is_followed(frontier, "https://maps.test/page")


async def test_a_site_that_is_added_later_counts_a_second_later_everywhere(run: Run) -> None:
    now = [0.0]
    parser = frontier_of(run, clock=lambda: now[0])
    assert not await is_followed(parser, "https://late.test/1")

    await frontier_of(run).admit([Candidate("https://late.test/")])
    now[0] += 1.0

    assert await is_followed(parser, "https://late.test/1")


async def test_hosts_that_were_met_before_cost_no_round_trip(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = Sites(run.client, RUN, PARTITIONS, clock=lambda: 0.0)
    links = [Candidate(f"https://{host}.test/{n}", 1) for host in "abc" for n in range(100)]
    await sites.within([Candidate("https://a.test/"), *links])

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Redis was asked")

    for name in ("command", "pipeline", "run_many"):
        monkeypatch.setattr(run.client, name, refuse)

    kept, refused = await sites.within(links)

    assert (len(kept), refused) == (100, 200)


async def test_sites_that_redis_has_lost_are_forgotten(run: Run, bystander: RedisClient) -> None:
    run.watch()
    await run.read_map()
    backup = await Backup.of(bystander)
    frontier = frontier_of(run)
    await frontier.admit([Candidate("https://a.test/")])
    await backup.restore()
    await run.read_map()

    assert not await is_followed(frontier, "https://a.test/page")


async def test_a_shard_counts_the_redirects_that_lead_out(run: Run) -> None:
    frontier = frontier_of(run, counts=True)

    await frontier.admit([Candidate("https://a.test/"), Candidate("https://b.test/", 1)])

    assert await run.client.command("HGET", keys.page_counters(RUN), "filtered:scope") == b"1"


async def test_a_few_sites_are_listed_by_name_and_many_are_counted(run: Run) -> None:
    frontier = frontier_of(run)
    await frontier.admit([Candidate("https://www.b.test/"), Candidate("https://a.test/")])
    few = await list_sites(run.client, RUN, PARTITIONS)
    await frontier.admit(Candidate(f"https://site{n}.test/") for n in range(3000))
    many = await list_sites(run.client, RUN, PARTITIONS)

    assert (few.count, few.names) == (2, ("a.test", "b.test"))
    assert (many.count, many.names) == (3002, ())


async def test_what_a_seed_leads_to_is_added_also_when_redis_is_full(
    redis_server_factory: Callable[..., Any], tmp_path: Any
) -> None:
    client = await RedisClient.open(url=redis_server_factory().url, data_dir=tmp_path, wait_s=1)
    try:
        frontier = frontier_of(await Run.open(client, RUN, partitions=PARTITIONS))
        await client.command("CONFIG SET", "maxmemory", 1)

        await frontier.admit([Candidate("https://a.test/")], even_when_full=True)

        assert (await list_sites(client, RUN, PARTITIONS)).names == ("a.test",)
    finally:
        await client.close()
