"""Every process is killed at every crash point that it passes, and the crawl ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.timing import Rules
from tests.e2e.conftest import Crew, Process
from tests.e2e.dying import Crash

pytestmark = pytest.mark.e2e

DYING = Path(__file__).with_name("dying.py")
PARTITIONS = 16
#: Redirects that lead where no link does; rules and delays in robots.txt; two domains that answer nothing else.
WORLD = WorldSpec.calm(
    seed=5,
    domains=10,
    pages_per_domain=8,
    size_spread=0.0,
    latency_ms=20,
    redirect_share=0.3,
    disallow_share=0.5,
    private_page_share=0.1,
    crawl_delay_share=0.2,
    overrides=dict.fromkeys((8, 9), {"dead": "reset", "dead_robots": False}),
)
SETTINGS = {
    "CRAWL_GIVE_UP_FAILURES": "1",
    "CRAWL_PARTITIONS": str(PARTITIONS),
    "CRAWL_PARSE_BATCH": "4",
    "CRAWL_SEGMENT_PAGES": "6",
    "PAGE_STORE": "parquet,jsonl",
}

#: In the order in which a shard passes them; the last ones when its run ends.
SHARD = """
    shard_claimed partition_acquired:3 leased request_sent response_received:2 robots_learnt
    robots_published parked handed_out request_sent:2 response_received:3 rested settlement_queued:2
    candidates_admitted settled leased:2 candidates_admitted:2 settled:2
"""
SHARD_END = "partitions_released shard_dropped"
PARSER = """
    pages_taken pages_reclaimed page_extracted candidates_admitted page_failed row_appended commit_begun
    file_recovered file_closed file_closed:2 files_synced segment_recorded file_recovered file_renamed
    file_renamed:2 segment_published
"""
LEADER = "lead_taken counters_read commit_asked run_ended"


def plan(who: str, *points: str) -> str:
    suffix = "" if who == "process" else f"@{who}"
    return " ".join(f"{point}{suffix}" for text in points for point in text.split())


#: Kind of process -> how it dies. Each is one crawl in which it dies again and again.
PLANS = {
    "shard": plan("process", SHARD, LEADER, SHARD_END),
    "shard through Scrapy's engine": plan("process", SHARD, LEADER, SHARD_END),
    "single": plan("process", SHARD, PARSER, LEADER, SHARD_END),
    "parser's child": plan("child", PARSER),
    "parser": plan("both", PARSER),
    "supervisor": plan("process", LEADER),
}
#: What each is, and what runs beside it.
COMMANDS: dict[str, tuple[list[str], list[list[str]]]] = {
    "shard": (["crawl", "web", "-ashard=0"], [["parser"]]),
    "shard through Scrapy's engine": (["crawl", "web", "-ashard=0", "--set=CRAWL_DIRECT=False"], [["parser"]]),
    "single": (["crawl", "web"], []),
    "parser's child": (["parser"], [["crawl", "web", "-ashard=0"]]),
    "parser": (["parser"], [["crawl", "web", "-ashard=0"]]),
    "supervisor": (["run", "--shards=1", "--parsers=1"], []),
}


def prepare(url: str, crew: Crew) -> None:
    """Admit the seeds, and queue a page that no parser can read."""

    async def work() -> None:
        client = await RedisClient.open(url=url, data_dir=crew.data)
        try:
            run = await Run.open(client, "web", partitions=PARTITIONS, shards=1)
            frontier = Frontier.of(run, load_config({}))
            await frontier.admit([Candidate(seed) for seed in crew.simweb.seeds()])
            await client.command("RPUSH", keys.pages("web"), b"damaged")
        finally:
            await client.close()

    asyncio.run(work())


def start_dying(crew: Crew, deaths: Path, crashes: str, arguments: list[str]) -> Process:
    crew.before = [sys.executable, str(DYING), str(deaths), crashes]
    try:
        return crew.scrapy(*arguments, name="dying")
    finally:
        crew.before = ()


@pytest.mark.parametrize("kind", PLANS)
def test_a_process_killed_at_every_point_loses_nothing_stores_nothing_twice_and_stays_polite(
    crew_of: Callable[..., Crew], empty_redis_url: str, ask: Callable[..., int], tmp_path: Path, kind: str
) -> None:
    crew = crew_of(WORLD, **SETTINGS)
    crew.environment = {"REDIS_URL": empty_redis_url, "PYTHONPATH": str(DYING.parents[2])}
    prepare(empty_redis_url, crew)
    command, beside = COMMANDS[kind]
    deaths = tmp_path / "deaths"
    points = [Crash.read(text).point for text in PLANS[kind].split()]

    dying = start_dying(crew, deaths, PLANS[kind], command)
    for arguments in beside:
        crew.scrapy(*arguments, name="beside")
    code = dying.wait()
    died_at = deaths.read_text().split()
    assert (died_at, code) == (points, 0), dying.log[-3000:]
    crew.finish()

    # A URL in flight is fetched again after each death.
    rules = Rules(attempts=3 + len(points))
    crew.assert_content(rules, twice_at_most=len(points) * WORLD.domains)
    assert ask(empty_redis_url, "HLEN", keys.dead_letters("web")) == 1
    assert crew.status()["state"] == "finished"
