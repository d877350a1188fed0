"""The signals by which a person, a terminal or a service manager stops a command in order."""

from __future__ import annotations

import asyncio
import signal
from typing import Self


def stop_signals() -> list[signal.Signals]:
    """Return them; under nohup without SIGHUP, which stays ignored."""
    is_detached = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_detached else [signal.SIGHUP])]


class StopSignals:
    """Counts Ctrl-C and the like while the ``with`` block runs, instead of ending the program."""

    def __init__(self) -> None:
        self.count = 0
        self._signals = stop_signals()
        self._wake = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for signum in self._signals:
            loop.add_signal_handler(signum, self._note)
        # A child that ends is noticed at once.
        loop.add_signal_handler(signal.SIGCHLD, self._wake.set)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for signum in (*self._signals, signal.SIGCHLD):
            loop.remove_signal_handler(signum)

    def _note(self) -> None:
        self.count += 1
        self._wake.set()

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until the next signal."""
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
