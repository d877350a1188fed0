"""Signals that stop a command in order."""

from __future__ import annotations

import asyncio
import os
import signal

from crawlproj.supervisor.stopsignals import StopSignals


async def test_the_signals_that_ask_to_stop_are_counted() -> None:
    with StopSignals() as stops:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    assert stops.count == 1


async def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stops:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)

        assert stops.count == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
