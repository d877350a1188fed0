"""The state of a domain, as a partition keeps it. The Lua steps write it, in prelude.lua."""

from __future__ import annotations

from typing import NamedTuple


class DomainState(NamedTuple):
    """The fields of one value of the key `domains`, in their order."""

    next_ms: int
    out: int
    #: In a row.
    fails: int
    admitted: int
    fetched: int
    delay_ms: int
    bytes: int
    #: Why it is parked; '': it is not.
    parked: str
    #: Its URLs that wait, if they are few: a line each, the lane and the entry. More are in lists.
    waiting: str

    @classmethod
    def decode(cls, text: str) -> DomainState:
        line, _, waiting = text.partition("\n")
        *numbers, parked = line.split(" ")
        due, out, fails, admitted, fetched, delay, size = map(int, numbers)
        return cls(due, out, fails, admitted, fetched, delay, size, "" if parked == "-" else parked, waiting)
