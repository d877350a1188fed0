"""Jobs in Redis, by the steps create_job and add_job_seeds: created once, whoever asks, and however often."""

from __future__ import annotations

import asyncio

import pytest

from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecords, KeyReused, NameTaken, TooManyJobs, name_for


@pytest.fixture
def records(client: RedisClient) -> JobRecords:
    return JobRecords(client, 100)


async def test_a_job_waits_with_its_request_and_seeds(records: JobRecords) -> None:
    created = await records.create("news", {"shards": 2}, ["a.org", "b.org"])

    assert created == ("news", True)
    record = await records.find("news")
    assert record is not None
    assert (record.request, record.held, record.starts) == ({"shards": 2}, "", 0)
    assert await records.read_seeds("news") == ["a.org", "b.org"]
    assert await records.open_names() == ["news"]


async def test_seeds_that_many_add_at_once_are_all_kept_each_once(records: JobRecords) -> None:
    await records.create("news", {}, ["a.org", "b.org"])

    new = await asyncio.gather(
        *(records.add_seeds("news", ["b.org", "c.org", f"{n}.org"]) for n in range(20))
    )

    seeds = await records.read_seeds("news")
    assert seeds[:2] == ["a.org", "b.org"]
    assert sorted(seeds) == sorted(["a.org", "b.org", "c.org", *(f"{n}.org" for n in range(20))])
    assert sum(new) == 21


async def test_of_many_with_one_name_one_is_created(records: JobRecords) -> None:
    results = await asyncio.gather(
        *(records.create("news", {}, ["a.org"]) for _ in range(20)), return_exceptions=True
    )

    assert sum(result == ("news", True) for result in results) == 1
    assert sum(isinstance(result, NameTaken) for result in results) == 19


async def test_of_many_with_one_key_one_is_created_and_returned_to_all(records: JobRecords) -> None:
    results = await asyncio.gather(
        *(records.create("a.org", {}, ["a.org"], is_stem=True, key="k", digest="d") for _ in range(20))
    )

    assert {name for name, _ in results} == {"a.org"}
    assert sum(is_new for _, is_new in results) == 1
    assert await records.names() == ["a.org"]
    with pytest.raises(KeyReused):
        await records.create("b.org", {}, ["b.org"], key="k", digest="another")


async def test_a_name_that_was_made_up_gets_a_number(records: JobRecords, client: RedisClient) -> None:
    await Run.open(client, "a.org", partitions=4)

    made = [(await records.create("a.org", {}, ["a.org"], is_stem=True))[0] for _ in range(3)]

    assert made == ["a.org-2", "a.org-3", "a.org-4"]
    with pytest.raises(NameTaken):
        await records.create("a.org", {}, ["a.org"])


async def test_a_key_is_known_also_when_the_run_has_begun(records: JobRecords, client: RedisClient) -> None:
    await records.create("news", {}, ["a.org"], key="k", digest="d")
    await Run.open(client, "news", partitions=4)

    assert await records.create("news", {}, ["a.org"], key="k", digest="d") == ("news", False)


async def test_no_more_jobs_wait_than_may(client: RedisClient) -> None:
    records = JobRecords(client, 2)
    for name in ("one", "two"):
        await records.create(name, {}, ["a.org"])

    with pytest.raises(TooManyJobs):
        await records.create("three", {}, ["a.org"])

    await records.close("one")
    assert await records.create("three", {}, ["a.org"]) == ("three", True)


async def test_a_deleted_run_leaves_no_job_that_would_start_again(
    records: JobRecords, client: RedisClient
) -> None:
    await records.create("news", {}, ["a.org"])
    run = await Run.open(client, "news", partitions=4)

    await run.delete()

    assert await records.find("news") is None
    assert await records.names() == await records.open_names() == await Run.names(client) == []


async def test_a_new_job_is_not_held_by_what_was_asked_of_a_deleted_one(records: JobRecords) -> None:
    await records.create("news", {}, ["a.org"])
    await records.delete("news")
    # Of a caller who came too late to see that.
    await records.update("news", held="paused")

    await records.create("news", {}, ["b.org"])

    record = await records.find("news")
    assert record is not None
    assert record.held == ""


async def test_a_run_of_a_terminal_is_taken_up_once(records: JobRecords) -> None:
    await records.adopt("web")
    await records.adopt("web")

    assert await records.open_names() == ["web"]
    assert (await records.find("web")) is not None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://www.example.org/x", "example.org"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://[::1]/", "1"),
    ],
)
def test_a_name_is_made_from_the_first_seed(url: str, name: str) -> None:
    assert name_for(url) == name
