"""WARC files as the tools of web archives see them: warcio, and FastWARC for a second opinion."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]

from crawlproj.model.records import Page
from crawlproj.storage.row import PageRow
from crawlproj.storage.warc import WarcSink

with warnings.catch_warnings():
    # FastWARC warns, by being imported, of its own older classes.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator as FastIterator

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

HTML = "<title>Tätel</title><p>two<p>lines".encode()


def write(path: Path, *pages: tuple[PageRow, Page]) -> Path:
    sink = WarcSink(path)
    for row, page in pages:
        sink.append(row, page)
    sink.close()
    return path


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records as warcio reads them, digests checked, bodies as a browser would show them."""
    found = []
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            http = record.http_headers
            found.append(
                {
                    "type": record.rec_type,
                    "headers": dict(record.rec_headers.headers),
                    "status": http and http.get_statuscode(),
                    "http": dict(http.headers) if http else {},
                    "content": record.content_stream().read(),
                }
            )
    return found


@pytest.fixture
def archive(tmp_path: Path, a_page: MakePage, a_failure: tuple[PageRow, Page]) -> Path:
    return write(tmp_path / "p-000001.warc.gz", a_page(), a_page(status=404, text=None), a_failure)


def test_warcio_finds_nothing_wrong(archive: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "warcio.cli", "check", "-v", archive],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("digest pass") == 7
    assert "no digest" not in checked.stdout


def test_fastwarc_reads_the_same_records_and_finds_their_digests_right(archive: Path) -> None:
    seen = []
    with archive.open("rb") as file:
        for record in FastIterator(file, parse_http=False):
            assert record.verify_block_digest()
            seen.append(record.headers["WARC-Record-ID"])

    assert seen == [record["headers"]["WARC-Record-ID"] for record in records(archive)]
    assert len(set(seen)) == 7


def test_a_page_is_a_response_a_conversion_and_a_metadata_record(archive: Path) -> None:
    kinds = [record["type"] for record in records(archive)]

    assert kinds == [
        *("warcinfo", "response", "conversion", "metadata"),
        *("response", "metadata"),
        "metadata",
    ]


def test_the_body_is_as_the_server_sent_it(archive: Path, a_page: MakePage) -> None:
    _, page = a_page()

    response = records(archive)[1]

    assert response["status"] == "200"
    assert response["content"] == HTML
    assert response["http"] == {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Encoding": "gzip",
        "Content-Length": str(len(page.body)),
    }


def test_headers_of_the_transfer_are_left_out_and_no_value_can_begin_a_new_line(
    tmp_path: Path, a_page: MakePage
) -> None:
    row, page = a_page()
    page.headers = {
        "Transfer-Encoding": "chunked",
        "content-length": "7",
        "X": "a\r\nSet-Cookie: b",
        "Wide": "日",
    }

    response = records(write(tmp_path / "a.warc.gz", (row, page)))[1]

    assert response["http"] == {
        "X": "a Set-Cookie: b",
        "Wide": "?",
        "Content-Length": str(len(page.body)),
    }


def test_a_body_that_was_cut_is_marked(tmp_path: Path, a_page: MakePage) -> None:
    path = write(tmp_path / "a.warc.gz", a_page(truncated=True), a_page(truncated=False))

    marks = [
        record["headers"].get("WARC-Truncated") for record in records(path) if record["type"] == "response"
    ]

    assert marks == ["length", None]


def test_the_text_refers_to_its_response(archive: Path, a_page: MakePage) -> None:
    row, _ = a_page()

    _, response, conversion, metadata, *_ = records(archive)

    assert conversion["content"].decode() == row.text
    assert conversion["headers"]["Content-Type"] == "text/plain"
    assert conversion["headers"]["WARC-Refers-To"] == response["headers"]["WARC-Record-ID"]
    assert metadata["headers"]["WARC-Refers-To"] == response["headers"]["WARC-Record-ID"]


def test_records_have_url_and_time_of_the_fetch(archive: Path) -> None:
    named = {
        (record["headers"]["WARC-Target-URI"], record["headers"]["WARC-Date"])
        for record in records(archive)[1:4]
    }

    assert named == {("http://a.test/", "2026-01-02T03:04:05.678Z")}


def test_the_file_says_its_final_name(tmp_path: Path, a_page: MakePage) -> None:
    info = records(write(tmp_path / "p-000001.warc.gz.part", a_page()))[0]

    assert info["headers"]["WARC-Filename"] == "p-000001.warc.gz"
