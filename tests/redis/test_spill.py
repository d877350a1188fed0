"""A Redis short of room: parsers spill links to disk and admit them later; a crash at any step loses none."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.errors import Fenced, RedisFull, SetBack, StoreUnavailable
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate, Page
from crawlproj.model.run import RunPaths
from crawlproj.model.urls import domain_of
from crawlproj.observe import crashpoints
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.spill import SpilledLinks, SpillWriter
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run, RunState
from crawlproj.runs.leader import Leader
from crawlproj.runs.overview import overview_of
from crawlproj.storage import read_pages
from tests.conftest import RedisServer
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("quick_parsers")

RUN = "web"
PARTITIONS = 4
MakeParser = Callable[..., Parser]
MakeLinks = Callable[[], SpilledLinks]


@pytest.fixture
async def client(
    redis_server_factory: Callable[..., RedisServer], tmp_path: Path
) -> AsyncIterator[RedisClient]:
    """A client to a server of the test's own, so that others do not meet it short of room."""
    opened = await RedisClient.open(url=redis_server_factory().url, data_dir=tmp_path, wait_s=1)
    yield opened
    await opened.close()


@pytest.fixture
async def run(client: RedisClient) -> Run:
    run = await Run.open(client, RUN, partitions=PARTITIONS, shards=1)
    await run.begin(is_first=True)
    return run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return RunPaths(tmp_path, RUN).spills


@pytest.fixture
def make_parser(run: Run, tmp_path: Path) -> MakeParser:
    """Makes parsers that end when the queue is empty, or at their *rounds*-th look whether the run is over.

    A second passes at every look at the clock.
    """

    def make(name: str = "p-1", *, rounds: int = 1, **more: object) -> Parser:
        looks = itertools.count(1)
        seconds = itertools.count()

        async def is_over() -> bool:
            return next(looks) >= rounds

        settings = {"CRAWL_PARTITIONS": PARTITIONS, "CRAWL_SCOPE": "everything"}
        config = load_config(settings | {"CRAWL_DATA": str(tmp_path)})
        return Parser(run, config, name, is_over, clock=lambda: float(next(seconds)), **more)  # type: ignore[arg-type]

    return make


async def set_share(client: RedisClient, share: float) -> None:
    """Set maxmemory so that *share* of it is used; 0 for no limit."""
    # What is left must be more than a step takes for itself, which differs among servers.
    await client.command("CONFIG SET", "maxmemory", 0)
    await client.command("SETRANGE", "filler", 4_000_000, "x")
    used = (await client.read_memory()).used
    await client.command("CONFIG SET", "maxmemory", int(used / share) if share else 0)


async def push(client: RedisClient, *numbers: int) -> None:
    """Queue pages, each with a link of its own, one that all have, and one that looks like a trap."""
    for number in numbers:
        url = f"http://a.test/page/{number}"
        trap = "/".join(["deep"] * 60)
        links = (f"http://b.test/{number}", "http://c.test/", f"http://d.test/{trap}")
        body = "".join(f"<a href='{link}'>x</a>" for link in links).encode()
        page = Page(
            url, RUN, domain_of(url), 1, 200, 1_700_000_000_000, 5, {"content-type": "text/html"}, body
        )
        await client.command("RPUSH", keys.pages(RUN), pack(page))


async def spilled(run: Run) -> int:
    return (await run.read_counters()).spilled


async def trapped(client: RedisClient) -> int:
    return sum([await client.command("ZCARD", keys.trapped(RUN, p)) for p in range(PARTITIONS)])


def stored(tmp_path: Path) -> list[str]:
    return sorted(row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages, ("url",)))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def damage(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"[half a line\n")


def spill_of(directory: Path, parser: str, *urls: str) -> SpillWriter:
    writer = SpillWriter(directory, parser)
    writer.append([Candidate(url) for url in urls], {})
    return writer


