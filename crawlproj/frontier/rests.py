"""The rests of domains that were sent to Redis, until they are over: a set-back may lose them there."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: More are not kept; the oldest go first.
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Rest:
    """Until when a domain rests, and why it is parked ('': it is not). Infinite: for good."""

    until_s: float
    reason: str = ""

    def counts_more_than(self, other: Rest) -> bool:
        """Whether it lasts longer; of two that end together, the one that is parked counts."""
        return (self.until_s, bool(self.reason)) >= (other.until_s, bool(other.reason))

    def wait_ms(self, now_s: float, endless: int) -> int:
        """Return how long it still lasts, *endless* if for good."""
        left_s = self.until_s - now_s
        return math.ceil(max(0.0, left_s) * 1000) if math.isfinite(left_s) else endless


class Rests:
    """The rests of one shard's domains. Memory only; the time is passed in."""

    def __init__(self) -> None:
        self._by_domain: dict[str, Rest] = {}
        #: The size at which those that are over are dropped next.
        self._full_at = 1000

    def __len__(self) -> int:
        return len(self._by_domain)

    def note(self, domain: str, rest: Rest, now_s: float) -> None:
        known = self._by_domain.get(domain)
        if rest.until_s <= now_s or (known is not None and known.counts_more_than(rest)):
            return
        self._by_domain[domain] = rest
        if len(self._by_domain) >= self._full_at:
            self._drop_over(now_s)

    def resting(self, now_s: float) -> list[tuple[str, Rest]]:
        """Return the domains that still rest, the oldest rest first."""
        return [(domain, rest) for domain, rest in self._by_domain.items() if rest.until_s > now_s]

    def _drop_over(self, now_s: float) -> None:
        self._by_domain = dict(self.resting(now_s)[-_MOST:])
        self._full_at = 2 * len(self._by_domain) + 1000
