"""Dead letters on disk: one file each, a line of JSON and then the envelope.

A file is written as ``NAME.part`` and synced; Redis knows whether it counts. Only the holder of the lock may
change the directory.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from crawlproj.errors import StoreUnavailable

_SUFFIX = ".letter"
_PART = ".part"
_POLL_S = 0.05


class LetterFiles:
    """The dead letters in *directory*."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def exist(self) -> bool:
        return self._directory.is_dir()

    def make(self) -> None:
        if not self.exist:
            self._directory.mkdir(parents=True)
            _sync(self._directory.parent)

    @asynccontextmanager
    async def lock(self, within_s: float) -> AsyncIterator[None]:
        """Hold the directory, which must exist. Raises StoreUnavailable if another process still does."""
        deadline_s = time.monotonic() + within_s
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline_s:
                        raise StoreUnavailable(
                            f"Another process holds {self._directory}. Try again."
                        ) from None
                await asyncio.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return the files, without those that are not finished."""
        return [path.name for path in self._directory.glob(f"*{_SUFFIX}")]

    def unfinished(self) -> list[str]:
        return [path.name.removesuffix(_PART) for path in self._directory.glob(f"*{_SUFFIX}{_PART}")]

    def write(self, page: str, record: bytes, envelope: bytes) -> str:
        """Write a dead letter to disk; returns the name of its file, unique in all directories."""
        name = f"{page}-{secrets.token_hex(8)}{_SUFFIX}"
        try:
            with (self._directory / f"{name}{_PART}").open("xb") as file:
                file.write(record + b"\n" + envelope)
                file.flush()
                os.fsync(file.fileno())
            self.sync()
        except OSError:
            self.remove(name)
            raise
        return name

    def finish(self, name: str) -> None:
        (self._directory / f"{name}{_PART}").rename(self._directory / name)

    def remove(self, name: str) -> None:
        """Remove a file, finished or not."""
        for path in (self._directory / name, self._directory / f"{name}{_PART}"):
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Return when names given and files removed are on disk."""
        _sync(self._directory)

    def record(self, name: str) -> bytes:
        with (self._directory / name).open("rb") as file:
            return file.readline()

    def envelope(self, name: str) -> bytes:
        return (self._directory / name).read_bytes().partition(b"\n")[2]


def page_of(name: str) -> str:
    """Return the page whose dead letter is in the file *name*."""
    return name.rpartition("-")[0]


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
