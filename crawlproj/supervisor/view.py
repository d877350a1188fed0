"""The progress of a crawl in a terminal, redrawn in place from the overview of its run.

Pure functions make plain text; rich only clips, colours and places it. Rich's own tables would cost the
supervisor ten times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from crawlproj.runs import Limits
from crawlproj.runs.reasons import Standstill
from crawlproj.supervisor.forecast import Forecast, FrontierTrend, duration, forecast, size
from crawlproj.supervisor.progress import Pace, aligned, progress_line, room_lines, stored_phrase

#: Seconds between lines without a terminal.
_LINE_EVERY_S = 5.0
#: A process without a heartbeat for this long is shown as silent.
_SILENT_S = 15.0
_MOST_ERRORS = 3
_BAR = 24
#: What a colour means: green all is well, yellow look at it, red an error.
_STYLES = {
    "title": "bold",
    "good": "bold green",
    "progress": "green",
    "warning": "yellow",
    "error": "red",
    "quiet": "dim",
    "": "",
}
_STATE_STYLES = {
    "running": "good",
    "finished": "good",
    "paused": "warning",
    "stopped": "warning",
    "failed": "error",
}
#: A line and the name of its style.
Line = tuple[str, str]


class View:
    """Shows a run on *out*: redrawn in place on a terminal, else one line every few seconds.

    If *out* cannot be written to any more, because the terminal was closed, it shows nothing: the crawl must
    not fail, and must still be able to stop in order.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_s = self._printed_s = clock()
        self._pace = Pace()
        self._standstill = Standstill()
        self._trend = FrontierTrend()
        self._console = console_for(out)
        self._out = out
        self._draws = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._is_gone = False

    @property
    def pages_per_s(self) -> float:
        return self._pace.recent

    @property
    def seconds(self) -> float:
        return self._clock() - self._started_s

    def show(self, status: dict[str, Any]) -> None:
        """Draw *status*: an overview, or at least what `status_of` returns."""
        now_s = self._clock()
        self._pace.note(now_s, status["fetched"])
        self._trend.note(now_s, status["waiting"] + status["leased"])
        trouble = self._standstill.note(status)
        seconds = now_s - self._started_s
        # Those of now: `scrapy run --change` may have changed them since the start.
        limits = Limits(**status["limits"])
        ahead = forecast(status, limits, self._pace.recent, self._trend.falls_per_s, seconds)
        if not self._draws:
            if now_s - self._printed_s >= _LINE_EVERY_S:
                self._printed_s = now_s
                line = progress_line(status, self._pace.recent, seconds, ahead)
                self.notify("\n".join([line, *trouble]))
            return
        lines = lines_of(status, self._pace, seconds, ahead)
        lines[1:1] = [(line, "warning") for line in trouble]
        self._write(lambda: self._draw(lines))

    def _draw(self, lines: Iterable[Line]) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(text_of(lines), refresh=True)

    def notify(self, text: str) -> None:
        """Print *text* on lines of its own, above the drawing."""
        if not self._draws:
            self._write(lambda: print(text, file=self._out, flush=True))
            return
        words = Text("\n".join(map(printable, text.splitlines())))
        # The terminal wraps, so that a path can be copied in one piece.
        self._write(lambda: self._console.print(words, soft_wrap=True))

    def end(self) -> float:
        """Keep the last drawing; returns the seconds the crawl took."""
        if self._live is not None:
            self._write(self._live.stop)
            self._live = None
        return self.seconds

    def _write(self, write: Callable[[], None]) -> None:
        """Call *write*; after the first failure nothing is written any more."""
        if not self._is_gone:
            try:
                write()
            except OSError:
                self._is_gone = True


def console_for(out: TextIO, width: int | None = None) -> Console:
    """Return a console that uses colours only on a terminal, whatever the environment says."""
    return Console(file=out, force_terminal=out.isatty(), highlight=False, markup=False, width=width)


def text_of(lines: Iterable[Line]) -> Text:
    """Return *lines* as text, each clipped to the terminal's width."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (line, kind) in enumerate(lines):
        text.append(f"\n{line}" if number else line, _STYLES[kind])
    return text


def style_of(status: dict[str, Any]) -> str:
    """Return the style of a run's state."""
    return "warning" if status.get("interrupted") else _STATE_STYLES.get(status["state"], "title")


def lines_of(status: dict[str, Any], pace: Pace, seconds: float, ahead: Forecast | None = None) -> list[Line]:
    """Return the lines to draw for a run watched for *seconds*."""
    state = status["state"] + (f": {status['reason']}" if status["reason"] else "")
    pages = f"fetched {status['fetched']:,}   {stored_phrase(status)}"
    rates = f"{pace.recent:,.1f}/s now   {pace.whole:,.1f}/s average"
    urls = f"waiting {status['waiting']:,}   leased {status['leased']:,}"
    bad = f"failed {status['failed']:,}   parked {status['parked']:,}"
    lines: list[Line] = [
        (f"run {status['run']}, {state}, {duration(seconds)}", style_of(status)),
        (f"pages       {pages}   {rates}", ""),
        (f"frontier    {urls}   {bad}", ""),
        (f"page queue  waiting {status['pages_queued']:,}", ""),
    ]
    if ahead is not None:
        lines.insert(1, (bar_of(ahead), "progress"))
    if status.get("processes"):
        head, *rows = process_lines(status["processes"])
        lines += [("", ""), (head, "quiet"), *((row, "") for row in rows)]
    lines[1:1] = [(line, "warning") for line in room_lines(status)]
    lines += [(f"{name}: {error}", "error") for name, error in last_errors(status.get("processes", ()))]
    return lines


def bar_of(ahead: Forecast) -> str:
    full = int(ahead.share * _BAR)
    return f"progress    {'█' * full}{'░' * (_BAR - full)} {ahead}"


def process_lines(processes: Sequence[dict[str, Any]]) -> list[str]:
    """Return a heading and a line for every process."""
    rows = [("", "pages", "pages/s", "in flight", "buffered", "memory", "files", "process")]
    for line in processes:
        where = f"{line['pid'] or '?'} on {line['host']}"
        silent = f", silent for {line['silent_seconds']:.0f} s" if line["silent_seconds"] >= _SILENT_S else ""
        rows.append(
            (
                name_of(line),
                _count(line, "pages"),
                f"{line['pages_per_s']:,.1f}" if "pages_per_s" in line else "-",
                _count(line, "in_flight"),
                _count(line, "buffered"),
                size(line["memory_bytes"]) if "memory_bytes" in line else "-",
                _count(line, "open_files"),
                printable(where + silent),
            )
        )
    return aligned(rows)


def last_errors(processes: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the last error of each process, by name; at most a few."""
    errors = [(name_of(line), printable(line["last_error"])) for line in processes if line.get("last_error")]
    return errors[:_MOST_ERRORS]


def printable(text: str) -> str:
    """Return *text* without control characters: errors may quote what a site sent."""
    return "".join(character if character.isprintable() else "�" for character in text)


def name_of(line: dict[str, Any]) -> str:
    """Return the name of a process in a table."""
    # Parser names are long, and the process column distinguishes them.
    return f"shard {line['name']}" if line["kind"] == "shard" else str(line["kind"])


def _count(line: dict[str, Any], figure: str) -> str:
    return f"{line[figure]:,}" if figure in line else "-"
