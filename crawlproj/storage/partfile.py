"""A file being written that can be abandoned at any time, even on a full disk; its lock; its name on disk."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from pathlib import Path

from crawlproj.model.segment import FileMark

#: The suffix of uncommitted files.
PART = ".part"
#: The suffix of published files whose record Redis has lost.
WITHDRAWN = ".withdrawn"


class PartFile:
    """A new file, written unbuffered: a buffer would be flushed again on close, and fail again there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self.bytes_written = 0
        self._sha256 = hashlib.sha256()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> int:
        """Write all of *data*; nothing once abandoned. Raises OSError when the disk is full."""
        rest = memoryview(data)
        while rest and not self.closed:
            written = os.write(self._fd, rest)
            self.bytes_written += written
            self._sha256.update(rest[:written])
            rest = rest[written:]
        return len(data)

    @property
    def mark(self) -> FileMark:
        """Return what was written, to be compared with the file later."""
        return FileMark(self.bytes_written, self._sha256.hexdigest())

    def flush(self) -> None:
        """Do nothing; format writers call it."""

    def sync_and_close(self) -> None:
        """Close the file; returns when its data is on disk."""
        os.fsync(self._fd)
        self.abandon()

    def abandon(self) -> None:
        """Close the file as it is; later writes are ignored."""
        if not self.closed:
            self.closed = True
            os.close(self._fd)


def is_published(name: str) -> bool:
    """Whether a file of this name, in a directory of segments, is one that readers see."""
    return not name.startswith(".") and not name.endswith((PART, WITHDRAWN))


def lock_file(path: Path) -> int | None:
    """Return a descriptor that holds the lock of *path* until it is closed, at the latest by our end.

    None if the file is gone, or another process holds it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def lock_new_file(path: Path) -> int:
    """Lock a file that this process has just made, as `lock_file` does; nobody else removes it then.

    Raises FileNotFoundError if a process that took this one for dead was faster.
    """
    descriptor = lock_file(path)
    if descriptor is not None and path.exists():
        return descriptor
    if descriptor is not None:
        os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "removed by a process that took this one for dead", str(path))


def sync_directory(directory: Path) -> None:
    """Return when the names of the files in *directory* are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
