"""What a response means for its URL: an outcome, a page, and a redirect target."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from crawlproj.download.client import Answer
from crawlproj.download.cookies import cookie_header
from crawlproj.download.endings import error_name
from crawlproj.errors import BadUrl
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.model.records import COOKIE_RETRY, Candidate, Lease, Outcome, Page
from crawlproj.model.urls import canonicalise, escape_raw_bytes, fingerprint, origin_of

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Response headers that a parser uses: as received, and as stored.
_HEADERS = {
    name.title().encode(): name
    for name in (
        "Content-Type",
        "Content-Encoding",
        "Content-Language",
        "Last-Modified",
        "ETag",
        "Link",
        "Refresh",
        "X-Robots-Tag",
    )
}
#: Its values contain commas, so a line break keeps them apart.
_ROBOTS_TAG = b"X-Robots-Tag"
#: Redirects that cannot be followed; the row of the URL says so.
_DEAD_ENDS = frozenset({"redirects", "bad_redirect", "redirect_loop"})
#: Flags of a truncated body.
_CUT = frozenset({"cut", "dataloss", "partial"})


@dataclass(slots=True)
class Result:
    """How a URL's lease ends: the page for the parsers, if any, and the target of its redirect."""

    outcome: Outcome
    reason: str = ""
    page: Page | None = None
    target: Candidate | None = None


class Results:
    """Makes results for one shard of a run. *now_ms* is a clock that all its machines share."""

    def __init__(
        self,
        run: str,
        shard: int,
        rules: AdmissionRules,
        max_redirects: int,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._run = run
        self._shard = shard
        self._rules = rules
        self._max_redirects = max_redirects
        self._now_ms = now_ms

    def of(self, lease: Lease, answer: Answer) -> Result:
        """Return the result of an answer, or of the error in its place, that is not to be retried."""
        if answer.error is not None:
            reason = error_name(answer.error)
            return Result(Outcome.FAILED, reason, self.failure(lease, reason))
        status, result = answer.status, Result(Outcome.DONE)
        if status in _REDIRECTS:
            result = self._follow(lease, answer)
            if result.outcome is Outcome.RETRY:
                return result
        elif "unwanted" in answer.flags:
            result.reason = "content_type"
        elif status >= 400:
            result.reason = f"http_{status}"
        page = result.page = self._page(lease, status)
        if result.reason in _DEAD_ENDS:
            page.error = result.reason
        page.latency_ms = int(answer.latency_s * 1000)
        page.headers = {
            _HEADERS[name]: (b"\n" if name == _ROBOTS_TAG else b", ").join(values).decode("latin-1")
            for name, values in answer.headers.items()
            if name in _HEADERS
        }
        page.body = answer.body
        page.truncated = not _CUT.isdisjoint(answer.flags)
        return result

    def failure(self, lease: Lease, reason: str) -> Page:
        """Return the page of a URL that could not, or may not, be fetched."""
        page = self._page(lease, 0)
        page.error = reason
        return page

    def scraped(self, lease: Lease, items: list[str]) -> Page:
        """Return the page of another spider, of which only the items are stored."""
        page = self._page(lease, 0)
        page.items, page.is_bare = items, True
        return page

    def _page(self, lease: Lease, status: int) -> Page:
        extra = lease.extra
        return Page(
            url=lease.url,
            run=self._run,
            domain=lease.domain,
            depth=lease.depth,
            status=status,
            fetched_at_ms=self._now_ms(),
            latency_ms=0,
            shard=self._shard,
            attempt=lease.attempt,
            redirected_from=extra.redirected_from,
            sitemap_level=extra.sitemap_level,
            hops=extra.hops,
        )

    def _follow(self, lease: Lease, answer: Answer) -> Result:
        """Return the target of a redirect as a candidate, to wait for its own domain, or why not.

        A redirect to the same URL that only wants a cookie back is a retry of the lease with that cookie.
        """
        extra, location = lease.extra, answer.header(b"Location")
        if not location or extra.hops >= self._max_redirects:
            return Result(Outcome.DONE, "redirects")
        try:
            to = escape_raw_bytes(location.decode("latin-1"))
            target = self._rules.urls.clean(canonicalise(to, lease.url))
        except BadUrl:
            return Result(Outcome.DONE, "bad_redirect")
        # Cookies are kept only within the redirects of one origin.
        cookie = ""
        if origin_of(target) == origin_of(lease.url):
            set_cookies = answer.headers.get(b"Set-Cookie", ())
            cookie = cookie_header(set_cookies, lease.url, time.time(), extra.cookie)
        onward = extra.onward(lease.url, cookie)
        if target == lease.url:
            if cookie == extra.cookie or extra.redirected_from == lease.url:
                return Result(Outcome.DONE, "redirect_loop")
            lease.extra = onward
            return Result(Outcome.RETRY, COOKIE_RETRY)
        if reason := self._rules.refusal(target, lease.depth, lease.url):
            return Result(Outcome.DONE, f"redirect_{reason}")
        candidate = Candidate(target, lease.depth, extra=onward)
        if cookie and target == extra.redirected_from:
            # A redirect back, now with a cookie: the URL is in `seen`, so it gets a mark of its own, which
            # allows this once.
            candidate.mark, candidate.priority = fingerprint(f"{target} with a cookie"), 1
        return Result(Outcome.DONE, "redirected", target=candidate)
