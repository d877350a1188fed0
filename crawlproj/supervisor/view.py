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
from crawlproj.supervisor.progress import Pace, aligned, progress_line, room_lines
from crawlproj.supervisor.reasons import Standstill

#: Seconds between lines without a terminal.
_LINE_EVERY_S = 5.0
#: A process without a heartbeat for this long is shown as silent.
_SILENT_S = 15.0
_MOST_ERRORS = 3
_BAR = 24
_STYLES = {"title": "bold", "quiet": "dim", "error": "red", "": ""}
#: A line and the name of its style.
Line = tuple[str, str]


class View:
    """Shows a run on *out*: redrawn in place on a terminal, else one line every few seconds.

    If *out* cannot be written to any more, because the terminal was closed, it shows nothing: the crawl must
    not fail, and must still be able to stop in order.
    """

    def __init__(self, out: TextIO, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._started_s = self._printed_s = clock()
        self._pace = Pace()
        self._standstill = Standstill()
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
        trouble = self._standstill.note(status)
        if not self._draws:
            if now_s - self._printed_s >= _LINE_EVERY_S:
                self._printed_s = now_s
                line = progress_line(status, self._pace.recent, now_s - self._started_s)
                self.notify("\n".join([line, *trouble]))
            return
        lines = lines_of(status, self._limits, self._pace, now_s - self._started_s)
        lines[1:1] = [(line, "error") for line in trouble]
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


def lines_of(status: dict[str, Any], limits: Limits, pace: Pace, seconds: float) -> list[Line]:
    """Return the lines to draw for a run watched for *seconds*."""
    state = status["state"] + (f": {status['reason']}" if status["reason"] else "")
    pages = f"fetched {status['fetched']:,}   stored {status['pages_stored']:,}"
    rates = f"{pace.recent:,.1f}/s now   {pace.whole:,.1f}/s average"
    urls = f"waiting {status['waiting']:,}   leased {status['leased']:,}"
    bad = f"failed {status['failed']:,}   parked {status['parked']:,}"
    queue = f"waiting {status['pages_queued']:,}   being parsed {status['pages_being_parsed']:,}"
    lines: list[Line] = [
        (f"run {status['run']}, {state}, {duration(seconds)}", "title"),
        (f"pages       {pages}   {rates}", ""),
        (f"frontier    {urls}   {bad}", ""),
        (f"page queue  {queue}", ""),
    ]
    if limit := limit_line(status, limits, pace.recent, seconds):
        lines.insert(1, (limit, ""))
    if status.get("processes"):
        head, *rows = process_lines(status["processes"])
        lines += [("", ""), (head, "quiet"), *((row, "") for row in rows)]
    lines[1:1] = [(line, "error") for line in room_lines(status)]
    lines += [(f"{name}: {error}", "error") for name, error in last_errors(status.get("processes", ()))]
    return lines


def limit_line(status: dict[str, Any], limits: Limits, pages_per_s: float, seconds: float) -> str:
    """Return a progress bar for the limit that will be reached first; '' without limits."""
    ran_s = status.get("ran_seconds", seconds)
    fetched_bytes = status.get("bytes", 0)
    ways = [
        (status["fetched"], limits.pages, pages_per_s, f"{limits.pages:,} pages"),
        (ran_s, limits.seconds, 1.0, duration(limits.seconds)),
        (fetched_bytes, limits.bytes, fetched_bytes / ran_s if ran_s else 0.0, size(limits.bytes)),
    ]
    known = [
        (max(0.0, limit - done) / per_s if per_s > 0 else float("inf"), done / limit, what)
        for done, limit, per_s, what in ways
        if limit
    ]
    if not known:
        return ""
    left_s, share, what = min(known)
    share = min(share, 1.0)
    full = int(share * _BAR)
    left = f", {duration(left_s)} left" if left_s != float("inf") else ""
    return f"limit       {'█' * full}{'░' * (_BAR - full)} {share:4.0%} of {what}{left}"


def process_lines(processes: Sequence[dict[str, Any]]) -> list[str]:
    """Return a heading and a line for every process."""
    hosts = {line["host"] for line in processes}
    rows = [("", "pages", "pages/s", "in flight", "buffered", "memory", "files", "process")]
    for line in processes:
        where = str(line["pid"] or "?") + (f" on {line['host']}" if len(hosts) > 1 else "")
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


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def size(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def name_of(line: dict[str, Any]) -> str:
    """Return the name of a process in a table."""
    # Parser names are long, and the process column distinguishes them.
    return f"shard {line['name']}" if line["kind"] == "shard" else str(line["kind"])


def _count(line: dict[str, Any], figure: str) -> str:
    return f"{line[figure]:,}" if figure in line else "-"
