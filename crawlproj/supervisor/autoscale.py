"""How many parsers a run should have, by its page queue. Pure: time is an argument.

They become more when pages wait too long, and fewer when none do, one at a time and with a rest after each
change, so that a change shows its effect before the next. In between lies a band in which nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crawlproj.supervisor.plan import Range

#: Pages should not wait longer than this.
SLOW_S = 10.0
#: For how long pages must have waited too long before there is one more parser.
GROW_AFTER_S = 3.0
#: For how long the queue must have been nearly empty before there is one less.
SHRINK_AFTER_S = 20.0
#: How long a change is given to show what it does.
REST_S = 5.0
#: A queue with no more pages than this is nearly empty: parsers take that many at once.
NEARLY_EMPTY = 32
#: How much of what they can do the parsers that stay should have to do.
_SHARE = 0.8


@dataclass(slots=True)
class ScaleState:
    """What is remembered between two decisions, and the limits of the page queue."""

    allowed: Range
    soft_pages: int
    soft_bytes: int
    changed_s: float = float("-inf")
    #: Pages a second that one parser takes when it need not wait for them; 0: not seen yet.
    speed: float = 0.0
    _since_s: dict[str, float] = field(default_factory=dict)

    def lasting_s(self, what: str, holds: bool, now_s: float) -> float:
        """Return for how long *what* has held without a break."""
        if not holds:
            self._since_s.pop(what, None)
            return -1.0
        return now_s - self._since_s.setdefault(what, now_s)

    def begin_anew(self, now_s: float) -> None:
        self.changed_s = now_s
        self._since_s.clear()


@dataclass(frozen=True, slots=True)
class Decision:
    """How many parsers there should be; ``reason`` is empty when that is no change."""

    count: int
    reason: str = ""


def decide(
    state: ScaleState, queue_pages: int, queue_bytes: int, parsers: int, pages_per_s: float, now_s: float
) -> Decision:
    """Return how many parsers there should be. *pages_per_s* is what all of them take from the queue."""
    pressure = _pressure(state, queue_pages, queue_bytes, pages_per_s)
    pressed_s = state.lasting_s("pressed", bool(pressure), now_s)
    calm_s = state.lasting_s("calm", queue_pages <= NEARLY_EMPTY, now_s)
    if queue_pages > NEARLY_EMPTY and parsers:
        state.speed = pages_per_s / parsers
    count = min(max(parsers, state.allowed.least), state.allowed.most)
    if now_s - state.changed_s < REST_S:
        return Decision(count)
    if pressed_s >= GROW_AFTER_S and count < state.allowed.most:
        state.begin_anew(now_s)
        return Decision(count + 1, pressure)
    # Not if those who stay could not keep up: the next thing would be one more.
    would_do = not state.speed or pages_per_s <= state.speed * (count - 1) * _SHARE
    if calm_s >= SHRINK_AFTER_S and count > state.allowed.least and would_do:
        state.begin_anew(now_s)
        return Decision(count - 1, f"the page queue was nearly empty for {SHRINK_AFTER_S:g} s")
    return Decision(count)


def _pressure(state: ScaleState, queue_pages: int, queue_bytes: int, pages_per_s: float) -> str:
    """Say why there should be more parsers; nothing if there should not."""
    if queue_pages <= NEARLY_EMPTY:
        return ""
    if queue_pages > state.soft_pages / 2:
        return f"{queue_pages:,} pages wait, more than half of CRAWL_PAGE_QUEUE_SOFT"
    if queue_bytes > state.soft_bytes / 2:
        return f"{queue_bytes:,} bytes wait, more than half of CRAWL_PAGE_QUEUE_SOFT_BYTES"
    if queue_pages > pages_per_s * SLOW_S:
        return f"{queue_pages:,} pages wait, and {pages_per_s:.0f} are parsed a second"
    return ""
