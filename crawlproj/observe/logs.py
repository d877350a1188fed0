"""The log of a process: text at a terminal, else one JSON object per line.

Every line names its run, process and host. Log files are rotated, so their size is bounded.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

#: The size at which a log file is rotated, and how many old ones are kept.
FILE_BYTES = 20_000_000
OLD_FILES = 4

#: Attributes of a record that stay out of the JSON object: the standard ones, live objects of Scrapy's, and
#: what `TextLine` adds. All others were given as ``extra``.
_NOT_EXTRA = {
    *vars(logging.LogRecord("", 0, "", 0, "", (), None)),
    *("message", "asctime", "taskName", "spider", "crawler", "twisted_logger", "process_words"),
}
#: The names of the process that writes the log, filled in while it starts. Global, as logging is.
_process = {"run": "", "kind": "", "number": ""}


def name_process(run: str, kind: str, number: int | str) -> None:
    """Put these names into every line from now on."""
    _process.update(run=run, kind=kind, number=str(number))


class TextLine(logging.Formatter):
    """Scrapy's text format, with the process added."""

    def __init__(self, datefmt: str | None = None) -> None:
        super().__init__("%(asctime)s %(process_words)s [%(name)s] %(levelname)s: %(message)s", datefmt)

    def format(self, record: logging.LogRecord) -> str:
        words = (*_process.values(), str(os.getpid()), "on", socket.gethostname())
        record.process_words = " ".join(filter(None, words))
        return super().format(record)


class JsonLine(logging.Formatter):
    """One JSON object per line: time, level, logger, message, process, and the caller's ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _process.items() if value},
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        for name, value in vars(record).items():
            if name not in _NOT_EXTRA and name not in line:
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False, default=str)


class _File(RotatingFileHandler):
    """A log file that several processes may write and rotate, such as a parser and its guard."""

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802  # the name logging calls
        # Rotated by another process: write to the new file, and do not rotate it again.
        if self.stream is not None and not self._is_at(self.stream):
            self.stream.close()
            # Reopened by the next write.
            self.stream = None
        return super().shouldRollover(record)

    def _is_at(self, stream: TextIO) -> bool:
        try:
            return os.path.samestat(os.fstat(stream.fileno()), Path(self.baseFilename).stat())
        except FileNotFoundError:
            return False


def make_handler(
    form: str,
    file: Path | None = None,
    *,
    out: TextIO | None = None,
    fmt: str | None = None,
    datefmt: str | None = None,
) -> logging.Handler:
    """Return a handler that logs to *file*, or to *out* (standard error).

    *form* is CRAWL_LOG: ``text``, ``json``, or ``auto`` for text at a terminal and JSON elsewhere. *fmt* is a
    text format.
    """
    handler: logging.Handler
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Web text may not be encodable.
        handler = _File(file, "a", FILE_BYTES, OLD_FILES, "utf-8", errors="backslashreplace")
        is_terminal = False
    else:
        stream = out or sys.stderr
        handler = logging.StreamHandler(stream)
        is_terminal = stream.isatty()
    is_text = is_terminal if form == "auto" else form == "text"
    text = logging.Formatter(fmt, datefmt) if fmt else TextLine(datefmt)
    handler.setFormatter(text if is_text else JsonLine())
    return handler


class CallbackHandler(logging.Handler):
    """Passes the message of every record at *level* and above to a callback."""

    def __init__(self, notify: Callable[[str], None], level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  # a log call with wrong arguments must not end a crawl
            message = str(record.msg)
        self._notify(message)


def parse_json_line(line: str) -> tuple[str, str] | None:
    """Return level and message, with the last line of a traceback; None if *line* is not a JSON log line."""
    if not line.startswith('{"time"'):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    why = str(record.get("exception", "")).strip().rpartition("\n")[2]
    message = str(record.get("message", ""))
    return str(record.get("level", "")), f"{message}: {why}" if why else message
