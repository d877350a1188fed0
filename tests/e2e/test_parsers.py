"""Parsers as real processes, killed, hung, starved of room: no page is lost and none is stored twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from crawlproj.config import load_config
from crawlproj.model.records import Page, decode_entry
from crawlproj.model.run import RunPaths
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.pages.envelope import VERSION, pack
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState
from crawlproj.runs.rules import agree
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from crawlproj.storage.sink import SINKS
from tests.e2e.conftest import QUICK, wait_until
from tests.e2e.dying import Crash, killed_at
from tests.e2e.warm import WarmProcess
from tests.waiting import waiting_of

pytestmark = pytest.mark.e2e

T = TypeVar("T")
RUN = "web"
PARTITIONS = 64
WORDS = "<p>" + "The quick brown fox jumps over the lazy dog, and then it rests a while. " * 12 + "</p>"
#: Its end makes this expression try all ways to split the rest, which takes for ever.
HANGS_ON = {"hang": "xpath://body[re:test(string(.), '(a+)+$')]"}
HANGING_BODY = "<body>" + "a" * 60 + "!"


def letter_id(page: Page) -> str:
    """Return the id of *page* as a dead letter."""
    return DeadLetter.of(pack(page), page.url, "", "").page


def page_of(number: int, body: str | None = None, **more: Any) -> Page:
    """A page with a link of its own, and one that other pages have, too."""
    domain = f"site{number % 40}.test"
    html = body or (
        f"<title>Page {number}</title><body>{WORDS}<p>{random.Random(number).randbytes(800).hex()}</p>"
        f"<a href='http://site{number * 7 % 40}.test/found/{number}'>own</a>"
        f"<a href='http://shared.test/{number % 100}'>shared</a>"
    )
    headers = {"content-type": "text/html; charset=utf-8"}
    page = Page(
        f"http://{domain}/page/{number}", RUN, domain, 1, 200, 1_700_000_000_000, 5, headers, html.encode(),
    )  # fmt: skip
    for name, value in more.items():
        setattr(page, name, value)
    return page


class Pages:
    """Pages put onto the queue of a run as a shard does it, and what must have become of them."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self.data = data
        self.directory = data / "runs" / RUN / "pages"
        self.stored: set[str] = set()
        self.links: set[str] = set()

    def put(self, numbers: range) -> None:
        self.put_raw(*(pack(page_of(number)) for number in numbers))
        self.stored |= {page_of(number).url for number in numbers}
        self.links |= {f"http://site{number * 7 % 40}.test/found/{number}" for number in numbers}
        self.links |= {f"http://shared.test/{number % 100}" for number in numbers}

    def put_raw(self, *raw: bytes) -> None:
        async def push(client: RedisClient) -> None:
            await Run.open(client, RUN, partitions=PARTITIONS)
            for first in range(0, len(raw), 500):
                batch = raw[first : first + 500]
                await client.command("RPUSH", keys.pages(RUN), *batch)
                await client.command(
                    "HINCRBY", keys.page_counters(RUN), "queued_bytes", sum(len(page) for page in batch)
                )

        self._ask(push)

    def set_rules(self, settings: dict[str, str], *changed: str) -> None:
        """As the first shard does: a parser waits for that. If there are rules, only *changed* ones count."""

        async def work(client: RedisClient) -> None:
            run = await Run.open(client, RUN, partitions=PARTITIONS)
            await agree(run, load_config(settings), changed, may_change=True)

        self._ask(work)

    def unstored(self) -> int:
        return self._ask(lambda client: Run(client, RUN, PARTITIONS).read_counters()).unstored

    def waiting(self) -> int:
        return self._ask(lambda client: PageQueue(client, RUN).length())

    def parsers(self) -> set[str]:
        return self._ask(lambda client: PageQueue(client, RUN).parsers())

    def segments(self) -> set[str]:
        return set(self._ask(lambda client: PageQueue(client, RUN).segments()))

    def counters(self) -> dict[str, int]:
        flat = self._ask(lambda client: client.command("HGETALL", keys.page_counters(RUN)))
        return {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def finish(self) -> None:
        """Say that the run is over, as its leader does: parsers leave."""

        async def end(client: RedisClient) -> None:
            run = await Run.find(client, RUN)
            await run.change(RunState.RUNNING)
            await run.change(RunState.FINISHED)

        self._ask(end)

    def assert_stored_once(self, formats: Sequence[str] = ("parquet",), beside: Sequence[str] = ()) -> None:
        """Every page and every link exactly once, everything readable, nothing left but keys *beside*."""
        for name in formats:
            files = sorted(self.directory.glob(f"*{SINKS[name].suffix}"))
            urls = Counter(row["url"] for path in files for row in SINKS[name].read(path, ("url",)))
            _assert_once(urls, self.stored, f"{name} pages")
        _assert_once(
            Counter(row["url"] for row in read_pages(self.directory, ("url",))), self.stored, "read_pages"
        )
        assert sorted(self.directory.glob("*.part")) == []
        bases = {re.sub(r"(-\d{6,})\..*", r"\1", path.name) for path in self.directory.iterdir()}
        assert bases == self.segments()
        counters = self.counters()
        assert counters["stored"] == len(self.stored)
        assert counters["queued_bytes"] == 0
        entries, kinds, admitted = self._ask(self._read_frontier)
        _assert_once(entries, self.links, "links")
        assert admitted == len(self.links)
        # No queue, no list of a parser, and nothing that could lock out anybody.
        partition = {"meta", "ready", "newcomers", "domains", "seen", "q"}
        assert kinds - partition <= {"runs", "run", "segments", "page-counters", "witness", *beside}

    async def _read_frontier(self, client: RedisClient) -> tuple[Counter[str], set[str], int]:
        run = await Run.find(client, RUN)
        entries: Counter[str] = Counter()
        for partition in range(run.partitions):
            fields = await client.command("HKEYS", keys.domains(RUN, partition))
            waiting = await waiting_of(client, RUN, partition, *(name.decode() for name in fields))
            for domain, lanes in waiting.lanes.items():
                entries.update(decode_entry(entry, domain)[2] for lane in lanes for entry in lane)
        # A key of a partition names it first.
        names = [
            re.sub(rb"}:p\d+:", b"}:", key).decode() async for found in client.scan("*") for key in found
        ]
        kinds = {name.rpartition("}:")[2].removeprefix("crawl:").split(":")[0] for name in names}
        return entries, kinds, (await run.read_counters()).admitted

    def _ask(self, question: Callable[[RedisClient], Awaitable[T]]) -> T:
        async def ask() -> T:
            client = await RedisClient.open(url=self.url, data_dir=self.data)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(ask())


def _assert_once(found: Counter[str], expected: set[str], what: str) -> None:
    assert [item for item, count in found.items() if count > 1][:5] == [], f"{what} twice"
    assert sorted(expected - set(found))[:5] == [], f"{what} lost"
    assert sorted(set(found) - expected)[:5] == [], f"{what} from nowhere"


def child_of(guard: subprocess.Popen[bytes] | WarmProcess) -> int | None:
    """The process that does a parser's work, None while there is none."""
    try:
        children = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def a_busy_one(parsers: list[Any], chance: random.Random) -> Any:
    busy = [parser for parser in parsers if child_of(parser.process)]
    return chance.choice(busy) if busy else None


def kill_child(guard: subprocess.Popen[bytes]) -> None:
    child = child_of(guard)
    if child is not None:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.fixture
def pages(empty_redis_url: str, tmp_path: Path) -> Pages:
    return Pages(empty_redis_url, tmp_path / "data")


@pytest.fixture
def parser(pages: Pages, scrapy: Callable[..., Any]) -> Callable[..., Any]:
    """Starts a parser with small batches and segments; the settings of the first are the rules of the run."""

    def start(**settings: str) -> Any:
        small = {"CRAWL_PARSE_BATCH": "16", "CRAWL_SEGMENT_PAGES": "64", "CRAWL_SEGMENT_SECONDS": "0.5"}
        pages.set_rules(QUICK | settings)
        return scrapy("parser", **(small | {"LOG_LEVEL": "INFO"} | settings))

    return start


@pytest.fixture
def settle(pages: Pages, wait_for: Callable[..., Any]) -> Callable[..., None]:
    """Waits until every page is stored, ends the run, and expects the parsers to leave by themselves."""

    def settle(*parsers: Any) -> None:
        wait_for(lambda: pages.unstored() == 0, "all pages are stored")
        pages.finish()
        for process in parsers:
            assert process.wait() == 0, process.log[-3000:]

    return settle


@pytest.mark.parametrize(("formats", "seed"), [("parquet", 1), ("jsonl,warc", 2)])
def test_parsers_killed_at_random_moments_lose_no_page_and_store_none_twice(
    pages: Pages,
    parser: Callable[..., Any],
    settle: Callable[..., None],
    wait_for: Callable[..., Any],
    formats: str,
    seed: int,
) -> None:
    pages.put(range(5000))
    chance = random.Random(seed)
    kinds = ["guard"] * 5 + ["child"] * 30
    chance.shuffle(kinds)
    # Killed by us over and over, not by its pages: none may become a dead letter.
    settings = {"PAGE_STORE": formats, "CRAWL_PAGE_ATTEMPTS": "100"}
    running = [parser(**settings) for _ in range(3)]

    for number, kind in enumerate(kinds):
        # Spread over all of the pages, at any moment of what a parser does.
        left = 5000 - 5000 * number // len(kinds)
        wait_for(lambda left=left: pages.waiting() <= left, f"{left} pages are left")
        time.sleep(chance.uniform(0.0, 0.1))
        victim = wait_for(lambda running=running: a_busy_one(running, chance), "a parser works")
        if kind == "guard":
            victim.kill()
        else:
            kill_child(victim.process)
        running = [process if process.is_running else parser(**settings) for process in running]
    settle(*running)

    assert pages.counters()["taken_back"] > 0
    pages.assert_stored_once(formats.split(","))


def test_a_parser_killed_at_every_step_of_a_commit_loses_no_page_and_stores_none_twice(
    pages: Pages, scrapy: Callable[..., Any], settle: Callable[..., None], tmp_path: Path
) -> None:
    pages.put(range(200))
    steps = (
        "commit_begun file_closed file_closed:2 files_synced segment_recorded file_renamed file_renamed:2 "
        "segment_published"
    )
    plan = [Crash.read(step, "both") for step in steps.split()]
    settings = {"PAGE_STORE": "parquet,jsonl", "CRAWL_PARSE_BATCH": "8", "CRAWL_SEGMENT_PAGES": "16"}
    pages.set_rules(QUICK | settings)

    parser = scrapy(
        "parser", before=killed_at(plan, tmp_path / "deaths"), **settings, CRAWL_SEGMENT_SECONDS="1"
    )
    settle(parser)

    assert (tmp_path / "deaths").read_text().split() == [crash.point for crash in plan]
    pages.assert_stored_once(("parquet", "jsonl"))


@pytest.mark.parametrize("count", [2, 8])
def test_parsers_side_by_side_store_every_page_and_admit_every_link_once(
    pages: Pages,
    parser: Callable[..., Any],
    settle: Callable[..., None],
    wait_for: Callable[..., Any],
    count: int,
) -> None:
    running = [parser(CRAWL_PARSE_BATCH="4", CRAWL_SEGMENT_PAGES="32") for _ in range(count)]
    wait_for(lambda: len(pages.parsers()) == count, "all parsers wait for pages")

    pages.put(range(2000))
    settle(*running)

    assert len({name.rpartition("-")[0] for name in pages.segments()}) > count / 2
    pages.assert_stored_once()


def test_pages_that_hang_are_tried_three_times_and_become_dead_letters(
    pages: Pages, parser: Callable[..., Any], scrapy: Callable[..., Any], settle: Callable[..., None]
) -> None:
    hanging = [page_of(number, HANGING_BODY) for number in (9001, 9002)]
    pages.put(range(50))
    pages.put_raw(*(pack(page) for page in hanging))
    pages.put(range(50, 100))

    settle(parser(CRAWL_FIELDS=json.dumps(HANGS_ON), CRAWL_PARSE_SECONDS="2"))

    pages.assert_stored_once(beside=("dead", "dead-pages", "dead-ages"))
    # More if the machine was so busy that another one took as long.
    assert pages.counters()["failed"] >= 6
    listed = scrapy("deadletters", "--json")
    assert listed.wait() == 0
    letters = {letter["url"]: letter for letter in map(json.loads, listed.log.splitlines())}
    assert set(letters) == {page.url for page in hanging}
    assert letters[hanging[0].url]["page"] == letter_id(hanging[0])
    assert {letter["error"] for letter in letters.values()} == {"took longer than CRAWL_PARSE_SECONDS"}


def test_a_page_that_takes_too_much_memory_becomes_a_dead_letter(
    pages: Pages, parser: Callable[..., Any], scrapy: Callable[..., Any], settle: Callable[..., None]
) -> None:
    # Each line takes several hundred bytes to be judged.
    greedy = page_of(9001, "<p>x" * 2_000_000)
    pages.put(range(20))
    pages.put_raw(pack(greedy))

    settle(
        parser(CRAWL_PARSER_MEMORY="500000000", CRAWL_MAX_BODY="10000000", CRAWL_PARSE_SECONDS="60"),
    )

    pages.assert_stored_once(beside=("dead", "dead-pages", "dead-ages"))
    listed = scrapy("deadletters", "--json")
    assert listed.wait() == 0
    [letter] = map(json.loads, listed.log.splitlines())
    assert letter["url"] == greedy.url
    assert letter["error"].startswith("took more memory than CRAWL_PARSER_MEMORY")


@pytest.mark.parametrize("most_bytes", ["0", "64000000"])
def test_a_page_that_kills_its_parser_becomes_a_dead_letter_and_can_be_replayed(
    most_bytes: str,
    tmp_path: Path,
    pages: Pages,
    parser: Callable[..., Any],
    scrapy: Callable[..., Any],
    settle: Callable[..., None],
    wait_for: Callable[..., Any],
) -> None:
    pages.put(range(20))
    deadly = page_of(9001, HANGING_BODY)
    pages.put_raw(pack(deadly))

    dying = parser(
        CRAWL_FIELDS=json.dumps(HANGS_ON),
        CRAWL_PARSE_SECONDS="60",
        CRAWL_PAGE_ATTEMPTS="2",
        CRAWL_DEAD_LETTER_BYTES=most_bytes,
    )
    # The kernel kills what uses more CPU, as it kills what uses more memory than there is.
    resource.prlimit(dying.process.pid, resource.RLIMIT_CPU, (2, 2))
    # From now on a child inherits that; one may be there already.
    if child := child_of(dying.process):
        resource.prlimit(child, resource.RLIMIT_CPU, (2, 2))
    wait_for(lambda: pages.counters().get("dead"), "the page is a dead letter")
    on_disk = RunPaths(tmp_path / "data", RUN).deadletters
    if most_bytes == "0":
        wait_for(lambda: [*on_disk.glob("*.letter")], "the next parser has moved it to disk")
    dying.send(signal.SIGTERM)
    assert dying.wait() == 0
    shown = scrapy("deadletters", "--show", letter_id(deadly))
    assert shown.wait() == 0
    replayed = scrapy("deadletters", "--replay", "--all")
    assert replayed.wait() == 0
    pages.stored.add(deadly.url)
    pages.set_rules(QUICK, "CRAWL_FIELDS")
    settle(parser())

    assert [*on_disk.glob("*")] == []
    assert "killed its parser with SIG" in shown.log
    assert "aaaaaaaa" in shown.log
    assert "1 pages put back on the queue of run web" in replayed.log
    pages.assert_stored_once()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--replay"], "Use --show or --replay with pages, or with --all"),
        (["--all"], "Use --show or --replay with pages, or with --all"),
        (["7:1"], "Use --show or --replay with pages, or with --all"),
        (["--replay", "7:1"], "Run 'web' has no dead letter '7:1'."),
        (["--run", "other"], "There is no run 'other' here; there are: web."),
    ],
)
def test_deadletters_says_in_one_line_what_is_wrong(
    pages: Pages, scrapy: Callable[..., Any], arguments: list[str], complaint: str
) -> None:
    pages.put(range(1))

    refused = scrapy("deadletters", *arguments)

    assert refused.wait() != 0
    assert complaint in refused.log
    assert len(refused.log.splitlines()) == 1