async def record(run: Run, writer: SpillWriter) -> None:
    await PageQueue(run.client, RUN).record_spill(writer.seal())
    writer.forget()


@pytest.fixture
async def make_links(run: Run, directory: Path) -> AsyncIterator[MakeLinks]:
    """Makes readers of spill files. A second passes at every look at the clock."""
    made: list[SpilledLinks] = []
    seconds = itertools.count()

    def clock() -> float:
        return float(next(seconds))

    def make() -> SpilledLinks:
        made.append(SpilledLinks(run, Frontier(run.client, RUN, PARTITIONS), directory, 0.85, clock))
        return made[-1]

    yield make
    for links in made:
        await links.close()


# -- spilling --


async def test_pages_drain_and_their_links_are_spilled_while_redis_is_short_of_room(
    client: RedisClient, run: Run, make_parser: MakeParser, tmp_path: Path
) -> None:
    await Frontier(client, RUN, PARTITIONS).admit([Candidate("http://waits.test/")])
    await push(client, 1, 2)
    await set_share(client, 0.93)

    await make_parser().run()

    counters = await run.read_counters()
    assert stored(tmp_path) == ["http://a.test/page/1", "http://a.test/page/2"]
    assert (counters.admitted, counters.spilled, counters.unstored) == (1, 4, 0)
    assert await trapped(client) == 0


async def test_links_are_spilled_at_once_by_a_parser_that_took_redis_for_roomy(
    client: RedisClient, run: Run, make_parser: MakeParser, tmp_path: Path
) -> None:
    parser = make_parser()
    parser._outlinks.room._clock = lambda: 0.0
    assert not await parser._outlinks.room.is_short()
    await push(client, 1)
    await client.command("CONFIG SET", "maxmemory", 1)

    await parser.run()

    assert stored(tmp_path) == ["http://a.test/page/1"]
    assert await spilled(run) == 3


async def test_without_a_limit_nothing_is_spilled(
    client: RedisClient, run: Run, make_parser: MakeParser, directory: Path
) -> None:
    await push(client, 1)

    await make_parser().run()

    assert (await run.read_counters()).admitted == 2
    assert names(directory) == []


async def test_what_was_spilled_is_admitted_when_there_is_room_traps_and_all(
    client: RedisClient, run: Run, make_parser: MakeParser, directory: Path
) -> None:
    await push(client, 1, 2)
    await set_share(client, 0.93)
    await make_parser().run()

    await set_share(client, 0.5)
    await make_parser("p-2", rounds=5).run()

    counters = await run.read_counters()
    assert (counters.admitted, counters.waiting, counters.spilled) == (3, 3, 0)
    assert await trapped(client) == 1
    assert names(directory) == ["p-1-000001.links.admitted"]


