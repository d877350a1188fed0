"""What must be true after a crawl, by what it stored and by the log of the simulated web."""

from __future__ import annotations

from collections import Counter

from crawlproj.storage import read_pages
from tests.cluster.conftest import Crawl


def assert_each_page_once(crawl: Crawl) -> None:
    summary = crawl.summary()
    assert (summary["state"], summary["waiting"], summary["leased"]) == ("finished", 0, 0)
    stored = Counter(page["url"] for page in read_pages(summary["pages"]))
    assert [url for url, times in stored.items() if times > 1] == []
    assert summary["pages_stored"] == len(stored)
    # By the log of the web: complete, polite, and nothing twice but what was in flight.
    assert "expected but not fetched" not in summary["referee"], summary["referee"]
    assert "too soon" not in summary["referee"], summary["referee"]