def test_damaged_and_unknown_records_become_dead_letters_and_stop_nothing(
    pages: Pages, parser: Callable[..., Any], scrapy: Callable[..., Any], settle: Callable[..., None]
) -> None:
    whole = pack(page_of(9001))
    pages.put_raw(whole[:-40], VERSION + b"nonsense", b"")
    pages.put(range(20))
    pages.put_raw(b"\xe9" + whole[1:])

    settle(parser())

    pages.assert_stored_once(beside=("dead", "dead-pages", "dead-ages"))
    listed = scrapy("deadletters")
    assert listed.wait() == 0
    assert len(listed.log.splitlines()) == 4
    assert listed.log.count("is damaged") == 2
    assert listed.log.count("page record begins with") == 2


def test_a_request_to_stop_is_noticed_by_a_parser_that_just_starts(
    pages: Pages, parser: Callable[..., Any]
) -> None:
    pages.put(range(10))
    starting = parser()
    while not child_of(starting.process):
        time.sleep(0.001)

    starting.send(signal.SIGTERM)

    assert starting.wait() == 0


def _targets(table: Path) -> list[Path]:
    """What the descriptors of a process lead to; nothing for one that has just gone."""
    try:
        return [descriptor.readlink() for descriptor in table.iterdir()]
    except OSError:
        return []


