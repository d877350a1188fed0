"""Dead letters: pages given up by the parsers, kept with their error until somebody looks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from crawlproj.redisio import keys
from crawlproj.redisio.client import Door


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A page no parser could read. ``page`` names it: partition and lease, or its hash if it is damaged."""

    page: str
    url: str
    error: str
    parser: str
    at_ms: int

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


class DeadLetters:
    """The dead letters of one run."""

    def __init__(self, door: Door, run: str) -> None:
        self._door = door
        self._run = run

    async def list(self) -> list[DeadLetter]:
        """Return all of them, the oldest first."""
        values = await self._door.command("HVALS", keys.dead_letters(self._run))
        return sorted((DeadLetter(**json.loads(value)) for value in values), key=lambda letter: letter.at_ms)

    async def envelope(self, page: str) -> bytes | None:
        value: bytes | None = await self._door.command("HGET", keys.dead_pages(self._run), page)
        return value

    async def replay(self, page: str) -> bool:
        """Have the parsers try *page* again; returns whether there was such a dead letter."""
        done: int = await self._door.run(
            "replay_page",
            [
                keys.pages(self._run),
                keys.dead_letters(self._run),
                keys.dead_pages(self._run),
                keys.page_counters(self._run),
            ],
            [page],
        )
        return bool(done)
