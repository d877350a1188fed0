"""Files of every format as one, sorted by domain: every row once, whatever its size and however many."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawlproj.storage import sorting
from crawlproj.storage.items import ITEM_SINKS
from crawlproj.storage.parquet import SCHEMA, ParquetSink, RowGroups
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.reader import DAMAGE
from crawlproj.storage.row import COLUMNS
from crawlproj.storage.sink import SINKS
from crawlproj.storage.sorting import ROWS, sort_files

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

START = datetime(2026, 1, 2, tzinfo=UTC)


def write_pages(kind: str, path: Path, a_page: MakePage, keys: Sequence[tuple[str, int]]) -> Path:
    """Write a page of a domain for each of *keys*, fetched so many ms after the start."""
    sink = SINKS[kind](path)
    for domain, ms in keys:
        row, page = a_page(
            f"http://{domain}/{ms}", domain=domain, fetched_at=START + timedelta(milliseconds=ms)
        )
        sink.append(row, page)
    sink.close()
    return path


def shuffled(count: int) -> list[tuple[str, int]]:
    keys = [(f"{'abc'[ms % 3]}.test", ms) for ms in range(count)]
    random.Random(7).shuffle(keys)
    return keys


@pytest.mark.parametrize("kind", SINKS)
def test_every_row_is_in_the_sorted_file_as_it_was(
    kind: str, tmp_path: Path, a_page: MakePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many temporary files, and batches that end within a file.
    monkeypatch.setattr(sorting, "_BUCKET_BYTES", 500)
    monkeypatch.setattr(sorting, "_BATCH_ROWS", 7)
    suffix, keys = SINKS[kind].suffix, shuffled(60)
    parts = [keys[:1], keys[1:20], keys[20:60]]
    files = [write_pages(kind, tmp_path / f"{n}{suffix}", a_page, part) for n, part in enumerate(parts)]
    before = [row for file in files for row in SINKS[kind].read(file, COLUMNS)]

    target = tmp_path / f"sorted{suffix}"
    mark = sort_files(files, ROWS["pages", suffix], target, "web")

    after = list(SINKS[kind].read(target, COLUMNS))
    assert after == sorted(before, key=lambda row: (row["domain"], row["fetched_at"]))
    assert mark.bytes == target.stat().st_size
    assert {path.name for path in tmp_path.iterdir()} == {*(file.name for file in files), target.name}


def test_a_sorted_archive_is_valid(tmp_path: Path, a_page: MakePage) -> None:
    files = [write_pages("warc", tmp_path / f"{n}.warc.gz", a_page, shuffled(20)[n::2]) for n in range(2)]

    target = tmp_path / "sorted.warc.gz"
    sort_files(files, ROWS["pages", ".warc.gz"], target, "web")

    checked = subprocess.run(
        [sys.executable, "-m", "warcio.cli", "check", "-v", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("digest pass") == 1 + 3 * 20


@pytest.mark.parametrize("kind", ITEM_SINKS)
def test_items_are_sorted_with_their_pages(kind: str, tmp_path: Path, a_page: MakePage) -> None:
    suffix, files = ITEM_SINKS[kind].suffix, []
    for number, keys in enumerate((shuffled(20)[:8], shuffled(20)[8:])):
        sink = ITEM_SINKS[kind](tmp_path / f"{number}{suffix}")
        for domain, ms in keys:
            _, page = a_page(f"http://{domain}/", domain=domain)
            page.fetched_at_ms, page.items = ms, [f'{{"n":{ms},"m":0}}', f'{{"n":{ms},"m":1}}']
            sink.add(page)
        sink.close()
        files.append(tmp_path / f"{number}{suffix}")

    target = tmp_path / f"sorted{suffix}"
    sort_files(files, ROWS["items", suffix], target, "web")

    items = [json.loads(item) for item in ITEM_SINKS[kind].read(target)]
    in_order = sorted(shuffled(20))
    assert items == [{"n": ms, "m": m} for _, ms in in_order for m in (0, 1)]


def test_a_sorted_file_looks_like_any_other_and_says_which_domains_its_groups_have(
    tmp_path: Path, a_page: MakePage
) -> None:
    keys = shuffled(2500)
    files = [write_pages("parquet", tmp_path / f"{n}.parquet", a_page, keys[n::2]) for n in range(2)]

    target = tmp_path / "sorted.parquet"
    sort_files(files, ROWS["pages", ".parquet"], target, "web")

    with pq.ParquetFile(target) as file:
        assert file.schema_arrow.equals(pq.read_schema(files[0]), check_metadata=True)
        groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
        assert max(group.num_rows for group in groups) <= 1000
        column = file.schema_arrow.names.index("domain")
        bounds = [group.column(column).statistics for group in groups]
        assert bounds[0].min == "a.test"
        assert bounds[-1].max == "c.test"
        assert all(one.max <= two.min for one, two in pairwise(bounds))


def test_a_file_of_an_earlier_release_is_converted(tmp_path: Path, a_page: MakePage) -> None:
    """One with `fields` as a map and without the newest columns."""
    new = write_pages("parquet", tmp_path / "new.parquet", a_page, [("b.test", 1)])
    [row] = ParquetSink.read(new, COLUMNS)
    kept = [field for field in SCHEMA if field.name not in ("fields", "kind")]
    old_schema = pa.schema(
        [*kept, ("fields", pa.map_(pa.string(), pa.list_(pa.string())))], metadata={"crawlproj.schema": "1"}
    )
    rows = [
        row | {"domain": "a.test", "fields": [*row["fields"].items()]},
        row | {"domain": "c.test", "fields": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows, old_schema), tmp_path / "old.parquet")

    target = tmp_path / "sorted.parquet"
    sort_files([new, tmp_path / "old.parquet"], ROWS["pages", ".parquet"], target, "web")

    after = list(ParquetSink.read(target, COLUMNS))
    assert [one["domain"] for one in after] == ["a.test", "b.test", "c.test"]
    assert [one["fields"] for one in after] == [row["fields"], row["fields"], None]
    assert [one["kind"] for one in after] == [None, "article", None]


@pytest.mark.parametrize("kind", SINKS)
def test_a_damaged_file_is_noticed_and_leaves_no_temporary_file(
    kind: str, tmp_path: Path, a_page: MakePage
) -> None:
    suffix = SINKS[kind].suffix
    file = write_pages(kind, tmp_path / f"0{suffix}", a_page, shuffled(20))
    file.write_bytes(file.read_bytes()[:-30])

    with pytest.raises(DAMAGE):
        sort_files([file], ROWS["pages", suffix], tmp_path / f"sorted{suffix}", "web")

    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_group_of_a_sorted_file_is_no_larger_than_any_other(tmp_path: Path, a_page: MakePage) -> None:
    row, _ = a_page(text="x" * 3_000_000)
    file = PartFile(tmp_path / "sorted.parquet")
    groups = RowGroups(file)

    groups.extend(pa.Table.from_pylist([dict(zip(COLUMNS, _cells(row), strict=True))] * 7, SCHEMA))
    groups.close()
    file.sync_and_close()

    with pq.ParquetFile(file.path) as written:
        rows = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert rows == [2, 2, 2, 1]


def _cells(row: object) -> list[object]:
    cells = [getattr(row, name) for name in COLUMNS]
    return [list(cell.items()) if isinstance(cell, dict) else cell for cell in cells]