async def test_links_of_pages_that_return_to_the_queue_are_spilled_again(
    client: RedisClient, run: Run, make_parser: MakeParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser must not take links for known that it discarded with their spill file."""
    parser = make_parser(rounds=3)
    commit, refusals = parser._queue.commit, [Fenced("reclaimed")]

    async def refuse_once(*arguments: object) -> None:
        if refusals:
            await parser._queue.leave("p-1")
            raise refusals.pop()
        await commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(parser._queue, "commit", refuse_once)
    await push(client, 1)
    await set_share(client, 0.93)

    await parser.run()

    assert await spilled(run) == 3


# -- a crash at each step --


class Killed(BaseException):
    """What a SIGKILL is to a test in one process: nothing after it is done."""


@pytest.mark.parametrize(
    "step",
    [
        "commit_begun",
        "file_closed",
        "files_synced",
        "segment_recorded",
        "file_renamed",
        "segment_published",
    ],
)
async def test_a_parser_killed_at_any_step_of_a_commit_loses_no_spilled_link(
    client: RedisClient,
    run: Run,
    make_parser: MakeParser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    def die(at: str) -> None:
        if at == step:
            raise Killed

    await push(client, 1, 2)
    await set_share(client, 0.93)
    monkeypatch.setattr(crashpoints, "watcher", die)
    with pytest.raises(Killed):
        await make_parser("dying-1").run()
    monkeypatch.setattr(crashpoints, "watcher", None)
    await PageQueue(client, RUN).reclaim_dead(2**53, 0)

    await make_parser("p-2").run()
    await set_share(client, 0)
    await make_parser("p-3", rounds=5).run()

    counters = await run.read_counters()
    assert stored(tmp_path) == ["http://a.test/page/1", "http://a.test/page/2"]
    assert (counters.admitted, counters.spilled, await trapped(client)) == (3, 0, 1)


async def test_a_spill_file_is_on_disk_before_it_is_recorded(
    client: RedisClient, make_parser: MakeParser, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    fsync = os.fsync

    def note(fd: int) -> None:
        events.append(f"fsync {Path(f'/proc/self/fd/{fd}').readlink().name}")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    await push(client, 1)
    await set_share(client, 0.93)

    await make_parser().run()

    known = [event for event in events if event.endswith((".links", "spills", "commit_segment"))]
    assert known == ["fsync p-1-000001.links", "fsync spills", "commit_segment"]


async def test_a_repeated_commit_does_not_bring_back_a_spill_that_was_admitted(
    client: RedisClient, run: Run
) -> None:
    queue = PageQueue(client, RUN)
    await push(client, 1)
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)
    await queue.commit("p", "p-000001", 1, {}, ("p-000001.links", "3 here"))
    await client.command("HDEL", keys.spills(RUN), "p-000001.links")

    await queue.commit("p", "p-000001", 1, {}, ("p-000001.links", "3 here"))

    assert await spilled(run) == 0


async def test_unrecorded_files_are_removed_only_if_their_parser_is_dead(
    run: Run, directory: Path, make_links: MakeLinks
) -> None:
    writers = {
        parser: spill_of(directory, parser, f"http://{parser}.test/")
        for parser in ("dead-1", "silent-1", "alive-1", "recorded-1")
    }
    await record(run, writers["recorded-1"])
    # What the kernel does when its process ends.
    writers["dead-1"].seal()
    writers["dead-1"].forget()

    async def living() -> set[str]:
        return {"alive-1"}

    await make_links().remove_abandoned(living)

    assert names(directory) == [
        "alive-1-000001.links",
        "recorded-1-000001.links",
        # If Redis is set back, it may yet be recorded.
        "silent-1-000001.links",
    ]


# -- admitting what was spilled --


async def test_files_are_admitted_oldest_first(run: Run, directory: Path, make_links: MakeLinks) -> None:
    for number, parser in enumerate(("c", "a", "b")):
        writer = spill_of(directory, parser, f"http://{parser}.test/")
        await record(run, writer)
        os.utime(directory / f"{parser}-000001.links", (number, number))
    links, order = make_links(), []

    while (await links.admit(is_idle=False)) is not None:
        if links._file:
            order.append(links._name[0])

    assert order == ["c", "a", "b"]


async def test_a_file_that_another_parser_reads_is_left_alone(
    run: Run, directory: Path, make_links: MakeLinks
) -> None:
    await record(run, spill_of(directory, "p", "http://b.test/"))

    with (directory / "p-000001.links").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        while_read = await make_links().admit(is_idle=True)
    after = await make_links().admit(is_idle=True)

    assert (while_read, after) == (None, 1)


async def test_a_reader_killed_before_the_record_is_gone_leaves_a_file_that_is_found_again(
    run: Run, directory: Path, make_links: MakeLinks
) -> None:
    await record(run, spill_of(directory, "p", "http://b.test/"))
    (directory / "p-000001.links").rename(directory / "p-000001.links.admitted")
    links = make_links()

    assert await links.admit(is_idle=False) == 1
    assert await links.admit(is_idle=False) == 0
    assert await spilled(run) == 0


async def test_a_file_is_renamed_before_its_record_is_removed(
    run: Run, directory: Path, make_links: MakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(run, spill_of(directory, "p", "http://b.test/"))
    links, command = make_links(), run.client.command
    await links.admit(is_idle=False)

    async def die(*arguments: object, **options: object) -> object:
        if arguments[0] == "HDEL":
            raise Killed
        return await command(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(run.client, "command", die)
        with pytest.raises(Killed):
            await links.admit(is_idle=False)

    assert names(directory) == ["p-000001.links.admitted"]
    assert await spilled(run) == 1


async def test_links_are_there_when_redis_is_set_back_and_gone_when_the_run_has_ended(
    client: RedisClient, run: Run, directory: Path, make_links: MakeLinks
) -> None:
    writer = spill_of(directory, "p", "http://b.test/")
    name, value = writer.seal()
    await record(run, writer)
    links = make_links()
    while (await links.admit(is_idle=False)) is not None:
        pass
    await links.close()

    await client.command("UNLINK", *await client.command("KEYS", "*}:p*:*"))
    await client.command("HSET", keys.spills(RUN), name, value)
    links = make_links()
    again = await links.admit(is_idle=False)
    await links.admit(is_idle=False)
    await run.change(RunState.FINISHED)
    await links.close()

    assert again == 1
    assert names(directory) == []


@pytest.mark.parametrize("batches", [1, 2], ids=["between batches", "before the record is removed"])
async def test_a_file_is_read_again_when_redis_was_set_back_meanwhile(
    client: RedisClient, run: Run, directory: Path, make_links: MakeLinks, batches: int
) -> None:
    run.watch()
    writer = spill_of(directory, "p", *(f"http://b.test/{n}" for n in range(1500)))
    await record(run, writer)
    links = make_links()
    links._frontier.generation = client.generation
    for _ in range(batches):
        await links.admit(is_idle=False)

    # As after a restart that lost what was admitted.
    await client.pipeline([("UNLINK", key) for key in await client.command("KEYS", "*}:p*:*")])
    await client.command("UNLINK", keys.witness(RUN))
    for connection in client._route._pool._free:
        await connection.disconnect()
    with pytest.raises(SetBack):
        await links.admit(is_idle=False)
    links.start_over()
    links._frontier.generation = client.generation
    while await links.admit(is_idle=False) is not None:
        pass

    counters = await run.read_counters()
    assert (counters.admitted, counters.spilled) == (1500, 0)


async def test_a_damaged_line_is_logged_and_the_others_are_admitted(
    run: Run, directory: Path, make_links: MakeLinks, caplog: pytest.LogCaptureFixture
) -> None:
    writer = spill_of(directory, "p", "http://b.test/", "http://c.test/")
    damage(directory / writer.name)
    await record(run, writer)

    assert await make_links().admit(is_idle=False) == 2
    assert "ignoring a damaged line of p-000001.links" in caplog.text


async def test_a_disk_that_refuses_the_new_name_is_waited_for_and_the_record_stays(
    run: Run, directory: Path, make_links: MakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    await record(run, spill_of(directory, "p", "http://b.test/"))
    links = make_links()
    await links.admit(is_idle=False)
    monkeypatch.setattr(Path, "rename", refuse)

    with pytest.raises(StoreUnavailable, match="Read-only"):
        await links.admit(is_idle=False)

    assert await spilled(run) == 1


async def test_nothing_is_admitted_while_redis_is_short_of_room_and_urls_wait(
    client: RedisClient, run: Run, directory: Path, make_links: MakeLinks
) -> None:
    await Frontier(client, RUN, PARTITIONS).admit([Candidate("http://waits.test/")])
    await record(run, spill_of(directory, "p", "http://b.test/"))
    await set_share(client, 0.93)

    assert await make_links().admit(is_idle=True) is None


async def test_when_nothing_else_is_left_links_are_admitted_although_redis_is_short_of_room(
    client: RedisClient, run: Run, directory: Path, make_links: MakeLinks
) -> None:
    await record(run, spill_of(directory, "p", "http://b.test/"))
    await set_share(client, 0.93)
    links = make_links()

    busy, idle = await links.admit(is_idle=False), await links.admit(is_idle=True)

    assert (busy, idle) == (None, 1)


@pytest.mark.parametrize(("share", "second"), [(0.88, 1), (0.96, None)])
async def test_then_half_of_what_is_left_of_redis_is_used(
    client: RedisClient,
    run: Run,
    directory: Path,
    make_links: MakeLinks,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    second: int | None,
) -> None:
    monkeypatch.setattr("crawlproj.parsing.spill._BATCH", 1)
    await record(run, spill_of(directory, "p", "http://b.test/", "http://c.test/"))
    links = make_links()
    await set_share(client, share)

    admitted = [await links.admit(is_idle=True), await links.admit(is_idle=True)]

    assert admitted == [1, second]


async def test_only_if_that_is_impossible_an_error_says_to_raise_maxmemory(
    client: RedisClient,
    run: Run,
    directory: Path,
    make_links: MakeLinks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await record(run, spill_of(directory, "p", "http://b.test/"))
    await client.command("CONFIG SET", "maxmemory", 1)
    links = make_links()

    tried = [await links.admit(is_idle=True) for _ in range(3)]
    await client.command("CONFIG SET", "maxmemory", 0)
    later = [await links.admit(is_idle=True) for _ in range(2)]

    [error] = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert "Raise maxmemory" in error.getMessage()
    assert (tried, later[-1]) == ([None] * 3, 0)
    assert await spilled(run) == 0


async def test_a_full_redis_refuses_at_once_what_is_not_to_wait(client: RedisClient, run: Run) -> None:
    client.retry._wait_s = 2 * PATIENCE_S
    await client.command("CONFIG SET", "maxmemory", 1)

    admitting = Frontier(client, RUN, 1).admit([Candidate("http://b.test/")], waits_for_room=False)
    with pytest.raises(RedisFull, match="Raise maxmemory"):
        await asyncio.wait_for(admitting, PATIENCE_S)


# -- the run --


async def test_a_run_does_not_end_while_links_are_spilled(run: Run, directory: Path) -> None:
    await Frontier(run.client, RUN, PARTITIONS).admit([Candidate("http://a.test/")])
    await run.client.command("UNLINK", keys.meta(RUN, 0))
    for partition in range(PARTITIONS):
        await run.client.command("HSET", keys.meta(RUN, partition), "waiting", 0)
    writer = spill_of(directory, "p", "http://b.test/")
    name, _ = writer.seal()
    await record(run, writer)
    leader = Leader(run, ProcessName.of_this(), 10_000)

    with_links = [await leader.step() for _ in range(3)]
    await run.client.command("HDEL", keys.spills(RUN), name)
    without = [await leader.step() for _ in range(3)]

    assert with_links == [False] * 3
    assert True in without


async def test_parsers_are_asked_to_commit_although_links_are_spilled(
    client: RedisClient, run: Run, directory: Path
) -> None:
    await push(client, 1)
    queue = PageQueue(client, RUN)
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)
    await record(run, spill_of(directory, "p", "http://b.test/"))

    await Leader(run, ProcessName.of_this(), 10_000).step()

    assert await run.commits_asked() > 0


async def test_the_status_says_where_spilled_links_are_and_that_admission_waits(
    client: RedisClient, run: Run
) -> None:
    queue = PageQueue(client, RUN)
    await queue.heartbeat("p", 0, short_of_room=True)
    await queue.record_spill(("p-000001.links", "7 machine-b"))

    status = await overview_of(run)

    assert status["links_spilled"] == 7
    assert status["spill_files"] == [{"file": "p-000001.links", "links": 7, "host": "machine-b"}]
    assert status["admission_waits"] is True
