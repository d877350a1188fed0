"""Item pipelines: packs a fetched page, which is sent in the step that settles its lease."""

from __future__ import annotations

from typing import Any

from crawlproj.model.records import FetchedPage
from crawlproj.pages.envelope import pack


class PageQueuePipeline:
    """Packs the pages of the spider `web` for the page queue; items of other spiders pass."""

    def process_item(self, item: Any) -> Any:
        if isinstance(item, FetchedPage):
            # The queue is written when the lease is settled, both in one step: a page is neither lost nor
            # queued twice, whenever this process dies.
            item.settlement.page = pack(item.page)
        return item
