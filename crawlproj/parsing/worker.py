"""A parser: takes pages from the queue, reads them, admits their links, and stores them.

Pages are acknowledged by the commit of the segment they are in and their links are admitted before, so a
parser may be killed at any moment: its pages come again, and links admitted twice are admitted once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from crawlproj.config import Config
from crawlproj.errors import BadEnvelope, Fenced, StoreUnavailable
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate, Page
from crawlproj.model.route import Route
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import ProcessFigures
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.pages.envelope import unpack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.dates import in_utc
from crawlproj.parsing.extract import Extract, ExtractOptions, extract
from crawlproj.parsing.extractor import Extractor, ExtractorFailed
from crawlproj.parsing.guard import TimeLimit
from crawlproj.parsing.known import KnownLinks
from crawlproj.redisio.names import ProcessName
from crawlproj.storage.row import PageRow
from crawlproj.storage.segments import SegmentWriter, recover, unfinished

logger = logging.getLogger(__name__)

#: How long one look at an empty queue takes: also how late a stop or the end may be noticed.
_IDLE_S = 1.0
#: The same for so many looks where the end is likely.
_SOON_S, _LOOKS_SOON = 0.2, 10
#: How often a parser that cannot write looks whether it can again.
_ROOM_LOOK_S = 1.0
#: How many links that look like traps are kept from the pages of one batch; all are counted.
_MOST_TRAPS = 200
#: How far sitemaps may name sitemaps: an index of indexes, and no further.
_MOST_SITEMAP_LEVELS = 3
#: A batch of pages waits for its links to be admitted together, but not a batch of sitemaps.
_CANDIDATES_AT_ONCE = 10_000
#: Nor does a batch of large pages wait to be written together: what they have in memory, bodies and texts.
_HELD_BYTES = 16_000_000

#: A page that could not be read, its dead letter, and how often it may be tried.
_Failure = tuple[bytes, DeadLetter, int]


def new_parser_name(name: str = "") -> str:
    """Return a name no other parser ever had: *name* or the host's, the process, a random part."""
    readable = re.sub(r"[^A-Za-z0-9_.]+", "_", name or socket.gethostname())[:40]
    return f"{readable}-{os.getpid()}-{secrets.token_hex(4)}"


async def _never_asked() -> int:
    return 0


def dead_letter(raw: bytes, page: Page | None, error: str, parser: str) -> DeadLetter:
    """Return the dead letter that *raw* may become. A damaged record is named by its hash."""
    name = f"{page.partition}:{page.lease}" if page else blake2b(raw, digest_size=8).hexdigest()
    return DeadLetter(name, page.url if page else "", error[:2000], parser, int(time.time() * 1000))


