"""The processes of all jobs, as the jobs API lists them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawlproj.api.links import Links
from crawlproj.api.service import Service
from crawlproj.api.system import workers
from crawlproj.api.views import JobViews
from crawlproj.config import Config
from crawlproj.model.run import RunState
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run


async def test_runs_that_all_have_left_are_not_looked_at_again_and_again(
    client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(Config(data=tmp_path), {}, {}, Links(()))
    service.client, service.views = client, JobViews(client, service.config)
    here: dict[str, list[dict[str, Any]]] = {"old": [], "leaving": [{"pid": 7}], "at-work": []}
    for name in here:
        run = await Run.open(client, name, partitions=4)
        await run.begin(is_first=True)
        if name != "at-work":
            await run.end(RunState.FINISHED)
    asked: list[str] = []

    async def view(views: JobViews, job: str, max_age_s: float) -> dict[str, Any]:
        asked.append(job)
        return {"id": job, "processes": here[job]}

    monkeypatch.setattr(JobViews, "get", view)

    async def lines() -> list[str]:
        """Ask once, and return whose lines are there."""
        asked.clear()
        response = await workers(service)
        return [line["job"] for line in json.loads(bytes(response.body))["workers"]]

    first, at_first = await lines(), sorted(asked)
    second, then = await lines(), sorted(asked)
    old = await Run.find(client, "old")
    await old.reopen()
    await old.begin(is_first=False)
    here["old"] = [{"pid": 8}]
    reopened = await lines()

    assert (first, at_first) == (["leaving"], ["at-work", "leaving", "old"])
    assert (second, then) == (["leaving"], ["at-work", "leaving"])
    assert sorted(reopened) == ["leaving", "old"]
