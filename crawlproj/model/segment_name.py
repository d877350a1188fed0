"""The names of segments, and what they say: who wrote them, for which run, and whether they were merged."""

from __future__ import annotations

import re

#: Parser, run and number; files of earlier releases name no run. Withdrawn ones do not match.
_NAME = re.compile(
    r"(?P<base>(?P<parser>.+?)(?:-r(?P<run>[0-9a-f]+))?-\d{6,})\.[^/]+?(?P<part>\.part)?(?<!\.withdrawn)"
)
#: The number of a merged segment is the time at which the last of its pages was written (ms).
_MERGED = re.compile(r"merged-[0-9a-f]+-r[0-9a-f]+-(?P<written_ms>\d{6,})")


def segment_of(file: str) -> str:
    """Return the name of the segment that a file is of, renamed or not; '' for any other file."""
    match = _NAME.fullmatch(file)
    return match["base"] if match else ""


def parser_of(file: str) -> str:
    """Return the name of the parser that has written a file; '' for any other file."""
    match = _NAME.fullmatch(file)
    return match["parser"] if match else ""


def is_part(file: str) -> bool:
    """Whether a file of a segment is not renamed yet."""
    match = _NAME.fullmatch(file)
    return match is not None and bool(match["part"])


def is_of_run(file: str, run_id: int) -> bool:
    match = _NAME.fullmatch(file)
    return match is not None and match["run"] == f"{run_id:x}"


def is_foreign(file: str, run_id: int) -> bool:
    """Whether a committed file is of another run of the same name."""
    match = _NAME.fullmatch(file)
    return match is not None and match["run"] not in (None, f"{run_id:x}") and not match["part"]


def merged_name(token: str, run_id: int, written_ms: int) -> str:
    return f"merged-{token}-r{run_id:x}-{written_ms:06d}"


def merged_ms(segment: str) -> int | None:
    """Return when the last page of a merged segment was written; None for any other."""
    match = _MERGED.fullmatch(segment)
    return int(match["written_ms"]) if match else None


def note_of(segment: str) -> str:
    """Return the path of the note of a merged segment, in the directory of its run."""
    return f"merges/{segment}.json"
