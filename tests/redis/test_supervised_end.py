"""A supervisor leaves a run only if it is over, also when Redis was set back to before its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.runs.membership import Membership
from crawlproj.supervisor.children import LogFiles
from crawlproj.supervisor.crawl import Crawl
from crawlproj.supervisor.plan import Range


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=4)


async def test_a_run_that_is_open_again_is_supervised_again(
    client: RedisClient, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Membership(run, ProcessName.of_this(), 1, data="", silent_s=30)
    crawl = Crawl(member, run, load_config({}), Range(1, 1), {}, LogFiles(tmp_path, None))
    supervised: list[str] = []

    async def supervise() -> None:
        supervised.append(await run.state())
        await run.change(RunState.FINISHED)
        if len(supervised) == 1:
            # As after a set-back to a moment ago.
            await client.command("HSET", keys.run_record("web"), "state", "running")

    monkeypatch.setattr(crawl, "_supervise_until_stopped", supervise)

    result = await crawl.run()

    assert supervised == ["running", "running"]
    assert (result.code, result.status["state"]) == (0, "finished")
