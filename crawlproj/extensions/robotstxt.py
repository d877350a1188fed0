"""robots.txt for crawls that belong to no run (`crawlproj.extensions.tools`); a run's is the frontier's."""

from __future__ import annotations

import logging

from scrapy import Request
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest

logger = logging.getLogger(__name__)


class RobotsTxtMiddleware(ScrapyRobotsTxtMiddleware):
    """Scrapy's own, but it says what it forbids: a tool would otherwise end without a word."""

    async def process_request(self, request: Request) -> None:  # type: ignore[override]  # no spider is passed
        try:
            await super().process_request(request)
        except IgnoreRequest:
            logger.warning("robots.txt forbids %s; for your own site: -s ROBOTSTXT_OBEY=False", request.url)
            raise
