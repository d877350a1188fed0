from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from crawlproj.report.counting import count_pages
from crawlproj.report.page import render
from crawlproj.report.tally import Delays, Tally
from tests.unit.report.conftest import Store, a_row

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
HOSTILE = "<script>alert('1')</script>&\"\x00\u202e"


class Parts(HTMLParser):
    """Tags, attributes and the text between, as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())


@pytest.fixture
def tally(store: Store) -> Tally:
    rows = [
        *(a_row(n, domain=f"d{n % 3}.test", language="de", content_hash="same") for n in range(1500)),
        a_row(1500, status=0, error="timeout", domain="dead.test"),
        a_row(1501, status=0, error="robots"),
        a_row(1800, status=404, truncated=True),
    ]
    return count_pages(store(rows), Delays(1.0))


def test_the_numbers_up_front_are_those_of_what_was_stored(tally: Tally) -> None:
    words = Parts(render("news", tally, made_at=NOW)).words

    tiles = after(words)
    assert tiles["pages"] == "1,503"
    assert tiles["time"] == "30 min 00 s"
    assert tiles["pages per second"] == "0.8"
    assert tiles["bytes"] == "1.5 MB"
    assert tiles["domains"] == "5"
    assert tiles["no response"] == "1"
    assert tiles["not allowed"] == "1"
    assert tiles["HTTP errors"] == "1"
    assert tiles["truncated"] == "1"
    assert tiles["latency"] == "10 ms"
    assert tiles["duplicates"] == "1,499"
    assert "2026-01-02 03:04:05 to 2026-01-02 03:34:05 UTC" in words


def test_every_chart_is_there_and_whole(tally: Tally) -> None:
    charts = re.findall(r"<svg.*?</svg>", render("news", tally, made_at=NOW))

    titles = {ElementTree.fromstring(chart).get("aria-label") for chart in charts}
    assert titles == {
        *("Pages over time", "Bytes over time", "Status", "Errors", "Latency", "Content types", "Languages"),
        *("Sizes", "Depth", "Duplicates", "Largest domains", "Domains by size"),
        *("Pauses", "Pauses relative to the delay"),
    }


def test_the_page_needs_nothing_from_elsewhere(tally: Tally) -> None:
    page = render("news", tally, made_at=NOW)

    parts = Parts(page)
    assert parts.addresses == []
    assert not {"script", "link", "img", "iframe"} & set(parts.tags)
    assert "@import" not in page
    assert "url(" not in page


def test_what_comes_from_the_web_stays_text(store: Store) -> None:
    rows = [
        a_row(n, domain=HOSTILE, content_type=HOSTILE, language=HOSTILE, status=status, error=error)
        for n, (status, error) in enumerate([(200, None), (200, None), (200, None), (0, HOSTILE)])
    ]
    status = a_status(reason=HOSTILE, by_reason={HOSTILE: 1}, filtered={HOSTILE: 1}, state=HOSTILE)

    page = render(HOSTILE, count_pages(store(rows), Delays(1.0)), made_at=NOW, status=status)

    assert "script" not in Parts(page).tags
    assert "<script" not in page
    assert "\x00" not in page
    for chart in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(chart)


def test_a_run_of_a_single_failure_has_a_report(store: Store) -> None:
    row = a_row(status=0, error="dns", body_bytes=0, latency_ms=0, content_type=None, language=None)

    page = render("web", count_pages(store([row]), Delays(1.0)), made_at=NOW)

    assert "no data" in page
    assert "dns" in page


def test_figures_from_redis_are_shown(tally: Tally) -> None:
    status = a_status(state="stopped", reason="max_pages", waiting=4321, by_reason={"http_404": 17})

    words = Parts(render("web", tally, made_at=NOW, status=status)).words

    tiles = after(words)
    assert tiles["still waiting"] == "4,321"
    assert tiles["http_404"] == "17"
    assert "Reason of the end: max_pages" in words
    assert any(word.endswith("UTC, stopped") for word in words)


def after(words: list[str]) -> dict[str, str]:
    """What stands behind each word where it comes first."""
    return dict(reversed(list(pairwise(words))))


def a_status(**figures: Any) -> dict[str, Any]:
    names = ("admitted", "fetched", "failed", "skipped", "trapped", "retried", "waiting", "parked_domains")
    return {
        **dict.fromkeys(names, 0),
        "state": "finished",
        "reason": "",
        "by_reason": {},
        "filtered": {},
        **figures,
    }
