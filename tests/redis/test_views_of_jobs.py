"""Views of jobs that the API keeps for a moment."""

from __future__ import annotations

import time

from crawlproj.api.views import JobViews
from crawlproj.config import Config
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run


async def test_a_view_is_a_little_old_rather_than_late(client: RedisClient) -> None:
    await Run.open(client, "web", partitions=4)
    views = JobViews(client, Config())
    known = await views.get("web")
    # As an fsync on a busy disk does it.
    await client.command("CLIENT", "PAUSE", 1000, "ALL")
    begun_s = time.monotonic()

    older = await views.get("web", 0.000_001)
    took_s = time.monotonic() - begun_s
    # As whoever has changed something sees it.
    newer = await views.get("web", 0)

    assert older is known
    assert newer is not known
    assert took_s < 0.9
