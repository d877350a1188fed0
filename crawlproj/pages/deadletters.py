"""Dead letters: pages that could not be parsed, kept with their error, the newest in Redis, others on disk.

A step in Redis decides where a dead letter is: it leaves Redis once its file is synced, and its file no
longer counts once it is back on the queue. `dead_moves` remembers that until the file has its name or is
removed, so a process may be killed at any moment.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from crawlproj.errors import StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.pages.envelope import envelope_of
from crawlproj.pages.letterfiles import LetterFiles, page_of
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs

logger = logging.getLogger(__name__)

#: How long a command waits for a parser that is moving dead letters.
_LOCK_S = 10.0


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


def dead_letter(raw: bytes, page: Page | None, error: str, parser: str) -> DeadLetter:
    """Return the dead letter for *raw*, named by its hash: numbers of leases repeat if Redis is set back."""
    name = blake2b(envelope_of(raw), digest_size=8).hexdigest()
    return DeadLetter(name, page.url if page else "", error[:2000], parser, int(time.time() * 1000))


class DeadLetters:
    """The dead letters of one run, in Redis and in *directory* on this machine."""

    def __init__(self, client: RedisClient, run: str, directory: Path) -> None:
        self._client = client
        self._files = LetterFiles(directory)
        self._pages = keys.pages(run)
        self._dead, self._letters = keys.dead_letters(run), keys.dead_pages(run)
        self._ages, self._moves = keys.dead_ages(run), keys.dead_moves(run)
        self._counters = keys.page_counters(run)

    async def list(self) -> list[DeadLetter]:
        """Return all, oldest first."""
        # Redis first: what it no longer has is on disk by then.
        letters = map(_decode, await self._client.command("HVALS", self._dead))
        known = {letter.page: letter for letter in letters}
        if self._files.exist:
            async with self._files.lock(_LOCK_S):
                for name in await self._settled_names():
                    known.setdefault(page_of(name), _decode(self._files.record(name)))
        return sorted(known.values(), key=lambda letter: letter.at_ms)

    async def envelope(self, page: str) -> bytes | None:
        value: bytes | None = await self._client.command("HGET", self._letters, page)
        if value is None and self._files.exist:
            async with self._files.lock(_LOCK_S):
                for name in await self._settled_names():
                    if page_of(name) == page:
                        return self._files.envelope(name)
        return value

    async def replay(self, *pages: str) -> int:
        """Put *pages* back on the queue; returns how many of them were dead letters."""
        if not self._files.exist:
            return sum([await self._replay(page, []) for page in pages])
        async with self._files.lock(_LOCK_S):
            files = defaultdict(list)
            for name in await self._settled_names():
                files[page_of(name)].append(name)
            return sum([await self._replay(page, files[page]) for page in pages])

    async def make_room(self, most_bytes: int) -> None:
        """Move the oldest to disk while those in Redis exceed *most_bytes*.

        They stay in Redis for now if the disk is full, or another process is moving them.
        """
        try:
            while oldest := await self._oldest_beyond(most_bytes):
                self._files.make()
                async with self._files.lock(0):
                    await self._move(oldest)
        except OSError as exc:
            logger.error("dead letters stay in Redis, they cannot be written to disk: %s", exc)
        except StoreUnavailable:
            # The other one makes room for both.
            pass

    async def _oldest_beyond(self, most_bytes: int) -> str:
        size, oldest = await self._client.pipeline(
            [("HGET", self._counters, "dead_bytes"), ("ZRANGE", self._ages, 0, 0)]
        )
        return oldest[0].decode() if oldest and int(size or 0) > most_bytes else ""

    async def _move(self, page: str) -> None:
        record, envelope = await self._client.pipeline(
            [("HGET", self._dead, page), ("HGET", self._letters, page)]
        )
        if record is None or envelope is None:
            # It was replayed a moment ago.
            return
        name = self._files.write(page, record, envelope)
        is_moved = await self._client.run(
            "move_letter", [self._dead, self._letters, self._ages, self._moves, self._counters], [page, name]
        )
        if is_moved:
            self._files.finish(name)
        else:
            self._files.remove(name)
        await self._settle([name])

    async def _replay(self, page: str, files: Sequence[str]) -> int:
        envelope = self._files.envelope(files[0]) if files else b""
        done: int = await self._client.run(
            "replay_page",
            [self._pages, self._dead, self._letters, self._ages, self._moves, self._counters],
            [page, envelope, *files],
        )
        for name in files:
            self._files.remove(name)
        await self._settle(files)
        return done

    async def _settled_names(self) -> Sequence[str]:
        """Complete what killed processes have begun; returns the files that count. The lock must be held."""
        moves = dict(pairs(await self._client.command("HGETALL", self._moves)))
        for name in self._files.unfinished():
            if moves.get(name) == "in":
                self._files.finish(name)
            else:
                self._files.remove(name)
        names = self._files.names()
        for name in names:
            if moves.get(name) == "out":
                self._files.remove(name)
        await self._settle([name for name in names if name in moves])
        return [name for name in names if moves.get(name) != "out"]

    async def _settle(self, files: Sequence[str]) -> None:
        """Forget the moves of *files*, whose names are what they should be."""
        if files:
            self._files.sync()
            await self._client.command("HDEL", self._moves, *files)


def _decode(record: bytes) -> DeadLetter:
    return DeadLetter(**json.loads(record))
