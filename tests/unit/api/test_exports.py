"""Exports: one file for each state of the segments, of pages or of items."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawlproj.api import exports
from crawlproj.api.exports import Exports
from crawlproj.api.problems import Refused
from crawlproj.errors import BadArgument
from crawlproj.model.records import Page
from crawlproj.model.run import RunPaths
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.segments import SegmentWriter


async def accept(segment: str, rows: int) -> None:
    pass


async def store_items(paths: RunPaths, parser: str, *items: str) -> None:
    writer = SegmentWriter(paths.pages, parser, ["parquet"])
    writer.append(None, Page("http://a.test/", "docs", "a.test", 0, 0, 0, 0, items=list(items), is_bare=True))
    await writer.commit(accept)


async def test_items_are_exported_in_every_format_but_warc(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "docs")
    await store_items(paths, "p-1", '{"n":1}', '{"n":2,"name":"two"}')
    made = Exports()

    files = {form: await made.file(paths, form, items=True) for form in ("parquet", "jsonl", "csv")}

    assert pq.read_table(files["parquet"]).to_pylist() == [{"n": 1, "name": None}, {"n": 2, "name": "two"}]
    assert list(map(json.loads, files["jsonl"].read_text().splitlines())) == [
        {"n": 1},
        {"n": 2, "name": "two"},
    ]
    assert files["csv"].read_text().splitlines() == ["n,name", "1,", "2,two"]
    with pytest.raises(Refused) as refused:
        await made.file(paths, "warc", items=True)
    assert (refused.value.status, refused.value.errors[0].field) == (422, "format")
    with pytest.raises(Refused, match="no stored pages"):
        await made.file(paths, "csv")


async def test_a_new_state_is_written_anew_and_the_old_file_removed(tmp_path: Path) -> None:
    paths, made = RunPaths(tmp_path, "docs"), Exports()
    await store_items(paths, "p-1", '{"n":1}')
    first = await made.file(paths, "csv", items=True)
    again = await made.file(paths, "csv", items=True)
    await store_items(paths, "p-2", '{"n":2}')

    second = await made.file(paths, "csv", items=True)

    assert again == first
    assert [path.name for path in first.parent.iterdir()] == [second.name]
    assert second.read_text().split() == ["n", "1", "2"]


async def test_what_takes_long_is_sent_as_it_grows_and_written_to_its_end_without_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, made = RunPaths(tmp_path, "docs"), Exports()
    await store_items(paths, "p-1", '{"n":1}', '{"n":2}')
    may_go_on = threading.Event()

    def write_slowly(output: PartFile, *_: object) -> None:
        output.write(b"one ")
        may_go_on.wait()
        output.write(b"two")

    monkeypatch.setitem(exports._WRITERS, "items", write_slowly)
    monkeypatch.setattr(exports, "_SOON_S", 0.1)
    file, sent = await made.begin(paths, "csv", items=True)
    assert sent is not None
    first = await anext(sent)
    was_whole = file.exists()
    may_go_on.set()
    rest = [data async for data in sent]
    _, again = await made.begin(paths, "csv", items=True)

    assert (first, was_whole, b"".join(rest)) == (b"one ", False, b"two")
    assert (file.read_bytes(), again) == (b"one two", None)


async def test_an_export_that_fails_on_the_way_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, made = RunPaths(tmp_path, "docs"), Exports()
    await store_items(paths, "p-1", '{"n":1}')
    may_go_on = threading.Event()

    def fill_the_disk(output: PartFile, *_: object) -> None:
        output.write(b"one ")
        may_go_on.wait()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(exports._WRITERS, "items", fill_the_disk)
    monkeypatch.setattr(exports, "_SOON_S", 0.1)
    file, sent = await made.begin(paths, "csv", items=True)
    assert sent is not None
    first = await anext(sent)
    may_go_on.set()

    assert first == b"one "
    with pytest.raises(BadArgument, match="No space left"):
        await anext(sent)
    assert list(file.parent.iterdir()) == []
