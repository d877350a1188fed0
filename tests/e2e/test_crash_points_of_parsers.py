"""A parser is killed at every crash point that it passes, and the crawl ends as if it had not been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.redisio import keys
from tests.e2e.conftest import Crew
from tests.e2e.crashes import IN_STORE, OFTEN, PARSER, SETTINGS, WORLD, Case, crawl_while_dying, in_child
from tests.stores import BUCKET

pytestmark = pytest.mark.e2e

CASES = {
    "parser in single": Case(f"{PARSER} pages_reclaimed:2", "crawl web", segment_pages=OFTEN),
    "parser": Case(PARSER, "parser", "crawl web -ashard=0", "both", OFTEN),
    "parser with a store": Case(IN_STORE, "parser", "crawl web -ashard=0", "both", OFTEN),
    "child of a parser": Case(in_child(PARSER), "parser", "crawl web -ashard=0", "child", OFTEN),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_parser_killed_at_every_point_loses_nothing_stores_nothing_twice_and_stays_polite(
    crew_of: Callable[..., Crew],
    empty_redis_url: str,
    ask: Callable[..., int],
    tmp_path: Path,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    crew = crew_of(WORLD, **SETTINGS, CRAWL_SEGMENT_PAGES=CASES[kind].segment_pages)
    if "store" in kind:
        request.getfixturevalue("s3")
        crew.settings["CRAWL_STORE"] = f"s3://{BUCKET}/crash"

    crawl_while_dying(CASES[kind], crew, empty_redis_url, tmp_path / "deaths")

    assert ask(empty_redis_url, "HLEN", keys.dead_letters("web")) == 1
