"""Counts the open descriptors of this process by kind, and warns when one kind keeps growing."""

# ruff: noqa: PTH115, PTH208  # hundreds of links: Path objects would take three times as long

from __future__ import annotations

import logging
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import correlation

logger = logging.getLogger(__name__)

#: ``segment``: a page file being written; ``file`` and ``socket``: any other.
KINDS = ("redis", "http", "https", "segment", "file", "prometheus", "pipe", "socket")

#: How many samples make a trend.
_SAMPLES = 30
#: Growth worth a warning: at least this many, and this share of the first sample.
_LEAST_GROWTH = 16
_LEAST_SHARE = 0.25
#: How well a straight line must fit (R²).
_LEAST_FIT = 0.9


def most_descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Descriptors:
    """Counts by kind. *redis*: ``host:port`` or the path of its socket; *pages*: where segments are written.

    Other connections are reported by the code that opened them (`add_source`), or count as ``socket``.
    """

    def __init__(self, redis: str = "", pages: Path | None = None) -> None:
        self._redis = redis
        # A host name would have to be resolved; for it the port alone is enough.
        host, _, port = redis.rpartition(":")
        self._redis_port = int(port) if port.isdigit() and "/" not in redis else -1
        self._redis_host = host if host.replace(".", "").isdigit() or ":" in host else ""
        self._pages = f"{pages.absolute()}{os.sep}" if pages else None
        self._sources: list[Callable[[], Mapping[str, int]]] = []
        #: What `count` returned last.
        self.last = dict.fromkeys(KINDS, 0)

    def add_source(self, source: Callable[[], Mapping[str, int]]) -> None:
        """Have *source* return how many sockets there are of the kinds it knows."""
        self._sources.append(source)

    def count(self) -> dict[str, int]:
        """Return the count of each kind; all zero without /proc."""
        counts = dict.fromkeys(KINDS, 0)
        try:
            numbers = os.listdir("/proc/self/fd")
        except OSError:
            return counts
        for number in numbers:
            try:
                counts[self._kind_of(int(number), os.readlink(f"/proc/self/fd/{number}"))] += 1
            except OSError:
                # Closed meanwhile, such as the one listdir used.
                continue
        for source in self._sources:
            for kind, count in source().items():
                known = min(count, counts["socket"])
                counts[kind] += known
                counts["socket"] -= known
        self.last = counts
        return counts

    def _kind_of(self, number: int, link: str) -> str:
        if link.startswith("socket:"):
            return "redis" if self._redis and self._is_redis(number) else "socket"
        if link.startswith("pipe:"):
            return "pipe"
        return "segment" if self._pages and link.startswith(self._pages) else "file"

    def _is_redis(self, number: int) -> bool:
        # AF_UNIX for any socket: the answer is in the peer's family, and this one has the longest names.
        peeked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=number)
        try:
            peer = peeked.getpeername()
        except OSError:
            return False
        finally:
            peeked.detach()
        if isinstance(peer, tuple):
            return peer[1] == self._redis_port and self._redis_host in ("", peer[0])
        return bool(peer == self._redis)


def grows_steadily(samples: Sequence[float]) -> bool:
    """Whether *samples*, taken at even intervals, rise along a straight line, and by enough to matter.

    A rise that levels off, such as connections at the start of a crawl, does not count.
    """
    count = len(samples)
    if count < 3 or samples[-1] - samples[0] < max(_LEAST_GROWTH, _LEAST_SHARE * samples[0]):
        return False
    third = count // 3
    first, last = samples[third] - samples[0], samples[-1] - samples[-1 - third]
    return correlation(range(count), samples) ** 2 >= _LEAST_FIT and last >= first / 2


class GrowthWatch:
    """Warns when a kind of descriptor grows steadily, and again each time it has doubled since."""

    def __init__(self, every_s: float, clock: Callable[[], float]) -> None:
        self._every_s = every_s
        self._clock = clock
        self._noted_s = float("-inf")
        self._samples: dict[str, deque[int]] = {}
        self._warned: dict[str, int] = {}

    def note(self, counts: Mapping[str, int]) -> None:
        now_s = self._clock()
        # With some slack for callers that come at the interval themselves.
        if now_s - self._noted_s < 0.9 * self._every_s:
            return
        self._noted_s = now_s
        for kind, count in counts.items():
            samples = self._samples.setdefault(kind, deque(maxlen=_SAMPLES))
            samples.append(count)
            is_news = count >= 2 * self._warned.get(kind, 0)
            if is_news and len(samples) == _SAMPLES and grows_steadily(samples):
                self._warned[kind] = count
                logger.warning(
                    "open descriptors of kind %s grow steadily: from %d to %d",
                    kind,
                    samples[0],
                    count,
                    extra={"descriptor": kind, "limit": most_descriptors()},
                )
