from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import CrawlError, StoreUnavailable
from crawlproj.observe import crashpoints
from crawlproj.storage import partfile, read_pages
from crawlproj.storage.partfile import lock_file
from crawlproj.storage.query import QueryResult
from crawlproj.storage.segments import SegmentWriter, published, recover, unfinished, withdraw
from crawlproj.storage.sink import SINKS
from tests.powercut import PowerCut, unlock

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

ALL = list(SINKS)
#: The crash points of a commit in their order; those of a file are passed once per sink.
COMMIT_POINTS = (
    "commit_begun",
    "file_closed",
    "files_synced",
    "segment_recorded",
    "file_renamed",
    "segment_published",
)


class Record:
    """What is recorded of segments, and what happens in that moment."""

    def __init__(self) -> None:
        self.segments: dict[str, int] = {}

    async def __call__(self, segment: str, rows: int) -> None:
        self.segments[segment] = rows


async def refuse(segment: str, rows: int) -> None:
    raise CrawlError("no")


def urls(directory: Path) -> list[str]:
    return [row["url"] for row in read_pages(directory)]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture(params=[["parquet"], ["jsonl"], ["warc"], ALL], ids="+".join)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(tmp_path, "p-1", request.param)
    yield writer
    writer.discard()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk takes root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


async def test_committed_rows_are_read_again(
    writer: SegmentWriter, record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    for number in (1, 2):
        writer.append(*a_page(f"http://a.test/{number}"))
    await writer.commit(record)
    writer.append(*a_page("http://a.test/3"))
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1", "http://a.test/2", "http://a.test/3"]
    assert record.segments == {"p-1-000001": 2, "p-1-000002": 1}
    assert unfinished(tmp_path) == []


async def test_a_segment_in_several_formats_is_one_record_and_a_file_each(
    record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    writer = SegmentWriter(tmp_path, "p", ALL)
    writer.append(*a_page())
    await writer.commit(record)

    assert names(tmp_path) == ["p-000001.jsonl.zst", "p-000001.parquet", "p-000001.warc.gz"]
    assert record.segments == {"p-000001": 1}


async def test_an_open_segment_is_not_read(writer: SegmentWriter, tmp_path: Path, a_page: MakePage) -> None:
    writer.append(*a_page())

    assert urls(tmp_path) == []


async def test_a_segment_is_whole_on_disk_but_unnamed_when_it_is_recorded(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    seen = []

    async def look(segment: str, rows: int) -> None:
        for part in unfinished(tmp_path):
            [kind] = [kind for kind in SINKS.values() if part.name == f"{segment}{kind.suffix}.part"]
            seen.append([row["url"] for row in kind.read(part, ["url"])])
        assert urls(tmp_path) == []

    writer.append(*a_page("http://a.test/1"))
    await writer.commit(look)

    assert seen
    assert all(rows == ["http://a.test/1"] for rows in seen)


async def test_a_segment_that_was_not_recorded_is_not_read(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page())
    with pytest.raises(CrawlError):
        await writer.commit(refuse)

    assert urls(tmp_path) == []
    assert unfinished(tmp_path)


async def test_a_commit_whose_record_failed_can_be_made_again(
    writer: SegmentWriter, record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page("http://a.test/1"))
    with pytest.raises(CrawlError):
        await writer.commit(refuse)
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_a_commit_without_rows_records_nothing(writer: SegmentWriter) -> None:
    await writer.commit(refuse)


async def test_a_discarded_segment_leaves_nothing_and_the_next_has_another_name(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page())
    discarded = writer.name
    writer.discard()
    left = names(tmp_path)
    writer.append(*a_page())

    assert left == []
    assert writer.name != discarded


async def test_rows_bytes_and_age_are_those_of_the_open_segment(
    record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    now_s = 100.0
    writer = SegmentWriter(tmp_path, "p", ["warc"], clock=lambda: now_s)
    before = (writer.rows, writer.bytes, writer.age_s)

    writer.append(*a_page())
    now_s += 7
    writer.append(*a_page())
    during = (writer.rows, writer.age_s)
    in_files = sum(part.stat().st_size for part in unfinished(tmp_path))
    assert writer.bytes == in_files > 0
    await writer.commit(record)

    assert before == (writer.rows, writer.bytes, writer.age_s) == (0, 0, 0.0)
    assert during == (2, 7.0)


@pytest.mark.parametrize(("column", "value"), [("text", "half \ud800"), ("status", 99_999_999_999)])
async def test_a_row_that_no_format_can_hold_is_refused_alone(
    writer: SegmentWriter, record: Record, tmp_path: Path, a_page: MakePage, column: str, value: object
) -> None:
    writer.append(*a_page("http://a.test/1"))
    with pytest.raises(ValueError, match=r"surrogate|status"):
        writer.append(*a_page("http://a.test/2", **{column: value}))
    writer.append(*a_page("http://a.test/3"))
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1", "http://a.test/3"]
    assert record.segments == {"p-1-000001": 2}


async def test_the_points_of_a_commit_are_passed_in_order(
    record: Record, tmp_path: Path, a_page: MakePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    writer = SegmentWriter(tmp_path, "p", ALL)
    writer.append(*a_page())
    monkeypatch.setattr(crashpoints, "watcher", passed.append)

    await writer.commit(record)

    assert tuple(dict.fromkeys(passed)) == COMMIT_POINTS
    assert passed.count("file_closed") == passed.count("file_renamed") == len(ALL)


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", COMMIT_POINTS)
async def test_a_crash_at_any_point_leaves_all_files_of_a_segment_or_none(
    record: Record,
    tmp_path: Path,
    a_page: MakePage,
    point: str,
    nth: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met = 0

    def cut(now: str) -> None:
        nonlocal met
        met += now == point
        if now == point and met == nth:
            raise PowerCut

    writer = SegmentWriter(tmp_path, "p", ALL)
    writer.append(*a_page("http://a.test/1"))
    monkeypatch.setattr(crashpoints, "watcher", cut)
    try:
        await writer.commit(record)
    except PowerCut:
        pass
    unlock(writer)
    left = unfinished(tmp_path)

    recover(left, living=set(), recorded=set(record.segments))

    assert unfinished(tmp_path) == []
    assert len(names(tmp_path)) == (len(ALL) if record.segments else 0)
    assert urls(tmp_path) == ["http://a.test/1"] * len(record.segments)
    for part in left:
        assert part.name in caplog.text


async def test_recovery_finishes_what_was_recorded(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page("http://a.test/1"))
    with pytest.raises(CrawlError):
        await writer.commit(refuse)

    recover(unfinished(tmp_path), living=set(), recorded={writer.name})

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_recovery_discards_what_a_dead_parser_did_not_record(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page())
    unlock(writer)

    recover(unfinished(tmp_path), living={"p-2"}, recorded=set())

    assert names(tmp_path) == []


@pytest.mark.parametrize("is_closed", [False, True])
async def test_recovery_leaves_the_segment_of_a_parser_that_is_only_silent(
    record: Record, tmp_path: Path, a_page: MakePage, is_closed: bool
) -> None:
    """If Redis is set back, it may have forgotten by then that it took the pages from it."""
    writer = SegmentWriter(tmp_path, "p", ALL)
    writer.append(*a_page("http://a.test/1"))
    if is_closed:
        with pytest.raises(CrawlError):
            await writer.commit(refuse)

    recover(unfinished(tmp_path), living=set(), recorded=set())
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1"]
    assert len(names(tmp_path)) == len(ALL)


async def test_a_file_that_was_removed_before_it_was_locked_is_not_recorded(
    tmp_path: Path, a_page: MakePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_too_late(path: Path) -> int | None:
        lock = lock_file(path)
        path.unlink()
        return lock

    monkeypatch.setattr(partfile, "lock_file", lock_too_late)
    writer = SegmentWriter(tmp_path, "p", ("jsonl",))

    with pytest.raises(StoreUnavailable, match="took this one for dead"):
        writer.append(*a_page())


async def test_recovery_leaves_the_open_segment_of_a_living_parser(
    writer: SegmentWriter, record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    writer.append(*a_page("http://a.test/1"))

    recover(unfinished(tmp_path), living={"p-1"}, recorded=set())
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_a_parser_whose_segment_was_finished_by_another_continues(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    async def record_and_be_recovered(segment: str, rows: int) -> None:
        recover(unfinished(tmp_path), living={"p-1"}, recorded={segment})

    writer.append(*a_page("http://a.test/1"))
    await writer.commit(record_and_be_recovered)

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_recovery_leaves_files_of_others_alone_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "film.part").write_bytes(b"of somebody else")

    recover(unfinished(tmp_path), living=set(), recorded=set())

    assert names(tmp_path) == ["film.part"]
    assert "film.part" in caplog.text


@pytest.mark.parametrize("format_", ALL)
async def test_a_full_disk_is_logged_with_its_path_and_writing_resumes_when_there_is_room(
    full_disk: Path, record: Record, a_page: MakePage, format_: str
) -> None:
    ballast = full_disk / "ballast"
    ballast.write_bytes(bytes(1_900_000))
    pages = full_disk / "pages"
    writer = SegmentWriter(pages, "p", [format_])

    async def write_a_lot() -> None:
        for _ in range(3000):
            writer.append(*a_page(text=os.urandom(1000).hex()))
        await writer.commit(record)

    with pytest.raises(StoreUnavailable, match=f"{pages}.*No space left on device"):
        await write_a_lot()
    writer.discard()
    with pytest.raises(StoreUnavailable, match=f"{pages}.*No space left on device"):
        await writer.check_room()
    left, recorded = names(pages), dict(record.segments)
    ballast.unlink()
    await writer.check_room()
    writer.append(*a_page("http://a.test/1"))
    await writer.commit(record)

    assert (left, recorded) == ([], {})
    assert urls(pages) == ["http://a.test/1"]
    assert len(names(pages)) == 1


async def test_a_full_disk_at_the_very_first_byte_leaves_nothing_open(
    full_disk: Path, a_page: MakePage
) -> None:
    pages = full_disk / "pages"
    pages.mkdir()
    with pytest.raises(OSError, match="No space"):
        (full_disk / "ballast").write_bytes(bytes(4_000_000))
    writer = SegmentWriter(pages, "p", ALL)

    with pytest.raises(StoreUnavailable, match="No space"):
        writer.append(*a_page())
    writer.discard()

    assert names(pages) == []


async def test_a_missing_directory_is_logged_and_writing_resumes_once_it_can_be_made(
    record: Record, tmp_path: Path, a_page: MakePage
) -> None:
    pages = tmp_path / "runs" / "pages"
    (tmp_path / "runs").write_bytes(b"a file in its place")
    writer = SegmentWriter(pages, "p", ALL)

    with pytest.raises(StoreUnavailable, match=str(tmp_path / "runs")):
        await writer.check_room()
    with pytest.raises(StoreUnavailable, match=str(tmp_path / "runs")):
        writer.append(*a_page())
    writer.discard()
    (tmp_path / "runs").unlink()
    await writer.check_room()
    writer.append(*a_page("http://a.test/1"))
    await writer.commit(record)

    assert urls(pages) == ["http://a.test/1"]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory that even root cannot write to, until it is mounted otherwise."""
    place = tmp_path / "pages"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False).returncode:
        pytest.skip("mounting takes root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def remount(place: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", place], check=True)


async def test_a_directory_that_turns_read_only_after_the_record_gets_its_names_later(
    read_only: Path, record: Record, a_page: MakePage, caplog: pytest.LogCaptureFixture
) -> None:
    async def record_at_the_last_moment(segment: str, rows: int) -> None:
        await record(segment, rows)
        remount(read_only, "ro")

    writer = SegmentWriter(read_only, "p", ALL)
    writer.append(*a_page("http://a.test/1"))
    await writer.commit(record_at_the_last_moment)
    logged = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.ERROR]
    with pytest.raises(StoreUnavailable, match="Read-only file system"):
        writer.append(*a_page("http://a.test/2"))
    writer.discard()
    before = urls(read_only)
    remount(read_only, "rw")
    await writer.check_room()

    assert before == []
    assert urls(read_only) == ["http://a.test/1"]
    assert "Read-only" in logged[0]
    assert unfinished(read_only) == []


async def test_recovery_in_a_read_only_directory_is_reported(read_only: Path) -> None:
    (read_only / "dead-000001.parquet.part").write_bytes(b"half")
    remount(read_only, "ro")

    with pytest.raises(StoreUnavailable, match=r"dead-000001\.parquet\.part.*Read-only"):
        recover(unfinished(read_only), living=set(), recorded=set())


# Set back


@pytest.mark.parametrize("formats", [["parquet"], ["jsonl"], ["warc"], ALL], ids="+".join)
async def test_a_segment_whose_record_was_lost_is_kept_under_another_name_and_not_read(
    tmp_path: Path, record: Record, a_page: MakePage, formats: list[str]
) -> None:
    writer = SegmentWriter(tmp_path, "p-1", formats, run_id=0xABC)
    for url in ("http://a.test/kept", "http://a.test/lost"):
        writer.append(*a_page(url))
        await writer.commit(record)
    del record.segments["p-1-rabc-000002"]

    withdraw(published(tmp_path, 0xABC), record.segments)

    assert urls(tmp_path) == ["http://a.test/kept"]
    lost = [name for name in names(tmp_path) if "000002" in name]
    assert len(lost) == len(formats)
    assert all(name.endswith(".withdrawn") for name in lost)


async def test_a_query_does_not_read_what_was_withdrawn(
    tmp_path: Path, record: Record, a_page: MakePage
) -> None:
    writer = SegmentWriter(tmp_path, "p-1", ["parquet"], run_id=0xABC)
    for url in ("http://a.test/kept", "http://a.test/lost"):
        writer.append(*a_page(url))
        await writer.commit(record)

    withdraw(published(tmp_path, 0xABC), {"p-1-rabc-000001"})

    found = QueryResult(tmp_path, "SELECT url FROM pages").rows()
    assert [row["url"] for row in found] == ["http://a.test/kept"]


async def test_what_was_withdrawn_is_no_segment_any_more(tmp_path: Path) -> None:
    (tmp_path / "p-1-rabc-000001.parquet").write_bytes(b"lost")

    for _ in range(2):
        withdraw(published(tmp_path, 0xABC), recorded=set())

    assert names(tmp_path) == ["p-1-rabc-000001.parquet.withdrawn"]
    assert published(tmp_path, 0xABC) == []


def test_segments_of_other_runs_and_open_ones_are_not_withdrawn(tmp_path: Path) -> None:
    others = [
        "p-1-000001.parquet",
        "p-1-rabc-000001.parquet.part",
        "p-1-rabcd-000001.parquet",
        "p-1-rdef-000001.parquet",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"kept")

    withdraw(published(tmp_path, 0xABC), recorded=set())

    assert names(tmp_path) == others


def test_a_segment_that_another_parser_withdrew_first_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "p-1-rabc-000001.parquet").write_bytes(b"lost")
    files = published(tmp_path, 0xABC)
    withdraw(files, recorded=set())

    withdraw(files, recorded=set())

    assert names(tmp_path) == ["p-1-rabc-000001.parquet.withdrawn"]


def test_withdrawing_in_a_read_only_directory_is_reported(read_only: Path) -> None:
    (read_only / "p-1-rabc-000001.parquet").write_bytes(b"lost")
    remount(read_only, "ro")

    with pytest.raises(StoreUnavailable, match=r"p-1-rabc-000001\.parquet.*Read-only"):
        withdraw(published(read_only, 0xABC), recorded=set())


async def test_a_segment_that_may_be_recorded_is_left_to_recovery(
    tmp_path: Path, record: Record, a_page: MakePage
) -> None:
    async def record_without_answer(name: str, rows: int) -> None:
        await record(name, rows)
        raise CrawlError("set back")

    writer = SegmentWriter(tmp_path, "p", ALL)
    writer.append(*a_page("http://a.test/"))
    with pytest.raises(CrawlError):
        await writer.commit(record_without_answer)

    writer.start_over("p.1")
    recover(unfinished(tmp_path), living={"p.1"}, recorded=record.segments)

    assert urls(tmp_path) == ["http://a.test/"]
