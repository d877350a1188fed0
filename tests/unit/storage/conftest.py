"""Rows and pages to store."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from crawlproj.model.records import Page
from crawlproj.storage.row import PageRow

MakePage = Callable[..., tuple[PageRow, Page]]
HTML = "<title>Tätel</title><p>two<p>lines".encode()


@pytest.fixture
def a_page() -> MakePage:
    """Makes a row with something in every column, and the page it was made of."""

    def make(url: str = "http://a.test/", **columns: object) -> tuple[PageRow, Page]:
        row = PageRow(
            url=url,
            final_url=url,
            redirected_from="http://b.test/",
            canonical_url="http://a.test/canonical",
            domain="a.test",
            depth=3,
            status=200,
            fetched_at=datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
            latency_ms=12,
            content_type="text/html",
            charset="utf-8",
            language="de",
            title="Tätel",
            description='with "quotes", commas\tand 日本',
            text="two\nlines\u2028\r\n\x00 end ",
            text_source="article",
            full_text="menu two lines",
            headings=[{"level": 1, "text": "Tätel"}, {"level": 6, "text": ""}],
            published=datetime(1851, 9, 18, tzinfo=UTC),
            modified=datetime(2025, 6, 7, 8, 9, 10, 11_000, UTC),
            author="Ada Lovelace; 日本",
            site_name="A & B",
            kind="article",
            image="http://a.test/i.png",
            paywalled=False,
            links=2,
            link_urls=["http://a.test/1", "http://a.test/2"],
            body_bytes=len(HTML),
            truncated=True,
            content_hash="00ff",
            simhash=-(2**63),
            shard=1,
            attempt=2,
            error=None,
            fields={"price": ["1 €", "2 €"], "none": []},
        )
        for name, value in columns.items():
            setattr(row, name, value)
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Encoding": "gzip"}
        page = Page(
            url, "web", row.domain, row.depth, row.status, 0, 12, headers, gzip.compress(HTML, mtime=0)
        )
        page.truncated = row.truncated
        return row, page

    return make


@pytest.fixture
def a_failure(a_page: MakePage) -> tuple[PageRow, Page]:
    """A URL that gave no answer: every column that can be empty is."""
    row = PageRow(
        url="http://a.test/gone",
        final_url="http://a.test/gone",
        domain="a.test",
        depth=0,
        status=0,
        fetched_at=datetime(2026, 1, 2, tzinfo=UTC),
        latency_ms=0,
        shard=0,
        attempt=3,
        error="timeout\r\nWARC-Type: response",
    )
    return row, Page(row.url, "web", "a.test", 0, 0, 0, 0, error=row.error or "")
