"""What a site's robots.txt allows, as RFC 9309 decides it. Pure: responses and the time are arguments."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from protego import Protego

#: The RFC asks crawlers to read at least this much.
MAX_ROBOTS_BYTES = 500 * 1024
#: Redirects followed before robots.txt counts as not there.
MAX_ROBOTS_REDIRECTS = 5
_FIRST_RETRY_S = 60.0
_LAST_RETRY_S = 3600.0


@dataclass(slots=True)
class RobotRules:
    """What one agent may fetch from one origin.

    ``retry`` says that the site could not tell: nothing may be fetched now, and it is to be asked again soon.
    """

    agent: str
    retry: bool = False
    crawl_delay_s: float | None = None
    sitemaps: list[str] = field(default_factory=list)
    _parsed: Protego | None = None

    @classmethod
    def from_response(cls, status: int | None, body: bytes, agent: str, redirects: int = 0) -> RobotRules:
        """Return the rules a robots.txt response gives *agent*; *status* None: there was no response.

        A redirect says nothing yet, so nothing may be fetched, until *redirects* of them led to this one
        and the RFC counts the file as not there.
        """
        if status is None:
            return cls(agent, retry=True)
        if 200 <= status < 300:
            # Cut at a line, or the last rule would be shorter, and so wider, than it was written.
            if len(body) > MAX_ROBOTS_BYTES:
                body = body[:MAX_ROBOTS_BYTES].rpartition(b"\n")[0]
            parsed = Protego.parse(body.decode("utf-8-sig", "replace"))
            return cls(agent, False, parsed.crawl_delay(agent), list(parsed.sitemaps), parsed)
        if 400 <= status < 500 or (300 <= status < 400 and redirects >= MAX_ROBOTS_REDIRECTS):
            return cls(agent)
        return cls(agent, retry=True)

    def may_fetch(self, url: str) -> bool:
        if self.retry:
            return False
        return self._parsed is None or self._parsed.can_fetch(url, self.agent)


@dataclass(slots=True)
class _Known:
    rules: RobotRules
    expires_at_s: float
    failures: int


class RobotsCache:
    """The rules of the origins used last.

    Rules hold for *ttl_s*. An origin that could not tell is asked again after *retry_s*, then after twice as
    long each time, up to an hour.
    """

    def __init__(self, size: int, ttl_s: float, retry_s: float = _FIRST_RETRY_S) -> None:
        self._size = size
        self._ttl_s = ttl_s
        self._retry_s = retry_s
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def get(self, origin: str, now_s: float) -> RobotRules | None:
        """Return the rules of *origin*, or None when they must be fetched (again)."""
        known = self._known.get(origin)
        if known is None:
            return None
        self._known.move_to_end(origin)
        return known.rules if now_s < known.expires_at_s else None

    def trouble(self, origin: str) -> tuple[int, float]:
        """Return how often in a row *origin* could not tell, and when it is asked again."""
        known = self._known[origin]
        return known.failures, known.expires_at_s

    def put(self, origin: str, rules: RobotRules, now_s: float) -> float:
        """Keep *rules* and return when they must be fetched again."""
        before = self._known.pop(origin, None)
        failures, ttl_s = 0, self._ttl_s
        if rules.retry:
            failures = before.failures + 1 if before else 1
            ttl_s = min(self._retry_s * 2.0 ** min(failures - 1, 16), _LAST_RETRY_S)
        self._known[origin] = _Known(rules, now_s + ttl_s, failures)
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return now_s + ttl_s

    def __len__(self) -> int:
        return len(self._known)
