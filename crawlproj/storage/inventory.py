"""Compares the files of a run with the records of its segments. No Redis."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.model.segment import FileMark, SegmentRecord
from crawlproj.model.segment_name import segment_of
from crawlproj.storage.objects import Place, open_file
from crawlproj.storage.partfile import is_published
from crawlproj.storage.reader import read_note

#: Where the files of segments are, in the directory of a run; `merges` has the notes of merged ones.
FOLDERS = ("pages", "items", "merges")
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Findings:
    """What `check` has found."""

    #: Files that are what their record says.
    good: int = 0
    #: Segments of earlier releases, whose records name no files.
    unmarked: int = 0
    #: Files that are not what their record says, and why.
    damaged: dict[Place, str] = field(default_factory=dict)
    #: Files that no record names: of another run, or of one that was set back.
    foreign: list[Place] = field(default_factory=list)
    #: Copies of files that have been merged since: readers leave them out.
    replaced: list[Place] = field(default_factory=list)
    #: The segments that are complete here.
    here: set[str] = field(default_factory=set)


def present(directories: Iterable[Place], recorded: Mapping[str, SegmentRecord]) -> set[str]:
    """Return the segments that have all their files in these directories of a run, by name only."""
    files = {f"{file.parent.name}/{file.name}" for file in _files(directories)}
    some = {segment_of(Path(file).name) for file in files}
    return {name for name, record in recorded.items() if name in some and files.issuperset(record.files)}


def check(directories: Sequence[Place], recorded: Mapping[str, SegmentRecord]) -> Findings:
    """Read every file of these directories of a run, and compare it with its record.

    A segment that was recorded after *recorded* was read looks foreign: read again before you say so.
    """
    findings = Findings()
    places: dict[str, list[Place]] = {}
    unknown = []
    for file in _files(directories):
        segment = segment_of(file.name)
        if segment in recorded:
            places.setdefault(f"{file.parent.name}/{file.name}", []).append(file)
        else:
            unknown.append(file)
    replaced = _replaced(directories, recorded)
    for file in unknown:
        (findings.replaced if segment_of(file.name) in replaced else findings.foreign).append(file)
    for name, record in recorded.items():
        if not record.files:
            if any(segment_of(Path(path).name) == name for path in places):
                findings.unmarked += 1
                findings.here.add(name)
            continue
        states = [_is_here(places.get(path, []), mark, findings) for path, mark in record.files.items()]
        if all(states):
            findings.here.add(name)
    return findings


def difference(file: Place, mark: FileMark) -> str:
    """Return why *file* is not what *mark* says; '' if it is. Raises FileNotFoundError."""
    digest = hashlib.sha256()
    with open_file(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        if size != mark.bytes:
            return f"{size:,} bytes, recorded were {mark.bytes:,}"
        opened.seek(0)
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
    return "" if digest.hexdigest() == mark.sha256 else "its content is not what was recorded"


def _is_here(copies: Sequence[Place], mark: FileMark, findings: Findings) -> bool:
    """Compare all *copies* of one file; returns whether one of them is good."""
    good = False
    for copy in copies:
        try:
            wrong = difference(copy, mark)
        except FileNotFoundError:
            # Merged since, and deleted.
            continue
        if wrong:
            findings.damaged[copy] = wrong
        else:
            findings.good += 1
            good = True
    return good


def _replaced(directories: Iterable[Place], recorded: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Return the segments that *recorded* ones have been merged from, by the notes that are here."""
    names = [file for record in recorded.values() for file in record.files if file.startswith("merges/")]
    notes = (read_note(directory / name) for directory in directories for name in names)
    return frozenset().union(*(note.all_replaced for note in notes if note))


def _files(directories: Iterable[Place]) -> Iterator[Place]:
    for directory in directories:
        for folder in FOLDERS:
            if (directory / folder).is_dir():
                files: Iterable[Place] = (directory / folder).iterdir()
                for file in sorted(files, key=str):
                    if is_published(file.name):
                        yield file