class SmallDisk:
    """A file system of its own for the pages, which can be filled and made read-only."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)],
            capture_output=True,
            check=False,
        )
        self.is_there = mounted.returncode == 0

    def fill(self, parser: Any) -> None:
        with (self.directory / ".filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

    def clear(self, parser: Any) -> None:
        (self.directory / ".filler").unlink()

    def lock(self, parser: Any) -> None:
        self._remount("ro")

    def unlock(self, parser: Any) -> None:
        self._remount("rw")

    def is_idle(self) -> bool:
        """Whether no process has a file open here."""
        return not any(
            str(self.directory) in str(target)
            for table in Path("/proc").glob("[0-9]*/fd")
            for target in _targets(table)
        )

    def _remount(self, how: str) -> None:
        command = ["mount", "-o", f"remount,{how}", str(self.directory)]
        # Files of a process that has just died may still be being closed.
        wait_until(lambda: subprocess.run(command, check=False).returncode == 0, f"the disk is {how}")

    def unmount(self) -> None:
        if self.is_there:
            subprocess.run(["umount", "-l", str(self.directory)], check=True)


@pytest.fixture
def small_disk(pages: Pages) -> Iterator[SmallDisk]:
    disk = SmallDisk(pages.directory)
    if not disk.is_there:
        pytest.skip("only who may mount a file system can fill one")
    yield disk
    disk.unmount()


def limit_files(parser: Any, largest_bytes: int) -> None:
    """Have the system refuse to let files of this parser grow, as a full disk does."""
    for pid in (parser.process.pid, child_of(parser.process)):
        if pid:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest_bytes, resource.RLIM_INFINITY))


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_parser_without_disk_space_logs_once_and_waits_until_there_is_some(
    pages: Pages,
    parser: Callable[..., Any],
    settle: Callable[..., None],
    wait_for: Callable[..., Any],
    small_disk: SmallDisk,
    trouble: str,
) -> None:
    begin, end = {
        "full": (small_disk.fill, small_disk.clear),
        "read-only": (small_disk.lock, small_disk.unlock),
    }[trouble]
    running = parser()
    pages.put(range(200))
    wait_for(lambda: pages.unstored() == 0, "the first pages are stored")

    begin(running)
    pages.put(range(200, 600))
    wait_for(lambda: running.says("pages cannot be stored, waiting"), "the parser logs it")
    wait_for(lambda: pages.waiting() == pages.unstored() >= 350, "all pages are given back")
    end(running)
    settle(running)

    assert running.log.count("pages cannot be stored, waiting") == 1
    assert running.says("pages can be stored again")
    pages.assert_stored_once()


def test_what_a_dead_parser_left_on_a_read_only_disk_is_cleared_up_when_it_can_be(
    pages: Pages,
    parser: Callable[..., Any],
    settle: Callable[..., None],
    wait_for: Callable[..., Any],
    small_disk: SmallDisk,
) -> None:
    pages.put(range(30))
    dead = parser(CRAWL_SEGMENT_SECONDS="60")
    wait_for(lambda: pages.waiting() == 0 and list(pages.directory.glob("*.part")), "a segment is open")
    dead.kill()
    wait_for(small_disk.is_idle, "its child is gone, too")

    small_disk.lock(dead)
    heir = parser()
    wait_for(lambda: heir.says("pages cannot be stored, waiting"), "the next one logs it")
    small_disk.unlock(heir)
    settle(heir)

    assert heir.log.count("ERROR") == 1
    pages.assert_stored_once()


def test_a_parser_that_waits_for_room_can_be_stopped_and_loses_nothing(
    pages: Pages, parser: Callable[..., Any], settle: Callable[..., None], wait_for: Callable[..., Any]
) -> None:
    waiting = parser()
    wait_for(lambda: len(pages.parsers()) == 1, "the parser waits for pages")
    limit_files(waiting, 30_000)
    pages.put(range(200))
    wait_for(lambda: waiting.says("pages cannot be stored, waiting"), "it logs that")

    waiting.send(signal.SIGTERM)

    assert waiting.wait() == 0, waiting.log
    assert pages.parsers() == set()
    settle(parser())
    pages.assert_stored_once()


def test_the_page_queue_stays_bounded_without_a_parser_and_the_crawl_ends_with_one(
    crew_of: Callable[..., Any],
) -> None:
    soft, hard, requests, most_leases, partitions = 30, 50, 8, 16, 8
    crew = crew_of(
        WorldSpec(seed=9, domains=100, pages_per_domain=3, latency_ms=100),
        CRAWL_PARTITIONS=str(partitions),
        CRAWL_PAGE_QUEUE_SOFT=str(soft),
        CRAWL_PAGE_QUEUE_HARD=str(hard),
        CRAWL_LEASE_BATCH=str(most_leases),
        CONCURRENT_REQUESTS=str(requests),
    )
    # Every page of the web as a seed: there is far more to fetch than the queue may hold.
    crew.seeds_file.write_text("".join(f"{url}\n" for url in sorted(crew.referee().expected)))

    [shard] = crew.start(shards=1, parsers=0)
    crew.wait_until(lambda: shard.says("page queue full, leasing nothing"), "the queue is full")
    crew.wait_until(lambda: crew.status()["leased"] == 0, "what was lent is fetched")
    full = crew.status()
    shard.send(signal.SIGTERM)
    assert shard.wait() == 0
    after = crew.status()
    crew.start(shards=1, parsers=1)
    crew.finish(*crew.processes[1:])

    # It looks at the queue five times a second, at some 80 pages a second; each partition gives one at least.
    assert hard <= full["pages_queued"] <= hard + most_leases + partitions + requests + 80 / 5
    assert full["waiting"] > hard
    assert after["pages_queued"] == full["pages_queued"]
    assert after["leased"] == 0
    crew.assert_content()
