"""The table of `scrapy status`."""

from __future__ import annotations

import io
from typing import Any

import pytest

from crawlproj.commands.status import report_of, table_of, watch_seconds
from crawlproj.errors import BadArgument
from crawlproj.supervisor.view import console_for

DOMAIN: dict[str, Any] = {
    "domain": "a.test",
    "fetched": 1200,
    "admitted": 3000,
    "delay_ms": 1500,
    "failures": 2,
    "bytes": 5_000_000,
    "parked": "",
}
STATUS: dict[str, Any] = {
    "spider": "web",
    "rules": {"DEPTH_LIMIT": 3, "CRAWL_SCOPE": "sites"},
    "rules_not_default": ["DEPTH_LIMIT"],
    "rule_changes": [{"at_ms": 1_700_000_000_000, "by": "ann@one", "values": {"DEPTH_LIMIT": [0, 3]}}],
    "run": "web",
    "state": "running",
    "reason": "",
    "interrupted": False,
    "admitted": 30_000,
    "waiting": 22_000,
    "leased": 64,
    "remaining": 22_064,
    "fetched": 1500,
    "skipped": 4,
    "failed": 7,
    "trapped": 0,
    "retried": 5,
    "returned": 0,
    "reclaimed": 0,
    "by_reason": {"dns": 7, "http_404": 12, "robots": 4},
    "filtered": {"scope": 900},
    "parked": 3,
    "parked_domains": 1,
    "trapped_kept": 0,
    "pages_stored": 1400,
    "pages_cut": 3,
    "pages_queued": 80,
    "pages_being_parsed": 20,
    "shards": 2,
    "shards_alive": {"0": "one:4711"},
    "partitions": 64,
    "partitions_owned": 64,
    "ran_seconds": 83.0,
    "pages_per_second": 75.2,
    "parsed_per_second": 70.0,
    "memory_bytes": 262_000_000,
    "redis_memory_bytes": 8_000_000,
    "redis_memory_max_bytes": 0,
    "redis_full": "",
    "open_files": 90,
    "supervisors": [],
    "disks": [{"host": "one", "free_bytes": 90_000_000_000}],
    "processes": [
        {"kind": "shard", "name": "0", "host": "one", "pid": 4711, "silent_seconds": 0.0, "pages": 1500}
        | {"pages_per_s": 75.2, "last_error": "disk \x1b[31mfull"}
    ],
    "domains_read": 40,
    "domains_are_sample": False,
    "hottest_domains": [DOMAIN],
    "slowest_domains": [DOMAIN],
    "failing_domains": [],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(width: int) -> list[str]:
    out = io.StringIO()
    console_for(out, width).print(report_of(STATUS))
    return out.getvalue().splitlines()


def test_the_table_says_what_the_run_is_doing_before_anything_else() -> None:
    assert table_of(STATUS)[:5] == [
        "run web, running",
        "shards alive: 0 (one:4711), of 2",
        "partitions owned: 64 of 64",
        "ran for 0:01:23; now 75.2 pages/s fetched, 70.0 parsed",
        "memory: 262 MB, open files: 90",
    ]


def test_processes_are_listed_with_their_last_errors() -> None:
    table = table_of(STATUS)

    at = table.index("processes")
    assert table[at + 2].split() == ["shard", "0", "1,500", "75.2", "-", "-", "-", "-", "4711", "on", "one"]
    assert table[at + 3] == "  shard 0: disk �[31mfull"


def test_open_descriptors_are_listed_by_kind_where_known() -> None:
    [shard] = STATUS["processes"]
    supervisor = {
        "kind": "supervisor",
        "name": "0",
        "host": "two",
        "pid": 12,
        "descriptors": {"redis": 1, "http": 0},
    }
    processes = {"processes": [shard, shard | {"descriptors": {"redis": 3, "http": 1200}}]}

    table = table_of(STATUS | processes | {"supervisors": [supervisor]})

    at = table.index("open descriptors")
    assert [line.split() for line in table[at + 1 : at + 4]] == [
        ["redis", "http", "process"],
        ["shard", "0", "3", "1,200", "4711", "on", "one"],
        ["supervisor", "1", "0", "12", "on", "two"],
    ]


def test_domains_that_stand_out_are_listed_and_kinds_without_any_are_not() -> None:
    table = table_of(STATUS)

    at = table.index("hottest domains (most fetched)")
    assert table[at + 2].split() == ["a.test", "1,200", "3,000", "1.5", "s", "2", "5", "MB"]
    assert not any(line.startswith("failing") for line in table)


def test_a_sample_of_domains_is_called_one() -> None:
    table = table_of(STATUS | {"domains_are_sample": True, "domains_read": 128_000})

    assert "slowest domains (longest delay; from a sample of 128,000)" in table


def test_a_parked_domain_is_shown_as_parked() -> None:
    table = table_of(STATUS | {"failing_domains": [DOMAIN | {"parked": "failures"}]})

    assert table[-1].endswith("5 MB  parked: failures")


@pytest.mark.parametrize("width", [80, 200])
def test_on_a_terminal_groups_stand_side_by_side_and_no_line_is_too_wide(width: int) -> None:
    lines = drawn(width)

    assert max(map(len, lines)) <= width
    assert len(lines) < len(table_of(STATUS))
    beside = next(line for line in lines if line.startswith("URLs"))
    assert "outcomes" in beside
    assert ("links not admitted" in beside) == (width == 200)


@pytest.mark.parametrize("figure", ["22,064", "http_404", "1,400", "a.test", "4711"])
def test_a_terminal_shows_the_same_figures(figure: str) -> None:
    assert any(figure in line for line in drawn(80))


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal, file = Terminal(), io.StringIO()

    for out in (terminal, file):
        console_for(out, 80).print(report_of(STATUS))

    assert "\x1b[1m" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("text", ["", "soon", "0", "0.4", "-1", "nan", "inf"])
def test_a_wrong_time_to_watch_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(BadArgument, match=f"--watch {text}: must be at least 0.5 seconds"):
        watch_seconds(text)


def test_a_time_to_watch_may_have_a_fraction() -> None:
    assert watch_seconds("1.5") == 1.5


def test_links_on_disk_are_shown_with_the_host_that_has_them() -> None:
    files = [{"file": "b-1-000001.links", "links": 1200, "host": "machine-b"}]

    lines = table_of(STATUS | {"links_spilled": 1200, "spill_files": files})

    at = next(number for number, line in enumerate(lines) if line.startswith("links on disk; "))
    assert lines[at].endswith("scrapy parser --run web")
    assert lines[at + 2].split() == ["machine-b", "1,200", "b-1-000001.links"]


def test_a_run_without_a_page_says_why() -> None:
    lines = table_of(STATUS | {"fetched": 12, "failed": 0, "by_reason": {"http_404": 12, "robots": 4}})

    at = lines.index("no page was fetched so far:")
    assert lines[at + 1 : at + 3] == [
        "  http_404, 12 times: there is no such page; check the URL",
        "  robots, 4 times: robots.txt does not allow it, or could not be read (docs/robots.md)",
    ]
    assert "no page was fetched so far:" not in table_of(STATUS)
