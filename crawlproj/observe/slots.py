"""Metrics on disk, so that counters survive a restart and one process can serve those of all.

One folder per run and host. Each process holds a slot there: a lock, which the kernel releases when the
process dies, and a file of its last metrics, replaced atomically.
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

#: How many processes of a kind can have a slot on one host: slots are also ports.
MOST_NUMBERS = 100
#: A reader that checks whether we are alive holds our lock for a moment.
_TRIES = 3
_RETRY_S = 0.01
#: How long the metrics of a silent host are kept.
_STALE_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """The last metrics of a process. ``is_live``: it is running, so its gauges are valid, too."""

    kind: str
    number: int
    snapshot: Snapshot
    is_live: bool


class Slot:
    """The slot of this process among those of its *kind* on this host. Made by `claim_slot`."""

    def __init__(self, folder: Path, kind: str, number: int, lock: int) -> None:
        self.kind = kind
        self.number = number
        self._lock = lock
        self._file = folder / f"{kind}-{number}.json"

    def load(self) -> Snapshot | None:
        """Return what was last saved here, usually by an earlier process."""
        return _read(self._file)

    def save(self, snapshot: Snapshot) -> None:
        """Replace what is saved, atomically. Raises OSError."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(snapshot), separators=(",", ":")))
        new.replace(self._file)

    def release(self) -> None:
        """Release the lock; the saved metrics stay."""
        os.close(self._lock)


def claim_slot(folder: Path, kind: str, number: int | None) -> Slot | None:
    """Claim slot *number*, or the first that is free; None when it is taken. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for candidate in range(MOST_NUMBERS) if number is None else (number,):
        lock = try_lock(folder / f"{kind}-{candidate}.lock")
        if lock is not None:
            return Slot(folder, kind, candidate, lock)
    return None


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock at *path* until it is closed; None when it is taken."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if left:
                time.sleep(_RETRY_S)
    os.close(lock)
    return None


def remove_stale_hosts(folder: Path) -> None:
    """Remove the folders of other hosts beside *folder* that did not change for a day.

    A recreated container has a new host name, so its old folder is never used again.
    """
    try:
        for other in folder.parent.iterdir():
            # The folder's mtime changes whenever a process saves its metrics.
            if other != folder and time.time() - other.stat().st_mtime > _STALE_S:
                shutil.rmtree(other)
    except OSError:
        # No folder yet, or another process removes the same one.
        return


def read_processes(folder: Path, live_s: float) -> Iterator[ProcessMetrics]:
    """Yield the metrics of every process that ever had a slot; live if saved in the last *live_s*."""
    for path in sorted(folder.glob("*-*.json")):
        kind, _, number = path.stem.rpartition("-")
        snapshot = _read(path)
        if snapshot is not None and number.isdigit():
            # The age, too: a frozen process still holds its lock.
            is_live = time.time() - snapshot.taken_s <= live_s and _is_held(path.with_suffix(".lock"))
            yield ProcessMetrics(kind, int(number), snapshot, is_live)


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
        # None yet, or written by another version.
        return None
