"""What callers of the API do to a job that waits, or at the moment in which its start comes to an end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crawlproj.api import actions
from crawlproj.api.actions import add_seeds, delete
from crawlproj.api.links import Links
from crawlproj.api.problems import Refused
from crawlproj.api.requests import SeedsRequest
from crawlproj.api.service import Service
from crawlproj.api.starter import Starter
from crawlproj.config import Config
from crawlproj.errors import RedisUnreachable
from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord
from tests.patience import PATIENCE_S


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


async def test_a_job_that_ended_while_its_starter_looked_on_is_deleted(service: Service) -> None:
    run = await Run.open(service.client, "news", partitions=4)
    await run.begin(is_first=True)
    await run.end(RunState.STOPPED, "max_pages")
    starter = ProcessName.of_this()
    await hold_name(service.client, keys.job_starter("news"), starter, 60_000)

    deleting = asyncio.create_task(delete(service, "news", pages=False))
    done, _ = await asyncio.wait([deleting], timeout=0.3)
    await drop_name(service.client, keys.job_starter("news"), starter.instance)
    await deleting

    assert not done
    assert await service.records.find("news") is None


async def test_a_job_is_not_started_while_it_is_deleted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    starter = Starter(service.client, service.config, {}, service.places, service.lead)
    monkeypatch.setattr(Starter, "_launch", lambda starter, record, *rest, **more: started.append(record.id))

    async def look_for_jobs(job: str) -> None:
        """What another server does while this one asks those of scrapyd."""
        await starter.look()
        await asyncio.gather(*starter._starting.values(), return_exceptions=True)

    monkeypatch.setattr(service.places, "cancel_waiting", look_for_jobs)

    await delete(service, "news", pages=False)

    assert started == []
    assert await service.records.find("news") is None


async def test_a_job_that_is_being_started_is_not_deleted(service: Service) -> None:
    await hold_name(service.client, keys.job_starter("news"), ProcessName.of_this(), 60_000)

    with pytest.raises(Refused, match="is being started"):
        await delete(service, "news", pages=False)


async def test_a_job_that_is_deleted_at_the_moment_it_is_stopped_is_left_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await Run.open(service.client, "news", partitions=4)

    async def run_of(job: str) -> Run:
        await run.delete()
        return run

    monkeypatch.setattr(service, "run_of", run_of)

    await actions.stop(service, "news")

    assert await run.state() == ""


async def test_why_the_start_of_a_job_has_failed_is_logged(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    starter = Starter(service.client, service.config, {}, service.places, service.lead)

    async def fail() -> None:
        raise RedisUnreachable("Redis did not answer.")

    starter._begin(JobRecord("news"), fail())
    async with asyncio.timeout(PATIENCE_S):
        while starter._starting:  # noqa: ASYNC110  # it ends by itself
            await asyncio.sleep(0)

    assert "cannot start a job: Redis did not answer." in caplog.messages
