"""Items in segments: committed with the pages of the same segment, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from crawlproj.errors import BadArgument, BadSegment, CrawlError
from crawlproj.model.records import Page
from crawlproj.storage import read_items, read_pages
from crawlproj.storage.segments import SegmentWriter, recover, unfinished

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage


def bare(url: str, *items: str) -> Page:
    """A page of which only the items are stored."""
    return Page(url, "docs", "a.test", 0, 0, 1_700_000_000_123, 0, items=list(items), is_bare=True)


async def accept(segment: str, rows: int) -> None:
    pass


async def refuse(segment: str, rows: int) -> None:
    raise CrawlError("no")


@pytest.fixture(params=["parquet", "jsonl", "warc", "parquet jsonl warc"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(tmp_path / "pages", "p-1", request.param.split())
    yield writer
    writer.discard()


async def test_items_are_read_as_they_were_scraped_and_once(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(None, bare("http://a.test/1", '{"n":1,"deep":{"list":[null,"日本"]}}', "{}"))
    writer.append(None, bare("http://a.test/2", '{"n":2}'))
    await writer.commit(accept)

    assert list(read_items(tmp_path)) == [{"n": 1, "deep": {"list": [None, "日本"]}}, {}, {"n": 2}]
    # No empty file of pages beside them.
    assert not (tmp_path / "pages").exists()


async def test_items_come_with_the_row_of_their_page(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage
) -> None:
    row, page = a_page("http://a.test/1")
    page.items = ['{"n":1}']
    writer.append(row, page)
    await writer.commit(accept)

    assert [found["url"] for found in read_pages(tmp_path)] == ["http://a.test/1"]
    assert list(read_items(tmp_path)) == [{"n": 1}]


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_after_a_crash_items_and_pages_count_together_or_not_at_all(
    writer: SegmentWriter, tmp_path: Path, a_page: MakePage, is_recorded: bool
) -> None:
    row, page = a_page()
    page.items = ['{"n":1}']
    writer.append(row, page)
    with pytest.raises(CrawlError):
        await writer.commit(refuse)
    name = writer.name
    # Closes them, as the end of its process would.
    writer.discard()

    for directory in (tmp_path / "pages", tmp_path / "items"):
        assert unfinished(directory)
        recover(unfinished(directory), living=set(), recorded={name} if is_recorded else set())

    assert len(list(read_pages(tmp_path))) == len(list(read_items(tmp_path))) == is_recorded


async def test_an_open_or_discarded_segment_shows_no_item(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(None, bare("http://a.test/1", '{"n":1}'))
    assert list(read_items(tmp_path)) == []

    writer.discard()

    assert list((tmp_path / "items").iterdir()) == []


async def test_where_an_item_is_from_is_stored_with_it(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "pages", "p", ["parquet"])
    writer.append(None, bare("http://a.test/1", '{"n":1}'))
    await writer.commit(accept)

    [row] = pq.read_table(tmp_path / "items" / "p-000001.parquet").to_pylist()

    assert (row["url"], row["domain"], row["item"]) == ("http://a.test/1", "a.test", '{"n":1}')
    assert row["fetched_at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_a_damaged_file_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="items are in DATA/runs/RUN/items"):
        list(read_items(tmp_path / "nowhere"))
    (tmp_path / "p-1.parquet").write_bytes(b"PAR1")

    with pytest.raises(BadSegment, match=r"p-1\.parquet is damaged"):
        list(read_items(tmp_path))
