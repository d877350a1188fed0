"""Extraction in a process of its own, for a parser that must outlive the pages it reads.

Parsing hostile pages may crash or never return, holding Python's lock all the while, so a thread does
not protect from it. Here the kernel's timer kills the child when a page takes too long, and the next page
gets a new one. A child ends by itself when its parent is gone.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.pages.envelope import unpack
from crawlproj.parsing.extract import Extract, ExtractOptions, extract
from crawlproj.parsing.guard import Death
from crawlproj.parsing.memory import limit_memory, settle_memory

_LENGTH = struct.Struct("=Q")
#: First byte of an answer: an extract, or why the page could not be parsed.
_READ, _FAILED = b"+", b"-"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Extract)


class PageFailed(Exception):
    """A page that could not be parsed, because of the page."""


class ExtractorFailed(CrawlError):
    """No page can be parsed, because of this machine."""


class Extractor:
    """The parent's side. One thread uses it; only `kill` may be called from others."""

    def __init__(self, config: Config) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self.change(config)

    def change(self, config: Config) -> None:
        """Extract by other options from the next page on."""
        # The child must not know Redis.
        self._config = replace(config, redis_url=None, redis_params={})
        if self._child is not None:
            self._child.kill()
            self._reap()

    def extract(self, raw: bytes) -> Extract:
        """Return the extract of the page in the envelope *raw*, within CRAWL_PARSE_SECONDS.

        Raises PageFailed when it fails, takes too long or kills the child; ExtractorFailed when none works.
        """
        if self._is_killed:
            raise ExtractorFailed("The extractor was killed.")
        child = self._child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _write(child.stdin, raw)
            answer = _read(child.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise self._reason_of_death(child)
        if answer[:1] == _FAILED:
            raise PageFailed(answer[1:].decode(errors="replace"))
        return _decoder.decode(memoryview(answer)[1:])

    def kill(self) -> None:
        """Kill the child, and with it an `extract` in progress, without counting it against the page."""
        self._is_killed = True
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        self.kill()
        self._reap()

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Scrapy puts the project on the path by itself, as scrapyd does with an egg.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            # Ctrl-C is for the parent, which still needs its pages parsed.
            start_new_session=True,
        )
        assert child.stdin is not None
        try:
            _write(child.stdin, msgspec.json.encode(self._config, enc_hook=str))
        except OSError:
            # It is dead already; the next `extract` says why.
            pass
        return child

    def _reason_of_death(self, child: subprocess.Popen[bytes]) -> Exception:
        self._reap()
        code = child.returncode
        if code < 0 and not self._is_killed:
            return PageFailed(Death(0, -code, None).reason)
        return ExtractorFailed(f"Cannot parse pages: the extractor process ended with exit code {code}.")

    def _reap(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    _close(pipe)


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        # Unwritten data is not needed.
        pass


def _write(pipe: IO[bytes], *parts: bytes) -> None:
    pipe.write(_LENGTH.pack(sum(len(part) for part in parts)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return the next message, None when there will be none."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None


def _path(kind: type, value: Any) -> Any:
    return Path(value) if issubclass(kind, Path) else value


def _answer(raw: bytes, options: ExtractOptions) -> tuple[bytes, bytes]:
    try:
        return _READ, _encoder.encode(extract(unpack(raw), options))
    except Exception as exc:  # noqa: BLE001  # one bad page must not stop the others
        return _FAILED, f"{type(exc).__name__}: {exc}".encode(errors="replace")


def main() -> None:
    """The child: read pages from standard input until it ends."""
    # Nothing but answers may go to our parent.
    pages, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    first = _read(pages)
    if first is None:
        return
    config = msgspec.json.decode(first, type=Config, dec_hook=_path)
    options = ExtractOptions(config)
    settle_memory()
    limit_memory(config.parser_memory)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while (raw := _read(pages)) is not None:
        signal.setitimer(signal.ITIMER_REAL, config.parse_seconds)
        answer = _answer(raw, options)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            _write(answers, *answer)
        except BrokenPipeError:
            # Our parent has been killed. At once: Python would complain of what is left to be written.
            os._exit(0)


if __name__ == "__main__":
    main()
