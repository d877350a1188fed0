"""The note of a merge: which segments a merged one replaces. It is a file, kept as long as the segment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from crawlproj.model.segment import FileMark, SegmentRecord
from crawlproj.model.segment_name import note_of


@dataclass(frozen=True, slots=True)
class Merge:
    """The segment *name*, which replaces *replaced* since *at_ms*, by the clock of Redis."""

    name: str
    #: Without the note itself.
    record: SegmentRecord
    #: By name.
    replaced: Mapping[str, SegmentRecord]
    at_ms: int
    #: Of the records; see `redisio.keys`.
    stripe: int | None = None
    #: What the replaced ones had replaced.
    before: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """The path of the note in the directory of the run."""
        return note_of(self.name)

    @property
    def all_replaced(self) -> frozenset[str]:
        return self.before.union(self.replaced)

    @property
    def full_record(self) -> SegmentRecord:
        """Return the record with the note among the files: first, so that it is copied first."""
        note = self.encode()
        mark = FileMark(len(note), hashlib.sha256(note).hexdigest())
        return replace(self.record, files={self.file: mark, **self.record.files})

    @classmethod
    def decode(cls, data: bytes) -> Merge:
        """Raises ValueError or KeyError for what `encode` has not written."""
        note = json.loads(data)
        replaced = {name: SegmentRecord.decode(text) for name, text in note["replaced"].items()}
        record = SegmentRecord.decode(note["record"])
        before = frozenset(note["before"])
        return cls(note["name"], record, replaced, note["at_ms"], note["stripe"], before)

    def encode(self) -> bytes:
        note = {
            "name": self.name,
            "at_ms": self.at_ms,
            "stripe": self.stripe,
            "record": self.record.encode(),
            "replaced": {name: record.encode() for name, record in sorted(self.replaced.items())},
            "before": sorted(self.before),
        }
        return json.dumps(note, indent=1).encode() + b"\n"
