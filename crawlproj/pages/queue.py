"""The page queue as its parsers see it: each takes pages onto a list of its own until they are stored.

A page is in the queue or in the list of one parser; only the commit of a segment removes it. The name of
a parser must be new for each process: a list that was taken back then never grows again, and its length
alone tells a parser that came back too late from one that still owns its pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from crawlproj.pages.deadletters import DeadLetter
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName

#: A batch ends with the page that makes it so large; Redis and the parser each hold it as a whole.
_BATCH_BYTES = 8_000_000


class PageQueue:
    """All page traffic of one run. One parser uses one of these; others may look."""

    def __init__(self, door: Door, run: str) -> None:
        self._door = door
        self._run = run
        self._held: dict[str, int] = {}
        self._heartbeats: dict[str, str] = {}
        #: When the run was created, as of the last `take`: another one was emptied in between.
        self.run_created = b""

    async def heartbeat(
        self, parser: str, now_ms: int, process: ProcessName | None = None, **facts: object
    ) -> None:
        """Say that *parser* lives, and as which process. *facts* are for people who look."""
        beat = json.dumps({"at_ms": now_ms, "process": process and asdict(process), **facts})
        self._heartbeats[parser] = beat
        await self._door.command("HSET", keys.parsers(self._run), parser, beat)

    async def take(self, parser: str, most: int, wait_s: float = 0.0) -> list[bytes]:
        """Take up to *most* pages, fewer if they are large, waiting up to *wait_s* for the first.

        They stay on the list of *parser*, which must have shown a heartbeat, until it commits them.
        Raises Fenced when pages taken earlier were taken back.
        """
        if wait_s > 0:
            # The head moved onto itself: this waits for a page and takes none, so nothing can get lost
            # on a connection that breaks meanwhile.
            pages = keys.pages(self._run)
            await self._door.block("BLMOVE", pages, pages, "LEFT", "LEFT", timeout_s=wait_s)
        return await self._take(parser, most)

    async def _take(self, parser: str, most: int) -> list[bytes]:
        taken: list[bytes]
        held = self._held.get(parser, 0)
        created, taken = await self._door.run(
            "take_pages",
            [
                keys.pages(self._run),
                keys.pages_taken(self._run, parser),
                keys.parsers(self._run),
                keys.page_counters(self._run),
                keys.run_record(self._run),
            ],
            [parser, self._heartbeats[parser], held, most, _BATCH_BYTES],
        )
        self.run_created = created
        self._held[parser] = held + len(taken)
        return taken

    async def commit(
        self, parser: str, segment: str, count: int, counters: Mapping[str, int] | None = None
    ) -> None:
        """Acknowledge the *count* oldest pages of *parser* and record *segment*, in one step.

        Repeating it changes nothing. Raises Fenced when the pages were taken back: the segment must then
        be discarded.
        """
        amounts = [part for item in (counters or {}).items() for part in item]
        await self._door.run(
            "commit_segment",
            [
                keys.pages_taken(self._run, parser),
                keys.segments(self._run),
                keys.page_counters(self._run),
            ],
            [segment, count, *amounts],
        )
        self._held[parser] -= count

    async def fail(self, parser: str, raw: bytes, letter: DeadLetter, most_attempts: int) -> bool:
        """Give up a page that *parser* could not read: it waits at the end of the queue for another try.

        The one that fails for the *most_attempts*-th time becomes a dead letter. Returns whether it did.
        """
        failed: int = await self._door.run(
            "fail_page",
            [
                keys.pages_taken(self._run, parser),
                keys.pages(self._run),
                keys.page_attempts(self._run),
                keys.dead_letters(self._run),
                keys.dead_pages(self._run),
                keys.page_counters(self._run),
            ],
            [letter.page, raw, most_attempts, letter.encode()],
        )
        if parser in self._held:
            self._held[parser] -= 1
        return failed == 0

    async def page_at(self, parser: str, position: int) -> bytes | None:
        """Return the page at *position* of the list of *parser*."""
        raw: bytes | None = await self._door.command("LINDEX", keys.pages_taken(self._run, parser), position)
        return raw

    def forget(self, parser: str) -> None:
        """Begin anew after Fenced: *parser* no longer believes to hold any page."""
        self._held.pop(parser, None)

    async def leave(self, parser: str) -> int:
        """Give back what *parser* holds and forget it; return how many pages that were."""
        self.forget(parser)
        beat = self._heartbeats.pop(parser, None)
        return max(0, await self._take_back(parser, beat.encode())) if beat else 0

    async def take_back_dead(self, now_ms: int, silent_ms: int) -> dict[str, int]:
        """Return the pages of dead parsers to the head of the queue.

        Dead is who was silent for longer than *silent_ms*, or whose process is gone from this machine.
        Returns the dead and how many pages each had.
        """
        dead = {}
        for parser, beat in (await self._parsers()).items():
            record = json.loads(beat)
            is_gone = record["process"] and ProcessName(**record["process"]).is_dead()
            if is_gone or now_ms - record["at_ms"] > silent_ms:
                pages = await self._take_back(parser, beat)
                if pages >= 0:
                    dead[parser] = pages
        return dead

    async def _take_back(self, parser: str, beat: bytes) -> int:
        pages: int = await self._door.run(
            "take_back_pages",
            [
                keys.pages(self._run),
                keys.pages_taken(self._run, parser),
                keys.parsers(self._run),
                keys.page_counters(self._run),
            ],
            [parser, beat],
        )
        return pages

    async def length(self) -> int:
        """Return how many pages wait for a parser."""
        length: int = await self._door.command("LLEN", keys.pages(self._run))
        return length

    async def parsers(self) -> set[str]:
        """Return the parsers that were not found dead."""
        return set(await self._parsers())

    async def segments(self) -> set[str]:
        """Return the names of all committed segments."""
        names: list[bytes] = await self._door.command("HKEYS", keys.segments(self._run))
        return {name.decode() for name in names}

    async def now_ms(self) -> int:
        """Return the time by Redis' clock, the one clock parsers on several machines share."""
        seconds, micros = await self._door.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _parsers(self) -> dict[str, bytes]:
        flat: list[bytes] = await self._door.command("HGETALL", keys.parsers(self._run))
        return {name.decode(): beat for name, beat in zip(flat[::2], flat[1::2], strict=True)}
