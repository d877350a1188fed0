"""Parses one HTTP/1.1 response, in pieces of any size, as servers really write them.

Pure: no sockets, no clock. The result does not depend on how the bytes are split, and the memory used besides
the body is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from scrapy.exceptions import DownloadFailedError

MAX_HEADER_LINES = 1000
#: A chunk size in hexadecimal with its extensions, which are ignored.
MAX_CHUNK_LINE_BYTES = 4096
#: "100 Continue", "103 Early Hints" before the final response.
MAX_INTERIM = 10

_STATUS_LINE = re.compile(rb"(?:HTTP/(\d{1,2})(?:\.(\d{1,2}))?|ICY)[ \t]+([1-9]\d\d)(?!\d)", re.IGNORECASE)
# Some servers end their lines with LF only, some only the last ones.
_HEAD_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"\d{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_KEEP_ALIVE_S = re.compile(rb"timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
#: Common header names, as they are written, and in the form in which they are stored.
_COMMON_NAMES = {
    form: name.title()
    for name in (
        *(b"Accept-Ranges", b"Access-Control-Allow-Origin", b"Age", b"Alt-Svc", b"Cache-Control", b"CF-RAY"),
        *(b"Connection", b"Content-Encoding", b"Content-Language", b"Content-Length", b"Content-Type"),
        *(b"Content-Security-Policy", b"Date", b"ETag", b"Expires", b"Keep-Alive", b"Last-Modified", b"Link"),
        *(b"Location", b"P3P", b"Pragma", b"Referrer-Policy", b"Retry-After", b"Server", b"Set-Cookie"),
        *(b"Strict-Transport-Security", b"Transfer-Encoding", b"Vary", b"Via", b"X-Cache", b"X-Powered-By"),
        *(b"X-Content-Type-Options", b"X-Frame-Options", b"X-Robots-Tag", b"X-XSS-Protection"),
    )
    for form in (name, name.lower(), name.title())
}
#: Longer status lines are not cached.
_SHORT_BYTES = 64


class BadResponseError(DownloadFailedError):
    """The response is not HTTP, or contradicts itself."""


class HeadersTooLargeError(DownloadFailedError):
    """The response headers exceed CRAWL_MAX_HEADERS."""


@dataclass(slots=True)
class Head:
    """The status line and the headers: names in title case, values unchanged, in order."""

    protocol: str
    status: int
    headers: dict[bytes, list[bytes]]
    #: Content-Length; None if missing, invalid, or overruled by chunked encoding.
    content_length: int | None
    is_chunked: bool
    #: Whether the server accepts another request on this connection.
    keeps_alive: bool

    @property
    def keep_alive_s(self) -> float | None:
        """How long the server keeps an idle connection, according to its Keep-Alive header."""
        for value in self.headers.get(b"Keep-Alive", ()):
            if found := _KEEP_ALIVE_S.search(value):
                return float(found[1])
        return None


class ResponseParser:
    """Takes a response piece by piece: `feed` each, and `feed_end` when the server closes.

    ``head`` is None until it is complete. ``is_complete``: the response ended properly. ``loss``: why its
    body no longer can (broken chunks, early close); what arrived before is valid.
    """

    # Class attributes, because few instances ever change more than three of them.
    head: Head | None = None
    is_complete = False
    loss: str | None = None
    _has_excess = False
    # Before the head is complete: what arrived of it, and how far it was searched for its end.
    _start = b""
    _later: bytearray | None = None
    _searched = 0
    _blank_bytes = 0
    _interim = 0
    # In the body: bytes left of it, or of the chunk; None: until the server closes.
    _left: int | None = None
    _line = b""
    _is_after_chunk = False
    _is_in_trailers = False
    _trailer_bytes = 0

    def __init__(self, *, is_head: bool, max_head_bytes: int) -> None:
        self._is_head = is_head
        self._max_head_bytes = max_head_bytes

    @property
    def may_reuse(self) -> bool:
        """Whether the connection is ready for another request."""
        return self.is_complete and not self._has_excess and self.head is not None and self.head.keeps_alive

    @property
    def left_bytes(self) -> int | None:
        """How much of the body is still missing, if that is known."""
        return None if self.head is None or self.head.is_chunked else self._left

    def feed(self, data: bytes) -> bytes:
        """Take *data*; return the part of the body in it.

        Feed no more after a `BadResponseError` or `HeadersTooLargeError`, nor when it is complete.
        """
        head = self.head
        if head is None:
            found = self._feed_head(data)
            if found is None:
                return b""
            head, data = found
            self._begin_body(head)
            if self.is_complete:
                self._has_excess = bool(data)
                return b""
        if head.is_chunked:
            return self._feed_chunks(data)
        left = self._left
        if left is None:
            return data
        if len(data) < left:
            self._left = left - len(data)
            return data
        self._left = 0
        self.is_complete = True
        if len(data) > left:
            self._has_excess = True
            return data[:left]
        return data

    def feed_end(self) -> None:
        """The server closed the connection properly."""
        if self.is_complete or self.loss or self.head is None:
            return
        if self._is_in_trailers or (self._left is None and not self.head.is_chunked):
            self.is_complete = True
            # The connection is closed, so it cannot be reused.
            self._has_excess = True
        elif self.head.is_chunked:
            self.loss = "the connection was closed before the last chunk"
        else:
            self.loss = f"the connection was closed {self._left} bytes before Content-Length"

    # --- the head -------------------------------------------------------------------------------------

    def _feed_head(self, data: bytes) -> tuple[Head, bytes] | None:
        """Take a piece of the head; return the head and what follows once it is complete."""
        while True:
            if not self._start and data[:1] in (b"\r", b"\n", b""):
                data = self._skip_blank_lines(data)
                if not data:
                    return None
            found = self._search_end(data)
            if found is None:
                return None
            text, rest = found
            head = _read_head(text, is_head=self._is_head)
            if head.status >= 200 or head.status == 101:
                return head, rest
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadResponseError(f"The server sent more than {MAX_INTERIM} interim responses (1xx).")
            self._start, self._later, self._searched = b"", None, 0
            data = rest

    def _skip_blank_lines(self, data: bytes) -> bytes:
        stripped = data.lstrip(b"\r\n")
        self._blank_bytes += len(data) - len(stripped)
        if self._blank_bytes > self._max_head_bytes:
            raise BadResponseError(
                f"The server sent {self._blank_bytes} bytes of blank lines instead of a response."
            )
        return stripped

    def _search_end(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return the head without its blank line and what follows, or None if it is not complete."""
        whole: bytes | bytearray
        # Most heads arrive in one piece and need no copy.
        if not self._start:
            self._start = whole = data
        else:
            if self._later is None:
                self._later = bytearray(self._start)
            self._later += data
            whole = self._later
        if not whole.startswith(b"HTTP/"):
            begin = bytes(whole[:5]).upper()
            if not b"HTTP/".startswith(begin) and not b"ICY ".startswith(begin[:4]):
                raise BadResponseError(f"The response begins with {bytes(whole[:40])!r}, not with HTTP/1.1.")
        found = _HEAD_END.search(whole, self._searched)
        length = found.start() if found else len(whole)
        # The blank line itself may be split, so its bytes do not count until it is found.
        if length > self._max_head_bytes + (0 if found else 2):
            raise HeadersTooLargeError(
                f"The response's headers exceed CRAWL_MAX_HEADERS={self._max_head_bytes} bytes."
            )
        if found is None:
            self._searched = max(0, len(whole) - 2)
            return None
        return bytes(whole[: found.start()]), bytes(whole[found.end() :])

    def _begin_body(self, head: Head) -> None:
        self.head = head
        self._start, self._later = b"", None
        has_none = self._is_head or head.status in (101, 204, 304)
        self._left = 0 if has_none or head.is_chunked else head.content_length
        self.is_complete = has_none or (self._left == 0 and not head.is_chunked)

    # --- a chunked body -------------------------------------------------------------------------------

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._line:
            data, self._line = self._line + data, b""
        pieces: list[bytes] = []
        position, size = 0, len(data)
        while position < size and not self.is_complete and self.loss is None:
            if self._left:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                self._is_after_chunk = not self._left
                continue
            end = data.find(b"\n", position)
            if (end if end >= 0 else size) - position > MAX_CHUNK_LINE_BYTES:
                self._refuse_line()
            elif end < 0:
                self._line = data[position:]
                break
            else:
                self._take_line(data[position:end].strip())
                position = end + 1
        if self.is_complete and position < size:
            self._has_excess = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take_line(self, line: bytes) -> None:
        """Take a line between chunks: the end of a chunk, the size of the next, or a trailer."""
        if self._is_in_trailers:
            self._trailer_bytes += len(line) + 1
            if not line:
                self.is_complete = True
            elif self._trailer_bytes > self._max_head_bytes:
                self._refuse_line()
        elif self._is_after_chunk:
            self._is_after_chunk = False
            if line:
                self.loss = f"{line[:40]!r} instead of the end of a chunk"
        elif size := _CHUNK_SIZE.fullmatch(line.partition(b";")[0].rstrip()):
            self._left = int(size[0], 16)
            self._is_in_trailers = not self._left
        else:
            self.loss = f"{line[:40]!r} is not a chunk size"

    def _refuse_line(self) -> None:
        if self._is_in_trailers:
            # The body is complete; the trailers are not worth waiting for.
            self.is_complete = self._has_excess = True
        else:
            self.loss = f"the line before a chunk exceeds {MAX_CHUNK_LINE_BYTES} bytes"


