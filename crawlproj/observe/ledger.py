"""The figures of processes on disk, so that counters go on after a restart and one process can tell of all.

One folder per run and host. Each process holds a place there: a lock, which the kernel takes from a process
that died, and a file of its last figures, replaced as a whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from crawlproj.observe.metrics import Snapshot

#: How many processes of a kind can tell their figures on one host: numbers are ports, too.
MOST_NUMBERS = 100
#: Somebody who looks whether we live holds our lock for a moment; then it is tried again.
_TRIES = 3
_TRY_AGAIN_S = 0.01
#: How long what a host told is kept when it tells nothing more.
_FORGET_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a process told last. ``is_live``: it is at work, so what it has, and not only counted, is true."""

    kind: str
    number: int
    snapshot: Snapshot
    is_live: bool


class Place:
    """The place of this process among those of its *kind* on this host. Made by `take_place`."""

    def __init__(self, folder: Path, kind: str, number: int, lock: int) -> None:
        self.kind = kind
        self.number = number
        self._lock = lock
        self._file = folder / f"{kind}-{number}.json"

    def load(self) -> Snapshot | None:
        """Return what was last saved here, perhaps by the process before us."""
        return _read(self._file)

    def save(self, snapshot: Snapshot) -> None:
        """Replace what is saved; who reads meanwhile finds the old or the new, whole. Raises OSError."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(snapshot), separators=(",", ":")))
        new.replace(self._file)

    def leave(self) -> None:
        """Give the place up. What was counted stays."""
        os.close(self._lock)


def take_place(folder: Path, kind: str, number: int | None = None) -> Place | None:
    """Take the place of *number*, or the first that is free; None when it is taken. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for candidate in range(MOST_NUMBERS) if number is None else (number,):
        lock = try_lock(folder / f"{kind}-{candidate}.lock")
        if lock is not None:
            return Place(folder, kind, candidate, lock)
    return None


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock at *path* until it is closed; None when another has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if left:
                time.sleep(_TRY_AGAIN_S)
    os.close(lock)
    return None


def forget_others(folder: Path) -> None:
    """Remove what other hosts told in folders beside *folder*, if the last of it is a day old.

    A container that is made anew has a new name: nobody comes back for the old one's.
    """
    try:
        for other in folder.parent.iterdir():
            # A folder is changed whenever a process in it tells its figures.
            if other != folder and time.time() - other.stat().st_mtime > _FORGET_S:
                shutil.rmtree(other)
    except OSError:
        # There is none yet, or another process does the same.
        return


def read_all(folder: Path, live_s: float) -> Iterator[Told]:
    """Yield what every process told that ever had a place in *folder*; live is who did so *live_s* ago."""
    for path in sorted(folder.glob("*-*.json")):
        kind, _, number = path.stem.rpartition("-")
        snapshot = _read(path)
        if snapshot is not None and number.isdigit():
            # One that is frozen still holds its lock.
            is_live = time.time() - snapshot.taken_s <= live_s and _is_held(path.with_suffix(".lock"))
            yield Told(kind, int(number), snapshot, is_live)


def _is_held(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _read(path: Path) -> Snapshot | None:
    try:
        return Snapshot(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        # None yet, or of another version: then there is nothing to go on from.
        return None
