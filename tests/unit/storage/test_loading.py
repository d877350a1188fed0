"""Every format, loaded by the tools that people load it with."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from warcio.archiveiterator import ArchiveIterator

from crawlproj.storage.archive import write_warc
from crawlproj.storage.export import format_of, new_file, write_csv, write_jsonl, write_parquet
from crawlproj.storage.parquet import SCHEMA, schema_of
from crawlproj.storage.reader import read_pages
from crawlproj.storage.row import COLUMNS
from crawlproj.storage.segments import SegmentWriter
from crawlproj.storage.sink import SINKS

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

TOOLS = ("pandas", "polars", "duckdb", "datasets")
SCRIPT = Path(__file__).with_name("loading.py")
TEXT = "two\nlines\u2028\r\n\x00 end "


@pytest.fixture
def segments(tmp_path: Path, a_page: MakePage, a_failure: Any) -> Path:
    """A directory with a page and a failure, committed in every format."""
    directory = tmp_path / "pages"
    writer = SegmentWriter(directory, "p", list(SINKS))
    writer.append(*a_page())
    writer.append(*a_failure)

    async def record(segment: str, rows: int) -> None:
        pass

    asyncio.run(writer.commit(record))
    return directory


def export(segments: Path, path: Path) -> Path:
    """Write what `scrapy pages --output` writes."""
    rows = read_pages(segments)
    with new_file(path, overwrite=False) as file:
        match format_of(path):
            case "parquet":
                write_parquet(file, schema_of(COLUMNS), rows)
            case "csv":
                write_csv(file, COLUMNS, rows)
            case "jsonl":
                write_jsonl(file, rows)
            case _:
                write_warc(file, path.name, "web", segments)
    return path


def load(*files: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Load *files* with every tool; returns the rows by the name of the file and the tool."""
    folder = Path(sys.prefix) / "loading"
    assert folder.is_dir(), "run `make check` first: it installs requirements-loading.txt there"
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, files)],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    return {(Path(path).name, tool): rows for path, by in found.items() for tool, rows in by.items()}


def test_every_tool_loads_every_format(segments: Path, tmp_path: Path) -> None:
    segment = segments / "p-000001.parquet"
    exports = [export(segments, tmp_path / f"all.{kind}") for kind in ("parquet", "jsonl", "csv")]

    found = load(segment, segments / "p-000001.jsonl.zst", *exports)

    for name in (segment.name, "all.parquet"):
        for tool in (*TOOLS, "arrow"):
            check_parquet(*found[name, tool])
    for tool in TOOLS:
        for name in ("p-000001.jsonl.zst", "all.jsonl"):
            page, failure = found[name, tool]
            # Polars has an order of its own.
            assert page.keys() == set(COLUMNS)
            assert (page["text"], page["fields"]["price"]) == (TEXT, ["1 €", "2 €"])
            assert failure["error"] == "timeout\r\nWARC-Type: response"
        page, failure = found["all.csv", tool]
        assert list(page) == list(COLUMNS)
        assert page["description"] == 'with "quotes", commas\tand 日本'
        assert page["text"].startswith("two\nlines")
        assert json.loads(page["fields"]) == {"price": ["1 €", "2 €"], "none": []}
        assert failure["status"] == 0


def check_parquet(page: dict[str, Any], failure: dict[str, Any]) -> None:
    assert list(page) == list(COLUMNS)
    assert page["text"] == TEXT
    assert datetime.fromisoformat(page["fetched_at"]) == datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    assert datetime.fromisoformat(page["published"]) == datetime(1851, 9, 18, tzinfo=UTC)
    assert page["simhash"] == -(2**63)
    assert page["link_urls"] == ["http://a.test/1", "http://a.test/2"]
    assert page["headings"][0] == {"level": 1, "text": "Tätel"}
    fields = {field["name"]: field["values"] for field in page["fields"]}
    assert fields == {"price": ["1 €", "2 €"], "none": []}
    assert failure["error"] == "timeout\r\nWARC-Type: response"
    assert failure["status"] == 0
    assert failure["fields"] is None


def test_spark_knows_the_types_and_names_of_the_columns() -> None:
    def kinds(kind: pa.DataType) -> Iterator[pa.DataType]:
        yield kind
        for number in range(kind.num_fields):
            yield from kinds(kind.field(number).type)

    known = {
        pa.string(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("ms", "UTC"),
    }
    for field in SCHEMA:
        assert not re.search(r"[ ,;{}()\n\t=]", field.name)
        for kind in kinds(field.type):
            assert kind in known or pa.types.is_list(kind) or pa.types.is_struct(kind), field
    assert len({name.lower() for name in SCHEMA.names}) == len(SCHEMA)


@pytest.mark.parametrize("name", ["segment", "all.warc.gz", "all.warc"])
def test_warc_is_loaded_by_warcio(segments: Path, tmp_path: Path, name: str) -> None:
    is_segment = name == "segment"
    path = segments / "p-000001.warc.gz" if is_segment else export(segments, tmp_path / name)

    with path.open("rb") as file:
        found = [
            (r.rec_type, r.content_stream().read()) for r in ArchiveIterator(file, check_digests="raise")
        ]

    assert [kind for kind, _ in found] == ["warcinfo", "response", "conversion", "metadata", "metadata"]
    assert b"<title>" in found[1][1]
    assert found[2][1].decode() == TEXT
    assert msgspec.json.decode(found[4][1])["url"] == "http://a.test/gone"


def test_pages_without_responses_are_archived_as_texts(
    tmp_path: Path, a_page: MakePage, a_failure: Any
) -> None:
    directory = tmp_path / "pages"
    directory.mkdir()
    sink = SINKS["parquet"](directory / "p-000001.parquet")
    sink.append(*a_page())
    sink.append(*a_failure)
    sink.close()
    path = tmp_path / "all.warc.gz"

    with new_file(path, overwrite=False) as file:
        bare = write_warc(file, path.name, "web", directory)

    # A failure has no response in any case.
    assert bare == 1
    with path.open("rb") as file:
        kinds = [record.rec_type for record in ArchiveIterator(file)]
    assert kinds == ["warcinfo", "conversion", "metadata", "metadata"]
