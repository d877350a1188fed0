"""SIGTERM and SIGINT stop a parser."""

from __future__ import annotations

import asyncio
import logging
import signal

from crawlproj.parsing.worker import Parser

logger = logging.getLogger(__name__)


async def run_until_signal(parser: Parser, drain_s: float) -> None:
    """Run *parser*; SIGTERM and SIGINT stop it, within *drain_s* even if Redis is unreachable."""
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(parser.run(), name="parser")

    def stop() -> None:
        parser.stop()
        loop.call_later(drain_s, running.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        if not parser.is_stopping:
            raise
        logger.warning("parser did not stop within %g s; its pages return to the queue later", drain_s)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
