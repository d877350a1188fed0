"""``scrapy run --restart``: a run crawled again from the start."""

from __future__ import annotations

import shutil

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.processes import check_unused


async def restart(client: RedisClient, name: str, config: Config) -> RunPaths | None:
    """Delete the run, if it is there, and move what it stored aside; returns where that is now.

    Raises BadArgument while any process works on it.
    """
    # Not at module level: it imports what only parsers need.
    from crawlproj.storage.aside import set_aside

    run = await Run.look_up(client, name, any_version=True)
    if run is not None:
        await check_unused(run, config)
    paths = RunPaths(config.data, name)
    # Files first: after a crash in between, the same command finds the run still there.
    kept = set_aside(paths)
    if run is not None:
        await run.delete()
    # Otherwise the new run would continue these.
    for directory in (paths.metrics, paths.spills):
        shutil.rmtree(directory, ignore_errors=True)
    return kept
