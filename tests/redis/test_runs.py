"""Runs: their record, the leader's judgement that one is over, and their deletion."""

from __future__ import annotations

import asyncio

import pytest

from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName, hold_name
from crawlproj.runs import Figures, Leader, Run, status_of

PARTITIONS = 4


@pytest.fixture
async def run(door: Door) -> Run:
    return await Run.open(door, "web", partitions=PARTITIONS, shards=2)


@pytest.fixture
def leader(run: Run) -> Leader:
    return Leader(run, ProcessName.of_this(), 5000)


def frontier_of(run: Run) -> Frontier:
    return Frontier(run.door, run.name, run.partitions)


async def hold_all(frontier: Frontier) -> list[Hold]:
    holds = [
        await frontier.acquire(p, "a", ttl_ms=60_000, delay_ms=0, delays_ms={}) for p in range(PARTITIONS)
    ]
    return [hold for hold in holds if hold]


async def crawl(run: Run, *urls: str) -> None:
    """Admit and fetch *urls*, each with a page."""
    frontier = frontier_of(run)
    holds = await hold_all(frontier)
    await frontier.admit(Candidate(url) for url in urls)
    leases, _ = await frontier.lease([(hold, 100) for hold in holds], chain=1, chain_ms=1000)
    assert len(leases) == len(urls)
    await frontier.settle(Settlement(lease, Outcome.DONE, "ok", page=b"page") for lease in leases)


async def verdicts(leader: Leader, looks: int = 3) -> list[bool]:
    return [await leader.is_over() for _ in range(looks)]


# -- the record --


async def test_a_run_is_created_once_and_found_again(door: Door) -> None:
    await Run.open(door, "web", partitions=4, shards=3)

    again = await Run.open(door, "web", partitions=4, shards=9)
    found = await Run.find(door, "web")

    run_map = await again.read_map()
    assert (run_map.shards, run_map.state, run_map.alive) == (3, "running", {})
    assert found.partitions == 4


async def test_many_processes_may_create_a_run_at_once(door: Door) -> None:
    runs = await asyncio.gather(*(Run.open(door, "web", partitions=4, shards=n + 1) for n in range(8)))

    assert len({(await run.read_map()).shards for run in runs}) == 1


async def test_a_run_of_other_partitions_is_refused_with_the_remedy(door: Door, run: Run) -> None:
    with pytest.raises(RunMismatch, match=r"created with CRAWL_PARTITIONS=4, not 64.*Set CRAWL_PARTITIONS=4"):
        await Run.open(door, "web", partitions=64)


async def test_a_run_of_another_version_is_refused(door: Door, run: Run) -> None:
    await door.command("HSET", keys.run_record("web"), "version", 99)

    with pytest.raises(RunMismatch, match="version 99"):
        await Run.find(door, "web")


async def test_a_run_that_does_not_exist_is_refused_naming_those_that_do(door: Door, run: Run) -> None:
    with pytest.raises(BadArgument, match=r"no run 'wed' here; there are: web"):
        await Run.find(door, "wed")

    assert await door.command("EXISTS", keys.run_record("wed")) == 0


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{a}", "a*", "-a", "x" * 65])
async def test_a_name_that_could_not_be_a_key_is_refused(door: Door, name: str) -> None:
    with pytest.raises(BadArgument, match="is not a run name"):
        await Run.open(door, name, partitions=4)


@pytest.mark.parametrize("shards", [0, -1, PARTITIONS + 1])
async def test_a_number_of_shards_out_of_range_is_refused(run: Run, shards: int) -> None:
    with pytest.raises(BadArgument, match="choose 1 to 4"):
        await run.set_shards(shards)

    assert (await run.read_map()).shards == 2


# -- the figures --


async def test_the_figures_tell_what_waits_is_lent_and_ended(run: Run) -> None:
    frontier = frontier_of(run)
    holds = await hold_all(frontier)
    await frontier.admit(
        Candidate(f"https://d{number}.test/{path}") for number in range(10) for path in range(2)
    )
    leases, _ = await frontier.lease([(hold, 100) for hold in holds], chain=1, chain_ms=1000)
    ends = [Outcome.DONE, Outcome.FAILED, Outcome.SKIPPED, Outcome.RETRY, Outcome.RETURNED]
    await frontier.settle(
        Settlement(lease, end, "why", page=b"page" if end is Outcome.DONE else b"")
        for lease, end in zip(leases, ends, strict=False)
    )

    status = await status_of(run)

    assert {
        name: status[name] for name in ("waiting", "leased", "fetched", "failed", "skipped", "retried")
    } == {
        "waiting": 12,
        "leased": 5,
        "fetched": 1,
        "failed": 1,
        "skipped": 1,
        "retried": 1,
    }
    assert (status["admitted"], status["returned"], status["by_reason"]) == (20, 1, {"why": 5})
    assert (status["pages_queued"], status["partitions_owned"]) == (1, PARTITIONS)


# -- the end --


async def test_there_is_one_leader_until_it_steps_down(run: Run) -> None:
    one, other = (Leader(run, ProcessName.of_this(), 5000) for _ in range(2))

    assert await one.lead()
    assert not await other.lead()
    assert await one.lead()
    await one.step_down()
    assert await other.lead()


