"""A fetch, from the lease to its settlement. Pages, sitemaps and robots.txt all go this way.

Spiders other than `web`, and `web` with components of a user in between, have their pages fetched by Scrapy's
engine instead (`crawlproj.shard.stock`); their robots.txt still comes this way.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from crawlproj.download.client import Answer, HttpRequest
from crawlproj.download.endings import ending_of
from crawlproj.download.errors import PutOffError
from crawlproj.download.guard import NoContactError
from crawlproj.errors import BadSetting
from crawlproj.frontier.dispatcher import OUTAGE_WAIT_S
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.records import Lease, Outcome, Settlement
from crawlproj.pages.envelope import pack
from crawlproj.politeness.pacing import Ending
from crawlproj.shard.results import Results
from crawlproj.shard.robotstxt import RobotsTxt

logger = logging.getLogger(__name__)

#: Errors that no server should be able to cause.
_OUR_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)


class Fetcher:
    """Fetches what the dispatcher hands out.

    *write* makes the request for a lease or a robots.txt, *exchange* sends it and returns the answer, and
    *count* increments a statistic of Scrapy's.
    """

    def __init__(
        self,
        feed: Feed,
        robots: RobotsTxt,
        results: Results,
        *,
        write: Callable[[Lease | RobotsFetch], HttpRequest],
        exchange: Callable[[HttpRequest], Awaitable[Answer]],
        count: Callable[[str], None],
    ) -> None:
        self._dispatcher = feed.dispatcher
        self._robots = robots
        self._results = results
        self._write = write
        self._exchange = exchange
        self._count = count
        self._problems = ProblemLog(feed)

    async def fetch(self, target: Lease | RobotsFetch) -> None:
        dispatcher = self._dispatcher

        # The request, and its answer or the error in its place.
        try:
            answer = await self._exchange(self._write(target))
        except Exception as exc:  # noqa: BLE001  # an error is an answer, too
            answer = Answer(error=exc)
            self._problems.log(target.url, exc)

        # How it ended. If the site is not at fault, the URL is put off and nothing counts against the site.
        ending = ending_of(answer)
        if isinstance(answer.error, NoContactError | PutOffError):
            self._put_off(target, getattr(answer.error, "wait_s", 0.0))
            return
        if dispatcher.is_outage(target.domain, ending, target.url):
            self._put_off(target, OUTAGE_WAIT_S)
            return

        # A robots.txt decides about the URLs that wait behind it.
        if isinstance(target, RobotsFetch):
            self._count_answer(answer)
            await self._robots.ended(target, answer, ending)
            return

        # Pacing: the domain's rest begins. Then the page, and one settlement that carries it to the queue.
        # Where a page redirects to is admitted before it is settled.
        is_retried = dispatcher.request_ended(target, ending, len(answer.body))
        settlement = Settlement(target, Outcome.DONE)
        if is_retried:
            settlement.outcome, settlement.reason = Outcome.RETRY, retry_reason(ending)
        elif target.extra.robots_for:
            self._count_answer(answer)
            await self._robots.ended_elsewhere(target, answer)
        else:
            self._count_answer(answer)
            result = self._results.of(target, answer)
            settlement.outcome, settlement.reason = result.outcome, result.reason
            if result.target is not None:
                dispatcher.add([result.target])
            if result.page is not None:
                settlement.page = pack(result.page)
                self._count("item_scraped_count")
        dispatcher.settle(settlement)

    async def fetch_safely(self, target: Lease | RobotsFetch) -> None:
        """`fetch`, but a bug of ours costs only this URL, with a row that says so, and not its domain."""
        try:
            await self.fetch(target)
        except Exception:
            logger.exception("a fetch failed because of a bug in crawlproj", extra={"url": target.url})
            if isinstance(target, Lease):
                page = pack(self._results.failure(target, "internal_error"))
                self._dispatcher.settle(Settlement(target, Outcome.FAILED, "internal_error", page=page))

    def _put_off(self, target: Lease | RobotsFetch, wait_s: float | None) -> None:
        if isinstance(target, RobotsFetch):
            self._robots.turns.put_off(target, wait_s)
        else:
            self._dispatcher.put_off(target, wait_s)

    def _count_answer(self, answer: Answer) -> None:
        if answer.error is None:
            self._count("response_received_count")


def retry_reason(ending: Ending) -> str:
    return f"retry_{ending.name}"


class ProblemLog:
    """Logs errors that are not a site's: bugs of ours, and a missing CRAWL_CONTACT, which stops the shard."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._logged: set[type[Exception]] = set()

    def log(self, url: str, error: Exception) -> None:
        if isinstance(error, NoContactError):
            # Every other public site would be refused, too.
            self._feed.stop("BadSetting", BadSetting(str(error)))
        if isinstance(error, _OUR_BUGS) and type(error) not in self._logged:
            self._logged.add(type(error))
            logger.error(
                "a download failed because of a bug in crawlproj; its URL is retried (logged once per kind)",
                exc_info=error,
                extra={"url": url},
            )
