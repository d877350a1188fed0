"""What a process reports with every heartbeat: memory, open files, speed, last error."""

from __future__ import annotations

import logging
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawlproj.observe.descriptors import Descriptors, GrowthWatch, most_descriptors
from crawlproj.observe.logs import CallbackHandler
from crawlproj.observe.metrics import Metrics

#: Heartbeats are read often, so an error in them is cut short.
_MOST_ERROR_CHARACTERS = 200
#: How often descriptors are checked for growth by default.
_GROWTH_CHECK_S = 10.0


def memory_bytes() -> int:
    """Return the resident memory of this process; without /proc, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def open_files() -> int:
    """Return how many file descriptors this process has open; 0 if that cannot be read."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # Less the one that iterdir uses.
            return sum(1 for _ in Path(folder).iterdir()) - 1
        except OSError:
            continue
    return 0


def free_bytes(folder: Path) -> int | None:
    """Return what is free on the disk of *folder*; None if that cannot be read: writers report why."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


class Heartbeat:
    """The heartbeat of this process. Make one at its start: it keeps errors logged from then on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: May be replaced by one that knows the process's sockets.
        self.descriptors = Descriptors()
        #: On whose disk it writes, if it does.
        self.data: Path | None = None
        #: The URL of its metrics; '' for none.
        self.endpoint: Callable[[], str] = str
        self._clock, self._started_s = clock, clock()
        self._started_ms = int(time.time() * 1000)
        self._last_s, self._last_pages, self._last_cpu_s = clock(), 0, time.process_time()
        self.check_growth_every(_GROWTH_CHECK_S)
        self._last_error = ""
        self._error_log = CallbackHandler(self._note_error, logging.ERROR)
        logging.getLogger().addHandler(self._error_log)

    def check_growth_every(self, seconds: float) -> None:
        self._growth = GrowthWatch(seconds, self._clock)

    def beat(self, pages: int, **more: object) -> dict[str, Any]:
        """Return a heartbeat; ``pages_per_s`` is the rate since the last call."""
        now_s = self._clock()
        seconds = now_s - self._last_s
        rate = (pages - self._last_pages) / seconds if seconds > 0 else 0.0
        cpu_s = time.process_time()
        cpu = (cpu_s - self._last_cpu_s) / seconds if seconds > 0 else 0.0
        self._last_s, self._last_pages, self._last_cpu_s = now_s, pages, cpu_s
        descriptors = self.descriptors.count()
        self._growth.note(descriptors)
        return {
            "started_ms": self._started_ms,
            "up_s": round(now_s - self._started_s, 1),
            "pages": pages,
            "pages_per_s": round(rate, 1),
            **more,
            # Of one core, by all threads of the process.
            "cpu": round(cpu, 3),
            "memory_bytes": memory_bytes(),
            "open_files": open_files(),
            "disk_free_bytes": self._free_bytes(),
            "descriptors": descriptors,
            "metrics": self.endpoint(),
            "last_error": self._last_error,
        }

    def of_component(self) -> Heartbeat:
        """Return the heartbeat of another component of this process, with its own speed and errors."""
        other = Heartbeat(self._clock)
        other.descriptors, other.endpoint, other._growth = self.descriptors, self.endpoint, self._growth
        other.data = self.data
        return other

    def publish_to(self, metrics: Metrics) -> None:
        """Set the gauges of *metrics* that every kind of process has."""
        host = socket.gethostname()
        metrics.process_info = lambda: {host: 1}
        metrics.memory_bytes = memory_bytes
        metrics.disk_free_bytes = lambda: {} if (free := self._free_bytes()) is None else free
        # Gauges are read in the order of their declaration, so `last` is what `count` has just returned.
        metrics.redis_connections = lambda: self.descriptors.count()["redis"]
        metrics.open_descriptors = lambda: self.descriptors.last
        metrics.open_descriptors_max = most_descriptors
        metrics.process_start_time_seconds = lambda: self._started_ms / 1000

    def _free_bytes(self) -> int | None:
        return None if self.data is None else free_bytes(self.data)

    def close(self) -> None:
        logging.getLogger().removeHandler(self._error_log)

    def _note_error(self, message: str) -> None:
        self._last_error = message[:_MOST_ERROR_CHARACTERS]
