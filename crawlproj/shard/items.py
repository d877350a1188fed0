"""What a spider scrapes from a page: kept until the page's lease is settled, then sent in the same step.

So an item is neither lost nor stored twice, whenever this process dies: before that step its page is fetched
again, after it a parser stores the item.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.crawler import Crawler

from crawlproj.model.records import FetchedPage, Settlement
from crawlproj.pages.envelope import pack, unpack
from crawlproj.shard.requests import SETTLEMENT
from crawlproj.shard.results import Results

logger = logging.getLogger(__name__)

#: Errors of an item that is not JSON.
_NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError)


class ScrapedItems:
    """The items of the requests in flight, after the spider's pipelines."""

    def __init__(self, crawler: Crawler, results: Results) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._results = results
        self._by_lease: dict[bytes, list[str]] = {}
        self._is_warned = False
        crawler.signals.connect(self._keep, signals.item_scraped)

    def attach(self, settlement: Settlement) -> None:
        """Send the items of a lease with its settlement."""
        items = self._by_lease.pop(settlement.lease.token, None)
        if not items:
            return
        if settlement.page:
            page = unpack(settlement.page)
            page.items = items
        else:
            page = self._results.scraped(settlement.lease, items)
        settlement.page = pack(page)

    def _keep(self, item: Any, response: Any) -> None:
        # The pipeline has handed it on already.
        if isinstance(item, FetchedPage):
            return
        # A response, or the failure of an errback; both have their request.
        request = getattr(response, "request", None)
        settlement = None if request is None else request.meta.get(SETTLEMENT)
        if not isinstance(settlement, Settlement):
            self._stats.inc_value("items/without_page")
            if not self._is_warned:
                self._is_warned = True
                logger.warning(
                    "an item that is not from a page, such as one of start(), is not stored with the run; "
                    "feeds (-O) and pipelines get it"
                )
            return
        try:
            text = msgspec.json.encode(ItemAdapter(item).asdict()).decode()
        except _NOT_JSON as exc:
            self._stats.inc_value("items/not_stored")
            logger.error(
                "item not stored: it is not JSON: %s. Use text, numbers, dates, lists and dicts.",
                exc,
                extra={"url": settlement.lease.url},
            )
            return
        self._by_lease.setdefault(settlement.lease.token, []).append(text)
