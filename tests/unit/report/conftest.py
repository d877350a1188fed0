"""Made pages, stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawlproj.model.records import Page
from crawlproj.storage.row import PageRow
from crawlproj.storage.segments import SegmentWriter

BEGUN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Store = Callable[..., Path]


def a_row(at_s: float = 0.0, **columns: Any) -> PageRow:
    """A good page of a.test, fetched so many seconds after the first."""
    columns = {
        "url": "http://a.test/",
        "domain": "a.test",
        "depth": 0,
        "status": 200,
        "latency_ms": 10,
        "content_type": "text/html",
        "language": "en",
        "body_bytes": 1000,
        "shard": 0,
        "attempt": 0,
        **columns,
    }
    return PageRow(final_url=columns["url"], fetched_at=BEGUN + timedelta(seconds=at_s), **columns)


def write_pages(
    directory: Path, rows: Sequence[PageRow], format_: str = "parquet", parser: str = "p"
) -> Path:
    """Store *rows* as one segment, as a parser would; returns the directory."""

    async def record(segment: str, count: int) -> None:
        pass

    writer = SegmentWriter(directory, parser, [format_])
    for row in rows:
        page = Page(row.url, "web", row.domain, row.depth, row.status, 0, row.latency_ms, body=b"x")
        writer.append(row, page)
    asyncio.run(writer.commit(record))
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return partial(write_pages, tmp_path / "pages")
