"""What a process tells of itself with every heartbeat: memory, open files, pace, its last error."""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawlproj.observe.descriptors import Descriptors, GrowthWatch, most_descriptors
from crawlproj.observe.metrics import Metrics

#: A heartbeat is read often, and by many: an error is told in its first words.
_MOST_ERROR_CHARACTERS = 200
#: How often descriptors are looked at unless told otherwise.
_LOOK_S = 10.0


def memory_bytes() -> int:
    """Return the memory this process has in RAM; where no /proc tells, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def open_files() -> int:
    """Return how many file descriptors this process has open; 0 where nothing tells."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # One of them is that of this very look.
            return sum(1 for _ in Path(folder).iterdir()) - 1
        except OSError:
            continue
    return 0


class LastError(logging.Handler):
    """Remembers the last thing this process said at ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  # a log call with wrong arguments must not end a crawl
            text = str(record.msg)
        self.text = text[:_MOST_ERROR_CHARACTERS]


class ProcessFigures:
    """The figures of this process. Make one at its start; from then on it hears of errors.

    Now and then it looks whether one kind of descriptor grows and grows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: Whoever knows more of this process' sockets tells it, or puts another in its place.
        self.descriptors = Descriptors()
        #: Where its metrics can be asked for; '' for nowhere.
        self.endpoint: Callable[[], str] = str
        self._clock = clock
        self._started_ms = int(time.time() * 1000)
        self._told_s, self._told_pages = clock(), 0
        self.look_every(_LOOK_S)
        self._last_error = LastError()
        logging.getLogger().addHandler(self._last_error)

    def look_every(self, seconds: float) -> None:
        """Look at descriptors so often, from now on."""
        self._growth = GrowthWatch(seconds, self._clock)

    def tell(self, pages: int, **more: object) -> dict[str, Any]:
        """Return what a heartbeat tells; ``pages_per_s`` is since this was last called. Reads no network."""
        now_s = self._clock()
        seconds = now_s - self._told_s
        rate = (pages - self._told_pages) / seconds if seconds > 0 else 0.0
        self._told_s, self._told_pages = now_s, pages
        descriptors = self.descriptors.count()
        self._growth.note(descriptors)
        return {
            "started_ms": self._started_ms,
            "pages": pages,
            "pages_per_s": round(rate, 1),
            **more,
            "memory_bytes": memory_bytes(),
            "open_files": open_files(),
            "descriptors": descriptors,
            "metrics": self.endpoint(),
            "last_error": self._last_error.text,
        }

    def beside(self) -> ProcessFigures:
        """Return the figures of something else at work in this process: with a pace and errors of its own."""
        other = ProcessFigures(self._clock)
        other.descriptors, other.endpoint, other._growth = self.descriptors, self.endpoint, self._growth
        return other

    def show_in(self, metrics: Metrics) -> None:
        """Have *metrics* tell what every process has, whatever its kind."""
        metrics.memory_bytes = memory_bytes
        # Asked for in the order of their declaration, so the second finds what the first has counted.
        metrics.redis_connections = lambda: self.descriptors.count()["redis"]
        metrics.open_descriptors = lambda: self.descriptors.last
        metrics.open_descriptors_max = most_descriptors
        metrics.process_start_time_seconds = lambda: self._started_ms / 1000

    def close(self) -> None:
        """Hear of no more errors."""
        logging.getLogger().removeHandler(self._last_error)
