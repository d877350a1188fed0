"""A crawl whose Redis has no room left: pages drain, links wait on disk, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crawlproj.simweb.spec import WorldSpec
from tests.conftest import RedisServer

pytestmark = pytest.mark.e2e


def test_pages_drain_while_redis_is_full_and_the_crawl_is_complete_when_it_is_not(
    crew_of: Callable[..., Any], redis_server_factory: Callable[..., RedisServer], ask: Callable[..., Any]
) -> None:
    url = redis_server_factory().url
    crew = crew_of(
        WorldSpec(seed=5, domains=30, pages_per_domain=10),
        REDIS_URL=url,
        CRAWL_PARTITIONS="8",
        CRAWL_REDIS_WAIT_SECONDS="10",
    )

    def is_drained() -> bool:
        status = crew.status()
        left = ("waiting", "leased", "pages_queued", "pages_being_parsed")
        assert status["state"] == "running"
        return bool(status["fetched"]) and not any(status[name] for name in left)

    crew.start(shards=2, parsers=2)
    crew.wait_for_fetched(20)
    ask(url, "CONFIG SET", "maxmemory", 1)
    crew.wait_until(is_drained, "all that was admitted is fetched and stored")
    report = crew.scrapy("status", name="status")
    assert report.wait() == 0
    before = crew.status()
    ask(url, "CONFIG SET", "maxmemory", 0)
    crew.finish()

    after = crew.status()
    assert before["links_spilled"] > 0
    assert f"to be admitted when Redis has room: {before['links_spilled']:,}" in report.log
    assert all(file["file"] in report.log for file in before["spill_files"])
    assert after["fetched"] > before["fetched"]
    assert (after["state"], after["links_spilled"]) == ("finished", 0)
    crew.assert_content()
