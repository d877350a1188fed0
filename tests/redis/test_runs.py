"""Runs: their record, states and limits, the leader who ends them, and their deletion."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import combinations_with_replacement, count

import pytest

from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, hold_name
from crawlproj.runs import Leader, Limits, Run, RunCounters, RunState, record, status_of
from crawlproj.runs.leader import limit_reached
from crawlproj.runs.record import RunMap
from tests.redis.setbacks import Backup

PARTITIONS = 4


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=PARTITIONS, shards=2)


@pytest.fixture
async def leader(run: Run) -> Leader:
    """The leader of the run, which is in progress."""
    await run.begin(is_first=True)
    return Leader(run, ProcessName.of_this(), 5000)


async def let_pass(run: Run, seconds: int) -> None:
    """Let so much time pass by the clock of Redis, as far as *run* can see."""
    if await run.state() == RunState.RUNNING:
        await run.client.command("HINCRBY", keys.run_record(run.name), "since_ms", -1000 * seconds)


async def ran_for(run: Run) -> int:
    """Return how long *run* has been running, in thousands of seconds: a test takes less than one."""
    return int((await run.read_map()).ran_s / 1000)


def frontier_of(run: Run) -> Frontier:
    return Frontier(run.client, run.name, run.partitions)


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
    """Whether each of so many looks ended the run."""
    return [await leader.step() for _ in range(looks)]


async def bring_into(run: Run, state: RunState) -> None:
    """Bring *run* into *state*, on a way that people or processes could have taken."""
    if state is not RunState.CREATED:
        await run.begin(is_first=True)
        await run.change(state)
    assert await run.state() == state


# -- the record --


async def test_a_run_is_created_once_and_found_again(client: RedisClient) -> None:
    await Run.open(client, "web", partitions=4, shards=3)

    again = await Run.open(client, "web", partitions=4, shards=9)
    found = await Run.find(client, "web")

    run_map = await again.read_map()
    assert (run_map.shards, run_map.state, run_map.alive) == (3, "created", {})
    assert found.partitions == 4


async def test_many_processes_may_create_a_run_at_once(client: RedisClient) -> None:
    runs = await asyncio.gather(*(Run.open(client, "web", partitions=4, shards=n + 1) for n in range(8)))

    assert len({(await run.read_map()).shards for run in runs}) == 1


async def test_a_run_of_other_partitions_is_refused_with_the_remedy(client: RedisClient, run: Run) -> None:
    with pytest.raises(RunMismatch, match=r"created with CRAWL_PARTITIONS=4, not 64.*Set CRAWL_PARTITIONS=4"):
        await Run.open(client, "web", partitions=64)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (record.KEYS_VERSION - 1, "an earlier release.*scrapy runs --delete web"),
        (99, "a later release.*version 99"),
    ],
)
async def test_a_run_of_another_version_is_refused_with_the_remedy(
    client: RedisClient, run: Run, version: int, remedy: str
) -> None:
    await client.command("HSET", keys.run_record("web"), "version", version)

    with pytest.raises(RunMismatch, match=remedy):
        await Run.find(client, "web")
    with pytest.raises(RunMismatch, match=remedy):
        await Run.open(client, "web", partitions=4)


async def test_a_run_that_does_not_exist_is_refused_naming_those_that_do(
    client: RedisClient, run: Run
) -> None:
    with pytest.raises(BadArgument, match=r"no run 'wed' here; there are: web"):
        await Run.find(client, "wed")

    assert await client.command("EXISTS", keys.run_record("wed")) == 0


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{a}", "a*", "-a", "x" * 65])
async def test_a_name_that_could_not_be_a_key_is_refused(client: RedisClient, name: str) -> None:
    with pytest.raises(BadArgument, match="is not a valid run name"):
        await Run.open(client, name, partitions=4)


@pytest.mark.parametrize("shards", [0, -1, PARTITIONS + 1])
async def test_a_number_of_shards_out_of_range_is_refused(run: Run, shards: int) -> None:
    with pytest.raises(BadArgument, match="choose 1 to 4"):
        await run.set_shards(shards)

    assert (await run.read_map()).shards == 2


# -- the counters --


async def test_the_figures_count_what_is_waiting_leased_and_settled(run: Run) -> None:
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
    await run.client.command("DEL", keys.pages(run.name))

    assert await verdicts(leader) == [False, True, False]
    assert not leader.never_seeded
    assert (await run.read_map()).state == RunState.FINISHED


async def test_a_run_never_seeded_says_so_and_is_not_finished(run: Run, leader: Leader) -> None:
    assert await verdicts(leader) == [False] * 3
    assert leader.never_seeded
    assert await run.state() == RunState.RUNNING


async def test_a_url_that_waits_keeps_the_run_going(run: Run, leader: Leader) -> None:
    await frontier_of(run).admit([Candidate("https://a.test/")])

    assert await verdicts(leader) == [False] * 3
    assert not leader.is_quiet


async def test_a_leased_url_keeps_the_run_going(run: Run, leader: Leader) -> None:
    frontier = frontier_of(run)
    holds = await hold_all(frontier)
    await frontier.admit([Candidate("https://a.test/")])
    await frontier.lease([(hold, 1) for hold in holds], chain=1, chain_ms=1000)

    assert await verdicts(leader) == [False] * 3


async def test_a_page_keeps_the_run_going_until_it_is_stored(run: Run, leader: Leader) -> None:
    await crawl(run, "https://a.test/")
    queue = PageQueue(run.client, run.name)

    assert await verdicts(leader) == [False] * 3
    await queue.heartbeat("p", 0)
    await queue.take("p", 10)
    assert await verdicts(leader) == [False] * 3
    await run.client.command("DEL", keys.pages_taken(run.name, "p"))
    assert await verdicts(leader) == [False, True, False]


@pytest.mark.parametrize("is_held", [False, True], ids=["in the queue", "held by a parser that was killed"])
async def test_queued_pages_without_a_parser_cause_one_warning(
    run: Run, leader: Leader, caplog: pytest.LogCaptureFixture, is_held: bool
) -> None:
    await crawl(run, "https://a.test/")
    if is_held:
        queue = PageQueue(run.client, run.name)
        killed = replace(ProcessName.of_this(), started="another process of this number")
        await queue.heartbeat("p", await queue.now_ms(), killed)
        await queue.take("p", 10)
    times = count(1.0)
    leader.clock = lambda: next(times)

    await verdicts(leader)
    assert not caplog.records
    await verdicts(leader, looks=15)

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "1 pages are queued and no parser is running; start one: scrapy parser --run web"
    ]


@pytest.mark.parametrize(("parks", "reason"), [(False, ""), (True, "parked")])
async def test_a_run_that_ends_without_parked_domains_says_so(
    run: Run, leader: Leader, parks: bool, reason: str
) -> None:
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))
    if parks:
        frontier = frontier_of(run)
        await frontier.admit([Candidate("https://b.test/")])
        for hold in await hold_all(frontier):
            await frontier.park(hold, [("b.test", "failures", 60_000)])

    assert await verdicts(leader) == [False, True, False]

    run_map = await run.read_map()
    assert (run_map.state, run_map.reason) == (RunState.FINISHED, reason)


async def test_pages_being_parsed_cause_no_warning(
    run: Run, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    await crawl(run, "https://a.test/")
    queue = PageQueue(run.client, run.name)
    await queue.heartbeat("p", await queue.now_ms(), ProcessName.of_this())
    await queue.take("p", 10)

    await verdicts(leader)

    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_work_that_came_and_went_between_two_readings_restarts_the_count(
    run: Run, leader: Leader
) -> None:
    assert not await leader.step()
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))

    assert await verdicts(leader) == [False, True, False]


async def test_a_shard_still_starting_blocks_the_end(run: Run, leader: Leader) -> None:
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))
    shard = ShardNumber(run.client, run.name, 1, ProcessName.of_this(), 60_000)
    await shard.claim()

    assert await verdicts(leader) == [False] * 3
    await shard.renew(starting=False)
    assert await leader.step()


async def test_seeds_admitted_while_the_leader_checks_are_never_overlooked(
    run: Run, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard admits its seeds and says so at the worst moment: just after the counters were read."""
    name = keys.shard(run.name, 0)
    process = ProcessName.of_this()
    await crawl(run, "https://b.test/")
    await run.client.command("DEL", keys.pages(run.name))
    await hold_name(run.client, name, process, 60_000, starting=True)
    await leader.step()
    read = run.read_counters

    async def counters_then_seeds() -> RunCounters:
        found = await read()
        await frontier_of(run).admit([Candidate("https://a.test/")])
        await hold_name(run.client, name, process, 60_000, starting=False)
        return found

    monkeypatch.setattr(run, "read_counters", counters_then_seeds)

    assert await verdicts(leader) == [False] * 3


