"""A run that was begun before this process joined it: was there anything new, and what of its feeds."""

from __future__ import annotations

import logging

from scrapy.crawler import Crawler

from crawlproj.runs import Run, RunState
from crawlproj.shard import seams

logger = logging.getLogger(__name__)


class Resumption:
    """What a run had when this process opened it."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        #: None: it could not be opened.
        self._admitted: int | None = None
        self._was_finished = False

    async def begin(self, run: Run) -> None:
        """Look at the run, before its state changes."""
        counters = await run.read_counters()
        self._was_finished = await run.state() == RunState.FINISHED and not counters.is_left
        self._admitted = counters.admitted
        if counters.admitted and self._crawler.settings["FEEDS"]:
            logger.info(
                "run %s is resumed: feeds (-O, -o) get what is scraped from now on; all its items: "
                "scrapy items --run %s",
                run.name,
                run.name,
            )

    def keep_feeds(self) -> None:
        """Leave feeds without an item as they are, unless the run is new: others wrote what is in them."""
        if self._admitted != 0:
            seams.keep_feeds(self._crawler)

    async def was_for_nothing(self, run: Run) -> bool:
        """Whether the run had finished, and nothing was added since."""
        return self._was_finished and (await run.read_counters()).admitted == self._admitted
