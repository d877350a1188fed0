"""What a shard does when its run has finished."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from crawlproj.errors import EXIT_NOTHING_FETCHED
from crawlproj.runs import Run, status_of
from crawlproj.runs.reasons import failure_lines, is_fruitless
from crawlproj.shard import seams

logger = logging.getLogger(__name__)


async def report_end(run: Run) -> None:
    """Log what failed in a crawl that one process did alone; without a single page, it exits with code 9."""
    if not await run.state():
        # Another one has deleted it.
        return
    status = await status_of(run)
    if is_fruitless(status):
        why = "; ".join(line.strip() for line in failure_lines(status, all_kinds=True))
        logger.error("no seed could be fetched: %s", why)
        seams.exit_with(EXIT_NOTHING_FETCHED)
    elif status["failed"]:
        why = "; ".join(line.strip() for line in failure_lines(status))
        logger.warning("%d URLs failed, most often: %s", status["failed"], why)


async def delete_if_last(run: Run, drains: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Delete a finished run without living shards; another one may have done so.

    *drains* finish what would write to the run again.
    """
    if await run.state() and not (await run.read_map()).alive:
        for drain in drains:
            await drain()
        await run.delete()
