"""`scrapy pages` and `scrapy items`, as a person types them: on files alone, without a Redis."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from scrapy.cmdline import execute
from warcio.archiveiterator import ArchiveIterator

from crawlproj.errors import EXIT_OK, EXIT_UNEXPECTED, EXIT_USAGE
from crawlproj.model.records import Page
from crawlproj.storage.row import COLUMNS, PageRow
from crawlproj.storage.segments import SegmentWriter

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pages(scrapy_of: Callable[[str], Typed]) -> Typed:
    return scrapy_of("pages")


@pytest.fixture
def items(scrapy_of: Callable[[str], Typed]) -> Typed:
    return scrapy_of("items")


@pytest.fixture
def scrapy_of(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[[str], Typed]]:
    """Runs a command in this process: exit code, output, errors."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "crawlproj.settings")

    def run(command: str, *typed: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            execute(
                [
                    *("scrapy", command, *typed, "--set=REDIS_URL="),
                    f"--set=CRAWL_DATA={tmp_path}",
                ]
            )
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return int(left.value.code or 0), out, err

    before = dict(os.environ)
    yield lambda command: partial(run, command)
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def store(directory: Path, formats: list[str], count: int, parser: str = "p") -> None:
    writer = SegmentWriter(directory, parser, formats)
    for number in range(count):
        url = f"http://d{number % 3}.test/{number}"
        row = PageRow(
            url=url,
            final_url=url,
            domain=f"d{number % 3}.test",
            depth=number,
            status=200,
            fetched_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            latency_ms=number,
            title=f"Page {number}\x1b[31m",
            text="first\nsecond, with a comma",
            shard=0,
            attempt=0,
            fields={"price": [f"{number} €"]},
        )
        writer.append(row, Page(url, "web", row.domain, 0, 200, 0, 0, body=b"x"))

    async def record(segment: str, rows: int) -> None:
        pass

    asyncio.run(writer.commit(record))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The directory of a run with 30 pages as Parquet and WARC."""
    directory = tmp_path / "runs" / "web" / "pages"
    store(directory, ["parquet", "warc"], 30)
    return directory


def test_a_table_of_the_first_pages_is_shown(stored: Path, pages: Typed) -> None:
    code, out, _ = pages()

    lines = out.splitlines()
    assert code == EXIT_OK
    assert lines[0].split() == ["status", "domain", "title", "url"]
    assert lines[2].split() == ["200", "d0.test", "Page", "0", "[31m", "http://d0.test/0"]
    assert lines[-1].startswith("... first 20")
    assert len(lines) == 23


def test_what_a_page_says_cannot_steer_the_terminal(stored: Path, pages: Typed) -> None:
    _, out, _ = pages("--limit", "1")

    assert "\x1b" not in out


def test_all_pages_are_exported_as_json_lines(stored: Path, pages: Typed, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"

    code, out, _ = pages("--output", str(output))

    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert (code, out) == (EXIT_OK, "")
    assert len(rows) == 30
    assert list(rows[0]) == list(COLUMNS)
    assert rows[7]["fields"] == {"price": ["7 €"]}
    assert rows[7]["fetched_at"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out.csv", "out.warc.gz", "out.warc"])
def test_the_extension_sets_the_format(stored: Path, pages: Typed, tmp_path: Path, name: str) -> None:
    code, out, err = pages("--output", str(tmp_path / name), "--limit", "20")

    assert (code, out, err) == (EXIT_OK, "", "")
    assert count_of(tmp_path / name) == 20
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


def count_of(path: Path) -> int:
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    if path.suffix == ".csv":
        return len(list(csv.reader(io.StringIO(path.read_text(), newline="")))) - 1
    if path.suffix == ".jsonl":
        return len(path.read_text().splitlines())
    with path.open("rb") as file:
        return [record.rec_type for record in ArchiveIterator(file)].count("response")


def test_an_existing_file_is_replaced_only_when_asked(stored: Path, pages: Typed, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("precious")

    code, _, err = pages("--output", str(output))

    assert (code, output.read_text()) == (EXIT_USAGE, "precious")
    assert "exists; add --overwrite to replace it" in err
    assert pages("--output", str(output), "--overwrite")[0] == EXIT_OK
    assert count_of(output) == 30


def test_an_export_that_fails_leaves_nothing(stored: Path, pages: Typed, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("precious")
    (stored / "q-000001.parquet").write_bytes(b"PAR1 no such file PAR1")

    code, _, _ = pages("--output", str(output), "--overwrite")

    assert code == EXIT_UNEXPECTED
    assert [path.read_text() for path in tmp_path.iterdir() if path.is_file()] == ["precious"]


def test_the_answer_of_sql_is_exported_as_parquet(stored: Path, pages: Typed, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    query = (
        "SELECT domain, count(*) AS n, any_value(fields) AS fields FROM pages GROUP BY 1 ORDER BY 1 LIMIT 1"
    )

    code, _, _ = pages("--query", query, "--output", str(output))

    assert code == EXIT_OK
    [row] = pq.read_table(output).to_pylist()
    assert row == {"domain": "d0.test", "n": 10, "fields": [{"name": "price", "values": ["0 €"]}]}


def test_a_warc_of_pages_without_responses_is_reported(pages: Typed, tmp_path: Path) -> None:
    store(tmp_path / "runs" / "web" / "pages", ["parquet"], 2)

    code, _, err = pages("--output", str(tmp_path / "out.warc.gz"))

    assert code == EXIT_OK
    assert "2 pages have no response record" in err
    assert "PAGE_STORE=parquet,warc" in err


def test_an_export_takes_no_more_memory_than_a_row_group(
    stored: Path, pages: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproj.storage.parquet._GROUP_ROWS", 8)

    pages("--output", str(tmp_path / "out.parquet"))

    assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 4


def test_chosen_columns_are_exported_as_csv(stored: Path, pages: Typed) -> None:
    _, out, _ = pages("--format", "csv", "--columns", "url,text,fields", "--limit", "2")

    header, first, _ = csv.reader(io.StringIO(out))
    assert header == ["url", "text", "fields"]
    assert first == ["http://d0.test/0", "first\nsecond, with a comma", '{"price": ["0 €"]}']


@pytest.mark.parametrize("format_", ["jsonl", "warc"])
def test_other_formats_are_shown_as_well(format_: str, pages: Typed, tmp_path: Path) -> None:
    store(tmp_path / "runs" / "web" / "pages", [format_], 2)

    _, out, _ = pages("--columns", "url", "--format", "csv")

    assert out.split() == ["url", "http://d0.test/0", "http://d1.test/1"]


def test_sql_is_answered(stored: Path, pages: Typed) -> None:
    query = "SELECT domain, count(*) AS n, max(fetched_at) AS at FROM pages GROUP BY 1 ORDER BY 1"

    code, out, _ = pages("--query", query, "--format", "csv")

    assert code == EXIT_OK
    assert out.splitlines() == [
        "domain,n,at",
        *(f"d{number}.test,10,2026-01-02T03:04:05+00:00" for number in range(3)),
    ]


def test_sql_sees_what_the_users_selectors_found(stored: Path, pages: Typed) -> None:
    _, out, _ = pages("--query", "SELECT fields['price'][1] AS p FROM pages WHERE depth = 4", "--format=csv")

    assert out.split("\r\n")[1] == "4 €"


def test_columns_of_one_name_are_kept_apart(stored: Path, pages: Typed) -> None:
    query = "SELECT a.url, b.url FROM pages a JOIN pages b ON b.depth = a.depth + 3 WHERE a.depth = 1"

    _, out, _ = pages("--query", query, "--format", "csv")

    assert out.split() == ["url,url_2", "http://d1.test/1,http://d1.test/4"]


def test_segments_that_sql_cannot_read_are_reported(stored: Path, pages: Typed) -> None:
    store(stored, ["jsonl"], 1, parser="q")

    _, out, err = pages("--query", "SELECT count(*) AS n FROM pages", "--format", "csv")

    assert out.split() == ["n", "30"]
    assert "skipping 1 segments without a Parquet file" in err


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--run", "nope"], "Run 'nope' has no pages in .*nope.* yet; runs with pages: web"),
        (["--columns", "url,tilte"], "Unknown column 'tilte'. Did you mean title?"),
        (["--limit", "0"], "--limit 0: must be at least 1"),
        (["--output", "{tmp}/x.xls"], r"x\.xls.* use one of \.parquet, \.jsonl, \.csv, \.warc\.gz"),
        (["--output", "{tmp}"], r"use one of \.parquet"),
        (["--output", "{tmp}/x.csv", "--format", "table"], "A table is for the terminal"),
        (["--output", "{tmp}/x.warc.gz", "--columns", "url"], "leave out --query and --columns"),
        (["--output", "{tmp}/no/x.csv"], "Cannot write .*: No such file or directory"),
        (["--query", "SELECT 1", "--columns", "url"], "--columns cannot be used with --query"),
        (["--query", "SELEC 1"], 'syntax error at or near "SELEC"'),
        (["--query", "SELECT nope FROM pages"], 'column "nope" not found'),
        (["--query", "SELECT 1; SELECT 2"], "must be one SELECT"),
        (["--query", ""], "must be one SELECT"),
        (["--query", "DROP VIEW pages"], "must be one SELECT"),
        (["--query", "COPY pages TO '{tmp}/x.csv'"], "must be one SELECT"),
        (["--query", "INSTALL httpfs"], "must be one SELECT"),
        (["--query", "SELECT * FROM read_text('/etc/hostname')"], "disabled by configuration"),
        (["--query", "SELECT * FROM read_csv('http://127.0.0.1:1/x')"], "disabled|not loaded|extension"),
        (["--query", "SELECT * FROM sql"], "sql does not exist"),
        (["--query", "SELECT error('at\nrun time') FROM pages"], "at run time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_reported_in_one_line_with_its_remedy(
    stored: Path, pages: Typed, tmp_path: Path, typed: list[str], says: str
) -> None:
    before = sorted(stored.iterdir())

    code, out, err = pages(*(word.replace("{tmp}", str(tmp_path)) for word in typed))

    assert code == EXIT_USAGE
    [line] = [line for line in (out + err).splitlines() if line]
    assert re.search(says, line)
    assert sorted(stored.iterdir()) == before
    assert not (tmp_path / "x.csv").exists()


def test_sql_without_parquet_names_the_setting(pages: Typed, tmp_path: Path) -> None:
    store(tmp_path / "runs" / "web" / "pages", ["jsonl"], 1)

    code, _, err = pages("--query", "SELECT 1")

    assert code == EXIT_USAGE
    assert "PAGE_STORE=parquet" in err


@pytest.mark.parametrize(
    "typed", [["--format", "csv"], ["--query", "SELECT count(text) FROM pages"]], ids=["rows", "sql"]
)
def test_a_damaged_file_is_named(stored: Path, pages: Typed, typed: list[str]) -> None:
    (stored / "p-000002.parquet").write_bytes(b"PAR1 no such file PAR1")

    code, _, err = pages(*typed)

    assert code in (EXIT_UNEXPECTED, EXIT_USAGE)
    assert "p-000002.parquet" in err
    assert len(err.splitlines()) == 1


def test_help_ends_in_examples_a_line_each(pages: Typed) -> None:
    code, out, _ = pages("-h")

    assert code == EXIT_OK
    examples = out.partition("examples:\n")[2].splitlines()
    assert len(examples) > 1
    assert all(line.startswith("  scrapy pages") for line in examples)


@pytest.fixture
def scraped(tmp_path: Path) -> Path:
    """A run with three items of different shapes."""
    texts = [
        '{"title":"A","price":1}',
        '{"title":"B","price":2.5,"tags":["x"]}',
        '{"title":"C","a;b":{"n":1}}',
    ]
    writer = SegmentWriter(tmp_path / "runs" / "web" / "pages", "p", ["parquet"])
    page = Page("http://a.test/", "web", "a.test", 0, 0, 0, 0, items=texts, is_bare=True)
    writer.append(None, page)

    async def record(segment: str, rows: int) -> None:
        pass

    asyncio.run(writer.commit(record))
    return tmp_path


def test_items_are_a_table_of_their_keys(scraped: Path, items: Typed) -> None:
    _, table, _ = items()
    _, count, _ = items("--count")
    _, lines, _ = items("--format", "csv", "--columns", "title,price")

    assert table.splitlines()[0].split() == ["title", "price", "tags", "a;b"]
    assert count == "3\n"
    assert lines.split() == ["title,price", "A,1", "B,2.5", "C,"]


def test_items_are_exported_as_they_are_or_as_a_table_of_types(scraped: Path, items: Typed) -> None:
    for name in ("out.jsonl", "out.parquet"):
        assert items("--output", str(scraped / name))[0] == EXIT_OK

    first, *_ = (scraped / "out.jsonl").read_text().splitlines()
    assert first == '{"title":"A","price":1}'
    assert pq.read_table(scraped / "out.parquet").to_pylist() == [
        {"title": "A", "price": 1.0, "tags": None, "a_b": None},
        {"title": "B", "price": 2.5, "tags": ["x"], "a_b": None},
        {"title": "C", "price": None, "tags": None, "a_b": '{"n":1}'},
    ]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--run", "nope"], "Run 'nope' has no items in .*nope.* yet; runs with items: web"),
        (["--columns", "tilte"], "No item has 'tilte'; there are: title, price, tags, a;b"),
        (["--output", "{tmp}/x.warc.gz"], r"WARC is for pages; use \.parquet, \.jsonl or \.csv"),
        (["--output", "{tmp}/x.xls"], r"use one of \.parquet"),
    ],
)
def test_a_mistake_with_items_is_one_line(
    scraped: Path, items: Typed, tmp_path: Path, typed: list[str], says: str
) -> None:
    code, out, err = items(*(word.replace("{tmp}", str(tmp_path)) for word in typed))

    assert code == EXIT_USAGE
    [line] = (out + err).splitlines()
    assert re.search(says, line)