@pytest.mark.parametrize(
    "order",
    [
        *combinations_with_replacement(range(4), 4),
        # Killed once its seeds are in.
        *((1, 2), (2, 2)),
    ],
    ids=str,
)
async def test_no_order_of_adding_seeds_and_ending_leaves_seeds_in_a_finished_run(
    run: Run, leader: Leader, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    """The steps of `scrapy seed`, each at one moment of the leader's second look.

    0: before it, 1: after it read the record, 2: after it read the counters, 3: after the end.
    """
    await crawl(run, "https://b.test/")
    await run.client.command("DEL", keys.pages(run.name))
    await leader.step()
    adding = run.adding()
    steps: list[Callable[[], Awaitable[object]]] = [
        adding.__aenter__,
        lambda: frontier_of(run).admit([Candidate("https://a.test/")]),
        lambda: adding.__aexit__(None, None, None),
        run.reopen,
    ]
    read_map, read_counters = run.read_map, run.read_counters

    async def seed(moment: int) -> None:
        for at, step in zip(order, steps, strict=False):
            if at == moment:
                await step()

    async def map_then_seed() -> RunMap:
        found = await read_map()
        await seed(1)
        return found

    async def counters_then_seed() -> RunCounters:
        found = await read_counters()
        await seed(2)
        return found

    monkeypatch.setattr(run, "read_map", map_then_seed)
    monkeypatch.setattr(run, "read_counters", counters_then_seed)

    await seed(0)
    await leader.step()
    await seed(3)

    assert (await read_counters()).waiting == 1
    assert await run.state() != RunState.FINISHED
    # Left to the collector, it would use Redis once more, in a loop that is closed.
    await adding.gen.aclose()


async def test_the_end_waits_for_as_long_as_was_asked(run: Run) -> None:
    clock_s = [0.0]
    leader = Leader(run, ProcessName.of_this(), 5000, idle_before_close_s=10.0, clock=lambda: clock_s[0])
    await run.begin(is_first=True)
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))

    assert not await leader.step()
    clock_s[0] = 9.9
    assert not await leader.step()
    clock_s[0] = 10.0
    assert await leader.step()


