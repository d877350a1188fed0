"""The embedded redis-server of a data directory: started by the first process that needs it, shared by all.

Everything here blocks; from an event loop, call it in a thread. There are two locks, both released by the
kernel when their holder dies, so that none can be left behind: ``start.lock`` is held by the process that
starts or stops the server, ``server.lock`` by the server itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from crawlproj.errors import RedisRefused, RedisUnreachable
from crawlproj.redisio.servers import server_for

#: sockaddr_un holds 108 bytes on Linux and 104 on macOS, including the final zero.
LONGEST_SOCKET_PATH_BYTES = 103
#: How long the server may take to answer one PING before we retry.
PING_S = 1.0
#: Starting takes 30 ms, but replaying the AOF of a large frontier takes longer.
START_S = 60.0
POLL_S = 0.005
#: How long connections that were just closed may still be counted as clients.
LEAVING_S = 0.25
#: MISCONF: it cannot write, as on a full disk, but it answers whoever only reads, such as `scrapy status`.
_READY = ("PONG", "MISCONF")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the server of one data directory lives."""

    folder: Path
    socket: Path

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    @property
    def log(self) -> Path:
        return self.folder / "redis.log"


def ensure_running(data_dir: Path, *, server: str | None = None, wait_s: float = START_S) -> str:
    """Return the URL of the server of *data_dir*, once it answers; start it if needed.

    *server* (REDIS_SERVER) is the redis-server to start, by default the newest that can read the data.
    Safe to call from any number of processes at once: only one server is started.
    """
    deadline = time.monotonic() + wait_s
    place = _place(data_dir)
    started = False
    answer = _ping(place.socket)
    while not answer.startswith(_READY):
        if time.monotonic() > deadline:
            raise RedisUnreachable(
                f"The embedded Redis at {place.socket} was not ready in {wait_s:g} s ({answer}); "
                f"see {place.log}, or stop the process named in {place.folder / 'redis.pid'}."
            )
        if not _is_alive(place):
            if started:
                raise RedisUnreachable(
                    f"The embedded Redis exited while starting: {_last_line(place.log)} See {place.log}."
                )
            with _starting(place, deadline):
                if not _is_alive(place):
                    _start(place, server, deadline)
                    started = True
        time.sleep(POLL_S)
        answer = _ping(place.socket)
    return place.url


def stop_if_unused(data_dir: Path) -> bool:
    """Shut the server down if no client is connected. Returns whether it was.

    Close your own connections first. A client that connects at the same moment loses its
    connection, and restarts the server with `ensure_running`.
    """
    deadline = time.monotonic() + START_S
    place = _place(data_dir)
    with _starting(place, deadline):
        if not _is_alive(place):
            return False
        try:
            # Our own connections, just closed, may still be counted for a moment.
            patience = time.monotonic() + LEAVING_S
            while _clients(place) > 1:
                if time.monotonic() > patience:
                    return False
                time.sleep(POLL_S)
            # Not NOSAVE: without save points it writes no snapshot, and it flushes the AOF.
            _ask(place.socket, "SHUTDOWN")
        except OSError:
            return False
        while _is_alive(place):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
    return True


def _clients(place: _Place) -> int:
    """Return the number of clients, including this connection."""
    found = re.search(r"connected_clients:(\d+)", _ask(place.socket, "INFO clients"))
    if found is None:
        raise OSError("Redis did not report its number of clients")
    return int(found[1])


def _place(data_dir: Path) -> _Place:
    folder = data_dir.resolve() / "redis"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"it belongs to user {folder.stat().st_uid}, not to {os.geteuid()}")
    except OSError as exc:
        raise RedisRefused(
            f"Cannot keep Redis data in {folder}: {exc}. Choose another data directory with CRAWL_DATA."
        ) from exc
    path = folder / "redis.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH_BYTES:
        path = _short_folder(folder) / "redis.sock"
    return _Place(folder, path)


def _short_folder(folder: Path) -> Path:
    """Return a private folder with a short path, the same for all processes with this temporary directory."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"crawlproj-{os.geteuid()}-{digest}"
    try:
        short.mkdir(mode=0o700)
    except FileExistsError:
        pass
    # In a shared place, anybody may create a directory of this name to get at our data.
    status = short.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise RedisRefused(
            f"{short} is not a private directory of this user. Remove it, or choose a shorter --data."
        )
    return short


@contextmanager
def _starting(place: _Place, deadline: float) -> Iterator[None]:
    with (place.folder / "start.lock").open("a") as lock:
        _lock(lock, deadline)
        yield


def _lock(lock: IO[str], deadline: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise RedisUnreachable(
                    f"Another process has held {lock.name} for too long. Stop it, then try again."
                ) from exc
        time.sleep(POLL_S)


def _is_alive(place: _Place) -> bool:
    with (place.folder / "server.lock").open("a") as lock:
        try:
            # Shared, so that two processes that check at once do not mistake each other for the server.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start(place: _Place, named: str | None, deadline: float) -> None:
    server = server_for(place.folder, named)
    options = {
        "port": "0",
        "unixsocket": str(place.socket),
        "unixsocketperm": "700",
        "dir": str(place.folder),
        "pidfile": str(place.folder / "redis.pid"),
        "logfile": str(place.log),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        # Up to this many fields a hash is a list, searched from the start; ours are looked up often.
        "hash-max-ziplist-entries": "64",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    with (place.folder / "server.lock").open("a") as lock, place.log.open("ab") as log:
        # Only the server keeps this lock; others hold it just while they check whether it is alive.
        _lock(lock, deadline)
        # The shell exits at once and leaves the server to init, so that a killed server is not our zombie;
        # in a session of its own it gets no Ctrl-C from the terminal. It inherits the locked descriptor.
        subprocess.run(
            ["/bin/sh", "-c", '"$0" "$@" &', server.path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            cwd=place.folder,
            check=True,
        )


def _ping(path: Path) -> str:
    """Return the answer to PING, or why there is none; 'PONG' means ready."""
    try:
        return _ask(path, "PING") or "no answer"
    except PermissionError as exc:
        raise RedisRefused(
            f"Redis at {path} belongs to another user. Run as that user, or choose another --data."
        ) from exc
    except OSError as exc:
        return exc.strerror or str(exc)


def _ask(path: Path, command: str) -> str:
    """Send one inline command on its own connection; returns the answer without its type byte."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PING_S)
        connection.connect(os.fsencode(path))
        connection.sendall(command.encode() + b"\r\n")
        with connection.makefile("rb") as answer:
            line = answer.readline()
            if line.startswith(b"$"):
                return answer.read(int(line[1:])).decode()
            return line[1:].decode().strip()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else ""
