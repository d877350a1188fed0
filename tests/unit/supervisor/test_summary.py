"""How a run ended, in words: what failed, why, and what would help."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproj.runs.reasons import Standstill, is_fruitless, remedy_of
from crawlproj.supervisor.summary import ended_fruitless, summary_of


def status(**changes: Any) -> dict[str, Any]:
    return {
        "run": "news",
        "state": "finished",
        "reason": "",
        "seconds": 3.5,
        "admitted": 3,
        "waiting": 0,
        "leased": 0,
        "fetched": 3,
        "skipped": 0,
        "failed": 0,
        "by_reason": {},
        "parked_domains": 0,
        "parked": 0,
        "trapped_kept": 0,
        "pages_queued": 0,
        "pages_being_parsed": 0,
        "pages_stored": 3,
        "spider": "web",
        "pages_cut": 0,
        "pages": "data/runs/news/pages",
    } | changes


def test_a_run_without_failures_says_where_its_pages_are() -> None:
    assert summary_of(status()).splitlines() == [
        "finished in 3.5 s: 3 URLs fetched, 0 not allowed, 0 failed.",
        "3 pages are in data/runs/news/pages",
    ]


def test_a_run_that_could_not_be_ended_is_not_said_to_run() -> None:
    [first, *_] = summary_of(status(state="running", waiting=904)).splitlines()

    assert first.startswith("interrupted after 3.5 s with 904 URLs waiting")


def test_pages_that_other_machines_have_stored_are_not_said_to_be_here() -> None:
    assert summary_of(status(pages_elsewhere=2)).splitlines()[1:] == [
        "1 pages are in data/runs/news/pages, 2 elsewhere; to copy them: scrapy gather --run news"
    ]
    assert summary_of(
        status(pages_elsewhere=2, spider="docs", items=7, items_directory="data/runs/docs/items")
    ).splitlines()[1:] == [
        "7 items are in data/runs/docs/items and elsewhere; to copy them: scrapy gather --run news"
    ]


def test_the_three_commonest_failures_come_with_what_would_help() -> None:
    failed = {"cannot_resolve_host": 2, "total_timeout": 9, "tls": 5, "idle_timeout": 1, "http_404": 50}

    lines = summary_of(status(fetched=60, failed=17, by_reason=failed, pages_cut=4)).splitlines()

    assert lines[1:] == [
        "Failed most often:",
        "  total_timeout, 9 times: the download took longer than DOWNLOAD_TIMEOUT; raise it",
        "  tls, 5 times: the TLS handshake failed; try http:// instead of https://",
        "  cannot_resolve_host, 2 times: the name was not found; check its spelling, the network and the DNS",
        "3 pages are in data/runs/news/pages",
        "Truncated pages: 4; the rest was over CRAWL_MAX_BODY or never sent.",
    ]


def test_a_run_that_fetched_nothing_says_so_and_why() -> None:
    parked = {"retry_robots_cannot_resolve_host": 4, "retry_cannot_resolve_host": 2}

    lines = summary_of(
        status(fetched=0, pages_stored=0, by_reason=parked, parked_domains=1, parked=3, reason="parked")
    ).splitlines()

    assert lines[1:] == [
        "No seed could be fetched:",
        "  cannot_resolve_host, 6 times: the name was not found; check its spelling, the network and the DNS",
        "domains parked: 1 with 3 URLs; see: scrapy parked --run news",
    ]


@pytest.mark.parametrize(
    ("changes", "is_so"),
    [
        ({"fetched": 0, "failed": 3}, True),
        ({"fetched": 0, "skipped": 3, "by_reason": {"robots": 3}}, True),
        # Answers, but no page.
        ({"fetched": 3, "by_reason": {"http_404": 2, "http_503": 1}}, True),
        ({"fetched": 1, "failed": 1, "by_reason": {"redirected": 1, "certificate": 1}}, True),
        ({"fetched": 0, "state": "stopped", "reason": "max_seconds", "waiting": 3}, True),
        # A PDF was found.
        ({"fetched": 1, "by_reason": {"content_type": 1}}, False),
        ({"fetched": 2, "by_reason": {"http_404": 1}}, False),
        ({"fetched": 0, "state": "stopped", "reason": "interrupted", "waiting": 3}, False),
        ({"fetched": 0, "admitted": 0}, False),
    ],
)
def test_whether_any_seed_could_be_fetched(changes: dict[str, Any], is_so: bool) -> None:
    assert ended_fruitless(status(**changes)) is is_so


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"state": "stopped", "reason": "interrupted"}, "To resume: run the same command."),
        (
            {"state": "stopped", "reason": "max_pages"},
            "To resume: run the same command with a higher --max-pages; 0 means no limit.",
        ),
        ({"state": "paused"}, "To resume: scrapy resume --run news, then run the same command."),
    ],
)
def test_a_run_that_is_not_finished_says_how_to_resume_it(changes: dict[str, Any], last: str) -> None:
    assert summary_of(status(**changes)).splitlines()[-1] == last


def test_who_joined_a_run_that_stopped_cannot_resume_it_by_joining_again() -> None:
    last = summary_of(status(state="stopped", reason="interrupted"), joined=True).splitlines()[-1]

    assert last == "The other processes of run news continue, or resume it: scrapy run --run news"


def test_why_nothing_is_fetched_is_said_until_a_page_comes() -> None:
    standstill = Standstill()
    waiting = status(fetched=0, waiting=1, by_reason={})
    retried = waiting | {"by_reason": {"retry_robots_cannot_resolve_host": 2}}

    before = standstill.note(waiting)
    meanwhile = standstill.note(retried)
    after = standstill.note(retried | {"fetched": 1})

    assert before == after == []
    assert meanwhile[0] == "nothing is fetched at the moment:"
    assert meanwhile[1].startswith("  cannot_resolve_host, 2 times: the name was not found")
    # Nothing is left, so nothing is awaited.
    assert standstill.note(retried | {"fetched": 1, "waiting": 0}) == []


def test_domains_that_rest_for_another_run_are_named_after_a_while() -> None:
    now_s = 100.0
    standstill = Standstill(lambda: now_s)
    waiting = status(fetched=3, waiting=1, leased=0, by_reason={}) | {"runs_beside": ["dead"]}

    at_once = standstill.note(waiting)
    now_s += 20
    later = standstill.note(waiting)

    assert at_once == standstill.note(waiting | {"leased": 1}) == []
    assert standstill.note(waiting | {"runs_beside": []}) == []
    assert "its domains rest, perhaps for other runs (dead): CRAWL_SHARE_DELAYS" in later[0]


def test_every_status_and_most_errors_are_explained() -> None:
    assert remedy_of("http_502") == "the site is in trouble; try again later"
    assert remedy_of("http_429").endswith("raise DOWNLOAD_DELAY")
    assert remedy_of("something_new") == ""
    assert not is_fruitless(status())
