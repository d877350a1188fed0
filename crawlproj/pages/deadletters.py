"""Dead letters: pages that could not be parsed, kept with their error, the newest in Redis, others on disk.

A step in Redis decides where a dead letter is: it leaves Redis once its file is synced, and its file no
longer counts once it is back on the queue. `dead_moves` remembers that until the file has its name or is
removed, so a process may be killed at any moment.
"""

from __future__ import annotations

import builtins
import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from crawlproj.errors import StoreUnavailable
from crawlproj.model.partition import partition_of
from crawlproj.pages.envelope import envelope_of
from crawlproj.pages.letterfiles import LetterFiles, page_of
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.keys import Stripe
from crawlproj.redisio.stripes import read_groups, read_hash

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

    @classmethod
    def of(cls, raw: bytes, url: str, error: str, parser: str) -> DeadLetter:
        """Return the dead letter for *raw*, named by its hash: lease numbers repeat if Redis is set back."""
        page = blake2b(envelope_of(raw), digest_size=8).hexdigest()
        return cls(page, url, error[:2000], parser, int(time.time() * 1000))

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


class DeadLetters:
    """The dead letters of one run, in Redis and in *directory* on this machine."""

    def __init__(self, client: RedisClient, run: str, directory: Path) -> None:
        self._client = client
        self._files = LetterFiles(directory)
        self._run = run

    async def list(self) -> list[DeadLetter]:
        """Return all, oldest first."""
        # Redis first: what it no longer has is on disk by then.
        letters = (await read_hash(self._client, self._run, keys.dead_letters)).values()
        known = {letter.page: letter for letter in map(_decode, letters)}
        if self._files.exist:
            async with self._files.lock(_LOCK_S):
                for name in await self._settled_names():
                    known.setdefault(page_of(name), _decode(self._files.record(name)))
        return sorted(known.values(), key=lambda letter: letter.at_ms)

    async def envelope(self, page: str) -> bytes | None:
        value: bytes | None = await self._client.command(
            "HGET", keys.dead_pages(self._run, await self._stripe_of(page)), page
        )
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
                    await self._move(*oldest)
        except OSError as exc:
            logger.error("dead letters stay in Redis, they cannot be written to disk: %s", exc)
        except StoreUnavailable:
            # The other one makes room for both.
            pass

    async def _oldest_beyond(self, most_bytes: int) -> tuple[str, Stripe] | None:
        stripes = self._client.stripes
        sizes, oldest = await read_groups(
            self._client,
            [("HGET", keys.page_counters(self._run, stripe), "dead_bytes") for stripe in stripes],
            [("ZRANGE", keys.dead_ages(self._run, stripe), 0, 0, "WITHSCORES") for stripe in stripes],
        )
        if sum(int(size or 0) for size in sizes) <= most_bytes or not any(oldest):
            return None
        found = [(float(line[1]), line[0].decode(), n) for n, line in enumerate(oldest) if line]
        _, page, number = min(found)
        return page, stripes[number]

    async def _move(self, page: str, stripe: Stripe) -> None:
        dead, letters, ages, moves, counters = self._keys(stripe)
        record, envelope = await self._client.pipeline([("HGET", dead, page), ("HGET", letters, page)])
        if record is None or envelope is None:
            # It was replayed a moment ago.
            return
        name = self._files.write(page, record, envelope)
        is_moved = await self._client.run("move_letter", [dead, letters, ages, moves, counters], [page, name])
        if is_moved:
            self._files.finish(name)
        else:
            self._files.remove(name)
        await self._settle([name])

    async def _replay(self, page: str, files: Sequence[str]) -> int:
        envelope = self._files.envelope(files[0]) if files else b""
        stripe = await self._stripe_of(page)
        done: int = await self._client.run(
            "replay_page",
            [keys.pages(self._run, stripe), *self._keys(stripe)],
            [page, envelope, *files],
        )
        for name in files:
            self._files.remove(name)
        await self._settle(files)
        return done

    async def _settled_names(self) -> Sequence[str]:
        """Complete what killed processes have begun; returns the files that count. The lock must be held."""
        moves = await read_hash(self._client, self._run, keys.dead_moves)
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
            stripes = self._client.stripes
            await self._client.pipeline(
                [("HDEL", keys.dead_moves(self._run, stripe), *files) for stripe in stripes]
            )

    async def _stripe_of(self, page: str) -> Stripe:
        """Return the stripe that has the dead letter *page* in Redis, else the one it returns to."""
        stripes = self._client.stripes
        if len(stripes) == 1:
            return stripes[0]
        held = await self._client.pipeline(
            [("HEXISTS", keys.dead_pages(self._run, stripe), page) for stripe in stripes]
        )
        return stripes[held.index(1) if 1 in held else partition_of(page, len(stripes))]

    def _keys(self, stripe: Stripe) -> builtins.list[str]:
        """Return the keys of the dead letters of *stripe*, as the steps take them."""
        kinds = (keys.dead_letters, keys.dead_pages, keys.dead_ages, keys.dead_moves, keys.page_counters)
        return [key_of(self._run, stripe) for key_of in kinds]


def _decode(record: str | bytes) -> DeadLetter:
    return DeadLetter(**json.loads(record))
