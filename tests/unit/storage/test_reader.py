from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import BadArgument, BadSegment
from crawlproj.storage import read_pages
from crawlproj.storage.query import QueryResult
from crawlproj.storage.reader import runs_with
from crawlproj.storage.sink import SINKS

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage


ROOT = Path(__file__).parents[3]


def write(directory: Path, base: str, format_: str, a_page: MakePage, url: str) -> Path:
    kind = SINKS[format_]
    path = directory / f"{base}{kind.suffix}"
    sink = kind(path)
    sink.append(*a_page(url))
    sink.close()
    return path


def test_a_page_stored_in_several_formats_comes_once_from_the_easiest(
    tmp_path: Path, a_page: MakePage
) -> None:
    for format_ in SINKS:
        write(tmp_path, "p-1", format_, a_page, f"http://a.test/{format_}")
    for format_ in ("jsonl", "warc"):
        write(tmp_path, "p-2", format_, a_page, f"http://a.test/{format_}")
    write(tmp_path, "p-3", "warc", a_page, "http://a.test/warc")

    rows = list(read_pages(tmp_path, ["url"]))

    assert [row["url"].rpartition("/")[2] for row in rows] == ["parquet", "jsonl", "warc"]


def test_sql_sees_old_and_new_files_as_one_table(tmp_path: Path, a_page: MakePage) -> None:
    write(tmp_path, "new", "parquet", a_page, "http://a.test/new")
    copy(ROOT / "tests/data/old_pages/before_metadata.parquet", tmp_path)

    rows = list(
        QueryResult(
            tmp_path,
            "SELECT url, kind, published, headings[1].text AS first, fields['price'] FROM pages ORDER BY 1",
        ).rows()
    )

    assert [tuple(row.values()) for row in rows] == [
        ("http://a.test/", None, None, None, ["1 €"]),
        ("http://a.test/new", "article", datetime(1851, 9, 18, tzinfo=UTC), "Tätel", ["1 €", "2 €"]),
    ]


def test_old_and_new_files_are_read_alike(tmp_path: Path, a_page: MakePage) -> None:
    write(tmp_path, "new", "parquet", a_page, "http://a.test/new")
    copy(ROOT / "tests/data/old_pages/before_metadata.parquet", tmp_path)

    rows = list(read_pages(tmp_path, ["url", "fields"]))

    assert rows == [
        {"url": "http://a.test/", "fields": {"price": ["1 €"]}},
        {"url": "http://a.test/new", "fields": {"price": ["1 €", "2 €"], "none": []}},
    ]


def test_pages_are_read_from_anywhere_without_scrapy_or_redis(tmp_path: Path, a_page: MakePage) -> None:
    pages = tmp_path / "run" / "pages"
    pages.mkdir(parents=True)
    write(pages, "p-1", "parquet", a_page, "http://a.test/")
    program = (
        "import sys; from crawlproj import read_pages\n"
        "print([page['url'] for page in read_pages('run')])\n"
        "print({'redis', 'scrapy', 'twisted'} & set(sys.modules))"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == "['http://a.test/']\nset()\n"


def test_every_format_gives_the_same_rows(tmp_path: Path, a_page: MakePage) -> None:
    found = []
    for format_ in SINKS:
        directory = tmp_path / format_
        directory.mkdir()
        write(directory, "p-1", format_, a_page, "http://a.test/")
        [row] = read_pages(directory)
        zones = [getattr(value, "tzinfo", None) for value in row.values()]
        found.append([zones, *((name, type(value), value, str(value)) for name, value in row.items())])

    assert found[0] == found[1] == found[2]


def test_hidden_files_and_open_segments_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_bytes(b"")
    (tmp_path / "p-1-000001.parquet.part").write_bytes(b"half")

    assert list(read_pages(tmp_path)) == []


def test_a_run_that_has_only_open_segments_has_no_pages_yet(tmp_path: Path) -> None:
    for run, name in (("opened", "host-1-rab-000001.parquet.part"), ("old", "host-1-rab-000001.parquet")):
        (tmp_path / "runs" / run / "pages").mkdir(parents=True)
        (tmp_path / "runs" / run / "pages" / name).touch()

    assert runs_with("pages", [tmp_path]) == ["old"]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="nowhere"):
        list(read_pages(tmp_path / "nowhere"))


@pytest.mark.parametrize("suffix", [kind.suffix for kind in SINKS.values()])
@pytest.mark.parametrize(
    "content", [b"", b"no such format", b"PAR1" * 10, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]
)
def test_a_file_that_is_not_a_segment_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"p-1{suffix}").write_bytes(content)

    with pytest.raises(BadSegment, match=rf"p-1\{suffix} is damaged"):
        list(read_pages(tmp_path))


def test_a_file_in_no_known_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "p-1.jsonl").write_bytes(b"{}\n")

    with pytest.raises(BadSegment, match=r"p-1\.jsonl is not a segment file"):
        list(read_pages(tmp_path))


def test_an_unknown_column_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"Unknown column 'tilte'\. Did you mean title\?"):
        list(read_pages(tmp_path, ["url", "tilte"]))
