"""What waits in the frontier, wherever it is: URLs in states and lists, domains in `ready` and new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crawlproj.model.domain import DomainState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs

_LANES = 3


def questions(run: str, partition: int, domains: Sequence[str]) -> list[tuple[str | int, ...]]:
    """Return the commands whose answers `Waiting` takes."""
    queue = keys.queue_prefix(run, partition)
    return [
        ("HGETALL", keys.domains(run, partition)),
        ("ZRANGE", keys.ready(run, partition), 0, -1, "WITHSCORES"),
        ("LRANGE", keys.newcomers(run, partition), 0, -1),
        *(("LRANGE", f"{queue}{lane}:{domain}", 0, -1) for domain in domains for lane in range(_LANES)),
    ]


class Waiting:
    """Fails if anything waits in two places, or in a wrong order."""

    def __init__(self, domains: Sequence[str], states: Any, ready: Any, newcomers: Any, *lists: Any) -> None:
        self.states = {name: DomainState.decode(text) for name, text in pairs(states)}
        #: When each domain is due (ms) that has a URL to be leased.
        self.due = {name: float(score) for name, score in pairs(ready)} | self._newcomers(ready, newcomers)
        #: The entries of each of *domains*, lane by lane.
        self.lanes = {
            name: self._lanes(name, lists[at * _LANES : (at + 1) * _LANES]) for at, name in enumerate(domains)
        }

    def _newcomers(self, ready: Any, newcomers: Any) -> dict[str, float]:
        came = [(name, float(at)) for at, name in (text.decode().split(" ") for text in newcomers)]
        # The others are dropped when it is their turn.
        still = {name: at for name, at in came if _is_newcomer(self.states[name])}
        assert len(came) == len(dict(came)), f"twice among the newcomers: {came}"
        assert not still.keys() & dict(pairs(ready)).keys(), f"in `ready` and among {came}"
        return still

    def _lanes(self, domain: str, lists: Sequence[list[bytes]]) -> list[list[str]]:
        few = self.states[domain].waiting.splitlines() if domain in self.states else []
        assert not any(few) or not any(lists), f"{domain} waits in two places: {few} and {lists}"
        few = list(filter(None, few))
        assert few == sorted(few, key=lambda line: line[0]), "the first is to be leased first"
        return [
            [line[1:] for line in few if line[0] == str(lane)] + [entry.decode() for entry in entries]
            for lane, entries in enumerate(lists)
        ]


def _is_newcomer(state: DomainState) -> bool:
    return not state.next_ms and not state.out and not state.parked


async def waiting_of(client: RedisClient, run: str, partition: int, *domains: str) -> Waiting:
    return Waiting(domains, *await client.pipeline(questions(run, partition, domains)))


async def lanes_of(client: RedisClient, run: str, partition: int, domain: str) -> list[list[str]]:
    return (await waiting_of(client, run, partition, domain)).lanes[domain]


async def due_of(client: RedisClient, run: str, partition: int) -> dict[str, float]:
    return (await waiting_of(client, run, partition)).due
