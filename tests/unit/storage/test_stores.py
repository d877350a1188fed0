"""What holds for every place that segments are published in: a disk, a directory as a store, S3."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from crawlproj.errors import BadArgument, BadSegment, StoreUnavailable
from crawlproj.observe import crashpoints
from crawlproj.storage import read_items, read_pages
from crawlproj.storage.objects import ObjectStore, Place
from crawlproj.storage.recovery import Recovery
from crawlproj.storage.segments import SegmentWriter
from crawlproj.storage.uploads import Uploads
from tests.powercut import PowerCut, unlock
from tests.stores import BUCKET, FaultyProxy, answer

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

RUN, RUN_ID = "web", 0xABC
#: The steps of a commit, of two pages' files and one of items.
ON_DISK = ("commit_begun", "file_closed:3", "files_synced", "segment_recorded", "file_renamed:3")
IN_STORE = (
    *("commit_begun", "file_closed:3", "file_uploaded", "file_uploaded:3", "files_synced"),
    *("segment_recorded", "file_copied", "file_copied:3", "segment_published"),
)


@dataclass
class Known:
    """What Redis knows, for `Recovery`."""

    recorded: dict[str, int] = field(default_factory=dict)
    living: set[str] = field(default_factory=set)

    async def record(self, segment: str, rows: int) -> None:
        self.recorded[segment] = rows

    async def parsers(self) -> set[str]:
        return self.living

    async def segments(self) -> dict[str, int]:
        return dict(self.recorded)

    async def is_of(self, run_id: int) -> bool:
        return run_id == RUN_ID


@dataclass
class Where:
    """One kind of place."""

    here: Path
    uploads: Uploads | None
    run: str | Place
    known: Known = field(default_factory=Known)

    def writer(self, parser: str, formats: str = "parquet jsonl") -> SegmentWriter:
        return SegmentWriter(
            self.here / "pages", parser, formats.split(), run_id=RUN_ID, destination=self.uploads
        )

    async def recover(self) -> None:
        await Recovery((self.here / "pages", self.here / "items"), self.uploads, RUN_ID).run(self.known)

    def urls(self) -> list[str]:
        try:
            return [row["url"] for row in read_pages(self.run)]
        except BadArgument:
            # Nothing was ever published.
            return []

    async def leftovers(self) -> list[str]:
        """What no reader sees."""
        local = [path.name for path in self.here.glob("*/*.part")]
        return local + (await self.uploads.unfinished() if self.uploads else [])


def make(kind: str, tmp_path: Path) -> Where:
    here = tmp_path / "runs" / RUN
    (here / "pages").mkdir(parents=True)
    if kind == "disk":
        return Where(here, None, here)
    address = f"file://{tmp_path}/store" if kind == "file" else f"s3://{BUCKET}/{uuid4().hex}"
    return Where(here, Uploads(ObjectStore(address), RUN), f"{address}/runs/{RUN}")


@pytest.fixture(params=["disk", "file", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "s3":
        request.getfixturevalue("s3")
    return make(request.param, tmp_path)


@pytest.fixture
def in_s3(s3: FaultyProxy, tmp_path: Path) -> Where:
    return make("s3", tmp_path)


@pytest.fixture
def dies_at() -> Iterator[Callable[[str], None]]:
    """Ends this process, as it were, at a crash point: ``dies_at("file_uploaded:2")``."""

    def set_point(text: str) -> None:
        point, _, nth = text.partition(":")
        left = int(nth or 1)

        def watch(passed: str) -> None:
            nonlocal left
            left -= passed == point
            if passed == point and left == 0:
                raise PowerCut

        crashpoints.watcher = watch

    yield set_point
    crashpoints.watcher = None


def two_pages(writer: SegmentWriter, a_page: MakePage, start: int = 1) -> None:
    for number in (start, start + 1):
        row, page = a_page(f"http://a.test/{number}")
        page.items = [f'{{"number": {number}}}']
        writer.append(row, page)


@pytest.mark.parametrize("formats", ["parquet", "jsonl", "warc", "parquet warc"])
async def test_committed_pages_are_read_in_place(where: Where, formats: str, a_page: MakePage) -> None:
    writer = where.writer("p", formats)
    two_pages(writer, a_page)
    await writer.commit(where.known.record)
    two_pages(writer, a_page, 3)

    assert where.urls() == ["http://a.test/1", "http://a.test/2"]
    assert [item["number"] for item in read_items(where.run)] == [1, 2]
    writer.discard()


async def test_two_places_of_one_run_are_read_together_and_each_segment_once(
    where: Where, tmp_path: Path, a_page: MakePage
) -> None:
    other = make("disk", tmp_path / "other")
    for one, start in ((where, 1), (other, 3)):
        writer = one.writer(f"p{start}")
        two_pages(writer, a_page, start)
        await writer.commit(one.known.record)

    assert [row["url"][-1] for row in read_pages([where.run, other.run, where.run])] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("point", [*IN_STORE, *(point for point in ON_DISK if point not in IN_STORE)])
async def test_a_segment_is_there_once_or_not_at_all_wherever_its_parser_dies(
    where: Where, point: str, a_page: MakePage, dies_at: Callable[[str], None]
) -> None:
    if point not in (IN_STORE if where.uploads else ON_DISK):
        return
    writer = where.writer("p")
    two_pages(writer, a_page)
    dies_at(point)
    with pytest.raises(PowerCut):
        await writer.commit(where.known.record)
    crashpoints.watcher = None
    before = where.urls()
    unlock(writer)

    await where.recover()
    await where.recover()

    expected = ["http://a.test/1", "http://a.test/2"] if where.known.recorded else []
    assert where.urls() == expected
    assert before in ([], expected)
    assert await where.leftovers() == []
    writer.discard()


@pytest.mark.parametrize("point", ["file_recovered", "object_recovered", "file_copied"])
async def test_a_recovery_that_dies_is_finished_by_the_next(
    where: Where, point: str, a_page: MakePage, dies_at: Callable[[str], None]
) -> None:
    writer = where.writer("p")
    two_pages(writer, a_page)
    dies_at("segment_recorded")
    with pytest.raises(PowerCut):
        await writer.commit(where.known.record)
    unlock(writer)
    dies_at(point)
    if where.uploads or point == "file_recovered":
        with pytest.raises(PowerCut):
            await where.recover()
    crashpoints.watcher = None

    await where.recover()

    assert where.urls() == ["http://a.test/1", "http://a.test/2"]
    assert await where.leftovers() == []
    writer.discard()


async def test_what_a_living_parser_has_not_recorded_yet_is_left_alone(
    where: Where, a_page: MakePage
) -> None:
    writer = where.writer("p")
    where.known.living = {"p"}

    seen = []

    async def record(segment: str, rows: int) -> None:
        seen.append(await where.leftovers())
        await where.recover()
        seen.append(await where.leftovers())
        await where.known.record(segment, rows)

    two_pages(writer, a_page)
    await writer.commit(record)

    assert seen[0] == seen[1] != []
    assert where.urls() == ["http://a.test/1", "http://a.test/2"]
    assert await where.leftovers() == []


async def test_what_is_published_without_a_record_is_withdrawn_once(where: Where, a_page: MakePage) -> None:
    writer = where.writer("p")
    for start in (1, 3):
        two_pages(writer, a_page, start)
        await writer.commit(where.known.record)
    # Redis is set back to before the second.
    where.known.recorded.popitem()

    await where.recover()
    await where.recover()

    assert where.urls() == ["http://a.test/1", "http://a.test/2"]


async def test_a_recorded_file_that_the_store_lost_comes_from_the_disk_again(
    in_s3: Where, a_page: MakePage
) -> None:
    writer = in_s3.writer("p")
    assert in_s3.uploads

    async def record(segment: str, rows: int) -> None:
        await in_s3.known.record(segment, rows)
        for file in await in_s3.uploads.unfinished():
            await ObjectStore(in_s3.uploads.address).delete(f"runs/{RUN}/open/{file}")

    two_pages(writer, a_page)
    await writer.commit(record)

    assert in_s3.urls() == ["http://a.test/1", "http://a.test/2"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"answer": answer("403 Forbidden", "SignatureDoesNotMatch")}, "it answers SignatureDoesNotMatch"),
        ({"cut_after": 4000}, "it does not answer"),
        ({"answer": answer("503 Slow Down", "SlowDown")}, "it answers SlowDown"),
    ],
    ids=["refused", "cut in the middle", "overloaded"],
)
async def test_a_store_that_fails_is_named_and_nothing_is_recorded(
    in_s3: Where, s3: FaultyProxy, a_page: MakePage, broken: dict[str, object], said: str
) -> None:
    writer = in_s3.writer("p")
    writer.append(*a_page(text="x" * 5000 + uuid4().hex * 500))
    for name, value in broken.items():
        setattr(s3, name, value)

    with pytest.raises(StoreUnavailable, match=f"Cannot use the store s3://.*: {said}. Check AWS_") as error:
        await writer.commit(in_s3.known.record)
    assert "not-a-secret" not in str(error.value)
    writer.discard()
    if s3.answer:
        with pytest.raises(StoreUnavailable):
            await writer.check_room()
    s3.mend()
    await writer.check_room()
    two_pages(writer, a_page)
    await writer.commit(in_s3.known.record)

    assert list(in_s3.known.recorded) == ["p-rabc-000002"]
    assert in_s3.urls() == ["http://a.test/1", "http://a.test/2"]


async def test_a_store_that_fails_after_the_record_gets_the_segment_later(
    in_s3: Where, s3: FaultyProxy, a_page: MakePage, caplog: pytest.LogCaptureFixture
) -> None:
    writer = in_s3.writer("p")

    async def record(segment: str, rows: int) -> None:
        await in_s3.known.record(segment, rows)
        s3.answer = answer("503 Slow Down", "SlowDown")

    two_pages(writer, a_page)
    with caplog.at_level(logging.ERROR):
        await writer.commit(record)
    s3.mend()
    await writer.check_room()

    assert "cannot publish a committed segment, will retry" in caplog.text
    assert in_s3.urls() == ["http://a.test/1", "http://a.test/2"]


async def test_a_bucket_that_does_not_exist_is_a_store_that_cannot_be_used(s3: FaultyProxy) -> None:
    uploads = Uploads(ObjectStore("s3://no-such-bucket/x"), RUN)

    with pytest.raises(StoreUnavailable, match=r"it answers NoSuchBucket\. Create the bucket"):
        await uploads.check()


async def test_a_damaged_object_is_named(in_s3: Where, tmp_path: Path) -> None:
    assert in_s3.uploads
    (tmp_path / "bad").write_bytes(b"PAR1 and nothing else")
    key = f"runs/{RUN}/pages/p-rabc-000001.parquet"
    await ObjectStore(in_s3.uploads.address).put(key, tmp_path / "bad")

    with pytest.raises(BadSegment, match=f"{key} is damaged"):
        list(read_pages(in_s3.run))