async def test_promised_pages_are_reclaimed_only_when_nothing_moved_between_two_readings(
    run: Run, leader: Leader
) -> None:
    async def step() -> int:
        """Have the leader look; returns how many pages are promised then."""
        assert not await leader.step()
        return (await run.read_counters()).promised

    await frontier_of(run).admit([Candidate("https://a.test/")])
    await run.set_limits(Limits(pages=10))
    assert await run.promise_pages(10, 10) == 10

    # A shard that was promised pages may be about to lease: one reading is not enough.
    first = await step()
    await run.return_promises(3)
    assert await run.promise_pages(3, 10) == 3
    second, third = await step(), await step()

    assert (first, second, third) == (10, 10, 0)


async def test_a_run_paused_while_the_leader_checks_stays_paused(
    run: Run, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))
    await leader.step()
    read = run.read_counters

    async def counters_then_pause() -> RunCounters:
        found = await read()
        await run.change(RunState.PAUSED)
        return found

    monkeypatch.setattr(run, "read_counters", counters_then_pause)

    assert not await leader.step()
    assert await run.state() == RunState.PAUSED


async def test_a_run_that_was_over_only_in_what_redis_has_lost_continues(
    run: Run, leader: Leader, bystander: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.watch()
    await frontier_of(run).admit([Candidate("https://a.test/")])
    backup = await Backup.of(bystander)
    await crawl(run, "https://a.test/", "https://b.test/")
    await run.client.command("DEL", keys.pages(run.name))
    assert not await leader.step()
    read = run.read_counters

    async def counters_then_set_back() -> RunCounters:
        found = await read()
        monkeypatch.setattr(run, "read_counters", read)
        await backup.restore()
        return found

    monkeypatch.setattr(run, "read_counters", counters_then_set_back)

    assert await verdicts(leader) == [False, False, False]
    assert await run.state() == RunState.RUNNING


async def test_a_paused_run_does_not_end_however_little_is_left(run: Run, leader: Leader) -> None:
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))
    await run.change(RunState.PAUSED)

    assert await verdicts(leader) == [False] * 3
    await run.change(RunState.RUNNING)
    assert await verdicts(leader) == [False, True, False]


