"""Copies segments of a run that other disks hold: from a directory, or from another machine with rsync.

Files are copied to a folder beside the pages, compared with their records, and only then moved to where they
are read. So it may be killed at any moment; what was copied is kept, and a file is there whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.model.segment import FileMark, SegmentRecord
from crawlproj.storage.inventory import FOLDERS, difference
from crawlproj.storage.items import ITEM_SINKS
from crawlproj.storage.objects import Place, is_address, place_of
from crawlproj.storage.partfile import sync_directory
from crawlproj.storage.places import RunPlace
from crawlproj.storage.sink import SINKS

#: ``host:directory`` or ``user@host:directory``, as rsync and scp take it.
_REMOTE = re.compile(r"(?P<host>[^/:\s-][^/:\s]*):(?P<directory>.+)")
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Gathered:
    """What came from one source."""

    files: int = 0
    bytes: int = 0
    #: Copied, but not what was recorded.
    damaged: list[str] = field(default_factory=list)
    #: Why nothing, or not all, could be copied.
    trouble: str = ""


def wanted_files(paths: RunPaths, recorded: Mapping[str, SegmentRecord]) -> dict[str, FileMark | None]:
    """Return the files of *recorded* segments that are not here, by their paths in the directory of the run.

    Without a mark, it is only known how they may be called: an earlier release has recorded the segment.
    """
    wanted: dict[str, FileMark | None] = {}
    for name, record in recorded.items():
        files: dict[str, FileMark | None] = {**record.files}
        if not files:
            files |= {f"pages/{name}{sink.suffix}": None for sink in SINKS.values()}
            files |= {f"items/{name}{sink.suffix}": None for sink in ITEM_SINKS.values()}
        wanted |= {file: mark for file, mark in files.items() if not (paths.directory / file).exists()}
    return wanted


def gather(source: str, paths: RunPaths, wanted: Mapping[str, FileMark | None]) -> Gathered:
    """Copy the files of *wanted* that *source* has, and check them: a store, or ``DIR`` or ``HOST:DIR``.

    Raises BadArgument when the source is neither, OSError when they cannot be written here.
    """
    stage = paths.directory / "gathering"
    for folder in FOLDERS:
        (stage / folder).mkdir(parents=True, exist_ok=True)
    gathered = Gathered()
    is_place = is_address(source) or Path(source).is_dir()
    if is_place:
        _copy_from_directory(RunPlace(place_of(source), paths.run).directory, stage, wanted)
    elif _REMOTE.fullmatch(source):
        _copy_from_machine(f"{source}/runs/{paths.run}/", stage, sorted(wanted), gathered)
    else:
        raise BadArgument(
            f"{source!r} is not a directory; give a store or a data directory, DIR or HOST:DIR."
        )
    for name, mark in wanted.items():
        if (staged := stage / name).exists():
            _accept(staged, paths.directory / name, mark, gathered)
    if not any(file for folder in FOLDERS for file in (stage / folder).iterdir()):
        shutil.rmtree(stage)
    return gathered


def _accept(staged: Path, final: Path, mark: FileMark | None, gathered: Gathered) -> None:
    """Move a file that was copied to where it is read, if it is what was recorded."""
    if mark is not None and (wrong := difference(staged, mark)):
        if staged.stat().st_size >= mark.bytes:
            # A shorter one is continued by the next call.
            staged.unlink()
        gathered.damaged.append(f"{final.name}: {wrong}")
        return
    gathered.files += 1
    gathered.bytes += staged.stat().st_size
    descriptor = os.open(staged, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    final.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(final)
    sync_directory(final.parent)


def _copy_from_directory(directory: Place, stage: Path, wanted: Mapping[str, FileMark | None]) -> None:
    for name, mark in wanted.items():
        if not (directory / name).exists():
            continue
        target = stage / name
        # Without a mark nobody could tell whether the two halves belong together.
        done = target.stat().st_size if mark and target.exists() else 0
        with (directory / name).open("rb") as source, target.open("ab" if done else "wb") as output:
            source.seek(done)
            shutil.copyfileobj(source, output, _CHUNK_BYTES)


def _copy_from_machine(source: str, stage: Path, names: Sequence[str], gathered: Gathered) -> None:
    command = ["rsync", "--times", "--partial", "--whole-file", "--files-from=-", source, f"{stage}/"]
    try:
        done = subprocess.run(
            command, input="\n".join(names), capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError:
        raise BadArgument(
            f"rsync is needed to copy from {source}, and is not installed here. Install it, or mount the "
            "directory and name it: scrapy gather DIR"
        ) from None
    lines = [line for line in done.stderr.splitlines() if "No such file or directory" not in line]
    # 23: some files are not there, which others may have.
    if done.returncode not in (0, 23) or (done.returncode == 23 and "change_dir" in done.stderr):
        gathered.trouble = lines[0] if lines else f"rsync ended with code {done.returncode}"
