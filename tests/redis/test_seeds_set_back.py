"""Seeds that Redis has lost are admitted again by the supervisor that was given them."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.errors import SetBack
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.seeds import SeedSource, admit_seeds
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.runs.membership import Membership
from crawlproj.supervisor.children import LogFiles
from crawlproj.supervisor.crawl import Crawl
from crawlproj.supervisor.plan import Range
from tests.redis.setbacks import Backup

RUN = "web"
SEED = "https://a.test/"


@pytest.fixture
async def run(client: RedisClient) -> Run:
    opened = await Run.open(client, RUN, partitions=2)
    opened.watch()
    return opened


async def admit(run: Run, generation: int | None = None) -> None:
    config = load_config({})
    frontier = Frontier.of(run, config)
    frontier.generation = generation
    await admit_seeds(frontier, [SeedSource(SEED)], load_rules(config)[0], print, run.adding)


async def test_a_supervisor_admits_lost_seeds_again_also_if_it_had_just_begun(
    run: Run, bystander: RedisClient, tmp_path: Path
) -> None:
    calls = []

    async def admit_again() -> None:
        calls.append("admit")
        if len(calls) == 1:
            raise SetBack("once more")
        await admit(run)

    backup = await Backup.of(bystander)
    await admit(run)
    member = Membership(run, ProcessName.of_this(), 1, data="", silent_s=30)
    crawl = Crawl(member, run, load_config({}), Range(1, 1), {}, LogFiles(tmp_path), restore=admit_again)
    await backup.restore()
    await run.read_map()

    for _ in range(3):
        await crawl._restore_lost()

    assert (await run.read_counters()).waiting == 1
    assert len(calls) == 2


async def test_seeds_of_which_redis_has_lost_a_part_are_not_taken_for_admitted(
    run: Run, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    await admit(run, generation=0)
    await backup.restore()

    with pytest.raises(SetBack):
        await admit(run, generation=0)
