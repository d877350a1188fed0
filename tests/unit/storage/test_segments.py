from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.errors import BadArgument, CrawlError
from crawlproj.storage import jsonl, read_pages
from crawlproj.storage.jsonl import PageRow
from crawlproj.storage.segments import SegmentWriter, recover, unfinished


def a_line(url: str) -> bytes:
    return jsonl.encode(
        PageRow(
            url=url, final_url=url, domain="a.test", depth=0, status=200,
            fetched_at="2026-01-01T00:00:00.000+00:00", latency_ms=1, text="two\nlines\u2028",
            shard=0, attempt=1,
        )
    )  # fmt: skip


def urls(directory: Path) -> list[str]:
    return [row["url"] for row in read_pages(directory)]


async def accept(segment: str, rows: int) -> None:
    pass


async def refuse(segment: str, rows: int) -> None:
    raise CrawlError("no")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(tmp_path, "p-1", jsonl.SUFFIX)
    yield writer
    writer.discard()


async def test_committed_rows_are_read_again(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(a_line("http://a.test/1"))
    writer.append(a_line("http://a.test/2"))
    await writer.commit(accept)
    writer.append(a_line("http://a.test/3"))
    await writer.commit(accept)

    rows = list(read_pages(tmp_path))

    assert [row["url"] for row in rows] == ["http://a.test/1", "http://a.test/2", "http://a.test/3"]
    assert rows[0]["text"] == "two\nlines\u2028"
    assert rows[0]["language"] is None


async def test_an_open_segment_is_not_read(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(a_line("http://a.test/1"))

    assert urls(tmp_path) == []


async def test_a_segment_is_whole_on_disk_but_unnamed_when_it_is_recorded(
    writer: SegmentWriter, tmp_path: Path
) -> None:
    seen = []

    async def record(segment: str, rows: int) -> None:
        [part] = unfinished(tmp_path)
        seen.append((segment, rows, part.read_bytes().count(b"\n"), (tmp_path / segment).exists()))

    writer.append(a_line("http://a.test/1"))
    writer.append(a_line("http://a.test/2"))
    await writer.commit(record)

    assert seen == [("p-1-000001.jsonl", 2, 2, False)]


async def test_a_segment_that_was_not_recorded_is_not_read(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(a_line("http://a.test/1"))
    with pytest.raises(CrawlError):
        await writer.commit(refuse)

    assert urls(tmp_path) == []
    assert len(unfinished(tmp_path)) == 1


async def test_a_commit_without_rows_records_nothing(writer: SegmentWriter) -> None:
    await writer.commit(refuse)


async def test_a_discarded_segment_leaves_nothing_and_the_next_has_another_name(
    writer: SegmentWriter, tmp_path: Path
) -> None:
    writer.append(a_line("http://a.test/1"))
    discarded = writer.name
    writer.discard()
    left = unfinished(tmp_path)
    writer.append(a_line("http://a.test/2"))

    assert left == []
    assert writer.name != discarded


async def test_recovery_finishes_what_was_recorded(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(a_line("http://a.test/1"))
    with pytest.raises(CrawlError):
        await writer.commit(refuse)

    recover(unfinished(tmp_path), living=set(), recorded={writer.name})

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_recovery_discards_what_a_dead_parser_did_not_record(
    writer: SegmentWriter, tmp_path: Path
) -> None:
    writer.append(a_line("http://a.test/1"))

    recover(unfinished(tmp_path), living={"p-2"}, recorded=set())

    assert unfinished(tmp_path) == []
    assert urls(tmp_path) == []


async def test_recovery_leaves_the_open_segment_of_a_living_parser(
    writer: SegmentWriter, tmp_path: Path
) -> None:
    writer.append(a_line("http://a.test/1"))

    recover(unfinished(tmp_path), living={"p-1"}, recorded=set())
    await writer.commit(accept)

    assert urls(tmp_path) == ["http://a.test/1"]


async def test_a_parser_whose_segment_was_finished_by_another_goes_on(
    writer: SegmentWriter, tmp_path: Path
) -> None:
    async def record(segment: str, rows: int) -> None:
        recover(unfinished(tmp_path), living={"p-1"}, recorded={segment})

    writer.append(a_line("http://a.test/1"))
    await writer.commit(record)

    assert urls(tmp_path) == ["http://a.test/1"]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="nowhere"):
        list(read_pages(tmp_path / "nowhere"))


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "p-1.jsonl").write_bytes(a_line("http://a.test/1") + b"{half\n")

    with pytest.raises(CrawlError, match=r"p-1\.jsonl line 2"):
        list(read_pages(tmp_path))