def _read_head(text: bytes, *, is_head: bool) -> Head:
    lines = text.split(b"\n")
    if len(lines) > MAX_HEADER_LINES + 1:
        raise HeadersTooLargeError(f"The response has more than {MAX_HEADER_LINES} header lines.")
    first = lines[0]
    status_line = (_read_known if len(first) <= _SHORT_BYTES else _read_status_line)(first)
    status = status_line.status
    headers = _read_headers(lines)
    codings = headers.get(b"Transfer-Encoding")
    is_chunked = codings is not None and b"chunked" in b",".join(codings).lower()
    lengths = headers.get(b"Content-Length")
    content_length = None
    if lengths and not is_chunked:
        # HEAD and 304 have no body, so contradictions do not matter.
        content_length = _read_length(lengths, may_differ=is_head or status == 304)
    return Head(
        protocol=status_line.protocol,
        status=status,
        headers=headers,
        content_length=content_length,
        is_chunked=is_chunked,
        # With both framings at once, readers disagree about where the body ends. And 101 ends HTTP.
        keeps_alive=(_keeps_alive(status_line, headers) and not (is_chunked and lengths) and status != 101),
    )


class _StatusLine(NamedTuple):
    protocol: str
    status: int
    #: Whether connections of this version are kept alive by default; None: never.
    keeps_alive: bool | None


