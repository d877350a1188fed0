"""The open descriptors of this process, by what they are, and whether one kind of them grows and grows."""

# ruff: noqa: PTH115, PTH208  # it looks at hundreds of links: paths as objects would take three times as long

from __future__ import annotations

import logging
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

#: ``segment``: a file of pages being written; ``file`` and ``socket``: any other.
KINDS = ("redis", "http", "https", "segment", "file", "prometheus", "pipe", "socket")

#: How many samples make a trend.
_SAMPLES = 30
#: Growth that is worth a word: so many, and such a share of what there was.
_LEAST_GROWTH = 16
_LEAST_SHARE = 0.25
#: How well a straight line must fit.
_LEAST_FIT = 0.9


def most_descriptors() -> int:
    """Return how many descriptors this process may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Descriptors:
    """Counts by kind. *redis*: ``host:port`` or the path of its socket; *pages*: where segments are written.

    Other connections are told of by who made them (`tell_by`); those nobody tells of are a ``socket``.
    """

    def __init__(self, redis: str = "", pages: Path | None = None) -> None:
        self._redis = redis
        # Of a name we would have to ask for its addresses; the port alone is telling enough.
        host, _, port = redis.rpartition(":")
        self._redis_port = int(port) if port.isdigit() and "/" not in redis else -1
        self._redis_host = host if host.replace(".", "").isdigit() or ":" in host else ""
        self._pages = f"{pages.absolute()}{os.sep}" if pages else None
        self._tellers: list[Callable[[], Mapping[str, int]]] = []
        #: What `count` returned last.
        self.last = dict.fromkeys(KINDS, 0)

    def tell_by(self, teller: Callable[[], Mapping[str, int]]) -> None:
        """Have *teller* say how many sockets there are of the kinds it knows."""
        self._tellers.append(teller)

    def count(self) -> dict[str, int]:
        """Return how many there are of each kind; all zero where there is no /proc."""
        counts = dict.fromkeys(KINDS, 0)
        try:
            numbers = os.listdir("/proc/self/fd")
        except OSError:
            return counts
        for number in numbers:
            try:
                counts[self._kind_of(int(number), os.readlink(f"/proc/self/fd/{number}"))] += 1
            except OSError:
                # Closed since; the one of this very look among them.
                continue
        for teller in self._tellers:
            for kind, count in teller().items():
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
        # Whatever it is: the peer is told in its own family, and the names of this one are the longest.
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
    """Whether *samples*, taken at even intervals, go up along a straight line, and by enough to matter.

    What rises and then stays, as connections do when a crawl begins, does not.
    """
    count = len(samples)
    if count < 3 or samples[-1] - samples[0] < max(_LEAST_GROWTH, _LEAST_SHARE * samples[0]):
        return False
    mean_x, mean_y = (count - 1) / 2, sum(samples) / count
    spread_x = sum((x - mean_x) ** 2 for x in range(count))
    spread_y = sum((y - mean_y) ** 2 for y in samples)
    together = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(samples))
    fit = together**2 / (spread_x * spread_y)
    third = count // 3
    first, last = samples[third] - samples[0], samples[-1] - samples[-1 - third]
    return fit >= _LEAST_FIT and last >= first / 2


class GrowthWatch:
    """Says which kind of descriptor grows steadily: once, and again each time it has doubled since."""

    def __init__(self, every_s: float, clock: Callable[[], float]) -> None:
        self._every_s = every_s
        self._clock = clock
        self._noted_s = float("-inf")
        self._samples: dict[str, deque[int]] = {}
        self._told: dict[str, int] = {}

    def note(self, counts: Mapping[str, int]) -> None:
        now_s = self._clock()
        # With some slack: who comes at the interval itself comes now early, now late.
        if now_s - self._noted_s < 0.9 * self._every_s:
            return
        self._noted_s = now_s
        for kind, count in counts.items():
            samples = self._samples.setdefault(kind, deque(maxlen=_SAMPLES))
            samples.append(count)
            is_news = count >= 2 * self._told.get(kind, 0)
            if is_news and len(samples) == _SAMPLES and grows_steadily(samples):
                self._told[kind] = count
                logger.warning(
                    "open descriptors of kind %s grow steadily: %d, then %d",
                    kind,
                    samples[0],
                    count,
                    extra={"descriptor": kind, "limit": most_descriptors()},
                )
