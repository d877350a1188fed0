"""A child process of a crawl: started, watched and stopped.

The child writes and rotates its own log file. Anything else it prints, such as a crash, goes to an ``.out``
file beside it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.observe.logs import parse_json_line
from crawlproj.supervisor.forkpool import ForkPool, Started
from crawlproj.supervisor.plan import Restarts

#: A log line at ERROR, or the one-line error of a command.
_ERROR = re.compile(r"\] (?:ERROR|CRITICAL): (?P<words>.*)|^(?P<command>scrapy \w+: .*)")
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Exit|Interrupt)\b")
#: How much of a file is read at once.
_MOST_BYTES = 1_000_000


class LogFiles:
    """The log files of a crawl: in *folder*, or beside *file* (LOG_FILE)."""

    def __init__(self, folder: Path, file: str | None = None) -> None:
        #: The supervisor's.
        self.own = Path(file) if file else folder / "supervisor.log"
        self._stem = f"{self.own.stem}-" if file else ""

    def of(self, name: str) -> Path:
        """Return the log file of the child *name*."""
        return self.own.with_name(f"{self._stem}{name}.log")


@dataclass(slots=True)
class Child:
    """One process, restarted under the same name. Times are by the supervisor's clock."""

    name: str
    arguments: Sequence[str]
    log: Path
    forkpool: ForkPool = field(default_factory=ForkPool)
    restarts: Restarts = field(default_factory=Restarts)
    started_s: float = 0.0
    #: When it was last healthy, and whether it ever was.
    seen_s: float = 0.0
    was_healthy: bool = False
    #: When it must have exited, once it was asked to stop.
    stop_by_s: float | None = None
    last_error: str = ""
    #: How its last process ended.
    exit_code: int | None = None
    #: What its last process used, with its own children, once it has ended.
    cpu_s: float = 0.0
    _process: Started | None = None
    #: How much of each file has been read.
    _read_bytes: dict[Path, int] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        """Its stdout and stderr."""
        return self.log.with_suffix(".out")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now_s: float) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.log, self.output):
            self._read_bytes[path] = path.stat().st_size if path.exists() else 0
        self.started_s = self.seen_s = now_s
        self.stop_by_s, self.was_healthy, self.last_error = None, False, ""
        # A child that is restarted again and again must not fill the disk.
        if self._read_bytes[self.output] > _MOST_BYTES:
            self.output.write_bytes(b"")
            self._read_bytes[self.output] = 0
        extra = [f"--set=CRAWL_SUPERVISOR={os.getpid()}", f"--set=LOG_FILE={self.log}"]
        self._process = self.forkpool.start(self.name, [*self.arguments, *extra], self.output)

    def take_exit(self) -> int | None:
        """Return the exit code of a process that has ended, once; None for one that has not."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self.cpu_s = self._process.cpu_s
        self._process, self.exit_code = None, code
        if self.output.exists() and not self.output.stat().st_size:
            self.output.unlink()
        return code

    def ask_to_stop(self, stop_by_s: float) -> None:
        if self._process is not None and self.stop_by_s is None and self.is_running:
            self.stop_by_s = stop_by_s
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self.is_running:
            self._process.kill()

    def new_errors(self) -> list[str]:
        """Return the messages it logged at ERROR since the last call."""
        texts = [*self._new_lines(self.log), *self._new_lines(self.output)]
        errors = [error for error in map(_error_of, texts) if error]
        # The last line of a traceback says more than the log line before it.
        words = [*errors, *(_words_of(text) for text in texts[-1:] if _EXCEPTION.match(text) or not errors)]
        self.last_error = words[-1] if words else self.last_error
        return errors

    def _new_lines(self, path: Path) -> list[str]:
        """Return the complete lines appended to *path* since it was last read."""
        read = self._read_bytes.get(path, 0)
        try:
            size = path.stat().st_size
            if size < read:
                # Rotated; the unread end of the old file is lost.
                read = 0
            with path.open("rb") as file:
                file.seek(read)
                new = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        # Skip a line longer than one read, or nothing after it would ever be read.
        lines = new[: new.rfind(b"\n") + 1] or (new if len(new) == _MOST_BYTES else b"")
        self._read_bytes[path] = read + len(lines)
        # Not splitlines(): messages may quote web text with other line separators.
        return [line for line in lines.decode(errors="replace").split("\n") if line.strip()]


def _error_of(line: str) -> str | None:
    """Return the message of a line at ERROR or above, in either log format; else None."""
    if said := parse_json_line(line):
        level, message = said
        return message if level in ("ERROR", "CRITICAL") else None
    match = _ERROR.search(line)
    return match["words"] or match["command"] if match else None


def _words_of(line: str) -> str:
    said = parse_json_line(line)
    return said[1] if said else line


def describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
