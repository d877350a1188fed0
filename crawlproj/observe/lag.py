"""The lag of the event loop: how late its timers fire."""

from __future__ import annotations

import asyncio
from collections import deque

_EVERY_S = 0.5


class LoopLag:
    """Sets a timer on the running loop again and again, and keeps how late it fired over *window_s*."""

    def __init__(self, window_s: float) -> None:
        self._lags_s: deque[float] = deque(maxlen=max(1, int(window_s / _EVERY_S)))
        self._loop = asyncio.get_running_loop()
        self._schedule()

    @property
    def worst_s(self) -> float:
        """The longest recent delay; may be read from any thread."""
        return max(tuple(self._lags_s), default=0.0)

    def close(self) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        self._due_s = self._loop.time() + _EVERY_S
        self._timer = self._loop.call_at(self._due_s, self._fire)

    def _fire(self) -> None:
        self._lags_s.append(self._loop.time() - self._due_s)
        self._schedule()
