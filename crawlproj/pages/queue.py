"""The page queue: each parser takes pages onto a list of its own until they are stored.

A page is in the queue or on the list of one parser; only the commit of a segment removes it. Every parser
process needs a new name, and another one when it was removed: then a reclaimed list never grows again, and
its length alone shows whether a parser still owns its pages.

In a Redis Cluster all of this is there once per stripe (`redisio.keys`): a segment holds pages of one stripe,
so that each step stays atomic.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from crawlproj.model.clock import Unchanged, boot_clock
from crawlproj.model.merge import Merge
from crawlproj.model.segment import SegmentRecord
from crawlproj.observe.crashpoints import passed
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.connection import Argument
from crawlproj.redisio.keys import Stripe
from crawlproj.redisio.names import ProcessName
from crawlproj.redisio.stripes import read_groups, read_hash, read_page_queue

#: The page that exceeds this is the last of its batch; Redis and the parser hold a batch in memory.
_BATCH_BYTES = 8_000_000
#: How often the queues of several stripes are looked at while they are empty: no command waits for many.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.01, 0.2
#: More pages than a parser ever holds of one stripe.
_MOST_HELD = 2**26


class PageQueue:
    """The page queue of one run, for one parser."""

    def __init__(self, client: RedisClient, run: str, clock: Callable[[], float] = boot_clock) -> None:
        self._client = client
        self._run = run
        self._clock = clock
        self._unchanged = Unchanged()
        #: By parser and stripe.
        self._held: dict[tuple[str, Stripe], int] = {}
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
        await self._client.run_many(
            "renew_parser" if parser in self._heartbeats else "write_fields",
            [([keys.parsers(self._run, stripe)], [parser, beat]) for stripe in self._client.stripes],
        )
        self._heartbeats[parser] = beat

    async def take(self, parser: str, most: int, wait_s: float = 0.0) -> list[tuple[Stripe, bytes]]:
        """Take up to *most* pages, fewer if they are large, waiting up to *wait_s* for the first.

        They stay on the lists of *parser*, which must have sent a heartbeat, until it commits them. Those of
        a stripe follow each other. Raises Fenced when pages taken earlier were reclaimed, SetBack when Redis
        has lost some.
        """
        stripes, record = self._client.stripes, [keys.run_record(self._run)]
        if len(stripes) > 1:
            stripes, record = await self._filled(wait_s), []
        elif wait_s > 0:
            # Moves the head onto itself: it waits for a page without taking it, so nothing is lost when the
            # connection breaks.
            pages = keys.pages(self._run)
            await self._client.block("BLMOVE", pages, pages, "LEFT", "LEFT", timeout_s=wait_s)
        each = -(-most // max(1, len(stripes)))
        held = {stripe: self._held.get((parser, stripe), 0) for stripe in stripes}
        most_bytes = _BATCH_BYTES // max(1, len(stripes))
        answers = await self._client.run_many(
            "take_pages",
            [
                ([*self._keys(stripe, parser), *record], [parser, held[stripe], each, most_bytes])
                for stripe in stripes
            ],
            generation=self.generation,
        )
        taken = []
        for stripe, (created, pages) in zip(stripes, answers, strict=True):
            self.run_created = created or self.run_created
            self._held[parser, stripe] = held[stripe] + len(pages)
            taken += [(stripe, page) for page in pages]
        if taken:
            passed("pages_taken")
        return taken

    async def _filled(self, wait_s: float) -> Sequence[Stripe]:
        """Return the stripes with pages in their queue, waiting up to *wait_s* until there is one."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + wait_s, _FIRST_LOOK_S
        stripes, created = self._client.stripes, ("HGET", keys.run_record(self._run), "created_ms")
        while True:
            lengths, [record] = await read_groups(
                self._client, [("LLEN", keys.pages(self._run, stripe)) for stripe in stripes], [created]
            )
            self.run_created = record or b""
            left_s = deadline - loop.time()
            if any(lengths) or left_s <= 0:
                return [stripe for stripe, length in zip(stripes, lengths, strict=True) if length]
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _keys(self, stripe: Stripe, parser: str) -> list[str]:
        """Return the keys of the queue that `take_pages` and `reclaim_pages` begin with."""
        return [
            keys.pages(self._run, stripe),
            keys.pages_taken(self._run, parser, stripe),
            keys.parsers(self._run, stripe),
            keys.page_counters(self._run, stripe),
        ]

    async def commit(
        self,
        parser: str,
        segment: str,
        count: int,
        counters: Mapping[str, int] | None = None,
        spill: tuple[str, str] = ("", ""),
        record: SegmentRecord | None = None,
        stripe: Stripe = None,
    ) -> None:
        """Acknowledge the *count* oldest pages of *parser* in *stripe* and record *segment*, in one step.

        *spill* is the file that their links are in if these were not admitted, and its record; *record* says
        more than the number of pages. Repeating it is safe. Raises Fenced when the pages were reclaimed,
        SetBack when Redis may have lost them or their links: discard the segment then.
        """
        amounts = [part for item in (counters or {}).items() for part in item]
        await self._client.run(
            "commit_segment",
            [
                keys.pages_taken(self._run, parser, stripe),
                keys.segments(self._run, stripe),
                keys.page_counters(self._run, stripe),
                keys.spills(self._run, stripe),
            ],
            [segment, count, (record or SegmentRecord(count)).encode(), *spill, *amounts],
            generation=self.generation,
        )
        self._held[parser, stripe] -= count

    async def record_spill(self, spill: tuple[str, str]) -> None:
        """Record a file of links whose pages are not in a segment: they could not be stored."""
        await self._client.run("write_fields", [keys.spills(self._run, self._client.stripes[0])], spill)

    async def fail(
        self, parser: str, raw: bytes, letter: DeadLetter, most_attempts: int, stripe: Stripe = None
    ) -> bool:
        """Return a page that *parser* could not parse to the end of the queue for another attempt.

        At the *most_attempts*-th failure it becomes a dead letter; returns whether it did.
        """
        failed: int = await self._client.run(
            "fail_page",
            [
                keys.pages_taken(self._run, parser, stripe),
                keys.pages(self._run, stripe),
                keys.dead_letters(self._run, stripe),
                keys.dead_pages(self._run, stripe),
                keys.dead_ages(self._run, stripe),
                keys.page_counters(self._run, stripe),
            ],
            [letter.page, raw, most_attempts, letter.encode(), letter.at_ms],
            generation=self.generation,
        )
        passed("page_failed")
        if (parser, stripe) in self._held:
            self._held[parser, stripe] -= 1
        return failed == 0

    async def page_at(self, parser: str, position: int) -> tuple[Stripe, bytes | None]:
        """Return the page at *position*, as `position_of` counts, of the lists of *parser*."""
        number, position = divmod(position, _MOST_HELD)
        stripe = self._client.stripes[number]
        return stripe, await self._client.command(
            "LINDEX", keys.pages_taken(self._run, parser, stripe), position
        )

    def position_of(self, stripe: Stripe, position: int) -> int:
        """Return one number for the page at *position* of a parser's list in *stripe*."""
        return self._client.stripes.index(stripe) * _MOST_HELD + position

    async def abandon(self, parser: str) -> None:
        """Return what Redis says *parser* has taken, and remove it: it goes by another name from now on."""
        self._forget(parser)
        for stripe, parsers in await self._registers():
            if beat := parsers.get(parser):
                await self._reclaim(stripe, parser, beat)

    async def leave(self, parser: str) -> int:
        """Return the pages of *parser* to the queue and remove it; returns how many."""
        beat = self._forget(parser)
        if not beat:
            return 0
        return sum([max(0, await self._reclaim(stripe, parser, beat)) for stripe in self._client.stripes])

    def _forget(self, parser: str) -> str | None:
        self._held = {whose: count for whose, count in self._held.items() if whose[0] != parser}
        return self._heartbeats.pop(parser, None)

    async def reclaim_dead(self, now_ms: int, silent_ms: int) -> dict[str, int]:
        """Return the pages of dead parsers to the head of the queue.

        A parser is dead if silent for longer than *silent_ms*, if its process is gone from this machine, or
        if it is us under a name we no longer have. Returns the dead parsers and how many pages each had.
        """
        dead: Counter[str] = Counter()
        now_s = self._clock()
        ours = (json.loads(beat)["process"] for beat in self._heartbeats.values())
        instances = {process["instance"] for process in ours if process}
        found = [
            (stripe, parser, beat)
            for stripe, parsers in await self._registers()
            for parser, beat in parsers.items()
        ]
        for stripe, parser, beat in found:
            record = json.loads(beat)
            process = ProcessName.read(record["process"]) if record["process"] else None
            is_gone = process is not None and (
                process.is_dead() or (process.instance in instances and parser not in self._heartbeats)
            )
            # By our own clock, too: that of Redis may have been set back since.
            silent_s = self._unchanged.for_s(f"{parser} {stripe}", beat, now_s)
            if is_gone or now_ms - record["at_ms"] > silent_ms or silent_s * 1000 > silent_ms > 0:
                pages = await self._reclaim(stripe, parser, beat)
                if pages >= 0:
                    dead[parser] += pages
        return dead

    async def _reclaim(self, stripe: Stripe, parser: str, beat: str) -> int:
        pages: int = await self._client.run("reclaim_pages", self._keys(stripe, parser), [parser, beat])
        passed("pages_reclaimed")
        return pages

    async def length(self) -> int:
        """Return how many pages wait for a parser."""
        return (await read_page_queue(self._client, self._run))[0]

    async def parsers(self) -> set[str]:
        """Return the parsers not known to be dead."""
        return set(await read_hash(self._client, self._run, keys.parsers))

    async def segments(self) -> dict[str, SegmentRecord]:
        """Return the records of all committed segments, by name."""
        return await read_segments(self._client, self._run)

    async def merge(self, merge: Merge, *, by_force: bool = False) -> bool:
        """As `record_merge`, for whoever finds one that another process has begun."""
        return await record_merge(
            self._client, self._run, merge, by_force=by_force, generation=self.generation
        )

    async def is_of(self, run_id: int) -> bool:
        """Whether the run is there, and the one created at *run_id* (ms). Its segments are deleted last."""
        created: bytes | None = await self._client.command("HGET", keys.run_record(self._run), "created_ms")
        return created == str(run_id).encode()

    async def now_ms(self) -> int:
        """Return the time by Redis's clock, which parsers on all machines share."""
        return await server_ms(self._client)

    async def _registers(self) -> list[tuple[Stripe, dict[str, str]]]:
        """Return the heartbeats of the parsers, by stripe."""
        stripes = self._client.stripes
        answers = await self._client.pipeline(
            [("HGETALL", keys.parsers(self._run, stripe)) for stripe in stripes]
        )
        return [(stripe, dict(pairs(flat))) for stripe, flat in zip(stripes, answers, strict=True)]


