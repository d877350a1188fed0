"""What a person sees while a crawl runs: one line, rewritten on a terminal."""

from __future__ import annotations

import shutil
import time
from typing import Any, TextIO

#: Seconds between lines where they cannot be rewritten.
_LINE_EVERY_S = 5.0


def progress_line(status: dict[str, Any], pages_per_s: float, seconds: float) -> str:
    return (
        f"{seconds:4.0f} s  fetched {status['fetched']:,}  stored {status['pages_stored']:,}  "
        f"waiting {status['waiting']:,}  leased {status['leased']:,}  "
        f"not stored yet {status['pages_queued'] + status['pages_being_parsed']:,}  "
        f"failed {status['failed']:,}  {pages_per_s:,.0f} pages/s"
    )


class Progress:
    """Shows how a run comes along on *out*."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._started_s = self._told_s = time.monotonic()
        self._before: tuple[float, int] | None = None

    def show(self, status: dict[str, Any]) -> None:
        now_s = time.monotonic()
        before_s, before = self._before or (now_s, status["fetched"])
        rate = (status["fetched"] - before) / (now_s - before_s) if now_s > before_s else 0.0
        self._before = now_s, status["fetched"]
        line = progress_line(status, rate, now_s - self._started_s)
        if self._out.isatty():
            # A line that wraps could not be rewritten.
            line = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[2K{line}", end="", file=self._out, flush=True)
        elif now_s - self._told_s >= _LINE_EVERY_S:
            self._told_s = now_s
            print(line, file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Print *text* on lines of its own."""
        print(f"\r\x1b[2K{text}" if self._out.isatty() else text, file=self._out, flush=True)

    def end(self) -> float:
        """End the line; returns the seconds the crawl took."""
        if self._out.isatty():
            print(file=self._out)
        return time.monotonic() - self._started_s
