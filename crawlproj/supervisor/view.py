"""What a person sees of a crawl in a terminal: drawn again in place, from the overview of its run.

The text is made by pure functions and is plain; rich only cuts it to the width, colours it and puts it there.
A table of rich's own would cost the supervisor ten times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from crawlproj.runs import Limits
from crawlproj.supervisor.progress import Pace, progress_line

#: Seconds between lines where nothing can be drawn.
_LINE_EVERY_S = 5.0
#: A process that was not heard of for so long is shown as silent.
_SILENT_S = 15.0
_MOST_ERRORS = 3
_BAR = 24
_STYLES = {"title": "bold", "quiet": "dim", "error": "red", "": ""}
#: A line and what it is: one of the styles above.
Line = tuple[str, str]


class View:
    """Shows a run on *out*: drawn in place on a terminal, else a line now and then."""

    def __init__(self, out: TextIO, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._started_s = self._told_s = clock()
        self._pace = Pace()
        self._console = console_for(out)
        self._out = out
        self._draws = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None

    @property
    def pages_per_s(self) -> float:
        """How fast pages are fetched of late."""
        return self._pace.recent

    @property
    def seconds(self) -> float:
        return self._clock() - self._started_s

    def show(self, status: dict[str, Any]) -> None:
        """Draw *status*: an overview, or at least what `status_of` tells."""
        now_s = self._clock()
        self._pace.note(now_s, status["fetched"])
        if not self._draws:
            if now_s - self._told_s >= _LINE_EVERY_S:
                self._told_s = now_s
                self.say(progress_line(status, self._pace.recent, now_s - self._started_s))
            return
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        lines = lines_of(status, self._limits, self._pace, now_s - self._started_s)
        self._live.update(text_of(lines), refresh=True)

    def say(self, text: str) -> None:
        """Print *text* on lines of its own, above what is drawn."""
        if not self._draws:
            print(text, file=self._out, flush=True)
        else:
            words = Text("\n".join(map(printable, text.splitlines())))
            # Wrapped by the terminal itself, so that a path can be copied in one piece.
            self._console.print(words, soft_wrap=True)

    def end(self) -> float:
        """Leave the last drawing where it is; returns the seconds the crawl took."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        return self.seconds


def console_for(out: TextIO, width: int | None = None) -> Console:
    """Return a console that colours nothing but a terminal, whatever the environment asks for."""
    return Console(file=out, force_terminal=out.isatty(), highlight=False, markup=False, width=width)


def text_of(lines: Iterable[Line]) -> Text:
    """Return *lines* to be drawn, each cut where the terminal ends."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (line, kind) in enumerate(lines):
        text.append(f"\n{line}" if number else line, _STYLES[kind])
    return text


def lines_of(status: dict[str, Any], limits: Limits, pace: Pace, seconds: float) -> list[Line]:
    """Return what is drawn of a run that has been looked at for *seconds*."""
    state = status["state"] + (f": {status['reason']}" if status["reason"] else "")
    pages = f"fetched {status['fetched']:,}   stored {status['pages_stored']:,}"
    rates = f"{pace.recent:,.1f}/s now   {pace.whole:,.1f}/s on the whole"
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
    lines += [(f"{name}: {error}", "error") for name, error in last_errors(status.get("processes", ()))]
    return lines


def limit_line(status: dict[str, Any], limits: Limits, pages_per_s: float, seconds: float) -> str:
    """Return how far it is to the limit that is reached first at this pace; '' without limits."""
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
    """Return a head, and a line for every process."""
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
    """Return what processes last said at ERROR, by name; a few are enough."""
    said = [(name_of(line), printable(line["last_error"])) for line in processes if line.get("last_error")]
    return said[:_MOST_ERRORS]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return *rows* as lines: first and last column to the left, what is between them to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)),
                row[-1],
            ]
        ).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """Return *text* without what a terminal would obey: errors may quote what a site sent."""
    return "".join(character if character.isprintable() else "�" for character in text)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def name_of(line: dict[str, Any]) -> str:
    """Return what a process is called in a table."""
    # The names of parsers are long, and its process tells one from another.
    return f"shard {line['name']}" if line["kind"] == "shard" else str(line["kind"])


def _count(line: dict[str, Any], figure: str) -> str:
    return f"{line[figure]:,}" if figure in line else "-"
