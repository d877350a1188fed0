"""The log of a process: text for people at a terminal, a JSON object a line for everybody else.

Every line says of which run and process it is. Files are bounded: they are rotated.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

#: A log file grows to this size; so many older ones are kept beside it.
FILE_BYTES = 20_000_000
OLD_FILES = 4

#: What a record has by itself; all else was given as ``extra``, and becomes a member of the JSON object.
_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
#: Scrapy puts live objects into its records, which are no facts.
_OBJECTS = frozenset({"spider", "crawler", "twisted_logger"})


@dataclass(slots=True)
class _Process:
    """Whose log this is; known bit by bit while the process starts."""

    run: str = ""
    kind: str = ""
    number: str = ""

    def facts(self) -> dict[str, object]:
        named = {"run": self.run, "kind": self.kind, "number": self.number}
        return {name: value for name, value in named.items() if value} | {"pid": os.getpid()}

    def words(self) -> str:
        return " ".join(filter(None, (self.run, self.kind, self.number, str(os.getpid()))))


# Logging is one for all of a process, and so is its name.
_process = _Process()


def name_process(run: str, kind: str, number: int | str) -> None:
    """Have every line from now on say whose it is."""
    _process.run, _process.kind, _process.number = run, kind, str(number)


class TextLine(logging.Formatter):
    """A line for people: Scrapy's own, with the process in it."""

    def __init__(self, datefmt: str | None = None) -> None:
        super().__init__("%(asctime)s %(process_words)s [%(name)s] %(levelname)s: %(message)s", datefmt)

    def format(self, record: logging.LogRecord) -> str:
        record.process_words = _process.words()
        return super().format(record)


class JsonLine(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the process, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_process.facts(),
        }
        for name, value in vars(record).items():
            if name not in _OWN and name not in _OBJECTS and name not in line and name != "process_words":
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False, default=str)


class _File(RotatingFileHandler):
    """A file that several processes may write, as a parser and its guard do, and each of them rotate."""

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802  # the name logging calls
        # Moved aside by another: a line in the old one would be missed, and rotate the new one once more.
        if self.stream is not None and not self._is_at(self.stream):
            self.stream.close()
            # Opened again by who writes.
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
    """Return what writes the log to *file*, or to *out* (standard error).

    *form* is CRAWL_LOG: ``text``, ``json``, or ``auto`` for text at a terminal and JSON elsewhere. *fmt* is a
    format of the user's own for text.
    """
    handler: logging.Handler
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # What the web calls text may be none: then it is written as its numbers.
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


class Sayer(logging.Handler):
    """Says what is logged at WARNING and above to a person, in a word: its time and place are in a file."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


def said_in(line: str) -> tuple[str, str] | None:
    """Return level and message of a line of a JSON log, with the end of its traceback; None for any other."""
    if not line.startswith('{"time"'):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    why = str(record.get("exception", "")).strip().rpartition("\n")[2]
    message = str(record.get("message", ""))
    return str(record.get("level", "")), f"{message}: {why}" if why else message
