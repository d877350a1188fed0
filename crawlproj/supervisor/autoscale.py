"""How many parsers a run should have, by its page queue. Pure: time is an argument.

One more when pages wait too long, one fewer when none wait. After each change it waits to see the effect, and
between the two thresholds nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crawlproj.supervisor.plan import Range

#: The longest a page should wait.
SLOW_S = 10.0
#: How long the queue must be too slow before a parser is added.
GROW_AFTER_S = 3.0
#: How long the queue must be nearly empty before a parser is removed.
SHRINK_AFTER_S = 20.0
#: How long to wait after a change.
REST_S = 5.0
#: A queue of at most this many pages is nearly empty: a parser takes as many at once.
NEARLY_EMPTY = 32
#: The highest load the remaining parsers may have after one is removed.
_MOST_LOAD = 0.8


@dataclass(slots=True)
class ScaleState:
    """What is kept between decisions, and the limits of the page queue."""

    allowed: Range
    soft_pages: int
    soft_bytes: int
    changed_s: float = float("-inf")
    #: Pages per second of one busy parser; 0: not measured yet.
    speed: float = 0.0
    _since_s: dict[str, float] = field(default_factory=dict)

    def lasting_s(self, what: str, holds: bool, now_s: float) -> float:
        """Return for how long condition *what* has held without a break; -1 if it does not hold."""
        if not holds:
            self._since_s.pop(what, None)
            return -1.0
        return now_s - self._since_s.setdefault(what, now_s)

    def note_change(self, now_s: float) -> None:
        self.changed_s = now_s
        self._since_s.clear()


@dataclass(frozen=True, slots=True)
class Decision:
    """How many parsers there should be; ``reason`` is empty when nothing changes."""

    count: int
    reason: str = ""


def decide(
    state: ScaleState, queue_pages: int, queue_bytes: int, parsers: int, pages_per_s: float, now_s: float
) -> Decision:
    """Return how many parsers there should be. *pages_per_s* is the rate of all parsers together."""
    pressure = _pressure(state, queue_pages, queue_bytes, pages_per_s)
    pressed_s = state.lasting_s("pressed", bool(pressure), now_s)
    calm_s = state.lasting_s("calm", queue_pages <= NEARLY_EMPTY, now_s)
    if queue_pages > NEARLY_EMPTY and parsers:
        state.speed = pages_per_s / parsers
    count = min(max(parsers, state.allowed.least), state.allowed.most)
    if now_s - state.changed_s < REST_S:
        return Decision(count)
    if pressed_s >= GROW_AFTER_S and count < state.allowed.most:
        state.note_change(now_s)
        return Decision(count + 1, pressure)
    # Not if the remaining parsers could not keep up: one would be added again.
    can_shrink = not state.speed or pages_per_s <= state.speed * (count - 1) * _MOST_LOAD
    if calm_s >= SHRINK_AFTER_S and count > state.allowed.least and can_shrink:
        state.note_change(now_s)
        return Decision(count - 1, f"the page queue was nearly empty for {SHRINK_AFTER_S:g} s")
    return Decision(count)


def _pressure(state: ScaleState, queue_pages: int, queue_bytes: int, pages_per_s: float) -> str:
    """Return why more parsers are needed; empty if they are not."""
    if queue_pages <= NEARLY_EMPTY:
        return ""
    if queue_pages > state.soft_pages / 2:
        return f"{queue_pages:,} pages are queued, more than half of CRAWL_PAGE_QUEUE_SOFT"
    if queue_bytes > state.soft_bytes / 2:
        return f"{queue_bytes:,} bytes are queued, more than half of CRAWL_PAGE_QUEUE_SOFT_BYTES"
    if queue_pages > pages_per_s * SLOW_S:
        return f"{queue_pages:,} pages are queued and {pages_per_s:.0f} parsed per second"
    return ""
