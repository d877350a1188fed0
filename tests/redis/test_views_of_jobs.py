"""Views of jobs that the API keeps for a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.api import views as views_of_jobs
from crawlproj.api.views import JobViews
from crawlproj.config import Config
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.conftest import RedisServer
from tests.patience import PATIENCE_S


async def test_a_view_is_a_little_old_rather_than_late(
    redis_server_factory: Callable[..., RedisServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis_server_factory()
    client = await RedisClient.open(url=server.url, data_dir=tmp_path)
    await Run.open(client, "web", partitions=4)
    views = JobViews(client, Config())
    known = await views.get("web")
    monkeypatch.setattr(views_of_jobs, "_STALE_S", PATIENCE_S)
    # As an fsync on a busy disk does it.
    server.pause()

    older = await views.get("web", 0.000_001)
    server.unpause()
    # As whoever has changed something sees it.
    newer = await views.get("web", 0)

    assert older is known
    assert newer is not known
    await client.close()
