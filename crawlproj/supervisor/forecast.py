"""How far a crawl is and how long it will take, where a limit or a shrinking frontier allows to say. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from crawlproj.runs import Limits

#: The frontier shrinks if it did so all this time.
_WINDOW_S = 30.0
_LEAST_S = 5.0


class Forecast(NamedTuple):
    """``left_s`` is infinite if it cannot be said. The smallest of several is the first to come true."""

    left_s: float
    share: float
    what: str

    def __str__(self) -> str:
        is_known = self.share < 1 and self.left_s != math.inf
        left = f", about {duration(self.left_s)} left" if is_known else ""
        return f"{self.share:.0%} of {self.what}{left}"


class FrontierTrend:
    """How fast the number of URLs that are left falls. Time is an argument."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, left: int) -> None:
        self._left.append((now_s, left))
        while self._left[0][0] < now_s - _WINDOW_S:
            self._left.popleft()

    @property
    def falls_per_s(self) -> float:
        """URLs per second; 0 unless it has been falling for a while."""
        (first_s, first), (last_s, last) = self._left[0], self._left[-1]
        middle = self._left[len(self._left) // 2][1]
        if last_s - first_s < _LEAST_S or not first > middle > last:
            return 0.0
        return (first - last) / (last_s - first_s)


def forecast(
    status: Mapping[str, Any], limits: Limits, pages_per_s: float, falls_per_s: float, seconds: float
) -> Forecast | None:
    """Return what will end the run first, for a run watched for *seconds*; None if nothing is known."""
    ran_s, got_bytes = status.get("ran_seconds", seconds), status.get("bytes", 0)
    ways = [
        (status["fetched"], limits.pages, pages_per_s, f"{limits.pages:,} pages"),
        (ran_s, limits.seconds, 1.0, duration(limits.seconds)),
        (got_bytes, limits.bytes, got_bytes / ran_s if ran_s else 0.0, size(limits.bytes)),
    ]
    left = status["waiting"] + status["leased"]
    if falls_per_s > 0 and left:
        done = sum(status.get(outcome, 0) for outcome in ("fetched", "failed", "skipped", "trapped"))
        ways.append((done, done + left, falls_per_s, f"{done + left:,} URLs known"))
    known = [
        Forecast(max(0.0, end - done) / per_s if per_s > 0 else math.inf, min(done / end, 1.0), what)
        for done, end, per_s, what in ways
        if end
    ]
    return min(known, default=None)


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
