"""Segments that are merged, and with them the script merge_segments.

Each page is in one file at any time, whoever dies, and if Redis is set back.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from crawlproj.config import load_config
from crawlproj.console import load_command, parser_of
from crawlproj.errors import BadArgument, Fenced, StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.model.run import RunState
from crawlproj.model.segment import SegmentRecord
from crawlproj.observe import crashpoints
from crawlproj.observe.crashpoints import MERGE_POINTS
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import read_segments
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import Holder, ProcessName
from crawlproj.runs import Run
from crawlproj.storage import inventory, read_items, read_pages, sorting
from crawlproj.storage.browse import PageFilter, browse, find_page
from crawlproj.storage.inventory import check, difference
from crawlproj.storage.merging import Segment, groups_to_merge
from crawlproj.storage.objects import Place, StorePath, place_of
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.query import QueryResult
from crawlproj.supervisor import compaction
from crawlproj.supervisor.compaction import Compacted, Compaction
from tests.powercut import PowerCut
from tests.redis.setbacks import Backup

RUN = "web"
TARGET_BYTES = 1 << 20
DOMAINS = ("b.test", "c.test", "a.test")
#: Pages of a segment, and segments.
EACH, SEGMENTS = 3, 4


@dataclass
class Where:
    """A run with small segments on a disk or in a store."""

    run: Run
    data: Path
    store: str | None
    formats: str = "parquet,jsonl"
    stored: int = 0

    @property
    def directory(self) -> Place:
        return place_of(self.store or self.data) / "runs" / RUN

    @property
    def config(self) -> Any:
        store = {"CRAWL_STORE": self.store} if self.store else {}
        return load_config({"CRAWL_DATA": str(self.data), "PAGE_STORE": self.formats, **store})

    async def store_segment(self, name: str) -> None:
        """Store some pages, each with an item, as a parser does."""

        async def is_over() -> bool:
            return True

        for _ in range(EACH):
            domain = DOMAINS[self.stored % len(DOMAINS)]
            page = Page(
                f"http://{domain}/{self.stored}", RUN, domain, 0, 200, self.stored, 1, {}, b"<p>some text"
            )
            page.headers["content-type"] = "text/html"
            page.items = [json.dumps({"from": page.url})]
            await self.run.client.command("RPUSH", keys.pages(RUN), pack(page))
            self.stored += 1
        await Parser(self.run, self.config, name, is_over).run()

    async def compact(self, keep_s: float = 3600, target_bytes: int = TARGET_BYTES) -> Compacted:
        done = await Compaction(self.run, self.config).run(target_bytes, keep_s)
        assert isinstance(done, Compacted)
        return done

    def urls(self) -> list[str]:
        return sorted(page["url"] for page in read_pages(self.directory, ["url"]))

    def items(self) -> list[str]:
        return sorted(item["from"] for item in read_items(self.directory))

    @property
    def expected(self) -> list[str]:
        return sorted(f"http://{DOMAINS[n % len(DOMAINS)]}/{n}" for n in range(self.stored))

    def names(self, *folder: str) -> list[str]:
        place = self.directory
        for name in folder:
            place = place / name
        try:
            return sorted(path.name for path in place.iterdir())
        except FileNotFoundError:
            return []

    async def records(self) -> dict[str, SegmentRecord]:
        return await read_segments(self.run.client, RUN)

    async def assert_whole(self) -> None:
        """Every page and item is there once, by files and by records, and nothing else is."""
        assert (self.urls(), self.items()) == (self.expected, self.expected)
        recorded = await self.records()
        findings = check([self.directory], recorded)
        assert (findings.damaged, findings.foreign, findings.here) == ({}, [], set(recorded))
        assert sum(record.pages for record in recorded.values()) == self.stored
        assert self.names("merged", "building", "pages") == self.names("merged", "building", "items") == []


@pytest.fixture(params=["disk", "file"])
async def where(request: pytest.FixtureRequest, client: RedisClient, tmp_path: Path) -> Where:
    run = await Run.open(client, RUN, partitions=4)
    made = Where(run, tmp_path / "data", f"file://{tmp_path}/store" if request.param == "file" else None)
    for number in range(SEGMENTS):
        await made.store_segment(f"p{number}")
    await run.begin(is_first=True)
    await run.end(RunState.FINISHED)
    return made


@pytest.fixture
def dies_at() -> Iterator[Callable[[str], None]]:
    """Ends this process, as it were, at a crash point."""

    def set_point(point: str) -> None:
        def watch(passed: str) -> None:
            if passed == point:
                raise PowerCut

        crashpoints.watcher = watch

    yield set_point
    crashpoints.watcher = None


async def test_small_segments_become_one_that_is_sorted(where: Where) -> None:
    done = await where.compact()

    assert (done.merges, done.segments, done.pages) == (1, SEGMENTS, EACH * SEGMENTS)
    await where.assert_whole()
    assert [name.partition(".")[2] for name in where.names("pages")] == ["jsonl.zst", "parquet"]
    domains = [page["domain"] for page in read_pages(where.directory, ["domain"])]
    assert domains == sorted(domains)
    assert len(where.names("merged", "pages")) == 2 * SEGMENTS


async def test_what_was_merged_is_deleted_when_its_time_has_passed(where: Where) -> None:
    await where.compact(keep_s=3600)
    kept = await where.compact(keep_s=3600)
    dropped = await where.compact(keep_s=0)

    assert (kept.merges, kept.bytes_dropped) == (0, 0)
    assert dropped.bytes_dropped > 0
    assert where.names("merged", "pages") == where.names("merged", "items") == []
    await where.assert_whole()


async def test_nothing_is_kept_if_nobody_wants_it(where: Where) -> None:
    done = await where.compact(keep_s=0)

    assert (done.merges, where.names("merged", "pages")) == (1, [])
    assert done.bytes_dropped > 0
    await where.assert_whole()


async def test_copies_of_what_was_merged_are_known_as_such(where: Where, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(str(where.directory)), copy)
    files = sum(file.is_file() for folder in ("pages", "items") for file in (copy / folder).iterdir())

    await where.compact(keep_s=0)
    findings = check([where.directory, copy], await where.records())

    assert (findings.foreign, len(findings.replaced)) == ([], files)
    assert sorted(page["url"] for page in read_pages([where.directory, copy], ["url"])) == where.expected


async def test_files_that_are_merged_while_they_are_checked_are_not_missed(where: Where) -> None:
    marks = [
        (where.directory / path, mark)
        for record in (await where.records()).values()
        for path, mark in record.files.items()
    ]

    await where.compact()

    assert {difference(file, mark) for file, mark in marks} == {""}


async def test_what_is_recorded_while_files_are_checked_is_not_missing(
    where: Where, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check_meanwhile(*args: Any) -> Any:
        with Redis.from_url(redis_url) as other:
            other.hset(keys.segments(RUN), "late-000001", "3")
        return check(*args)

    monkeypatch.setattr(inventory, "check", check_meanwhile)
    command = load_command("pages")
    opts, _ = parser_of(command).parse_known_args(["--check", "--data", str(where.data)])
    command.settings = {"REDIS_URL": redis_url, "CRAWL_DATA": str(where.data)}

    code = await command.work([], opts)  # type: ignore[attr-defined]

    assert (code, capsys.readouterr().out.splitlines()[-1]) == (0, "Nothing is missing.")


async def test_a_small_segment_that_is_alone_is_not_waited_for_once_the_run_is_over(where: Where) -> None:
    await where.compact()

    assert (await where.compact()).left == 0


async def test_merged_segments_are_merged_again(where: Where) -> None:
    await where.compact()
    for number in range(2):
        await where.store_segment(f"later{number}")

    done = await where.compact()

    assert (done.merges, done.segments, done.pages) == (1, 3, EACH * (SEGMENTS + 2))
    assert (where.urls(), where.items()) == (where.expected, where.expected)
    await where.compact(keep_s=0)
    await where.assert_whole()
    assert len(where.names("merges")) == 1


@pytest.mark.parametrize("point", MERGE_POINTS)
async def test_wherever_it_dies_each_page_is_there_once_and_the_next_one_continues(
    where: Where, dies_at: Callable[[str], None], point: str
) -> None:
    dies_at(point)
    with pytest.raises(PowerCut):
        await where.compact(keep_s=0)
    crashpoints.watcher = None
    in_between = where.urls(), where.items()

    await where.compact(keep_s=0)

    assert in_between == (where.expected, where.expected)
    await where.assert_whole()
    assert len(where.names("pages")) == 2


@pytest.mark.parametrize("point", MERGE_POINTS)
async def test_a_parser_that_starts_after_the_death_of_who_merged_spoils_nothing(
    where: Where, dies_at: Callable[[str], None], point: str
) -> None:
    dies_at(point)
    with pytest.raises(PowerCut):
        await where.compact(keep_s=0)
    crashpoints.watcher = None

    await where.store_segment("later")
    in_between = where.urls(), where.items()
    await where.compact(keep_s=0)

    assert in_between == (where.expected, where.expected)
    await where.assert_whole()


async def test_readers_that_have_begun_read_each_page_once(where: Where) -> None:
    pages = read_pages(where.directory, ["url"])
    items = read_items(where.directory)
    urls = [page["url"] for page in islice(pages, 2)]
    found = [item["from"] for item in islice(items, 2)]

    await where.compact(keep_s=3600)

    assert sorted(urls + [page["url"] for page in pages]) == where.expected
    assert sorted(found + [item["from"] for item in items]) == where.expected


async def test_a_query_that_was_prepared_before_has_each_page_once(where: Where) -> None:
    result = QueryResult(where.directory, "SELECT url FROM pages")

    await where.compact(keep_s=3600)

    assert sorted(row["url"] for row in result.rows()) == where.expected


async def test_a_search_that_continues_says_that_segments_were_merged_and_pages_keep_their_address(
    where: Where,
) -> None:
    first = browse(where.directory / "pages", PageFilter(), 2)
    address = first.lines[0]["id"]

    await where.compact(keep_s=3600)

    with pytest.raises(BadArgument, match="merged"):
        browse(where.directory / "pages", PageFilter(), 2, first.cursor)
    assert find_page(where.directory / "pages", address)["url"] == first.lines[0]["url"]
    again = browse(where.directory / "pages", PageFilter(), 100)
    assert sorted(line["url"] for line in again.lines) == where.expected


async def test_pages_stored_before_and_after_a_merge_stay_in_order(where: Where) -> None:
    await where.compact()
    await where.store_segment("later")

    newest = browse(where.directory / "pages", PageFilter(), EACH)

    assert sorted(by_number(line["url"]) for line in newest.lines) == [*range(where.stored)][-EACH:]
    rest = browse(where.directory / "pages", PageFilter(), 100, newest.cursor)
    assert len(rest.lines) == EACH * SEGMENTS


def by_number(url: str) -> int:
    return int(url.rpartition("/")[2])


@pytest.mark.parametrize("keep_s", [3600, 0])
async def test_a_merge_whose_record_redis_has_lost_is_recorded_again(
    where: Where, bystander: RedisClient, keep_s: float
) -> None:
    backup = await Backup.of(bystander)
    await where.compact(keep_s=keep_s)
    await backup.restore()

    await where.store_segment("later")

    await where.assert_whole()
    assert [name.startswith("merged-") for name in await where.records()].count(True) == 1


@pytest.mark.parametrize("again", [False, True], ids=["merged once", "merged twice"])
async def test_a_merge_of_what_redis_has_lost_is_undone(
    where: Where, bystander: RedisClient, again: bool
) -> None:
    """Its pages are stored again; those of the others come back from where they were kept."""
    backup = await Backup.of(bystander)
    lost = range(where.stored, where.stored + EACH)
    await where.store_segment("lost")
    await where.compact(keep_s=3600)
    if again:
        await where.store_segment("lost, too")
        lost = range(lost.start, where.stored)
        await where.compact(keep_s=3600)
    await backup.restore()

    where.stored = lost.start
    for number in range(len(lost) // EACH):
        await where.store_segment(f"again{number}")

    assert (where.urls(), where.items()) == (where.expected, where.expected)
    assert not [name for name in await where.records() if name.startswith("merged-")]
    await where.compact(keep_s=0)
    await where.assert_whole()


async def test_what_cannot_be_undone_is_kept_and_said(
    where: Where, bystander: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis was set back by more than the time for which merged segments are kept."""
    backup = await Backup.of(bystander)
    await where.store_segment("lost")
    await where.compact(keep_s=0)
    await backup.restore()

    await where.store_segment("later")

    assert "They may be stored twice" in caplog.text
    assert where.urls() == where.expected
    assert sum(record.pages for record in (await where.records()).values()) == where.stored


