"""The page queue: each parser takes pages onto a list of its own until they are stored.

A page is in the queue or on the list of one parser; only the commit of a segment removes it. Every parser
process needs a new name, and another one when it was removed: then a reclaimed list never grows again, and
its length alone shows whether a parser still owns its pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from crawlproj.model.clock import Unchanged, boot_clock
from crawlproj.observe.crashpoints import passed
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName

#: The page that exceeds this is the last of its batch; Redis and the parser hold a batch in memory.
_BATCH_BYTES = 8_000_000


class PageQueue:
    """The page queue of one run, for one parser."""

    def __init__(self, client: RedisClient, run: str, clock: Callable[[], float] = boot_clock) -> None:
        self._client = client
        self._run = run
        self._clock = clock
        self._unchanged = Unchanged()
        self._held: dict[str, int] = {}
        self._heartbeats: dict[str, str] = {}
        #: When the run was created, as of the last `take`; it changes when the run is emptied.
        self.run_created = b""
        #: That of the client whose data this parser relies on; see `RedisClient`.
        self.generation: int | None = None

    async def heartbeat(
        self, parser: str, now_ms: int, process: ProcessName | None = None, **facts: object
    ) -> None:
        """Publish that *parser* is alive, and as which process; *facts* are shown by `scrapy status`.

        The first one registers it. Raises Fenced when it was removed since: then it needs another name.
        """
        beat = json.dumps({"at_ms": now_ms, "process": process and asdict(process), **facts})
        if parser in self._heartbeats:
            await self._client.run("renew_parser", [keys.parsers(self._run)], [parser, beat])
        else:
            await self._client.run("write_fields", [keys.parsers(self._run)], [0, parser, beat])
        self._heartbeats[parser] = beat

    async def take(self, parser: str, most: int, wait_s: float = 0.0) -> list[bytes]:
        """Take up to *most* pages, fewer if they are large, waiting up to *wait_s* for the first.

        They stay on the list of *parser*, which must have sent a heartbeat, until it commits them.
        Raises Fenced when pages taken earlier were reclaimed, SetBack when Redis has lost some.
        """
        if wait_s > 0:
            # Moves the head onto itself: it waits for a page without taking it, so nothing is lost when the
            # connection breaks.
            pages = keys.pages(self._run)
            await self._client.block("BLMOVE", pages, pages, "LEFT", "LEFT", timeout_s=wait_s)
        taken: list[bytes]
        held = self._held.get(parser, 0)
        created, taken = await self._client.run(
            "take_pages",
            [
                keys.pages(self._run),
                keys.pages_taken(self._run, parser),
                keys.parsers(self._run),
                keys.page_counters(self._run),
                keys.run_record(self._run),
            ],
            [parser, held, most, _BATCH_BYTES],
            generation=self.generation,
        )
        self.run_created = created
        self._held[parser] = held + len(taken)
        if taken:
            passed("pages_taken")
        return taken

    async def commit(
        self,
        parser: str,
        segment: str,
        count: int,
        counters: Mapping[str, int] | None = None,
        spill: tuple[str, str] = ("", ""),
    ) -> None:
        """Acknowledge the *count* oldest pages of *parser* and record *segment*, in one step.

        *spill* is the file that their links are in if these were not admitted, and its record. Repeating it
        is safe. Raises Fenced when the pages were reclaimed, SetBack when Redis may have lost them or their
        links: discard the segment then.
        """
        amounts = [part for item in (counters or {}).items() for part in item]
        await self._client.run(
            "commit_segment",
            [
                keys.pages_taken(self._run, parser),
                keys.segments(self._run),
                keys.page_counters(self._run),
                keys.spills(self._run),
            ],
            [segment, count, *spill, *amounts],
            generation=self.generation,
        )
        self._held[parser] -= count

    async def record_spill(self, spill: tuple[str, str]) -> None:
        """Record a file of links whose pages are not in a segment: they could not be stored."""
        await self._client.run("write_fields", [keys.spills(self._run)], [0, *spill])

    async def fail(self, parser: str, raw: bytes, letter: DeadLetter, most_attempts: int) -> bool:
        """Return a page that *parser* could not parse to the end of the queue for another attempt.

        At the *most_attempts*-th failure it becomes a dead letter; returns whether it did.
        """
        failed: int = await self._client.run(
            "fail_page",
            [
                keys.pages_taken(self._run, parser),
                keys.pages(self._run),
                keys.dead_letters(self._run),
                keys.dead_pages(self._run),
                keys.dead_ages(self._run),
                keys.page_counters(self._run),
            ],
            [letter.page, raw, most_attempts, letter.encode(), letter.at_ms],
            generation=self.generation,
        )
        passed("page_failed")
        if parser in self._held:
            self._held[parser] -= 1
        return failed == 0

    async def page_at(self, parser: str, position: int) -> bytes | None:
        """Return the page at *position* of the list of *parser*."""
        raw: bytes | None = await self._client.command(
            "LINDEX", keys.pages_taken(self._run, parser), position
        )
        return raw

    async def abandon(self, parser: str) -> None:
        """Return what Redis says *parser* has taken, and remove it: it goes by another name from now on."""
        self._held.pop(parser, None)
        self._heartbeats.pop(parser, None)
        if beat := (await self._parsers()).get(parser):
            await self._reclaim(parser, beat)

    async def leave(self, parser: str) -> int:
        """Return the pages of *parser* to the queue and remove it; returns how many."""
        self._held.pop(parser, None)
        beat = self._heartbeats.pop(parser, None)
        return max(0, await self._reclaim(parser, beat.encode())) if beat else 0

    async def reclaim_dead(self, now_ms: int, silent_ms: int) -> dict[str, int]:
        """Return the pages of dead parsers to the head of the queue.

        A parser is dead if silent for longer than *silent_ms*, if its process is gone from this machine, or
        if it is us under a name we no longer have. Returns the dead parsers and how many pages each had.
        """
        dead = {}
        now_s = self._clock()
        ours = (json.loads(beat)["process"] for beat in self._heartbeats.values())
        instances = {process["instance"] for process in ours if process}
        for parser, beat in (await self._parsers()).items():
            record = json.loads(beat)
            process = ProcessName.read(record["process"]) if record["process"] else None
            is_gone = process is not None and (
                process.is_dead() or (process.instance in instances and parser not in self._heartbeats)
            )
            # By our own clock, too: that of Redis may have been set back since.
            silent_s = self._unchanged.for_s(parser, beat, now_s)
            if is_gone or now_ms - record["at_ms"] > silent_ms or silent_s * 1000 > silent_ms > 0:
                pages = await self._reclaim(parser, beat)
                if pages >= 0:
                    dead[parser] = pages
        return dead

    async def _reclaim(self, parser: str, beat: bytes) -> int:
        pages: int = await self._client.run(
            "reclaim_pages",
            [
                keys.pages(self._run),
                keys.pages_taken(self._run, parser),
                keys.parsers(self._run),
                keys.page_counters(self._run),
            ],
            [parser, beat],
        )
        passed("pages_reclaimed")
        return pages

    async def length(self) -> int:
        """Return how many pages wait for a parser."""
        length: int = await self._client.command("LLEN", keys.pages(self._run))
        return length

    async def parsers(self) -> set[str]:
        """Return the parsers not known to be dead."""
        return set(await self._parsers())

    async def segments(self) -> set[str]:
        """Return the names of all committed segments."""
        names: list[bytes] = await self._client.command("HKEYS", keys.segments(self._run))
        return {name.decode() for name in names}

    async def is_of(self, run_id: int) -> bool:
        """Whether the run is there, and the one created at *run_id* (ms). Its segments are deleted last."""
        created: bytes | None = await self._client.command("HGET", keys.run_record(self._run), "created_ms")
        return created == str(run_id).encode()

    async def now_ms(self) -> int:
        """Return the time by Redis's clock, which parsers on all machines share."""
        seconds, micros = await self._client.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _parsers(self) -> dict[str, bytes]:
        flat: list[bytes] = await self._client.command("HGETALL", keys.parsers(self._run))
        return {name.decode(): beat for name, beat in zip(flat[::2], flat[1::2], strict=True)}
