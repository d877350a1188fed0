"""Requests that cannot be stored, such as one whose callback is a lambda: they stay in their process.

In the frontier a candidate takes their place, and waits for its domain's turn as all others do. When its
lease comes back, the request is found here by its mark. What is here is lost when the process ends, except
start requests: a spider that is started again yields them again.

Requests for `data:` URLs, with which spiders begin without a page, go to no server and are only queued here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from scrapy import Request
from scrapy.core.engine import ExecutionEngine

from crawlproj.errors import RequestNotSerialisable
from crawlproj.frontier.feed import Feed
from crawlproj.model.extra import Extra
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease
from crawlproj.model.urls import canonicalise, domain_of
from crawlproj.shard import seams
from crawlproj.shard.requests import Marks, depth_of

logger = logging.getLogger(__name__)

#: The part of a stored request that is its mark, in place of all other parts.
_KEPT = "kept"


def is_unpaced(request: Request) -> bool:
    """Whether *request* goes to no server. Files do not, either, but a page must not have us read them."""
    return request.url.startswith("data:")


class KeptRequests:
    """The requests of one spider that are kept. *is_ours*: whether the lease of a URL comes back to us."""

    def __init__(self, marks: Marks, is_ours: Callable[[str], bool]) -> None:
        self._marks = marks
        self._is_ours = is_ours
        self._requests: dict[int, Request] = {}
        #: Requests that go to no server: waiting, and in flight.
        self._unpaced: deque[Request] = deque()
        self._in_flight: set[Request] = set()
        #: The marks of all that were ever kept, against duplicates.
        self._seen: set[int] = set()
        self._has_warned = False

    def keep(self, request: Request, why: RequestNotSerialisable) -> Candidate | None:
        """Keep *request*, and return the candidate in its place; None for a duplicate.

        Raises BadUrl, and *why* if its lease would go to another shard.
        """
        url = canonicalise(request.url)
        if not self._is_ours(url):
            raise RequestNotSerialisable(f"{why} Only its own shard could keep it, and this is another one.")
        mark = self._marks.of(request)
        if mark in self._seen:
            return None
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s It is kept in memory, as are all such requests (logged once). When this process ends, "
                "those that start() does not yield again are lost.",
                why,
            )
        self._seen.add(mark)
        self._requests[mark] = request
        return Candidate(url, depth_of(request), request.priority, Extra(request={_KEPT: mark}), mark)

    def queue(self, request: Request) -> bool:
        """Queue a request that goes to no server, and so needs no turn; returns False for a duplicate."""
        mark = self._marks.of(request)
        if mark in self._seen:
            return False
        self._seen.add(mark)
        self._unpaced.append(request)
        return True

    def next_unpaced(self) -> Request | None:
        """Return the next request of the queue. Call `left` when the engine is done with it."""
        if not self._unpaced:
            return None
        request = self._unpaced.popleft()
        self._in_flight.add(request)
        return request

    def left(self, request: Request) -> None:
        self._in_flight.discard(request)

    @property
    def is_busy(self) -> bool:
        """Whether there are requests that the frontier knows nothing of."""
        return bool(self._unpaced or self._in_flight)

    def find(self, lease: Lease) -> Request | None:
        """Return the request of *lease*; None if it was stored, or if another process has kept it."""
        return self._requests.get(lease.extra.request.get(_KEPT, 0))

    def drop(self, lease: Lease) -> None:
        """Forget the request of *lease*, whose end has come."""
        self._requests.pop(lease.extra.request.get(_KEPT, 0), None)


def is_kept(lease: Lease) -> bool:
    return _KEPT in lease.extra.request


def may_fetch(feed: Feed, engine: ExecutionEngine, url: str) -> bool:
    """Whether this shard fetches *url*, or may: every shard makes the start requests."""
    if not seams.start_is_exhausted(engine):
        return True
    return partition_of(domain_of(url), feed.frontier.partitions) in feed.partitions
