"""A clock that tests put forward, so that none waits for a limit of minutes."""

from __future__ import annotations

import asyncio

import pytest


class LoopClock:
    """The clock of the running loop: it shows the real time, and what it was put forward by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._time, self._skew_s = loop.time, 0.0
        self._began_s = self._time()
        monkeypatch.setattr(loop, "time", lambda: self._time() + self._skew_s)

    async def go_to(self, at_s: float) -> None:
        """Have it show so many seconds since the test began, and let the loop do what is due."""
        self._skew_s = max(self._skew_s, at_s - (self._time() - self._began_s))
        for _ in range(10):
            await asyncio.sleep(0)
