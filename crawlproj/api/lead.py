"""Which server of a data directory starts its jobs: the one that holds a lock, and shows that it is alive."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO


class Lead:
    """The lead of the servers of *data*. The lock ends with its process, however that ends."""

    def __init__(self, data: Path) -> None:
        self._path = data / "serve.lock"
        self._lock: IO[str] | None = None

    def take(self) -> bool:
        """Whether this server leads, as it does if no other one did; to be called again and again."""
        if self._lock is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = self._path.open("a+")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            lock.truncate(0)
            lock.write(f"{socket.gethostname()}, process {os.getpid()}")
            lock.flush()
            self._lock = lock
        os.utime(self._lock.fileno())
        return True

    def read(self) -> tuple[str, float]:
        """Return who leads ('': nobody yet), and for how many seconds it has shown no life."""
        try:
            with self._path.open() as file:
                leader, shown_s = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return "", 0.0
        return leader, max(0.0, time.time() - shown_s)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
