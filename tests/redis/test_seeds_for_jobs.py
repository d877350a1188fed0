"""Seeds that callers of the API add to a job that waits: it has no run yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.api import actions
from crawlproj.api.actions import add_seeds
from crawlproj.api.links import Links
from crawlproj.api.problems import Refused
from crawlproj.api.requests import SeedsRequest
from crawlproj.api.service import Service
from crawlproj.config import Config
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, hold_name


@pytest.fixture
async def service(client: RedisClient, tmp_path: Path) -> Service:
    """A server with a job that waits."""
    service = Service(Config(data=tmp_path), {}, {}, Links(()))
    service.client = client
    await service.records.create("news", {}, ["example.org"])
    return service


async def test_a_seed_that_is_written_otherwise_is_known(service: Service) -> None:
    added = await add_seeds(service, "news", SeedsRequest(seeds="https://EXAMPLE.org, example.com"))

    assert (added["new"], added["known"]) == (1, 1)
    assert await service.records.read_seeds("news") == ["example.org", "https://example.com/"]


async def test_seeds_for_a_job_that_is_being_started_for_long_are_to_be_sent_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_START_S", 0)
    await hold_name(service.client, keys.job_starter("news"), ProcessName.of_this(), 5000)

    with pytest.raises(Refused) as caught:
        await add_seeds(service, "news", SeedsRequest(seeds="example.com"))

    assert (caught.value.status, caught.value.headers["Retry-After"]) == (409, "5")