async def test_a_run_reopened_while_its_processes_are_there_continues_and_ends(
    run: Run, leader: Leader
) -> None:
    await crawl(run, "https://a.test/")
    await run.client.command("DEL", keys.pages(run.name))
    await run.change(RunState.STOPPED, "asked")
    await run.reopen()

    assert await verdicts(leader) == [False, False, True]


async def test_the_name_of_a_dead_leader_is_free_when_its_time_to_live_has_passed(run: Run) -> None:
    one, other = (Leader(run, ProcessName.of_this(), 60_000) for _ in range(2))
    assert await one.lead()
    assert not await other.lead()

    # The first says nothing more, and a minute passes.
    left_ms = await run.client.command("PTTL", keys.leader(run.name))
    await run.client.command("PEXPIRE", keys.leader(run.name), 0)

    assert 0 < left_ms <= 60_000
    assert await other.lead()
    assert not await one.lead()


async def test_of_many_candidates_for_leader_one_leads(run: Run) -> None:
    leaders = [Leader(run, ProcessName.of_this(), 5000) for _ in range(20)]

    for _ in range(3):
        assert sum(await asyncio.gather(*(leader.lead() for leader in leaders))) == 1


# -- states --

#: Where people and processes may bring a run from each state.
WAYS = {
    RunState.CREATED: {
        RunState.CREATED,
        RunState.RUNNING,
        RunState.PAUSED,
        RunState.STOPPED,
        RunState.FAILED,
    },
    RunState.RUNNING: set(RunState),
    RunState.PAUSED: {RunState.CREATED, RunState.RUNNING, RunState.PAUSED, RunState.STOPPED, RunState.FAILED},
    RunState.FINISHED: {RunState.CREATED, RunState.RUNNING, RunState.FINISHED},
    RunState.STOPPED: {RunState.CREATED, RunState.RUNNING, RunState.STOPPED},
    RunState.FAILED: {RunState.CREATED, RunState.RUNNING, RunState.FAILED},
}


@pytest.mark.parametrize("to", RunState)
@pytest.mark.parametrize("start", RunState)
async def test_a_run_changes_state_only_as_allowed(run: Run, start: RunState, to: RunState) -> None:
    await bring_into(run, start)

    if to in WAYS[start]:
        assert await run.change(to) == (start != to)
        assert await run.state() == to
    else:
        with pytest.raises(BadArgument, match=rf"Run 'web' is {start}, so it cannot become {to}\."):
            await run.change(to)
        assert await run.state() == start


async def test_a_run_that_is_gone_cannot_be_changed(run: Run) -> None:
    await run.delete()

    with pytest.raises(BadArgument, match="is deleted, so it cannot become paused"):
        await run.change(RunState.PAUSED)
    await run.begin(is_first=True)
    await run.reopen()

    assert await keys_there(run.client) == set()


async def test_the_reason_of_a_stop_is_kept_until_the_run_is_resumed(run: Run) -> None:
    await run.begin(is_first=True)
    await run.change(RunState.STOPPED, "max_pages")

    assert not await run.change(RunState.STOPPED, "asked")
    assert (await run.read_map()).reason == "max_pages"
    await run.begin(is_first=True)
    assert (await run.read_map()).reason == ""


