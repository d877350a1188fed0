"""Detects an outage of our own network, or of our machine's: sites fail in a row and none answers. Pure."""

from __future__ import annotations

import math
from collections import deque

#: This many unreachable domains in a row are an outage.
_MANY = 16
#: After this long without any response failures count again: perhaps only dead sites are left.
_EXCUSED_S = 1800.0
#: So few domains are enough to let other machines try: that can be undone.
_FEW = 3


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


class Egress:
    """Whether this machine reaches the web: no, once a few domains have failed for *patience_s*."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._silent: set[str] = set()
        self._since_s = math.inf
        self._answered: deque[str] = deque(maxlen=_FEW)
        self._failed: deque[str] = deque(maxlen=_FEW)

    @property
    def samples(self) -> list[str]:
        """URLs by which to find out whether it does again: those that answered, or else those that failed."""
        return list(self._answered or self._failed)

    def answered(self, url: str = "") -> None:
        self._silent.clear()
        if url:
            self._answered.append(url)

    def failed(self, domain: str, url: str, now_s: float) -> None:
        if not self._silent:
            self._since_s = now_s
        if len(self._silent) < _FEW:
            self._silent.add(domain)
            self._failed.append(url)

    def is_lost(self, now_s: float) -> bool:
        return len(self._silent) >= _FEW and now_s - self._since_s >= self._patience_s
