"""Dead letters: pages that could not be parsed, kept with their error."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A page that could not be parsed. ``page`` is its id, the hash of its envelope."""

    page: str
    url: str
    error: str
    parser: str
    at_ms: int

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


class DeadLetters:
    """The dead letters of one run."""

    def __init__(self, client: RedisClient, run: str) -> None:
        self._client = client
        self._run = run

    async def list(self) -> list[DeadLetter]:
        """Return all, oldest first."""
        values = await self._client.command("HVALS", keys.dead_letters(self._run))
        return sorted((DeadLetter(**json.loads(value)) for value in values), key=lambda letter: letter.at_ms)

    async def envelope(self, page: str) -> bytes | None:
        value: bytes | None = await self._client.command("HGET", keys.dead_pages(self._run), page)
        return value

    async def replay(self, page: str) -> bool:
        """Put *page* back on the queue; returns whether there was such a dead letter."""
        done: int = await self._client.run(
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
