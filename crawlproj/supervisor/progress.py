"""How a crawl comes along, where nothing can be drawn: a line now and then, rewritten on a terminal."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

#: Seconds between lines where they cannot be rewritten.
_LINE_EVERY_S = 5.0
#: What 'now' means when people ask how fast it goes.
_RECENT_S = 10.0


class Pace:
    """How fast pages are fetched: of late, and on the whole. Time is an argument."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, fetched: int) -> None:
        self._first = self._first or (now_s, fetched)
        self._recent.append((now_s, fetched))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - _RECENT_S:
            self._recent.popleft()

    @property
    def recent(self) -> float:
        """Pages a second over the last ten seconds or so."""
        return _rate(self._recent[0], self._recent[-1]) if self._recent else 0.0

    @property
    def whole(self) -> float:
        """Pages a second since the first look."""
        return _rate(self._first, self._recent[-1]) if self._first else 0.0


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float:
    seconds = last[0] - first[0]
    return (last[1] - first[1]) / seconds if seconds > 0 else 0.0


def progress_line(status: dict[str, Any], pages_per_s: float, seconds: float) -> str:
    return (
        f"{seconds:4.0f} s  fetched {status['fetched']:,}  stored {status['pages_stored']:,}  "
        f"waiting {status['waiting']:,}  leased {status['leased']:,}  "
        f"not stored yet {status['pages_queued'] + status['pages_being_parsed']:,}  "
        f"failed {status['failed']:,}  {pages_per_s:,.0f} pages/s"
    )


class Progress:
    """Shows how a run comes along on *out*. *rewrites*: whether a line can be; by default, on a terminal."""

    def __init__(
        self, out: TextIO, *, rewrites: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._rewrites = out.isatty() if rewrites is None else rewrites
        self._clock = clock
        self._started_s = self._told_s = clock()
        self._pace = Pace()

    def show(self, status: dict[str, Any]) -> None:
        now_s = self._clock()
        self._pace.note(now_s, status["fetched"])
        line = progress_line(status, self._pace.recent, now_s - self._started_s)
        if self._rewrites:
            # A line that wraps could not be rewritten.
            line = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[2K{line}", end="", file=self._out, flush=True)
        elif now_s - self._told_s >= _LINE_EVERY_S:
            self._told_s = now_s
            print(line, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Print *text* on lines of its own."""
        print(f"\r\x1b[2K{text}" if self._rewrites else text, file=self._out, flush=True)

    def end(self) -> float:
        """End the line; returns the seconds the crawl took."""
        if self._rewrites:
            print(file=self._out)
        return self._clock() - self._started_s
