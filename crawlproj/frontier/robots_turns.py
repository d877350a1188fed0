"""The turn of a robots.txt: it is its domain's one request, and decides about the URLs behind it."""

from __future__ import annotations

from dataclasses import replace

from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Lease, Outcome, new_mark
from crawlproj.model.urls import domain_of, origin_of
from crawlproj.observe.crashpoints import passed
from crawlproj.politeness.pacing import Ending, Trouble
from crawlproj.politeness.robots import RobotRules


class RobotsTurns:
    """Ends the turn of each `RobotsFetch` that the dispatcher handed out, in one of four ways."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.admit = dispatcher.add
        self._dispatcher = dispatcher
        self._gate = dispatcher.gate
        self._pacer = dispatcher.pacer

    def learn(self, fetch: RobotsFetch, rules: RobotRules, ending: Ending, fetched_bytes: int = 0) -> None:
        """The robots.txt was answered with *rules*, or could not be fetched: they then say ``retry``."""
        self._dispatcher.count_request("robots", ending, fetched_bytes)
        self._apply(fetch, rules, ending)

    def redirect(self, fetch: RobotsFetch, url: str, ending: Ending, fetched_bytes: int = 0) -> None:
        """The robots.txt redirects to *url*.

        Within its domain it is requested there next. In another domain it waits for that domain's turn, as a
        candidate; until it is answered, this origin counts as unreachable.
        """
        self._dispatcher.count_request("robots", ending, fetched_bytes)
        if domain_of(url) != fetch.domain:
            self.fetch_elsewhere(fetch.origin, url, fetch.redirects + 1)
            self._apply(fetch, RobotRules(self._gate.agent, retry=True), ending)
            return
        now_s = self._dispatcher.clock()
        self._gate.fetch_next(replace(fetch, url=url, redirects=fetch.redirects + 1))
        self._pacer.robots_ended(fetch.domain, ending, now_s)
        self._dispatcher.arm_timer(now_s)

    def put_off(self, fetch: RobotsFetch, wait_s: float | None) -> None:
        """Nothing was requested: its domain waits that long first, None for its usual delay."""
        next_at_s = self._dispatcher.clock() + self._dispatcher.rest_s(fetch.domain, wait_s)
        self._pacer.robots_skipped(fetch.domain)
        if fetch.redirects:
            self._gate.fetch_next(fetch)
        leases = self._pacer.withdraw(domain=fetch.domain)
        self._dispatcher.return_leases(leases, next_at_s)

    def fail(self, fetch: RobotsFetch, reason: str) -> None:
        """The robots.txt can never be fetched, nor anything else of its origin."""
        now_s = self._dispatcher.clock()
        ending = Ending(error=reason, error_means=Trouble.FINAL)
        self._dispatcher.count_request("robots", ending)
        self._pacer.robots_ended(fetch.domain, ending, now_s)
        for lease, next_at_s in self._withdraw_origin(fetch):
            self._dispatcher.settle_unfetched(lease, Outcome.FAILED, reason, next_at_s)
        self._dispatcher.arm_timer(now_s)

    def fetch_elsewhere(self, origin: str, url: str, hops: int) -> None:
        """Let the owner of another domain fetch the robots.txt of *origin* at *url*, in that domain."""
        extra = Extra(robots_for=origin, hops=hops)
        self._dispatcher.add([Candidate(url, priority=1, extra=extra, mark=new_mark())])

    def learn_elsewhere(self, origin: str, rules: RobotRules) -> None:
        """Share the rules of an origin that another shard may own."""
        self._gate.learn(origin, rules, self._dispatcher.clock())
        self._dispatcher.on_change()

    def _apply(self, fetch: RobotsFetch, rules: RobotRules, ending: Ending) -> None:
        dispatcher, pacer = self._dispatcher, self._pacer
        now_s = dispatcher.clock()
        if rules.crawl_delay_s and pacer.slow_down(fetch.domain, rules.crawl_delay_s):
            # None when it came so late that everything was returned.
            for held in dispatcher.leases:
                if held.lease.domain == fetch.domain:
                    dispatcher.publish_delay(held.lease)
                    break
        next_at_s, park = pacer.robots_ended(fetch.domain, ending, now_s)
        # If rules expired before their domain is due again, nothing else would ever be fetched.
        known = self._gate.learn(fetch.origin, rules, now_s, least_s=2 * (next_at_s - now_s))
        if known.rules.retry:
            for lease, _ in self._withdraw_origin(fetch):
                dispatcher.wait_for_robots(lease, next_at_s, now_s, ending.name)
        if next_at_s > now_s and dispatcher.is_half_full:
            # Otherwise leases waiting for their delay fill the memory while other domains are due.
            dispatcher.return_leases(pacer.withdraw(domain=fetch.domain))
        dispatcher.rest(fetch.domain, next_at_s, park, now_s)
        dispatcher.on_change()
        dispatcher.arm_timer(now_s)
        passed("robots_learnt")

    def _withdraw_origin(self, fetch: RobotsFetch) -> list[tuple[Lease, float]]:
        return self._pacer.withdraw(lambda lease: origin_of(lease.url) == fetch.origin, domain=fetch.domain)