def _read_status_line(line: bytes) -> _StatusLine:
    found = _STATUS_LINE.match(line)
    if found is None:
        raise BadResponseError(f"The response begins with {line[:40]!r} not HTTP/1.1.")
    major, minor, status = found.groups()
    protocol = f"HTTP/{(major or b'1').decode()}.{(minor or b'0').decode()}"
    is_old = major == b"1" and (minor or b"0") == b"0"
    return _StatusLine(protocol, int(status), None if major is None else not is_old)


_read_known = lru_cache(maxsize=256)(_read_status_line)


def _read_headers(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    values: list[bytes] | None = None
    for line in lines[1:]:
        written, colon, value = line.partition(b":")
        name = _COMMON_NAMES.get(written)
        if name is None:
            if line.startswith((b" ", b"\t")):
                # Obsolete line folding.
                if values:
                    values[-1] = values[-1] + b" " + line.strip()
                continue
            name = written.strip().title()
        if not colon or not name:
            values = None
            continue
        values = headers.get(name)
        if values is None:
            headers[name] = values = [value.strip()]
        else:
            values.append(value.strip())
    return headers


def _read_length(values: list[bytes], *, may_differ: bool) -> int | None:
    if len(values) == 1 and _LENGTH.fullmatch(values[0]):
        return int(values[0])
    found = {part.strip() for value in values for part in value.split(b",")}
    lengths = {int(text) for text in found if _LENGTH.fullmatch(text)}
    if len(lengths) > 1 and not may_differ:
        raise BadResponseError(f"The response has several lengths: {b', '.join(values)[:80]!r}.")
    # Invalid: read until the server closes, as browsers do.
    return lengths.pop() if len(lengths) == len(found) == 1 else None


def _keeps_alive(status_line: _StatusLine, headers: dict[bytes, list[bytes]]) -> bool:
    said = headers.get(b"Connection")
    if said is None or status_line.keeps_alive is None:
        return bool(status_line.keeps_alive)
    options = b",".join(said).lower()
    return b"close" not in options if status_line.keeps_alive else b"keep-alive" in options
