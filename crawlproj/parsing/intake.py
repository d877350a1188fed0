"""The open segments of a parser: one, or in a Redis Cluster one for each stripe whose pages it holds.

A segment never holds pages of two stripes: then one step in one slot acknowledges its pages and records it.
Each holds at most a row group in memory, so all together are bounded as well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.redisio.keys import Stripe
from crawlproj.storage.segments import Destination, SegmentWriter


@dataclass
class Intake:
    stripe: Stripe
    segment: SegmentWriter
    #: Counters of the run that the open segment will add to: pages truncated, items.
    counts: Counter[str] = field(default_factory=Counter)

    def is_due(self, config: Config) -> bool:
        """Whether the open segment is full, or old enough."""
        segment = self.segment
        is_full = segment.rows >= config.segment_pages or segment.bytes >= config.segment_bytes
        return is_full or segment.age_s >= config.segment_seconds


class Intakes:
    """Those of one parser, by stripe."""

    def __init__(
        self,
        paths: RunPaths,
        parser: str,
        config: Config,
        run_id: int,
        destination: Destination | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._parser, self._formats = paths, parser, config.page_store
        self._run_id, self._destination, self._clock = run_id, destination, clock
        # One series of numbers: the names of segments differ.
        self._numbers = count(1)
        self._of: dict[Stripe, Intake] = {}

    def __getitem__(self, stripe: Stripe) -> Intake:
        if stripe not in self._of:
            self._of[stripe] = Intake(stripe, self._writer())
        return self._of[stripe]

    def __iter__(self) -> Iterator[Intake]:
        """Iterate over those with pages in them."""
        return iter([intake for intake in self._of.values() if intake.segment.rows])

    def numbered(self, pages: Sequence[tuple[Stripe, bytes]]) -> Iterator[tuple[Stripe, bytes, int]]:
        """Yield each page with its position in this parser's list: behind those of the open segment."""
        next_ = {stripe: self[stripe].segment.rows for stripe, _ in pages}
        for stripe, raw in pages:
            yield stripe, raw, next_[stripe]
            next_[stripe] += 1

    @property
    def all(self) -> list[Intake]:
        """Also those without pages: files of theirs may be published late."""
        return list(self._of.values())

    @property
    def rows(self) -> int:
        """Pages in all open segments."""
        return sum(intake.segment.rows for intake in self._of.values())

    def discard(self) -> None:
        for intake in self._of.values():
            intake.segment.discard()
            intake.counts.clear()

    def start_over(self, parser: str) -> None:
        """As `SegmentWriter.start_over`."""
        self._parser = parser
        for intake in self._of.values():
            intake.segment.start_over(parser)

    async def check_room(self) -> None:
        """As `SegmentWriter.check_room`."""
        for segment in [intake.segment for intake in self._of.values()] or [self._writer()]:
            await segment.check_room()

    def _writer(self) -> SegmentWriter:
        return SegmentWriter(
            self._paths.pages,
            self._parser,
            self._formats,
            run_id=self._run_id,
            destination=self._destination,
            clock=self._clock,
            numbers=self._numbers,
        )
