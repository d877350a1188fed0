"""Servers that send raw bytes where a URL belongs: the page that browsers would show is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage import read_pages

pytestmark = pytest.mark.e2e

HTML = {"Content-Type": "text/html; charset=utf-8"}


def raw(path: str, encoding: str = "utf-8") -> str:
    """A header that the server sends as the bytes of *path*."""
    return path.encode(encoding).decode("latin-1")


@pytest.mark.parametrize("direct", ["0", "1"])
def test_raw_bytes_in_headers_lead_to_the_page_that_browsers_show(
    tmp_path: Path, scrapy: Callable[..., Any], echo: Any, direct: str
) -> None:
    page = (200, HTML, b"<p>Here it is.</p>")
    links = ("/moved", "/moved-latin", "/refreshed", "/listed", "/private/page")
    echo.answers = {
        "/robots.txt": [(301, {"Location": raw("/für-roboter.txt")}, b"")],
        "/f%C3%BCr-roboter.txt": [
            (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /private")
        ],
        "/": [(200, HTML, "".join(f'<p><a href="{link}">{link}</a></p>' for link in links).encode())],
        "/moved": [(301, {"Location": raw("/bücher?q=дом")}, b"")],
        "/b%C3%BCcher?q=%D0%B4%D0%BE%D0%BC": [page],
        "/moved-latin": [(302, {"Location": raw("/café", "latin-1")}, b"")],
        "/caf%E9": [page],
        "/refreshed": [(200, HTML | {"Refresh": raw("0; url=/größe")}, b"<p>Wait.</p>")],
        "/gr%C3%B6%C3%9Fe": [page],
        "/listed": [(200, HTML | {"Link": raw("</nächste>; rel=next")}, b"<p>A list.</p>")],
        "/n%C3%A4chste": [page],
    }

    process = scrapy("crawl", "web", "-a", f"seeds={echo.url}/", CRAWL_DIRECT=direct, DOWNLOAD_DELAY="0")

    assert process.wait() == 0, process.log
    assert ("fetched by Scrapy's engine" in process.log) is (direct == "0")
    stored = {row["url"].removeprefix(echo.url) for row in read_pages(tmp_path / "data/runs/web/pages")}
    assert {path for path, answers in echo.answers.items() if answers == [page]} <= stored
    assert {seen.path for seen in echo.log} == set(echo.answers)