async def record_merge(
    client: RedisClient,
    run: str,
    merge: Merge,
    *,
    by_force: bool = False,
    merger: tuple[str, str] = ("", ""),
    generation: int | None = None,
) -> bool:
    """Record a merged segment and drop the records of those it replaces; may be repeated.

    Returns False, with nothing done, if one of them is not recorded, unless *by_force*. *merger*: the place
    of the segments and our instance, if we hold its name; raises Fenced if we do no longer, SetBack if
    *generation* is given and over.
    """
    place, instance = merger
    names = [keys.segments(run, merge.stripe), keys.merger(run, place, merge.stripe)]
    record = merge.full_record.encode()
    arguments: list[Argument] = [instance, int(by_force), merge.name, record, *merge.replaced]
    is_recorded = bool(await client.run("merge_segments", names, arguments, generation=generation))
    passed("segments_merged")
    return is_recorded


async def read_segments_of(client: RedisClient, run: str, stripe: Stripe) -> dict[str, SegmentRecord]:
    """Return the records of the segments of *run* in one stripe, by name."""
    recorded = pairs(await client.command("HGETALL", keys.segments(run, stripe)))
    return {name: SegmentRecord.decode(record) for name, record in recorded}


async def read_segments(client: RedisClient, run: str) -> dict[str, SegmentRecord]:
    """Return the records of all committed segments of *run*, by name."""
    recorded = await read_hash(client, run, keys.segments)
    return {name: SegmentRecord.decode(record) for name, record in recorded.items()}
