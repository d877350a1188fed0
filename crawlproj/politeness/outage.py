"""Whether our own network is away, and not the sites: many fail at once, and none answers. Pure."""

from __future__ import annotations

import math

#: So many domains in a row without an answer of any are no accident.
_MANY = 16
#: After so long without any answer the sites are blamed after all: perhaps only dead ones are left.
_EXCUSED_S = 1800.0


class Outage:
    """Told of every end of a request, it knows whether failures say anything of the sites."""

    def __init__(self) -> None:
        self._silent: set[str] = set()
        self._answered_s = -math.inf

    def answered(self, now_s: float) -> bool:
        """Tell that a site answered. Returns whether that ends an outage."""
        was_away = len(self._silent) >= _MANY
        self._silent.clear()
        self._answered_s = now_s
        return was_away

    def failed(self, domain: str, now_s: float) -> bool:
        """Tell that *domain* could not be reached. Returns whether an outage excuses it."""
        if now_s - self._answered_s > _EXCUSED_S:
            return False
        if len(self._silent) < _MANY:
            self._silent.add(domain)
        return len(self._silent) >= _MANY