async def test_only_one_process_merges_at_a_time(where: Where, client: RedisClient) -> None:
    first = Compaction(where.run, where.config)
    async with first._name_held():
        other = await Compaction(where.run, where.config).run(TARGET_BYTES, 0)

    assert isinstance(other, Holder)
    assert other.process == first._process
    assert (await where.compact()).merges == 1


async def test_a_dead_process_does_not_keep_others_from_merging(where: Where) -> None:
    dead = Compaction(where.run, where.config)
    dead._process = replace(ProcessName.of_this(), pid=2**22 + 1, started="1")
    assert await dead._hold() is None

    assert (await where.compact()).merges == 1


async def test_who_has_lost_the_name_records_nothing(where: Where, client: RedisClient) -> None:
    late = Compaction(where.run, where.config)
    before = await where.records()
    async with late._name_held():
        [name] = late._names
        await client.command("SET", name, "another {}")
        segments = late._merges.segments(before, None, late._data)
        with pytest.raises(Fenced):
            await late._merge(segments, None)

    assert await where.records() == before
    assert where.urls() == where.expected
    await client.command("DEL", name)
    await where.compact(keep_s=0)
    await where.assert_whole()


async def test_a_damaged_segment_is_left_alone_and_named(where: Where, tmp_path: Path) -> None:
    path = sorted(where.directory.__truediv__("pages").iterdir(), key=str)[0]
    if isinstance(path, Path):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        (tmp_path / "bad").write_bytes(b"bad")
        path.upload(tmp_path / "bad")

    done = await where.compact()

    assert (done.merges, done.segments) == (1, SEGMENTS - 1)
    assert [path.name in wrong for wrong in done.damaged] == [True]
    assert path.name in where.names("pages")


