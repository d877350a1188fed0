"""Item pipelines: a fetched page is packed here, and handed on in the step that settles its lease."""

from __future__ import annotations

from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproj.frontier.feed import Feed
from crawlproj.model.records import FetchedPage
from crawlproj.pages.envelope import pack


class PageQueuePipeline:
    """Puts the pages of the spider `web` onto the page queue; items of other spiders pass."""

    #: What `crawlproj.fastpath` may hand over without Scrapy's machinery.
    plain_item = FetchedPage

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_item(self, item: Any) -> Any:
        if isinstance(item, FetchedPage):
            feed: Feed = self._crawler.feed  # type: ignore[attr-defined]  # put there by the scheduler
            # The queue itself is written when the lease is settled, both in one step: a page is neither
            # lost nor handed on twice, whenever this process dies.
            feed.hold_page(item.lease, pack(item.page))
        return item
