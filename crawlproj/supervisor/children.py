"""A child process of a crawl: started, watched and stopped, its log in a file.

The child writes that file itself, and rotates it. What it says past its log, such as how it crashed, is in
another beside it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.observe.logs import said_in
from crawlproj.supervisor.nursery import Nursery, Process
from crawlproj.supervisor.plan import Deaths

#: A line of a log at ERROR, or what a command says when it gives up.
_ERROR = re.compile(r"\] (?:ERROR|CRITICAL): (?P<words>.*)|^(?P<command>scrapy \w+: .*)")
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Exit|Interrupt)\b")
#: How much of a file is read at once: a child that says more is not read to the end.
_MOST_BYTES = 1_000_000


class LogFiles:
    """Where the processes of a crawl log: in *folder*, or in *file* (LOG_FILE) and in others beside it."""

    def __init__(self, folder: Path, file: str | None = None) -> None:
        #: The supervisor's.
        self.own = Path(file) if file else folder / "supervisor.log"
        self._stem = f"{self.own.stem}-" if file else ""

    def of(self, name: str) -> Path:
        """Return that of a child."""
        return self.own.with_name(f"{self._stem}{name}.log")


@dataclass(slots=True)
class Child:
    """One process, or one after the other under the same name. Times are of the supervisor's clock."""

    name: str
    arguments: Sequence[str]
    log: Path
    nursery: Nursery = field(default_factory=Nursery)
    deaths: Deaths = field(default_factory=Deaths)
    started_s: float = 0.0
    #: When it was last seen to be well, and whether it ever was.
    seen_s: float = 0.0
    has_shown: bool = False
    #: When it is to be gone, if it was asked to stop.
    gone_by_s: float | None = None
    last_words: str = ""
    #: How its last process ended.
    exit_code: int | None = None
    _process: Process | None = None
    #: How far each of its files was read.
    _read_bytes: dict[Path, int] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        """What it says past its log."""
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
        self.gone_by_s, self.has_shown, self.last_words = None, False, ""
        # Not for ever, as of one that is started again and again.
        if self._read_bytes[self.output] > _MOST_BYTES:
            self.output.write_bytes(b"")
            self._read_bytes[self.output] = 0
        words = [f"--set=CRAWL_SUPERVISOR={os.getpid()}", f"--set=LOG_FILE={self.log}"]
        self._process = self.nursery.start(self.name, [*self.arguments, *words], self.output)

    def take_exit(self) -> int | None:
        """Return the exit code of a process that has ended, once; None for one that has not."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._process, self.exit_code = None, code
        if self.output.exists() and not self.output.stat().st_size:
            # It had nothing to say past its log, as most.
            self.output.unlink()
        return code

    def ask_to_stop(self, gone_by_s: float) -> None:
        if self._process is not None and self.gone_by_s is None and self.is_running:
            self.gone_by_s = gone_by_s
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now. What it held is found by whoever comes next."""
        if self._process is not None and self.is_running:
            self._process.kill()

    def new_errors(self) -> list[str]:
        """Return what it said at ERROR since this was last asked, without time and name."""
        texts = [*self._new_lines(self.log), *self._new_lines(self.output)]
        errors = [error for error in map(_error_of, texts) if error]
        # The end of a traceback tells more than the line before it.
        words = [*errors, *(_words_of(text) for text in texts[-1:] if _EXCEPTION.match(text) or not errors)]
        self.last_words = words[-1] if words else self.last_words
        return errors

    def _new_lines(self, path: Path) -> list[str]:
        """Return the whole lines that came to *path* since it was last read."""
        read = self._read_bytes.get(path, 0)
        try:
            size = path.stat().st_size
            if size < read:
                # Begun anew: the end of the old one has been moved aside.
                read = 0
            with path.open("rb") as file:
                file.seek(read)
                new = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        # A line longer than all that is read at once is passed over, or nothing after it would be read.
        lines = new[: new.rfind(b"\n") + 1] or (new if len(new) == _MOST_BYTES else b"")
        self._read_bytes[path] = read + len(lines)
        # Not splitlines(): what the web calls text has ends of lines of its own.
        return [line for line in lines.decode(errors="replace").split("\n") if line.strip()]


def _error_of(line: str) -> str | None:
    """Return what *line* says at ERROR or above, in whichever form the log is; None if it does not."""
    if said := said_in(line):
        level, message = said
        return message if level in ("ERROR", "CRITICAL") else None
    match = _ERROR.search(line)
    return match["words"] or match["command"] if match else None


def _words_of(line: str) -> str:
    said = said_in(line)
    return said[1] if said else line


def manner_of(code: int) -> str:
    """Say how a process ended."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
