"""A file being written that can be abandoned at any moment, also on a full disk."""

from __future__ import annotations

import os
from pathlib import Path


class PartFile:
    """A new file, written without a buffer of ours: what `write` returned from is with the system.

    A buffer would be flushed once more when the file is closed or forgotten, and fail again there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self.bytes_written = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> int:
        """Write all of *data*; nothing once abandoned. Raises OSError when there is no room."""
        rest = memoryview(data)
        while rest and not self.closed:
            written = os.write(self._fd, rest)
            self.bytes_written += written
            rest = rest[written:]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back; writers of formats call this."""

    def sync_and_close(self) -> None:
        """Return when the disk has everything."""
        os.fsync(self._fd)
        self.abandon()

    def abandon(self) -> None:
        """Close it as it is. What a writer still has to say goes nowhere."""
        if not self.closed:
            self.closed = True
            os.close(self._fd)
