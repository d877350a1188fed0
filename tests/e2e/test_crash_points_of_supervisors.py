"""A supervisor is killed at every crash point that it passes, and the crawl ends as if it had not been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.observe.crashpoints import LEADER_POINTS
from crawlproj.redisio import keys
from tests.e2e.conftest import Crew
from tests.e2e.crashes import SETTINGS, WORLD, Case, crawl_while_dying

pytestmark = pytest.mark.e2e

#: A crawl for each. A shard leads in the supervisor's place where that was suspended for longer than its lead
#: lasts; then both die.
CASES = {
    f"supervisor at {point}": Case(point, "run --shards=1 --parsers=1", who="any") for point in LEADER_POINTS
}


@pytest.mark.parametrize("kind", CASES)
def test_a_supervisor_killed_at_every_point_loses_nothing_stores_nothing_twice_and_stays_polite(
    crew_of: Callable[..., Crew], empty_redis_url: str, ask: Callable[..., int], tmp_path: Path, kind: str
) -> None:
    crew = crew_of(WORLD, **SETTINGS, CRAWL_SEGMENT_PAGES=CASES[kind].segment_pages)

    crawl_while_dying(CASES[kind], crew, empty_redis_url, tmp_path / "deaths")

    assert ask(empty_redis_url, "HLEN", keys.dead_letters("web")) == 1
