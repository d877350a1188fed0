"""A crawl in which a process is killed at one crash point after another, and what must be true in the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from crawlproj.config import load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.timing import Rules
from tests.e2e.conftest import Crew, Process, wait_until
from tests.e2e.dying import Crash, count_deaths, killed_at

PARTITIONS = 16
#: Redirects that lead where no link does, rules in robots.txt, and two domains that answer nothing but that.
WORLD = WorldSpec.calm(
    seed=5,
    domains=10,
    pages_per_domain=6,
    size_spread=0.0,
    latency_ms=20,
    redirect_share=0.3,
    disallow_share=0.5,
    private_page_share=0.1,
    overrides={number: {"dead": "reset", "dead_robots": False} for number in (8, 9)},
)
SETTINGS = {
    # Longer than a restart takes: an impolite one would be seen.
    "DOWNLOAD_DELAY": "0.5",
    "CRAWL_SHARD_LEASE_SECONDS": "1",
    "CRAWL_GIVE_UP_FAILURES": "1",
    "CRAWL_PARTITIONS": str(PARTITIONS),
    "CRAWL_PARSE_BATCH": "4",
    "CRAWL_SEGMENT_SECONDS": "600",
    "PAGE_STORE": "parquet,jsonl",
}
#: A parser commits all the time, or only when the leader asks it to.
OFTEN, ASKED = "4", "1000"

#: In the order in which a shard passes them; the last ones when its run ends.
SHARD = """
    shard_claimed partition_acquired:3 leased request_sent response_received:2 robots_learnt
    robots_published parked handed_out request_sent:2 response_received:3 rested settlement_queued:2
    candidates_admitted settled leased:2 settled:2
    lead_taken commit_asked counters_read run_ended partitions_released shard_dropped
"""
#: A damaged page is at the head of the queue.
PARSER = """
    page_failed pages_taken pages_reclaimed page_extracted candidates_admitted row_appended commit_begun
    file_recovered file_closed file_closed:2 files_synced segment_recorded file_recovered file_renamed
    file_renamed:2 segment_published
"""
#: The same with a store; a file there is copied, and those on the disk are never renamed.
IN_STORE = """
    page_failed pages_taken pages_reclaimed page_extracted candidates_admitted row_appended commit_begun
    file_recovered file_closed file_closed:2 file_uploaded object_recovered file_uploaded:2 files_synced
    segment_recorded object_recovered file_copied file_copied:2 segment_published
"""


def in_child(points: str) -> str:
    """The guard lives, and reclaims the pages of its child."""
    return points.replace("pages_reclaimed", "pages_reclaimed@process")


@dataclass(frozen=True, slots=True)
class Case:
    """A process that dies at all *points* in one crawl, started again each time; *beside* runs with it."""

    points: str
    command: str
    beside: str = ""
    who: str = "process"
    segment_pages: str = ASKED

    @property
    def plan(self) -> list[Crash]:
        return [Crash.read(text, self.who) for text in self.points.split()]


def prepare(url: str, crew: Crew) -> None:
    """Admit redirects to where no link leads, then the seeds; queue a page that no parser can read."""
    referee = crew.referee()
    pages = [page for url in sorted(referee.expected) if (page := referee.world.page(url))]
    hops = [page.url for page in pages if "/hop/" in (page.location or "") and "/hop/" not in page.url]

    async def work() -> None:
        client = await RedisClient.open(url=url, data_dir=crew.data)
        try:
            run = await Run.open(client, "web", partitions=PARTITIONS, shards=1)
            frontier = Frontier.of(run, load_config({}))
            await frontier.admit([Candidate(seed) for seed in [*hops, *crew.simweb.seeds()]])
            await client.command("RPUSH", keys.pages("web"), b"damaged")
        finally:
            await client.close()

    asyncio.run(work())


def start(crew: Crew, case: Case, deaths: Path) -> Process:
    """Start what *case* names, and return the process that dies."""
    crew.before = killed_at(case.plan, deaths)
    dying = crew.scrapy(*case.command.split(), name="dying")
    crew.before = ()
    if case.beside:
        crew.scrapy(*case.beside.split(), name="beside")
    return dying


def wait_through(dying: Process, deaths: Path) -> int:
    """Return the exit code; each death may take as long as another test's end."""
    while dying.is_running:
        died = count_deaths(deaths)
        wait_until(lambda died=died: not dying.is_running or count_deaths(deaths) > died, f"death {died + 1}")
    return dying.wait()


def crawl_while_dying(case: Case, crew: Crew, redis_url: str, deaths: Path) -> None:
    """Kill a process at all points of *case*: nothing is lost or stored twice, and the crawl stays polite."""
    crew.environment = {"REDIS_URL": redis_url}
    prepare(redis_url, crew)

    dying = start(crew, case, deaths)
    code = wait_through(dying, deaths)
    died_at = deaths.read_text().split()
    assert (died_at, code) == ([crash.point for crash in case.plan], 0), dying.log[-3000:]
    crew.finish()

    # A URL in flight is fetched again after each death.
    crew.assert_content(Rules(attempts=3 + len(died_at)), twice_at_most=len(died_at) * WORLD.domains)
    assert crew.status()["state"] == "finished"
