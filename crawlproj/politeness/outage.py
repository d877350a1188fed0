"""Detects an outage of our own network: many sites fail in a row and none answers. Pure."""

from __future__ import annotations

import math

#: This many unreachable domains in a row are an outage.
_MANY = 16
#: After this long without any response failures count again: perhaps only dead sites are left.
_EXCUSED_S = 1800.0


class Outage:
    """Must see the end of every request; decides whether failures are the sites' own."""

    def __init__(self) -> None:
        self._silent: set[str] = set()
        self._answered_s = -math.inf

    def answered(self, now_s: float) -> bool:
        """Record a response. Returns whether it ends an outage."""
        was_out = len(self._silent) >= _MANY
        self._silent.clear()
        self._answered_s = now_s
        return was_out

    def failed(self, domain: str, now_s: float) -> bool:
        """Record that *domain* was unreachable. Returns whether that is due to an outage."""
        if now_s - self._answered_s > _EXCUSED_S:
            return False
        if len(self._silent) < _MANY:
            self._silent.add(domain)
        return len(self._silent) >= _MANY
