"""A parser: takes pages from the queue, parses them, admits their links, and stores them.

Committing a segment acknowledges its pages, and their links are admitted or spilled before, so a parser may
be killed at any moment: its pages are parsed again, and links are admitted once however often they are found.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from crawlproj.config import Config
from crawlproj.errors import BadEnvelope, Fenced, SetBack, StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.model.run import RunPaths
from crawlproj.model.segment import SegmentRecord
from crawlproj.observe.crashpoints import passed
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat
from crawlproj.pages.deadletters import DeadLetter, DeadLetters
from crawlproj.pages.envelope import unpack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.beating import beating
from crawlproj.parsing.extractor import Extractor, ExtractorFailed
from crawlproj.parsing.guard import TimeLimit
from crawlproj.parsing.intake import Intake, Intakes
from crawlproj.parsing.names import name_after
from crawlproj.parsing.outlinks import Outlinks
from crawlproj.parsing.reading import Reading
from crawlproj.parsing.row import row_of
from crawlproj.redisio.clock import ServerClock
from crawlproj.redisio.keys import Stripe
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.storage.recovery import Recovery
from crawlproj.storage.row import PageRow
from crawlproj.storage.uploads import Uploads

logger = logging.getLogger(__name__)

#: How long a parser waits at an empty queue: also how late it may notice a stop or the end.
_IDLE_S = 1.0
#: When the end is likely, it waits this long, this many times.
_SOON_S, _SOON_TIMES = 0.2, 10
#: It is likely for a parser younger than this: a small run should not wait for it.
_YOUNG_S = 10.0
#: How often a parser that cannot write tries again.
_STORAGE_CHECK_S = 1.0
#: A batch is written together unless its bodies and texts take more memory than this.
_HELD_BYTES = 16_000_000

#: A page that could not be read, its dead letter, and how often it may be tried.
_Failure = tuple[Stripe, bytes, DeadLetter, int]
_Row = tuple[Stripe, PageRow | None, Page, bytes]


class Parser:
    """One parser of *run*. *is_over* returns whether the run has ended, so that an empty queue stays empty.

    *time_limit* ends the process when a page takes too long; with an *extractor* another process does the
    parsing, and this one survives.
    """

    def __init__(
        self,
        run: Run,
        config: Config,
        name: str,
        is_over: Callable[[], Awaitable[bool]],
        *,
        time_limit: TimeLimit | None = None,
        extractor: Extractor | None = None,
        metrics: Metrics | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_name = self._name = name
        self._restarts = 0
        self._process = ProcessName.of_this()
        self._heartbeat = heartbeat or Heartbeat(clock)
        self._metrics = metrics or Metrics()
        self._queue = PageQueue(run.client, run.name)
        paths = RunPaths(config.data, run.name)
        uploads = Uploads.to(config.store, run.name)
        self._where = uploads.address if uploads else str(config.data.absolute())
        self._recovery = Recovery((paths.pages, paths.items), uploads, run.created_ms)
        self._dead_letters = DeadLetters(run.client, run.name, paths.deadletters)
        self._config = config
        self._is_over = is_over
        self._commits_asked = run.commits_asked
        self._commits_seen = 0
        self._reading = Reading(config, time_limit, extractor)
        self._clock = clock
        self._redis_clock = ServerClock()
        self._client = run.client
        self._intakes = Intakes(paths, name, config, run.created_ms, uploads, clock)
        #: Counters of the run that the next commit will add to: links admitted and refused.
        self._link_counts: Counter[str] = Counter()
        self._outlinks = Outlinks(run, config, name, self._link_counts, clock)
        self.is_stopping = False
        self._store_error = ""
        self._heartbeat_s = float("-inf")
        self._started_s = self._logged_s = clock()
        self._logged_pages = 0
        self._pages = self._batch = self._links = self._errors = 0

    @property
    def heartbeat_age_s(self) -> float:
        return self._clock() - self._heartbeat_s

    def stop(self) -> None:
        """Finish the current pages, commit, and exit."""
        self.is_stopping = True

    async def run(self) -> None:
        """Work until the run is over or `stop` was called. No pages are held then.

        If it raises or is cancelled, its pages are returned to the queue once it has missed heartbeats for
        CRAWL_SHARD_LEASE_SECONDS.
        """
        logger.info("parser %s started, storing pages in %s", self._name, self._where)
        await self._begin()
        # Idle at first: the blocking connection is opened now, not in the middle of a crawl.
        over, idle, soon, admitting = False, True, 0, False
        while not self.is_stopping:
            try:
                await self._heartbeat_when_due()
                is_young = self._clock() - self._started_s < _YOUNG_S
                wait_s = 0.0 if over or admitting or not idle else _SOON_S if soon or is_young else _IDLE_S
                soon = max(0, soon - 1)
                pages = await self._queue.take(self._name, self._config.parse_batch, wait_s)
                self._batch = len(pages) or self._batch
                await self._parse(pages)
                idle = not pages
                admitting = not over and await self._admit_spilled(idle)
                due = list(self._intakes)
                if due and not over:
                    due = await self._due(idle)
                if due:
                    await self._commit(due)
                    # A commit for want of pages is often the last.
                    soon = _SOON_TIMES if idle else 0
                elif idle and over:
                    break
                elif idle:
                    # Then check once more: pages may have arrived before it was over.
                    over = await self._is_over()
            except (Fenced, SetBack) as exc:
                await self._start_over(exc)
            except StoreUnavailable as exc:
                await self._wait_for_storage(exc)
            await self._log_when_due()
        try:
            await self._commit(self._intakes.all)
        except (Fenced, SetBack, StoreUnavailable) as exc:
            self._abandon_segment(exc)
        await self._queue.leave(self._name)
        await self._outlinks.close()
        self._heartbeat.close()
        what = "parser stopped" if self.is_stopping else "parser ended, the run is over"
        await self._log_progress(what, self._pages, self._clock() - self._started_s)

    async def _parse(self, raw_pages: Sequence[tuple[Stripe, bytes]]) -> None:
        rows: list[_Row] = []
        held_bytes = 0
        failures: list[_Failure] = []
        if config := await self._outlinks.refresh(self._queue.run_created, self._clock()):
            self._reading.change(config)
        taken_ms = self._redis_clock.ms()
        for stripe, raw, position in self._intakes.numbered(raw_pages):
            await self._heartbeat_when_due()
            try:
                begun_s = time.perf_counter()
                page, found = self._reading.read(raw, self._queue.position_of(stripe, position))
                passed("page_extracted")
                self._metrics.parse_seconds.add(time.perf_counter() - begun_s)
            except BadEnvelope as exc:
                failures.append(self._failure(stripe, raw, None, exc))
                continue
            except ExtractorFailed:
                raise
            except Exception as exc:  # noqa: BLE001  # one bad page must not stop the others
                failures.append(self._failure(stripe, raw, unpack(raw), exc))
                continue
            if found.error or page.sitemap_level:
                # A format that stores responses would keep the text after all; and a batch of sitemaps,
                # 50 MB each, would not fit into memory.
                page.body = b""
            self._metrics.pages_parsed += 1
            self._metrics.page_queue_seconds.add(max(0.0, (taken_ms - page.fetched_at_ms) / 1000))
            row = None if page.is_bare else row_of(page, found, store_links=self._config.store_links)
            rows.append((stripe, row, page, raw))
            held_bytes += len(page.body) + found.body_bytes + sum(map(len, page.items))
            self._outlinks.collect(page, found)
            if self._outlinks.is_full:
                self._count_admitted(await self._outlinks.admit())
            if held_bytes >= _HELD_BYTES:
                failures += self._write(rows)
                held_bytes = 0
        # Before the commit acknowledges the pages: a crash in between would lose the links.
        self._count_admitted(await self._outlinks.admit())
        failures += self._write(rows)
        for failure in failures:
            await self._fail(*failure)

    async def _admit_spilled(self, idle: bool) -> bool:
        """Admit links that wait on this disk; returns whether any were tried."""
        admitted = await self._outlinks.admit_spilled(is_idle=idle)
        self._count_admitted(admitted or 0)
        return admitted is not None

    def _count_admitted(self, admitted: int) -> None:
        self._links += admitted
        self._metrics.links_admitted += admitted

    def _write(self, rows: list[_Row]) -> list[_Failure]:
        """Move *rows* into the open segments; return those that cannot be stored."""
        failures = []
        for stripe, row, page, raw in rows:
            intake = self._intakes[stripe]
            try:
                intake.segment.append(row, page)
            except ValueError as exc:
                failures.append(self._failure(stripe, raw, page, exc))
            else:
                intake.counts["cut"] += row is not None and row.truncated
                intake.counts["items"] += len(page.items)
        rows.clear()
        return failures

    def _failure(self, stripe: Stripe, raw: bytes, page: Page | None, error: Exception) -> _Failure:
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            what = "took more memory than CRAWL_PARSER_MEMORY"
        letter = DeadLetter.of(raw, page.url if page else "", what, self._name)
        return stripe, raw, letter, self._config.page_attempts if page else 1

    async def _fail(self, stripe: Stripe, raw: bytes, letter: DeadLetter, attempts: int) -> None:
        self._errors += 1
        self._metrics.parse_errors += 1
        is_dead = await self._queue.fail(self._name, raw, letter, attempts, stripe)
        if is_dead:
            self._metrics.dead_letters += 1
            await self._dead_letters.make_room(self._config.dead_letter_bytes)
        what = "page is a dead letter" if is_dead else "page failed, will be retried"
        logger.warning("%s: %s, %s", what, letter.url or letter.page, letter.error)

    async def _due(self, idle: bool) -> list[Intake]:
        """Return the open segments to commit now."""
        due = [intake for intake in self._intakes if intake.is_due(self._config)]
        if due or not idle:
            return due
        if await self._outlinks.room.is_short():
            # Their pages take room in Redis until then.
            return list(self._intakes)
        seen, self._commits_seen = self._commits_seen, await self._commits_asked()
        return list(self._intakes) if seen != self._commits_seen else []

    async def _commit(self, intakes: Iterable[Intake]) -> None:
        spill = self._outlinks.spill
        # It has links of the pages in all of them, and is recorded with each.
        due, links = list(self._intakes if spill.is_open else intakes), spill.seal()
        for intake in due:
            await self._commit_segment(intake, links, intake is due[-1])
        if spill.is_open:
            await self._queue.record_spill(links)
            spill.forget()

    async def _commit_segment(self, intake: Intake, links: tuple[str, str], is_last: bool) -> None:
        async def record(name: str, count: int) -> None:
            counters = {"stored": count, "links": 0, **self._link_counts, **intake.counts}
            where = SegmentRecord(count, self._process.host, self._where, intake.segment.marks)
            await self._queue.commit(self._name, name, count, counters, links, where, intake.stripe)
            self._pages += count
            if is_last:
                self._outlinks.spill.forget()

        await beating(intake.segment.commit(record), self._beat, self._config.shard_lease_seconds / 6)
        self._link_counts.clear()
        intake.counts.clear()

    async def _start_over(self, reason: Exception) -> None:
        """Begin again with the pages that Redis says are ours: some were reclaimed, or Redis was set back.

        Links of the pages parsed so far may be lost, and so may the records of published segments.
        """
        self._abandon_segment(reason)
        await self._queue.abandon(self._name)
        self._rename()
        await self._begin()

    def _rename(self) -> None:
        """Continue under another name: no late message can give the old one pages."""
        self._restarts += 1
        self._name = name_after(self._restarts, self._first_name)
        self._intakes.start_over(self._name)
        self._outlinks.spill.start_over(self._name)
        self._reading.start_over()

    async def _begin(self) -> None:
        """Take what Redis holds now for what we know, and clean up what dead parsers left."""
        self._queue.generation = self._client.generation
        self._outlinks.start_over(self._client.generation)
        try:
            await self._outlinks.readmit()
            await self._send_heartbeat()
            await self._recover()
        except StoreUnavailable as exc:
            await self._wait_for_storage(exc)

    def _abandon_segment(self, reason: Exception) -> None:
        """Drop the open segments: their pages are back in the queue, or will be."""
        logger.warning("segment abandoned: %s", reason)
        self._intakes.discard()
        self._outlinks.discard_spilled()
        self._link_counts.clear()

    async def _wait_for_storage(self, reason: StoreUnavailable) -> None:
        """Return all pages to the queue and take none until they can be stored."""
        logger.error("pages cannot be stored, waiting: %s", reason)
        self._store_error = str(reason)
        self._abandon_segment(reason)
        await self._queue.leave(self._name)
        self._rename()
        while not self.is_stopping:
            await asyncio.sleep(_STORAGE_CHECK_S)
            try:
                await self._send_heartbeat()
                await self._intakes.check_room()
                # Segments of dead parsers could not be recovered, either.
                await self._recover()
            except StoreUnavailable:
                continue
            except Fenced:
                await self._queue.abandon(self._name)
                self._rename()
                continue
            self._store_error = ""
            logger.warning("pages can be stored again")
            return

    async def _heartbeat_when_due(self) -> None:
        if self._clock() - self._heartbeat_s >= self._config.shard_lease_seconds / 6:
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        lease_s = self._config.shard_lease_seconds
        late = lease_s / 2 < self._clock() - self._heartbeat_s < float("inf")
        now_ms = await self._beat()
        if late:
            # After an outage of Redis or a suspended machine all are late; the first to wake must not judge.
            return
        # A parser with a slow page misses heartbeats, but is not dead.
        silent_s = lease_s + self._config.parse_seconds
        dead = await self._queue.reclaim_dead(now_ms, int(silent_s * 1000))
        for parser, pages in dead.items():
            logger.warning("parser %s is dead, its %d pages are back in the queue", parser, pages)
        if dead:
            await self._recover()

    async def _beat(self) -> int:
        """Send a heartbeat; returns its time."""
        now_ms = await self._queue.now_ms()
        self._redis_clock.note(now_ms)
        await self._queue.heartbeat(self._name, now_ms, self._process, **self._figures())
        self._heartbeat_s = self._clock()
        return now_ms

    def _figures(self) -> dict[str, object]:
        """What the heartbeat reports: totals since the start, and the last batch."""
        return self._heartbeat.beat(
            self._pages + self._intakes.rows, links=self._links, errors=self._errors, batch=self._batch
        ) | {"short_of_room": self._outlinks.room.was_short, "waits_for_store": self._store_error}

    async def _recover(self) -> None:
        await self._recovery.run(self._queue)
        # Pages that killed their parser became dead letters without it.
        await self._dead_letters.make_room(self._config.dead_letter_bytes)
        await self._outlinks.spilled.remove_abandoned(self._queue.parsers)

    async def _log_when_due(self) -> None:
        pages, now_s = self._pages + self._intakes.rows, self._clock()
        if pages > self._logged_pages and now_s - self._logged_s >= self._config.figures_seconds:
            await self._log_progress("parser", pages - self._logged_pages, now_s - self._logged_s)
            self._logged_s, self._logged_pages = now_s, pages

    async def _log_progress(self, what: str, pages: int, seconds: float) -> None:
        logger.info(
            "%s: %d pages, %.1f pages/s, %d new links, %d errors, %d pages in the queue, %d in a batch",
            what,
            self._pages + self._intakes.rows,
            pages / max(seconds, 0.001),
            self._links,
            self._errors,
            await self._queue.length(),
            self._batch,
        )