async def test_a_run_with_nothing_left_is_over_at_the_second_look(run: Run, leader: Leader) -> None:
    await crawl(run, "https://a.test/")
    await run.door.command("DEL", keys.pages(run.name))

    assert await verdicts(leader) == [False, True, True]
    assert not leader.never_seeded


async def test_a_run_never_seeded_says_so(leader: Leader) -> None:
    assert await verdicts(leader) == [False, True, True]
    assert leader.never_seeded


async def test_a_url_that_waits_keeps_the_run_going(run: Run, leader: Leader) -> None:
    await frontier_of(run).admit([Candidate("https://a.test/")])

    assert await verdicts(leader) == [False] * 3
    assert not leader.is_quiet


async def test_a_url_on_loan_keeps_the_run_going(run: Run, leader: Leader) -> None:
    frontier = frontier_of(run)
    holds = await hold_all(frontier)
    await frontier.admit([Candidate("https://a.test/")])
    await frontier.lease([(hold, 1) for hold in holds], chain=1, chain_ms=1000)

    assert await verdicts(leader) == [False] * 3


async def test_a_page_keeps_the_run_going_until_it_is_stored(run: Run, leader: Leader) -> None:
    await crawl(run, "https://a.test/")
    queue = PageQueue(run.door, run.name)

    assert await verdicts(leader) == [False] * 3
    await queue.heartbeat("p", 0)
    await queue.take("p", 10)
    assert await verdicts(leader) == [False] * 3
    await run.door.command("DEL", keys.pages_taken(run.name, "p"))
    assert await verdicts(leader) == [False, True, True]


async def test_pages_that_nobody_parses_are_complained_about_once(
    run: Run, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    await crawl(run, "https://a.test/")

    await verdicts(leader)

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "1 pages wait and no parser runs; start one: scrapy parser --run web"
    ]


async def test_work_that_came_and_went_between_two_looks_starts_the_count_anew(
    run: Run, leader: Leader
) -> None:
    assert not await leader.is_over()
    await crawl(run, "https://a.test/")
    await run.door.command("DEL", keys.pages(run.name))

    assert await verdicts(leader) == [False, True, True]


async def test_a_shard_still_starting_blocks_the_end(run: Run, leader: Leader) -> None:
    process = ProcessName.of_this()
    shard = ShardNumber(run.door, run.name, 1, process, 60_000)
    await shard.claim()

    assert await verdicts(leader) == [False] * 3
    await shard.keep(starting=False)
    assert await leader.is_over()


async def test_seeds_admitted_while_the_leader_looks_are_never_overlooked(
    run: Run, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard admits its seeds and says so at the worst moment: just after the figures were read."""
    name = keys.shard(run.name, 0)
    process = ProcessName.of_this()
    await hold_name(run.door, name, process, 60_000, starting=True)
    await leader.is_over()
    figures = run.figures

    async def figures_then_seeds() -> Figures:
        found = await figures()
        await frontier_of(run).admit([Candidate("https://a.test/")])
        await hold_name(run.door, name, process, 60_000, starting=False)
        return found

    monkeypatch.setattr(run, "figures", figures_then_seeds)

    assert await verdicts(leader) == [False] * 3


async def test_the_end_waits_for_as_long_as_was_asked(run: Run) -> None:
    clock_s = [0.0]
    leader = Leader(run, ProcessName.of_this(), 5000, idle_before_close_s=10.0, clock=lambda: clock_s[0])

    assert not await leader.is_over()
    clock_s[0] = 9.9
    assert not await leader.is_over()
    clock_s[0] = 10.0
    assert await leader.is_over()


# -- deletion --


async def keys_there(door: Door) -> set[str]:
    cursor, found = await door.command("SCAN", 0, "COUNT", 100_000)
    assert int(cursor) == 0
    return {key.decode() for key in found}


async def test_deleting_a_run_removes_every_key_of_it_and_none_of_another(door: Door) -> None:
    # Names made to be mistaken for each other, or for patterns.
    names = ["exp01", "exp91", "exp0", "exp", "p0", "p.0", "exp01-2"]
    runs = {name: await Run.open(door, name, partitions=PARTITIONS, shards=2) for name in names}
    for run in runs.values():
        await crawl(run, *(f"https://d{number}.test/" for number in range(20)))
        await frontier_of(run).admit(Candidate(f"https://w{number}.test/") for number in range(20))
        queue = PageQueue(door, run.name)
        await queue.heartbeat("p", 0)
        await queue.take("p", 5)
        await hold_name(door, keys.shard(run.name, 0), ProcessName.of_this(), 60_000)
        await hold_name(door, keys.leader(run.name), ProcessName.of_this(), 60_000)
    everything = await keys_there(door)
    gone = everything - {key for key in everything if "{exp01}" not in key and "{exp01:p" not in key}
    assert len(gone) > 40

    await runs["exp01"].delete()

    assert everything - await keys_there(door) == gone
    assert await door.command("SISMEMBER", keys.runs(), "exp01") == 0


async def test_a_run_deleted_while_in_use_is_one_clear_error(run: Run) -> None:
    await run.delete()

    with pytest.raises(RunMismatch, match="'web' was deleted"):
        await status_of(run)
