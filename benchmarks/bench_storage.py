"""What storing a page costs: CPU time and bytes, for each format.

The pages are the .html files under the directory named by BENCH_HTML, or else the standard library's
documentation as pydoc prints it: distinct, real text, and there on every machine.
"""

from __future__ import annotations

import gzip
import importlib
import os
import pydoc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from hashlib import blake2b
from io import StringIO
from itertools import islice
from pathlib import Path

from measuring import Goal, Report, median, read_options, spread
from selectolax.lexbor import LexborHTMLParser

from crawlproj.model.records import Page
from crawlproj.storage.row import COLUMNS, PageRow
from crawlproj.storage.sink import SINKS

PAGES = 2000
#: Pages of documentation may be long; rows get at most this much of their text.
TEXT_CHARS = 12_000
#: Pages with less are indexes and stubs, and left out.
LEAST_CHARS = 3000
#: Storing may take this share of the millisecond a parser has for a page.
TARGET_MS = 0.15
#: Importing these has side effects, or they are not documentation.
NOT_READ = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "msilib", "test", "tkinter", "turtle"}


def main() -> None:
    options = read_options(__doc__ or "")
    report = Report(redis_version="")
    pages = list(islice(made_of(documents()), 200 if options.quick else PAGES))
    html_bytes = sum(row.body_bytes for row, _ in pages) / len(pages)
    text_chars = sum(len(row.text or "") for row, _ in pages) / len(pages)
    table = report.table(
        f"storing {len(pages):,} pages of {html_bytes / 1000:.1f} KB HTML, {text_chars / 1000:.1f} KB text",
        "format", "CPU ms a page", "all runs", "bytes a page", "of the HTML", "reading: CPU ms a page",
    )  # fmt: skip
    measured = {}
    for name in SINKS:
        written_ms, read_ms, stored_bytes = zip(
            *(measure(name, pages) for _ in range(1 if options.quick else 3)), strict=True
        )
        measured[name] = median(written_ms)
        per_page = stored_bytes[0] / len(pages)
        table.add(
            name, f"{median(written_ms):.3f}", spread(written_ms, ".3f"), f"{per_page:,.0f}",
            f"1/{html_bytes / per_page:.1f}", f"{median(read_ms):.3f}",
        )  # fmt: skip
    table.notes.append(
        "warc holds the body as the server sent it (gzip) besides the text; the others hold the text."
    )
    table.notes.append(
        "Pages: " + ("BENCH_HTML" if os.environ.get("BENCH_HTML") else "pydoc of the standard library")
    )
    report.goals.append(
        Goal(
            "storing a page as Parquet",
            f"at most {TARGET_MS} ms CPU",
            f"{measured['parquet']:.3f} ms",
            measured["parquet"] <= TARGET_MS,
        )
    )
    report.finish(options)


def measure(name: str, pages: Sequence[tuple[PageRow, Page]]) -> tuple[float, float, int]:
    """Return CPU ms a page to write and to read one file, and its bytes."""
    kind = SINKS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"bench{kind.suffix}"
        before_s = time.process_time()
        sink = kind(path)
        for row, page in pages:
            sink.append(row, page)
        sink.close()
        written_s = time.process_time()
        assert sum(1 for _ in kind.read(path, COLUMNS)) == len(pages)
        read_s = time.process_time()
        size = path.stat().st_size
    return (written_s - before_s) / len(pages) * 1000, (read_s - written_s) / len(pages) * 1000, size


def documents() -> Iterator[bytes]:
    if folder := os.environ.get("BENCH_HTML"):
        for path in sorted(Path(folder).rglob("*.html")):
            yield path.read_bytes()
        return
    printer = pydoc.HTMLDoc()
    for name in sorted(sys.stdlib_module_names):
        if name in NOT_READ or name.startswith("_"):
            continue
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            try:
                module = importlib.import_module(name)
            except ImportError:  # not on this system
                continue
            yield printer.page(name, printer.document(module, name)).encode("utf-8", "replace")


def made_of(bodies: Iterator[bytes]) -> Iterator[tuple[PageRow, Page]]:
    """Yield rows as a parser would make them."""
    for number, body in enumerate(bodies):
        tree = LexborHTMLParser(body)
        # Menus are the same on every page and would compress to nothing.
        main_part = tree.css_first("main") or tree.body
        text = " ".join(main_part.text(separator=" ").split())[:TEXT_CHARS] if main_part else ""
        if len(text) < LEAST_CHARS:
            continue
        domain = f"site-{number % 50}.example"
        url = f"https://www.{domain}/docs/a-longer-title-{number:07d}.html"
        title = tree.css_first("title")
        digest = blake2b(body, digest_size=16).hexdigest()
        row = PageRow(
            url=url,
            final_url=url,
            domain=domain,
            depth=number % 7,
            status=200,
            fetched_at=datetime.fromtimestamp(1_750_000_000 + number * 0.013, UTC),
            latency_ms=number * 37 % 900,
            content_type="text/html",
            charset="utf-8",
            language="en",
            title=title.text() if title else None,
            text=text,
            links=len(tree.css("a[href]")),
            body_bytes=len(body),
            content_hash=digest,
            simhash=int(digest[:15], 16),
            shard=number % 4,
            attempt=1,
        )
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Encoding": "gzip"}
        yield row, Page(url, "bench", domain, row.depth, 200, 0, 0, headers, gzip.compress(body, 6))


if __name__ == "__main__":
    main()