async def test_a_full_disk_is_one_error_and_leaves_nothing(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(sorting, "_divide", fail)
        with pytest.raises(StoreUnavailable, match=r"Cannot merge segments .* No space left on device"):
            await where.compact()
    assert [path for path in (where.data / "runs/web/merged").rglob("*") if path.is_file()] == []

    await where.compact(keep_s=0)
    await where.assert_whole()


@pytest.mark.parametrize(
    ("point", "step", "kinds"),
    [("merge_built", "sync_and_close", [PartFile]), ("segments_merged", "rename", [Path, StorePath])],
    ids=["before the note", "before it is published"],
)
async def test_a_disk_that_is_full_after_the_build_is_one_error_and_loses_nothing(
    where: Where, monkeypatch: pytest.MonkeyPatch, point: str, step: str, kinds: list[type]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill_disk_at(passed: str) -> None:
        for kind in kinds if passed == point else ():
            patched.setattr(kind, step, fail)

    with monkeypatch.context() as patched:
        patched.setattr(crashpoints, "watcher", fill_disk_at)
        with pytest.raises(StoreUnavailable, match=r"Cannot merge segments .* No space left on device"):
            await where.compact()
    assert where.urls() == where.expected

    await where.compact(keep_s=0)
    await where.assert_whole()


async def test_room_is_left_to_the_crawl(where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_ROOM_TIMES", 10**12)

    with pytest.raises(StoreUnavailable, match=r"needs .* Free some, or choose a smaller --bytes"):
        await where.compact()


async def test_notes_of_a_deleted_run_of_the_same_name_are_left_alone(
    where: Where, client: RedisClient
) -> None:
    await where.compact(keep_s=3600)
    await client.command("FLUSHDB")
    where.run = await Run.open(client, RUN, partitions=4)
    before = where.names("pages") + where.names("merged", "pages") + where.names("merges")

    await where.store_segment("new")
    await where.compact(keep_s=0)

    after = where.names("pages") + where.names("merged", "pages") + where.names("merges")
    assert set(before) < set(after)
    assert where.urls() == where.expected


async def test_what_others_have_stored_is_left_to_them(where: Where, client: RedisClient) -> None:
    if where.store:
        return
    await where.compact()
    moved = {}
    for name, record in (await where.records()).items():
        moved[name] = replace(record, host="another")
        await client.command("HSET", keys.segments(RUN), name, moved[name].encode())
    await where.store_segment("mine0")
    await where.store_segment("mine1")

    done = await where.compact()

    assert done.segments == 2
    assert moved.items() <= (await where.records()).items()


async def test_a_run_that_is_deleted_keeps_its_merged_pages_and_leaves_nothing(
    where: Where, redis_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    await where.compact(keep_s=3600)
    command = load_command("runs")
    opts, args = parser_of(command).parse_known_args(["--delete", RUN, "--yes"])
    command.settings = {"REDIS_URL": redis_url, "CRAWL_DATA": str(where.data)}

    await command.work(args, opts)

    assert await Run(where.run.client, RUN, 1).state() == ""
    # A directory as a store keeps empty directories.
    [kept] = {path.parents[1] for path in where.directory.parent.glob("*/pages/*")}
    assert sorted(page["url"] for page in read_pages(kept, ["url"])) == where.expected
    assert not [path for path in where.directory.rglob("*") if path.is_file()]


def segment(name: str, size: int, formats: str = ".parquet") -> Segment:
    return Segment(name, SegmentRecord(1, "", "", {f"pages/{name}{formats}": None}), size, 0)


@pytest.mark.parametrize(
    ("sizes", "is_over", "groups"),
    [
        # Full ones, and a rest that waits for more or for the end.
        ([40] * 7, False, [[0, 1, 2], [3, 4, 5]]),
        ([40] * 8, True, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        # One alone is only copied; large ones stay, and nothing is merged across them.
        ([40, 40, 90, 40], True, [[0, 1]]),
        ([90, 90], True, []),
        # Many small ones do not wait.
        ([1] * 16, False, [list(range(16))]),
        ([1] * 15, False, []),
        ([], True, []),
    ],
)
def test_segments_are_grouped_in_their_order(
    sizes: list[int], is_over: bool, groups: list[list[int]]
) -> None:
    segments = [segment(str(number), size) for number, size in enumerate(sizes)]

    found = groups_to_merge(segments, 100, is_over=is_over)

    assert [[int(one.name) for one in group] for group in found] == groups


def test_segments_of_different_formats_are_not_merged() -> None:
    segments = [
        segment("0", 40),
        segment("1", 40),
        segment("2", 40, ".warc.gz"),
        segment("3", 40, ".warc.gz"),
    ]

    found = groups_to_merge(segments, 100, is_over=True)

    assert [[one.name for one in group] for group in found] == [["0", "1"], ["2", "3"]]
