"""A child process of a crawl: started, watched and stopped, its log in a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.supervisor.plan import Deaths

#: A line of a log at ERROR, or what a command says when it gives up.
_ERROR = re.compile(r"\] (?:ERROR|CRITICAL): (?P<words>.*)|^(?P<command>scrapy \w+: .*)")
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Exit|Interrupt)\b")
#: How much of a log is read at once: a child that says more is not read to the end.
_MOST_BYTES = 1_000_000


@dataclass(slots=True)
class Child:
    """One process, or one after the other under the same name. Times are of the supervisor's clock."""

    name: str
    arguments: Sequence[str]
    log: Path
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
    _process: subprocess.Popen[bytes] | None = None
    _read_bytes: int = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now_s: float) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._read_bytes = self.log.stat().st_size if self.log.exists() else 0
        self.started_s = self.seen_s = now_s
        self.gone_by_s, self.has_shown, self.last_words = None, False, ""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "scrapy.cmdline", *self.arguments),
                    f"--set=CRAWL_SUPERVISOR={os.getpid()}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the supervisor, who stops its children in order.
                start_new_session=True,
            )

    def take_exit(self) -> int | None:
        """Return the exit code of a process that has ended, once; None for one that has not."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._process, self.exit_code = None, code
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
        """Return what its log says at ERROR since this was last asked, without time and name."""
        try:
            size = self.log.stat().st_size
        except FileNotFoundError:
            return []
        if size <= self._read_bytes:
            return []
        with self.log.open("rb") as log:
            log.seek(self._read_bytes)
            lines = log.read(_MOST_BYTES).rpartition(b"\n")[0]
        self._read_bytes = self._read_bytes + len(lines) + 1 if lines else self._read_bytes
        texts = [line for line in lines.decode(errors="replace").splitlines() if line.strip()]
        errors = [match["words"] or match["command"] for match in map(_ERROR.search, texts) if match]
        # The end of a traceback tells more than the line before it.
        words = [*errors, *(text for text in texts[-1:] if _EXCEPTION.match(text) or not errors)]
        self.last_words = words[-1] if words else self.last_words
        return errors


def manner_of(code: int) -> str:
    """Say how a process ended."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