@pytest.mark.parametrize("state", RunState)
async def test_a_process_that_starts_resumes_the_run_unless_it_is_paused(run: Run, state: RunState) -> None:
    await bring_into(run, state)

    await run.begin(is_first=True)

    assert await run.state() == (RunState.PAUSED if state is RunState.PAUSED else RunState.RUNNING)


@pytest.mark.parametrize("state", RunState)
async def test_only_a_run_that_has_ended_is_opened_again(run: Run, state: RunState) -> None:
    await bring_into(run, state)

    await run.reopen()

    assert await run.state() == (RunState.CREATED if state.is_end else state)


@pytest.mark.parametrize("number", [1, 3], ids=["one of two", "one that is given up"])
@pytest.mark.parametrize("state", RunState)
async def test_parsers_stay_until_the_run_has_ended_and_its_shards_have_left(
    run: Run, state: RunState, number: int
) -> None:
    await bring_into(run, state)
    shard = ShardNumber(run.client, run.name, number, ProcessName.of_this(), 60_000)
    await shard.claim()

    assert not await run.has_ended()
    await shard.drop()
    assert await run.has_ended() == state.is_end


async def test_nothing_more_comes_of_a_run_that_was_deleted(run: Run) -> None:
    await run.delete()

    assert await run.has_ended()


# -- how long it ran --


async def test_seconds_count_only_while_a_run_is_running(run: Run) -> None:
    async def ran_after(thousands: int) -> int:
        await let_pass(run, thousands * 1000)
        return await ran_for(run)

    assert await ran_after(1000) == 0
    await run.begin(is_first=True)
    assert await ran_after(10) == 10
    await run.begin(is_first=False)
    assert await ran_after(5) == 15
    await run.change(RunState.PAUSED)
    assert await ran_after(1000) == 15
    await run.change(RunState.RUNNING)
    assert await ran_after(2) == 17
    await run.change(RunState.STOPPED, "asked")
    assert await ran_after(1000) == 17
    await run.reopen()
    assert await ran_after(1000) == 17
    await run.begin(is_first=True)
    assert await ran_after(3) == 20


async def test_the_time_after_all_processes_were_killed_does_not_count(run: Run) -> None:
    await run.begin(is_first=True)
    await let_pass(run, 100_000)

    await run.begin(is_first=True)
    await let_pass(run, 4_000)

    assert await ran_for(run) == 4


async def test_the_time_before_all_processes_were_killed_counts(run: Run, leader: Leader) -> None:
    await let_pass(run, 64_000)
    # It notes the time every few minutes by now; this is such a moment.
    await leader.step()
    await let_pass(run, 100_000)

    await run.begin(is_first=True)
    await let_pass(run, 4_000)

    assert await ran_for(run) == 68


async def test_a_clock_that_went_back_loses_no_time(run: Run) -> None:
    await run.begin(is_first=True)
    await let_pass(run, -60_000)

    assert (await run.read_map()).ran_s == 0
    await run.change(RunState.PAUSED)
    assert (await run.read_map()).ran_s == 0


