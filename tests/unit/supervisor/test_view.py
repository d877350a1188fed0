"""What a person sees of a crawl: the drawn text for given statuses."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Group

from crawlproj.runs import Limits
from crawlproj.supervisor.forecast import Forecast, forecast
from crawlproj.supervisor.progress import Pace, progress_line
from crawlproj.supervisor.view import (
    View,
    aligned,
    console_for,
    lines_of,
    printable,
    process_lines,
    style_of,
    text_of,
)
from tests.clock import Clock

STATUS: dict[str, Any] = {
    "run": "web",
    "state": "running",
    "reason": "",
    "fetched": 1500,
    "pages_stored": 1400,
    "waiting": 22_000,
    "leased": 64,
    "failed": 7,
    "by_reason": {"dns": 7},
    "parked": 3,
    "pages_queued": 80,
    "pages_being_parsed": 20,
    "limits": {"pages": 3000, "seconds": 0.0, "bytes": 0},
}
SHARD: dict[str, Any] = {
    "kind": "shard",
    "name": "0",
    "host": "one",
    "pid": 4711,
    "silent_seconds": 1.0,
    "pages": 1500,
    "pages_per_s": 75.25,
    "in_flight": 16,
    "buffered": 48,
    "memory_bytes": 131_000_000,
    "open_files": 60,
    "last_error": "",
}
PARSER: dict[str, Any] = {
    "kind": "parser",
    "name": "one-4712-abcd",
    "host": "one",
    "pid": 4712,
    "silent_seconds": 0.5,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(status: dict[str, Any], width: int, limits: Limits = Limits()) -> list[str]:  # noqa: B008
    out = io.StringIO()
    ahead = forecast(status, limits, 0.0, 0.0, 83)
    console_for(out, width).print(Group(text_of(lines_of(status, Pace(), 83, ahead))))
    return out.getvalue().splitlines()


def with_processes(*lines: dict[str, Any]) -> dict[str, Any]:
    return STATUS | {"processes": list(lines)}


# -- the text --


def test_the_status_is_shown_without_heartbeats_too() -> None:
    assert drawn(STATUS, 100) == [
        "run web, running, 0:01:23",
        "pages       fetched 1,500   stored 1,400 + 20 in open files   0.0/s now   0.0/s average",
        "frontier    waiting 22,000   leased 64   failed 7   parked 3",
        "page queue  waiting 80",
    ]


def test_every_process_has_a_line_and_missing_figures_are_a_dash() -> None:
    assert drawn(with_processes(SHARD, PARSER), 80)[4:] == [
        "",
        "         pages  pages/s  in flight  buffered  memory  files  process",
        "shard 0  1,500     75.2         16        48  131 MB     60  4711 on one",
        "parser       -        -          -         -       -      -  4712 on one",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shard = SHARD | {"last_error": "x" * 500, "host": "h" * 200}

    lines = drawn(with_processes(shard, PARSER), width, Limits(pages=10**9))

    assert max(map(len, lines)) == width
    assert len(lines) == 10


def test_processes_are_shown_with_their_host() -> None:
    rows = process_lines([SHARD, PARSER | {"host": "two"}])

    assert [row.rpartition("  ")[2] for row in rows] == ["process", "4711 on one", "4712 on two"]


def test_a_process_without_a_heartbeat_is_shown_as_silent() -> None:
    [_, row] = process_lines([SHARD | {"silent_seconds": 42.0}])

    assert row.endswith("4711 on one, silent for 42 s")


def test_the_last_errors_are_shown_without_control_characters() -> None:
    lines = drawn(with_processes(SHARD | {"last_error": "bad \x1b[2Jthing\n"}, PARSER), 80)

    assert lines[-1] == "shard 0: bad �[2Jthing�"


def test_the_reason_of_the_end_is_shown() -> None:
    assert drawn(STATUS | {"state": "stopped", "reason": "max_pages"}, 80)[0].startswith(
        "run web, stopped: max_pages,"
    )


# -- the pace --


def test_current_and_average_rate_differ() -> None:
    pace = Pace()
    for second in range(101):
        pace.note(second, 1000 + (second if second <= 50 else 50 + (second - 50) * 9))

    assert (pace.recent, pace.whole) == (9.0, 5.0)


def test_one_look_makes_no_pace() -> None:
    pace = Pace()
    assert (pace.recent, pace.whole) == (0.0, 0.0)

    pace.note(1.0, 500)

    assert (pace.recent, pace.whole) == (0.0, 0.0)


# -- where it is shown --


def test_without_a_terminal_there_is_a_plain_line_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, clock = io.StringIO(), Clock()
    view = View(out, clock)

    for _ in range(24):
        clock.now_s += 0.5
        view.show(with_processes(SHARD))
    view.notify("shard 0: it said something")

    lines = out.getvalue().splitlines()
    assert [line[:20] for line in lines] == [
        "   5 s  fetched 1,500"[:20],
        "  10 s  fetched 1,500"[:20],
        lines[2][:20],
    ]
    assert lines[2] == "shard 0: it said something"
    assert "\x1b" not in out.getvalue()
    assert view.end() == 12.0


def test_on_a_terminal_it_is_drawn_in_place_below_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    view = View(out)

    view.show(with_processes(SHARD))
    view.notify("[red]shard 0[/red]: \x1b[31mbad")
    view.show(STATUS | {"fetched": 1501})
    view.end()

    text = out.getvalue()
    assert "[red]shard 0[/red]: �[31mbad" in text
    assert text.index("fetched 1,500") < text.index("shard 0[/red]") < text.index("fetched 1,501")
    # Up and erased, so that it takes the place of what was there; and the cursor is shown again.
    assert "\x1b[1A\x1b[2K" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_terminal_that_cannot_be_drawn_on_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out, clock = Terminal(), Clock()
    view = View(out, clock)

    clock.now_s = 6
    view.show(STATUS)
    view.end()

    assert out.getvalue().startswith("   6 s  fetched 1,500")
    assert "\x1b" not in out.getvalue()


def test_drawing_twice_a_second_costs_less_than_a_hundredth_of_a_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    view = View(Terminal())
    status = with_processes(*[SHARD] * 4, *[PARSER] * 4)
    view.show(status)

    began_s = time.process_time()
    for _ in range(50):
        view.show(status)
    each_s = (time.process_time() - began_s) / 50

    view.end()
    assert 2 * each_s < 0.01


# -- words --


def test_columns_are_aligned_and_the_last_is_left_as_it_is() -> None:
    assert aligned([("", "pages", "x"), ("shard 0", "5", "long last")]) == [
        "         pages  x",
        "shard 0      5  long last",
    ]


def test_what_can_be_printed_stays() -> None:
    assert printable("naïve 中文 ok") == "naïve 中文 ok"


def test_a_redis_short_of_room_and_links_on_disk_are_shown() -> None:
    memory = {"redis_memory_bytes": 870_000_000, "redis_memory_max_bytes": 1_000_000_000}
    status = STATUS | memory | {"admission_waits": True, "links_spilled": 1234}

    drawn = [line for line, _ in lines_of(status, Pace(), 1.0)]
    printed = progress_line(status, 1.0, 1.0).splitlines()

    assert drawn[1:3] == [
        "Redis is short of room (870.0 MB of 1,000.0 MB): new links wait on disk, pages drain",
        "links on disk, to be admitted when Redis has room: 1,234",
    ]
    assert printed[1:] == drawn[1:3]


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_why_nothing_is_fetched_stands_with_the_progress(kind: type[io.StringIO]) -> None:
    out, now_s = kind(), 0.0
    view = View(out, lambda: now_s)

    view.show(STATUS)
    now_s = 6.0
    view.show(STATUS | {"by_reason": {"dns": 7, "retry_connect_timeout": 2}})

    assert "nothing is fetched at the moment:" in out.getvalue()
    assert "  connect_timeout, 2 times: no connection within" in out.getvalue()


def test_progress_is_a_bar_on_a_terminal_and_words_elsewhere() -> None:
    ahead = Forecast(150.0, 0.5, "3,000 pages")

    drawn = lines_of(STATUS, Pace(), 1.0, ahead)

    bar = f"progress    {'█' * 12}{'░' * 12} 50% of 3,000 pages, about 0:02:30 left"
    assert drawn[1] == (bar, "progress")
    assert progress_line(STATUS, 10.0, 1.0, ahead).endswith(
        "10 pages/s  50% of 3,000 pages, about 0:02:30 left"
    )


def test_the_share_is_that_of_the_limit_that_the_run_has_now() -> None:
    out, clock = io.StringIO(), Clock()
    view = View(out, clock)

    for most in (3000, 2000):
        clock.now_s += 6
        view.show(STATUS | {"limits": {"pages": most, "seconds": 0.0, "bytes": 0}})

    assert [line.partition("pages/s  ")[2] for line in out.getvalue().splitlines()] == [
        "50% of 3,000 pages",
        "75% of 2,000 pages",
    ]


def test_pages_in_open_files_are_shown_before_any_file_is_closed() -> None:
    line = progress_line(STATUS | {"pages_stored": 0, "pages_being_parsed": 12}, 1.0, 1.0)

    assert "stored 0 + 12 in open files  queued 80" in line
    assert "stored 1,400  queued 80" in progress_line(STATUS | {"pages_being_parsed": 0}, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "style"),
    [
        ({}, "good"),
        ({"state": "paused"}, "warning"),
        ({"state": "failed"}, "error"),
        ({"state": "created"}, "title"),
        ({"interrupted": True}, "warning"),
    ],
)
def test_the_colour_of_a_run_is_that_of_its_state(changes: dict[str, Any], style: str) -> None:
    assert style_of(STATUS | changes) == style
    assert lines_of(STATUS | changes, Pace(), 1.0)[0][1] == style


class ClosedTerminal(Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_closed_terminal_is_no_error(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    clock = Clock()
    view = View(ClosedTerminal(), clock)

    for _ in range(3):
        clock.now_s += 6
        view.show(STATUS)
        view.notify("stopping")

    assert view.end() == 18.0
