"""The record of a committed segment: what it holds, and on which disk its files were written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FileMark:
    """What a file must be: its size and its SHA-256, as `sha256sum` prints it."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment; the key of the record is its name."""

    pages: int
    #: The machine that wrote it; '' if an earlier release did.
    host: str = ""
    #: The data directory there, or the address of the object store.
    data: str = ""
    #: By their paths in the directory of the run.
    files: Mapping[str, FileMark] = field(default_factory=dict)

    @classmethod
    def decode(cls, text: str) -> SegmentRecord:
        """Read a record; one of an earlier release has only the number of pages."""
        pages, _, rest = text.partition(" ")
        if not rest:
            return cls(int(pages))
        host, data, files = json.loads(rest)
        return cls(int(pages), host, data, {name: FileMark(*mark) for name, mark in files.items()})

    def encode(self) -> str:
        if not self.files:
            return str(self.pages)
        files = {name: [mark.bytes, mark.sha256] for name, mark in self.files.items()}
        return f"{self.pages} {json.dumps([self.host, self.data, files], separators=(',', ':'))}"


@dataclass(frozen=True, slots=True)
class Absent:
    """The segments of a run that are not in the directories at hand."""

    records: Mapping[str, SegmentRecord]
    segments: int
    pages: int

    @classmethod
    def of(cls, recorded: Mapping[str, SegmentRecord], here: Collection[str]) -> Absent:
        """Return what is *recorded* and not *here*, the names of the segments at hand."""
        records = {name: record for name, record in recorded.items() if name not in here}
        return cls(records, len(recorded), sum(record.pages for record in recorded.values()))

    @property
    def absent_pages(self) -> int:
        return sum(record.pages for record in self.records.values())

    @property
    def origins(self) -> dict[tuple[str, str], int]:
        """Pages by host and data directory, the most first."""
        pages: Counter[tuple[str, str]] = Counter()
        for record in self.records.values():
            pages[record.host, record.data] += record.pages
        return dict(pages.most_common())

    def lines(self) -> list[str]:
        """Return a line for each place that the absent segments were written to."""
        return [
            f"missing: {pages:,} pages, written to {host or 'an unknown host'}:{data or '?'}"
            for (host, data), pages in self.origins.items()
        ]

    def sentence(self) -> str:
        """Return what is absent and where it was written; '' if nothing is."""
        if not self.records:
            return ""
        hosts = sorted({host or "unknown" for host, _ in self.origins})
        return (
            f"{len(self.records):,} of {self.segments:,} segments, {self.absent_pages:,} of {self.pages:,} "
            f"pages, are not here: they were written on host{'s' if len(hosts) > 1 else ''} "
            f"{' and '.join([', '.join(hosts[:-1])] * bool(hosts[:-1]) + hosts[-1:])}."
        )
