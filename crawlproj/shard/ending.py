"""What a process that was the whole crawl says at its end."""

from __future__ import annotations

import logging

from crawlproj.errors import EXIT_NOTHING_FETCHED
from crawlproj.runs import Run, status_of
from crawlproj.runs.reasons import failure_lines, is_fruitless
from crawlproj.shard import seams

logger = logging.getLogger(__name__)


async def report_end(run: Run) -> None:
    """Log what failed, and why; without a single page, let the process exit with code 9."""
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
