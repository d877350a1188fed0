"""What every benchmark needs: a Redis of its own, CPU time, and a report that run.py can print and keep.

Wall time says little on a shared machine, so what is compared is CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from crawlproj.redisio.servers import OLDEST_VERSION, find_servers, newest_that_reads

T = TypeVar("T")
_READY_S = 20.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool
    redis_server: str
    most_urls: int
    json_path: Path | None


def read_options(description: str) -> Options:
    """The options that run.py passes to every benchmark; each can be run alone with them, too."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast is it")
    parser.add_argument("--redis-server", default=default_redis_server(), metavar="PATH")
    parser.add_argument(
        "--most-urls", type=int, default=10**9, metavar="N", help="leave out larger frontiers"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    given = parser.parse_args()
    return Options(given.quick, given.redis_server, given.most_urls, given.json)


def default_redis_server() -> str:
    newest = newest_that_reads(find_servers(), OLDEST_VERSION)
    return os.environ.get("REDIS_SERVER") or (newest.path if newest else "redis-server")


@dataclass(slots=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append([str(cell) for cell in cells])
        say("   " + " | ".join(self.rows[-1]))


@dataclass(slots=True)
class Goal:
    """A line of the issue's table: what was wanted and what was measured, both as a person reads them."""

    what: str
    wanted: str
    measured: str
    is_met: bool


@dataclass(slots=True)
class Report:
    redis_version: str
    goals: list[Goal] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def table(self, title: str, *columns: str) -> Table:
        say(f"-- {title}")
        self.tables.append(Table(title, list(columns)))
        return self.tables[-1]

    def finish(self, options: Options) -> None:
        for goal in self.goals:
            verdict = "reached" if goal.is_met else "MISSED "
            say(f"{verdict}  {goal.what}: {goal.measured} (wanted {goal.wanted})")
        if options.json_path:
            options.json_path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def say(line: str) -> None:
    """Print progress for the person waiting."""
    print(line, file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """All repetitions, so that a reader sees how noisy the machine was."""
    return " ".join(format(value, form) for value in sorted(values))


def interleaved(measures: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Measure each in turn, *repeats* times, so that other load on the machine meets all of them."""
    found: dict[str, list[T]] = {name: [] for name in measures}
    for repeat in range(repeats):
        for name, measure in measures.items():
            found[name].append(measure())
            say(f"   {repeat + 1}: {name}: {found[name][-1]}")
    return found


def process_cpu_s(pid: int) -> float:
    """User and system time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class RedisServer:
    """A redis-server on a unix socket while the ``with`` block runs. No AOF unless *aof*.

    It begins with what the file *snapshot* holds, as SAVE wrote it; without one it is empty.
    """

    def __init__(self, path: str, *, aof: bool = False, snapshot: Path | None = None) -> None:
        self._path = path
        self._aof = aof
        self._snapshot = snapshot

    def __enter__(self) -> Self:
        # Not a long name: a socket's path has 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        if self._snapshot:
            shutil.copy(self._snapshot, self.folder / "dump.rdb")
        self._socket_path = self.folder / "redis.sock"
        self.url = f"unix://{self._socket_path}"
        self._child = subprocess.Popen(
            [
                self._path,
                *("--port", "0", "--unixsocket", str(self._socket_path), "--dir", str(self.folder)),
                *("--save", "", "--appendonly", "yes" if self._aof else "no", "--appendfsync", "everysec"),
                # As docs/operations.md has it, and the embedded server.
                *("--hash-max-ziplist-entries", "64"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.connect(str(self._socket_path))
                break
            except OSError:
                self._connection.close()
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self._path} did not start; run it by hand to see why.") from None
                time.sleep(0.005)
        self._answers = self._connection.makefile("rb")
        # What asking costs the server, so that it can be left out.
        self._ask_s = 0.0
        before_s = self.cpu_s()
        for _ in range(200):
            after_s = self.cpu_s()
        self._ask_s = (after_s - before_s) / 200
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.close()
        self._connection.close()
        self._child.kill()
        self._child.wait()
        shutil.rmtree(self.folder)

    def info(self, section: str) -> dict[str, str]:
        self._connection.sendall(f"INFO {section}\r\n".encode())
        size = int(self._answers.readline()[1:])
        text = self._answers.read(size + 2).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def cpu_s(self) -> float:
        info = self.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def cpu_since_s(self, before_s: float) -> float:
        """CPU time since *before_s*, without that of asking for it."""
        return max(self.cpu_s() - before_s - self._ask_s, 1e-9)

    def used_bytes(self) -> int:
        return int(self.info("memory")["used_memory"])

    def commands_during(self, watch_s: float) -> Counter[str]:
        """Commands that clients send in *watch_s* seconds, by name; not those that scripts make of them."""
        deadline = time.monotonic() + watch_s
        received = bytearray()
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._socket_path))
            monitor.sendall(b"MONITOR\r\n")
            while (left_s := deadline - time.monotonic()) > 0:
                monitor.settimeout(left_s)
                try:
                    received += monitor.recv(65536)
                except TimeoutError:
                    break
        # +1700000000.123456 [0 unix:/path] "GET" "key", or [0 lua] for a command of a script.
        lines = [line for line in received.decode(errors="replace").splitlines() if '] "' in line]
        return Counter(line.split('"')[1].lower() for line in lines if "[0 lua]" not in line)

    @property
    def version(self) -> str:
        return self.info("server")["redis_version"]
