"""A shard is killed at every crash point that it passes, and the crawl ends as if it had not been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.redisio import keys
from tests.e2e.conftest import Crew
from tests.e2e.crashes import SETTINGS, SHARD, WORLD, Case, crawl_while_dying

pytestmark = pytest.mark.e2e

CASES = {
    "shard": Case(SHARD, "crawl web -ashard=0", "parser"),
    "shard by Scrapy's engine": Case(SHARD, "crawl web -ashard=0 --set=CRAWL_DIRECT=False", "parser"),
    "single": Case(SHARD, "crawl web"),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_shard_killed_at_every_point_loses_nothing_stores_nothing_twice_and_stays_polite(
    crew_of: Callable[..., Crew], empty_redis_url: str, ask: Callable[..., int], tmp_path: Path, kind: str
) -> None:
    crew = crew_of(WORLD, **SETTINGS, CRAWL_SEGMENT_PAGES=CASES[kind].segment_pages)

    crawl_while_dying(CASES[kind], crew, empty_redis_url, tmp_path / "deaths")

    assert ask(empty_redis_url, "HLEN", keys.dead_letters("web")) == 1
