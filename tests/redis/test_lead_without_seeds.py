"""A run without a single request is an error of the spider `web`, and the end of any other spider."""

from __future__ import annotations

from crawlproj.errors import NoSeeds
from crawlproj.model.run import RunState
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.shard.background import lead_without_seeds


async def test_the_run_of_a_spider_that_sends_no_requests_is_finished(client: RedisClient) -> None:
    run = await Run.open(client, "mine", partitions=4)
    await run.begin(is_first=True)

    async def leading() -> None:
        raise NoSeeds("Run 'mine' has no seeds.")

    await lead_without_seeds(leading(), run)

    assert await run.state() == RunState.FINISHED
