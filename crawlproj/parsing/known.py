"""Links a parser need not admit again: the same navigation is on every page of a site."""

from __future__ import annotations

from collections.abc import Iterable

#: About 20 MB of URLs, 40 at most.
_MOST_LINKS = 100_000
#: Links on every page are short; a site may fill its pages with links of 2,000 characters, each new.
_MOST_CHARS = 300


class KnownLinks:
    """Links that the frontier has answered for: `seen` has them, so admitting them again changes nothing.

    Bounded: what was added first is forgotten first, half of all at once, and long ones are not kept. Callers
    must `clear` it when the frontier may have lost URLs: the run was emptied, or Redis was unreachable
    and perhaps restored from an older state.
    """

    def __init__(self, most: int = _MOST_LINKS) -> None:
        self._most_young = most // 2
        self._young: set[str] = set()
        self._old: set[str] = set()

    def unknown(self, links: list[str], beginning: str = "") -> list[str]:
        """Return, in their order, the *links* that are not known, or do not begin like this."""
        young, old = self._young, self._old
        return [
            link
            for link in links
            if (link not in young and link not in old) or not link.startswith(beginning)
        ]

    def add(self, links: Iterable[str]) -> None:
        self._young.update([link for link in links if len(link) <= _MOST_CHARS])
        if len(self._young) >= self._most_young:
            self._young, self._old = set(), self._young

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