class Parser:
    """One parser process. *is_over* tells whether the run has ended, so that an empty queue stays empty.

    *commits_asked* gives a number that grows when the open segment is all that the run waits for.
    *time_limit* ends the process when a page takes too long; with *extractor* another process reads the
    pages, and this one goes on.
    """

    def __init__(
        self,
        *,
        name: str,
        queue: PageQueue,
        frontier: Frontier,
        directory: Path,
        config: Config,
        is_over: Callable[[], Awaitable[bool]],
        commits_asked: Callable[[], Awaitable[int]] = _never_asked,
        time_limit: TimeLimit | None = None,
        extractor: Extractor | None = None,
        metrics: Metrics | None = None,
        figures: ProcessFigures | None = None,
        on_commit_step: Callable[[str], None] = lambda step: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._process = ProcessName.of_this()
        self._process_figures = figures or ProcessFigures(clock)
        self._metrics = metrics or Metrics()
        self._queue = queue
        self._frontier = frontier
        self._directory = directory
        self._config = config
        self._extract_options = ExtractOptions.from_config(config)
        self._rules, self._exclusions = load_rules(config)
        self._known = KnownLinks()
        self._known_of: tuple[bytes, int] | None = None
        self._is_over = is_over
        self._commits_asked = commits_asked
        self._commits_seen = 0
        self._time_limit = time_limit
        self._extractor = extractor
        self._clock = clock
        self._segment = SegmentWriter(directory, name, config.page_store, clock=clock, on_step=on_commit_step)
        #: What the run counts of the pages in the open segment: links admitted and refused, pages cut.
        self._segment_counts: Counter[str] = Counter()
        #: Links of the pages at hand that look like traps: depth and reason.
        self._traps: dict[str, tuple[int, str]] = {}
        self.is_stopping = False
        self._beaten_s = float("-inf")
        self._started_s = self._told_s = clock()
        self._told_pages = 0
        self._pages = 0
        self._batch = 0
        self._links = 0
        self._errors = 0

    @property
    def heartbeat_age_s(self) -> float:
        return self._clock() - self._beaten_s

    def stop(self) -> None:
        """Ask it to finish the pages at hand, commit, and leave."""
        self.is_stopping = True

    async def run(self) -> None:
        """Work until the run is over or `stop` was called. Nothing is held then.

        Leaves its pages behind if it raises or is cancelled: they are taken back when it has been
        silent for CRAWL_SHARD_LEASE_SECONDS.
        """
        logger.info("parser %s started, pages go to %s", self._name, self._directory)
        try:
            await self._beat()
            await self._recover()
        except StoreUnavailable as exc:
            await self._wait_for_room(exc)
        # Idle until its first page: the connection that waits is opened now, not in the middle of a crawl.
        over, idle, soon = False, True, 0
        while not self.is_stopping:
            try:
                await self._beat_when_due()
                wait_s = 0.0 if over or not idle else _SOON_S if soon else _IDLE_S
                soon = max(0, soon - 1)
                pages = await self._queue.take(self._name, self._config.parse_batch, wait_s)
                self._batch = len(pages) or self._batch
                await self._parse(pages)
                idle = not pages
                if self._segment.rows and (over or await self._must_commit(idle)):
                    await self._commit()
                    # Those that commit for want of pages are often at the end of the run.
                    soon = _LOOKS_SOON if idle else 0
                elif idle and over:
                    break
                elif idle:
                    # Then one look more: pages may have come until it was over.
                    over = await self._is_over()
            except Fenced as exc:
                self._begin_anew(exc)
            except StoreUnavailable as exc:
                await self._wait_for_room(exc)
            await self._tell_when_due()
        try:
            await self._commit()
        except (Fenced, StoreUnavailable) as exc:
            self._begin_anew(exc)
        await self._queue.leave(self._name)
        self._process_figures.close()
        what = "parser stopped" if self.is_stopping else "parser ended, the run is over"
        await self._tell(what, self._pages, self._clock() - self._started_s)

    async def _parse(self, raw_pages: list[bytes]) -> None:
        rows: list[tuple[PageRow, Page, bytes]] = []
        held_bytes = 0
        failures: list[_Failure] = []
        candidates: dict[str, Candidate] = {}
        self._forget_if_changed()
        # The list of this parser: what is in the open segment, then these pages.
        first, taken_s = self._segment.rows, time.time()
        for number, raw in enumerate(raw_pages):
            await self._beat_when_due()
            try:
                begun_s = time.perf_counter()
                page, found = self._read(raw, first + number)
                self._metrics.parse_seconds.add(time.perf_counter() - begun_s)
            except BadEnvelope as exc:
                # Nothing will make it better.
                failures.append((raw, self._letter(raw, None, exc), 1))
                continue
            except ExtractorFailed:
                raise
            except Exception as exc:  # noqa: BLE001  # one bad page must not stop the others
                failures.append((raw, self._letter(raw, unpack(raw), exc), self._config.page_attempts))
                continue
            if found.error or page.sitemap_level:
                # A format that stores what the server sent would keep the words all the same; and a batch
                # of sitemaps, 50 MB each, would not fit into memory.
                page.body = b""
            self._metrics.pages_parsed += 1
            self._metrics.page_queue_seconds.add(max(0.0, taken_s - page.fetched_at_ms / 1000))
            rows.append((self._row(page, found), page, raw))
            held_bytes += len(page.body) + found.body_bytes
            self._collect(page, found, candidates)
            if len(candidates) >= _CANDIDATES_AT_ONCE:
                await self._admit(candidates)
            if held_bytes >= _HELD_BYTES:
                failures += self._write(rows)
                held_bytes = 0
        # Before the commit acknowledges the pages, or a crash in between would lose the links.
        await self._admit(candidates)
        failures += self._write(rows)
        for raw, letter, attempts in failures:
            await self._fail(raw, letter, attempts)

    def _write(self, rows: list[tuple[PageRow, Page, bytes]]) -> list[_Failure]:
        """Move *rows* into the open segment; return those that no format can hold."""
        failures = []
        for row, page, raw in rows:
            try:
                self._segment.append(row, page)
            except ValueError as exc:
                failures.append((raw, self._letter(raw, page, exc), self._config.page_attempts))
            else:
                self._segment_counts["cut"] += row.truncated
        rows.clear()
        return failures

    def _forget_if_changed(self) -> None:
        """Ask for every link anew when the rules, the run or what Redis holds may be others than before."""
        are_others = self._exclusions is not None and self._exclusions.reload_if_changed(self._clock())
        known_of = self._queue.run_created, self._frontier.door.breaks
        if are_others or known_of != self._known_of:
            self._known.clear()
            self._known_of = known_of

    def _collect(self, page: Page, found: Extract, candidates: dict[str, Candidate]) -> None:
        """Add what *page* links to to *candidates*, as far as the rules have it; count what they refuse."""
        if found.sitemaps and page.sitemap_level < _MOST_SITEMAP_LEVELS:
            extra = Route(sitemap_level=page.sitemap_level + 1).encode()
            for url in found.sitemaps:
                # Judged as seeds are: sitemap.xml.gz ends like a file that nobody reads.
                if reason := self._rules.refusal(url, 0, None):
                    self._segment_counts[f"filtered:{reason}"] += 1
                else:
                    candidates[url] = Candidate(url, page.depth, extra=extra)
        if found.refresh is not None:
            self._collect_refresh(page, found.refresh, candidates)
        # What a site lists is as near as what its front page links to.
        depth, refusal = 1 if page.sitemap_level else page.depth + 1, self._rules.refusal
        accepted = self._rules.still_accepted(depth, page.url)
        for link in found.links if accepted is None else self._known.unknown(found.links, accepted):
            # The same link at two depths: the smaller one counts.
            known = candidates.get(link)
            if known is not None and known.depth <= depth:
                continue
            if reason := refusal(link, depth, page.url):
                self._segment_counts[f"filtered:{reason}"] += 1
                if reason.startswith("trap_") and len(self._traps) < _MOST_TRAPS:
                    self._traps[link] = depth, reason
            else:
                candidates[link] = Candidate(link, depth)

    def _collect_refresh(self, page: Page, target: str, candidates: dict[str, Candidate]) -> None:
        """Add where *page* moves its reader to: judged and limited as where a server redirects to."""
        known = candidates.get(target)
        if known is not None and known.depth <= page.depth:
            return
        reason = "redirects" if page.hops >= self._config.max_redirects else None
        if reason := reason or self._rules.refusal(target, page.depth, page.url):
            self._segment_counts[f"filtered:{reason}"] += 1
        else:
            extra = Route(page.hops).onward(page.url).encode()
            candidates[target] = Candidate(target, page.depth, extra=extra)

    async def _admit(self, candidates: dict[str, Candidate]) -> None:
        if candidates:
            admitted = (await self._frontier.admit(candidates.values())).new
            self._links += admitted
            self._metrics.links_admitted += admitted
            self._segment_counts["links"] += admitted
            self._known.add(candidates)
            candidates.clear()
        if self._traps:
            await self._frontier.trap(self._traps)
            self._traps.clear()

    def _read(self, raw: bytes, position: int) -> tuple[Page, Extract]:
        """Return a page and what it says. One that takes too long takes the process that reads it with it."""
        if self._extractor is not None:
            return unpack(raw), self._extractor.extract(raw)
        if self._time_limit is None:
            page = unpack(raw)
            return page, extract(page, self._extract_options)
        self._time_limit.start(position)
        try:
            page = unpack(raw)
            return page, extract(page, self._extract_options)
        finally:
            self._time_limit.stop()

    def _letter(self, raw: bytes, page: Page | None, error: Exception) -> DeadLetter:
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            what = "took more memory than CRAWL_PARSER_MEMORY"
        return dead_letter(raw, page, what, self._name)

    async def _fail(self, raw: bytes, letter: DeadLetter, attempts: int) -> None:
        self._errors += 1
        self._metrics.parse_errors += 1
        is_dead = await self._queue.fail(self._name, raw, letter, attempts)
        self._metrics.dead_letters += is_dead
        what = "page is a dead letter now" if is_dead else "page failed, it is tried again"
        logger.warning("%s: %s, %s", what, letter.url or letter.page, letter.error)

    def _row(self, page: Page, found: Extract) -> PageRow:
        return PageRow(
            url=page.url,
            final_url=page.url,
            redirected_from=page.redirected_from or None,
            canonical_url=found.canonical_url,
            domain=page.domain,
            depth=page.depth,
            status=page.status,
            fetched_at=datetime.fromtimestamp(page.fetched_at_ms / 1000, UTC),
            latency_ms=page.latency_ms,
            content_type=found.content_type,
            charset=found.charset,
            language=found.language,
            title=found.title,
            description=found.description,
            text=found.text,
            text_source=found.text_source,
            full_text=found.full_text,
            headings=found.headings,
            published=in_utc(found.metadata.published),
            modified=in_utc(found.metadata.modified),
            author=found.metadata.author,
            site_name=found.metadata.site_name,
            kind=found.metadata.kind,
            image=found.metadata.image,
            paywalled=found.metadata.paywalled,
            links=len(found.links),
            link_urls=found.links if self._config.store_links else None,
            body_bytes=found.body_bytes,
            truncated=found.truncated,
            content_hash=found.content_hash,
            simhash=found.simhash,
            shard=page.shard,
            attempt=page.attempt,
            error=page.error or found.error,
            fields=found.fields or None,
        )

    async def _must_commit(self, idle: bool) -> bool:
        config, segment = self._config, self._segment
        if segment.rows >= config.segment_pages or segment.bytes >= config.segment_bytes:
            return True
        if segment.age_s >= config.segment_seconds:
            return True
        if not idle:
            return False
        asked, seen = await self._commits_asked(), self._commits_seen
        self._commits_seen = asked
        return asked != seen

    async def _commit(self) -> None:
        rows, counts = self._segment.rows, self._segment_counts

        async def record(segment: str, count: int) -> None:
            await self._queue.commit(self._name, segment, count, {"stored": count, "links": 0, **counts})

        await self._segment.commit(record)
        self._pages += rows
        counts.clear()

    def _begin_anew(self, reason: Exception) -> None:
        """Drop what others now do: the pages of the open segment went back to the queue, or will."""
        logger.warning("segment given up: %s", reason)
        self._segment.discard()
        self._segment_counts.clear()
        self._queue.forget(self._name)

    async def _wait_for_room(self, reason: StoreUnavailable) -> None:
        """Give all pages back and take none until they can be written again."""
        logger.error("no pages are taken until they can be stored: %s", reason)
        self._segment.discard()
        self._segment_counts.clear()
        await self._queue.leave(self._name)
        while not self.is_stopping:
            await asyncio.sleep(_ROOM_LOOK_S)
            try:
                await self._beat()
                self._segment.check_room()
                # What a dead parser left could not be cleared up, either.
                await self._recover()
            except StoreUnavailable:
                continue
            logger.warning("pages can be stored again")
            return

    async def _beat_when_due(self) -> None:
        if self._clock() - self._beaten_s >= self._config.shard_lease_seconds / 6:
            await self._beat()

    async def _beat(self) -> None:
        lease_s = self._config.shard_lease_seconds
        late = lease_s / 2 < self._clock() - self._beaten_s < float("inf")
        now_ms = await self._queue.now_ms()
        await self._queue.heartbeat(self._name, now_ms, self._process, **self._figures())
        self._beaten_s = self._clock()
        if late:
            # When Redis was away or the machine slept, all are late; whoever wakes first must not judge.
            return
        # One that reads a slow page is silent, but not dead.
        silent_s = lease_s + self._config.parse_seconds
        dead = await self._queue.take_back_dead(now_ms, int(silent_s * 1000))
        for parser, pages in dead.items():
            logger.warning("parser %s is dead, its %d pages are taken back", parser, pages)
        if dead:
            await self._recover()

    def _figures(self) -> dict[str, object]:
        """What the heartbeat tells of this parser: since its start, and of its last batch."""
        return self._process_figures.tell(
            self._pages + self._segment.rows, links=self._links, errors=self._errors, batch=self._batch
        )

    async def _recover(self) -> None:
        # In this order; see `recover`.
        parts = unfinished(self._directory)
        if parts:
            living = await self._queue.parsers()
            recover(parts, living, await self._queue.segments())

    async def _tell_when_due(self) -> None:
        pages, now_s = self._pages + self._segment.rows, self._clock()
        if pages > self._told_pages and now_s - self._told_s >= self._config.figures_seconds:
            await self._tell("parser", pages - self._told_pages, now_s - self._told_s)
            self._told_s, self._told_pages = now_s, pages

    async def _tell(self, what: str, pages: int, seconds: float) -> None:
        logger.info(
            "%s: %d pages, %.1f pages/s, %d new links, %d errors, %d pages in the queue, %d in a batch",
            what,
            self._pages + self._segment.rows,
            pages / max(seconds, 0.001),
            self._links,
            self._errors,
            await self._queue.length(),
            self._batch,
        )


async def run_until_signal(parser: Parser, drain_s: float) -> None:
    """Run *parser*; SIGTERM and SIGINT stop it, within *drain_s* even if Redis is away."""
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(parser.run(), name="parser")

    def stop() -> None:
        parser.stop()
        loop.call_later(drain_s, running.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        if not parser.is_stopping:
            raise
        logger.warning("parser did not come to an end within %g s; its pages are taken back later", drain_s)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
