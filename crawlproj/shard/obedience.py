"""The rules of the run in a shard: obeyed from its start on, and followed when they change."""

from __future__ import annotations

import asyncio
import logging

from scrapy.crawler import Crawler

from crawlproj.config import Config
from crawlproj.config.rules import Rules
from crawlproj.download.client import client_of
from crawlproj.errors import RunMismatch
from crawlproj.frontier.scope import Sites
from crawlproj.redisio.clock import ServerClock, server_ms
from crawlproj.runs import Run, RunMap
from crawlproj.runs.rules import RulesWatch, agree, given_rules
from crawlproj.shard import seams
from crawlproj.shard.build import delay_rules
from crawlproj.shard.context import PageSpider, ShardContext

logger = logging.getLogger(__name__)

#: How long a child of a supervisor waits for the rules that its supervisor sets, and how often it looks.
_WAIT_S, _LOOK_S = 60.0, 0.2


async def obey(run: Run, crawler: Crawler, config: Config, *, is_whole: bool) -> Rules:
    """Agree with *run* on the rules, and make the components of *crawler* obey them.

    A shard that *is_whole*, the only process of a crawl, may change them. Raises RunMismatch.
    """
    assert crawler.spider is not None
    settings = crawler.settings
    for _ in range(int(_WAIT_S / _LOOK_S)):
        terms = await agree(
            run,
            config,
            # A child has what its supervisor has agreed on, whatever the environment says.
            () if config.supervisor else given_rules(settings),
            spider=crawler.spider.name,
            may_set=not config.supervisor,
            may_change=is_whole,
        )
        if terms is not None:
            break
        await asyncio.sleep(_LOOK_S)
    else:
        raise RunMismatch(f"Run {run.name!r} has no rules; its supervisor has not set them. Start it again.")
    for change in terms.changed:
        logger.info("rule changed for the whole run: %s", change)
    for one in terms.ignored:
        logger.info("using the run's %s and ignoring this process's settings", one)
    seams.obey(crawler, terms.rules.plain(), terms.config)
    return terms.rules


class Obedience:
    """Reads the map of a run, with its rules, and makes a shard follow these."""

    def __init__(self, run: Run, crawler: Crawler, rules: Rules, config: Config) -> None:
        self._run = run
        self._crawler = crawler
        self._watch = RulesWatch(run, config, rules)
        #: As of the last reading.
        self.clock = ServerClock()
        self._is_page_spider = isinstance(crawler.spider, PageSpider)
        #: The shard's to set.
        self.context: ShardContext | None = None

    async def read_map(self) -> RunMap:
        run_map = await self._run.read_map()
        self.clock.note(await server_ms(self._run.client))
        if not run_map.rules:
            # Redis was set back to before they were set.
            await self._watch.restore()
        elif config := self._watch.follow(run_map.rules):
            self._apply(config)
        return run_map

    def _apply(self, config: Config) -> None:
        context = self.context
        assert context is not None
        logger.info("the rules of the run have changed")
        frontier = context.feed.frontier
        context.rules.change(config)
        context.feed.dispatcher.pacer.change(delay_rules(config))
        frontier.domain_pages, frontier.domain_bytes = config.domain_pages, config.domain_bytes
        if self._is_page_spider:
            frontier.sites = Sites.of(self._run, config, counts=True)
        client_of(self._crawler).guard.contact = config.contact
        seams.obey(self._crawler, {}, config)
        for change in context.on_change:
            change(config)
