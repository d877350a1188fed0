"""The server's own record of every request: what the referee judges by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request, as the server saw it. Times are wall time in ms that never runs backwards."""

    start_ms: float  # its first byte arrived
    end_ms: float  # the last byte was handed to the socket, or the connection ended
    domain: str
    host: str
    url: str  # empty: a dead domain never read it
    status: int  # 0: nothing was answered
    bytes: int  # handed to the socket, headers included
    fault: str = ""
    port: int = 0  # the client's
    method: str = "GET"
    complete: bool = True  # the whole answer was sent
    left: bool = False  # the client left in the middle of the answer
    quiet_until_ms: float = 0  # what the Retry-After of a throttled domain said; 0: nothing

    @property
    def is_success(self) -> bool:
        return self.complete and 200 <= self.status < 500 and self.status != 429


class AccessLog:
    """Collects records in memory and appends them to a file of JSON lines on request.

    A record exists once its request has ended; one still in flight is not in the file. Records of an earlier
    server are kept: a crawl that was interrupted is judged as a whole.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.json.Encoder()
        self._waiting: list[Request] = []
        self.add = self._waiting.append

    def flush(self) -> None:
        if self._waiting:
            lines = memoryview(self._encoder.encode_lines(self._waiting))
            self._waiting.clear()
            while lines:
                lines = lines[os.write(self._file, lines) :]

    def close(self) -> None:
        self.flush()
        os.close(self._file)


def read_log(path: Path) -> Iterator[Request]:
    """The records so far; a half-written last line is left for the next reader."""
    decoder = msgspec.json.Decoder(Request)
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
