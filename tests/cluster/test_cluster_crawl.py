"""A crawl on a Redis Cluster: complete, each page once, though slots move and a master dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from crawlproj.redisio import keys
from tests.cluster.conftest import MakeCluster, StartCrawl
from tests.cluster.judge import assert_each_page_once
from tests.cluster.servers import ClusterOfServers

RUN = "simweb"
#: Domains of the simulated web, about 24 pages each.
DOMAINS = "8"


def move_slots(cluster: ClusterOfServers) -> None:
    """Move the slots of four stripes to the next master."""
    for stripe in (0, 5, 10, 15):
        slot = keys.slot_of(keys.pages(RUN, stripe))
        source = cluster.owner(slot)
        target = cluster.masters[(cluster.masters.index(source) + 1) % 3]
        cluster.move(slot, source, target)


def test_a_crawl_ends_complete_though_slots_move_and_a_master_dies(
    make_cluster: MakeCluster, start_crawl: StartCrawl
) -> None:
    cluster = make_cluster(password="secret")
    crawl = start_crawl(cluster.url, "--simweb", DOMAINS, "--shards", "2", "--parsers", "2")
    crawl.wait_for_requests(40)

    with ThreadPoolExecutor(1) as moving:
        moved = moving.submit(move_slots, cluster)
        crawl.wait_for_requests(90)
        moved.result()
    cluster.fail_over(cluster.masters[1])

    assert_each_page_once(crawl)