async def test_the_clock_of_this_machine_does_not_matter(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    await run.begin(is_first=True)
    now_s = time.time()

    monkeypatch.setattr(time, "time", lambda: now_s + 7200)
    assert await ran_for(run) == 0
    await run.change(RunState.PAUSED)
    monkeypatch.undo()

    assert await ran_for(run) == 0


# -- limits --


def figures_with(fetched: int = 0, leased: int = 0, size: int = 0) -> RunCounters:
    counts = Counter(done=fetched, number=fetched + leased, bytes=size)
    return RunCounters(counts, owned=0, queue_pages=0, taken={}, stored=0)


@pytest.mark.parametrize(
    ("limits", "counters", "ran_s", "reached"),
    [
        (Limits(), figures_with(10**9, size=10**15), 10**9, ""),
        (Limits(pages=5), figures_with(4), 0, ""),
        (Limits(pages=5), figures_with(5), 0, "max_pages"),
        (Limits(pages=5), figures_with(5, leased=1), 0, ""),
        (Limits(pages=5), figures_with(7), 0, "max_pages"),
        (Limits(seconds=1.5), figures_with(), 1.4, ""),
        (Limits(seconds=1.5), figures_with(leased=3), 1.5, "max_seconds"),
        (Limits(bytes=100), figures_with(size=99), 0, ""),
        (Limits(bytes=100), figures_with(leased=3, size=100), 0, "max_bytes"),
        (Limits(5, 1.0, 100), figures_with(5, size=100), 2, "max_pages"),
    ],
)
def test_a_limit_is_reached_when_what_it_counts_is_there(
    limits: Limits, counters: RunCounters, ran_s: float, reached: str
) -> None:
    assert limit_reached(limits, counters, ran_s) == reached


async def test_limits_are_kept_with_the_run(client: RedisClient, run: Run) -> None:
    limits = Limits(pages=10, seconds=2.5, bytes=10**12)

    await run.set_limits(limits)

    assert (await (await Run.find(client, "web")).read_map()).limits == limits


async def test_the_leader_stops_a_run_at_its_limit_and_says_which(run: Run, leader: Leader) -> None:
    await run.set_limits(Limits(pages=1))
    await crawl(run, "https://a.test/")

    assert await leader.step()

    run_map = await run.read_map()
    assert (run_map.state, run_map.reason) == (RunState.STOPPED, "max_pages")


async def test_the_leader_stops_a_run_after_the_seconds_it_may_run(run: Run, leader: Leader) -> None:
    await run.begin(is_first=True)
    await run.set_limits(Limits(seconds=60_000))
    await let_pass(run, 59_000)

    assert not await leader.step()
    await let_pass(run, 1000)
    assert await leader.step()
    assert (await run.read_map()).reason == "max_seconds"


async def test_a_limit_set_late_counts_what_is_already_fetched_and_leased(run: Run) -> None:
    frontier = frontier_of(run)
    await crawl(run, "https://a.test/", "https://b.test/")
    await frontier.admit([Candidate("https://c.test/")])
    await frontier.lease([(hold, 1) for hold in await hold_all(frontier)], chain=1, chain_ms=1000)

    await run.set_limits(Limits(pages=10))
    await run.set_limits(Limits(pages=20))

    assert await run.promise_pages(100, 20) == 17


# -- deletion --


async def keys_there(client: RedisClient) -> set[str]:
    cursor, found = await client.command("SCAN", 0, "COUNT", 100_000)
    assert int(cursor) == 0
    return {key.decode() for key in found}


async def test_deleting_a_run_removes_every_key_of_it_and_none_of_another(client: RedisClient) -> None:
    # Names made to be mistaken for each other, or for patterns.
    names = ["exp01", "exp91", "exp0", "exp", "p0", "p.0", "exp01-2"]
    runs = {name: await Run.open(client, name, partitions=PARTITIONS, shards=2) for name in names}
    for run in runs.values():
        await crawl(run, *(f"https://d{number}.test/" for number in range(20)))
        # Too long to be kept with the state of a domain.
        long = "x" * 256
        await frontier_of(run).admit(Candidate(f"https://w{number}.test/{long}") for number in range(20))
        queue = PageQueue(client, run.name)
        await queue.heartbeat("p", 0)
        await queue.take("p", 5)
        await hold_name(client, keys.shard(run.name, 0), ProcessName.of_this(), 60_000)
        await hold_name(client, keys.leader(run.name), ProcessName.of_this(), 60_000)
    everything = await keys_there(client)
    gone = everything - {key for key in everything if "{exp01}" not in key and "{exp01:" not in key}
    assert len(gone) > 40

    await runs["exp01"].delete()

    assert everything - await keys_there(client) == gone
    assert await client.command("SISMEMBER", keys.runs(), "exp01") == 0


async def test_a_run_deleted_while_in_use_is_one_clear_error(run: Run) -> None:
    await run.delete()

    with pytest.raises(RunMismatch, match="'web' is gone from Redis"):
        await status_of(run)
