"""The peer: what a newcomer would write with Scrapy alone; without following links, the least it can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor


class StockSpider(Spider):
    """Fetches the URLs of ``-a seeds=FILE``, and with ``-a follow=yes`` every link of every page."""

    name = "stock"

    def __init__(self, seeds: str, follow: str) -> None:
        super().__init__()
        self._urls = Path(seeds).read_text().split()
        self._links = LinkExtractor() if follow == "yes" else None

    async def start(self) -> AsyncIterator[Any]:
        for url in self._urls:
            yield Request(url)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Request]:
        if self._links is not None and isinstance(response, TextResponse):
            for link in self._links.extract_links(response):
                yield Request(link.url)
