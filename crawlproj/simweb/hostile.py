"""Sites that mean harm, or are broken beyond use: what they send, step by step. Pure; the server plays it.

Every kind is a page that the home page of its domain links to, or the domain's robots.txt. A step is drawn
only when the one before it has left for the socket, so that endless answers take no memory.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import chain, repeat
from random import Random
from typing import NamedTuple, Self

import brotli
import zstandard


class Hostile(StrEnum):
    NONE = ""
    SLOWLORIS = "slowloris"  # the head dribbles, a line a step, forever
    ENDLESS_HEADERS = "endless-headers"  # at full speed
    ENDLESS_LINE = "endless-line"  # one header line that never ends
    ENDLESS_1XX = "endless-1xx"  # "100 Continue" forever
    HEADER_FLOOD = "header-flood"  # 10,000 headers, then a page
    ENDLESS_BODY = "endless-body"  # no length, as fast as it is read
    ENDLESS_CHUNKS = "endless-chunks"
    CHUNK_OVERFLOW = "chunk-overflow"  # a chunk of 2**68 bytes
    DRIP = "drip"  # the body, one byte a step
    HANG = "hang"  # the request is read, nothing is answered
    HANG_HEAD = "hang-head"  # nothing after the head
    HANG_BODY = "hang-body"  # nothing after half of the body
    LONG_LENGTH = "long-length"  # Content-Length is more than is sent before the close
    SHORT_LENGTH = "short-length"  # Content-Length is less; what follows looks like the next answer
    RESET = "reset"  # RST after N bytes, one page for each of RESET_AFTER
    BOMB_GZIP = "bomb-gzip"
    BOMB_BR = "bomb-br"
    BOMB_ZSTD = "bomb-zstd"
    BOMB_NESTED = "bomb-nested"  # gzip in gzip
    GARBAGE = "garbage"  # noise instead of HTTP
    TLS = "tls"  # a TLS alert instead of HTTP
    REDIRECT_LOOP = "redirect-loop"  # over LOOP_DOMAINS domains
    REDIRECT_CHAIN = "redirect-chain"  # a path that counts up, forever
    REDIRECT_SELF = "redirect-self"  # the same path, a query that counts up, forever
    # Only of a robots.txt:
    BIG = "big"  # 10 MB; rules first, "Disallow: /" last
    REDIRECT_OTHER = "redirect-other"  # to a file of the next domain that has the rules of this one


REDIRECTS = (Hostile.REDIRECT_LOOP, Hostile.REDIRECT_CHAIN, Hostile.REDIRECT_SELF, Hostile.REDIRECT_OTHER)
BOMBS = (Hostile.BOMB_GZIP, Hostile.BOMB_BR, Hostile.BOMB_ZSTD, Hostile.BOMB_NESTED)
#: What a robots.txt can be, and a page.
ROBOTS_KINDS: tuple[Hostile, ...] = tuple(filter(None, Hostile))
PAGE_KINDS: tuple[Hostile, ...] = tuple(
    kind for kind in ROBOTS_KINDS if kind not in (Hostile.BIG, Hostile.REDIRECT_OTHER)
)
#: A robots.txt like this never gives a status: RFC 9309 takes it for unreachable, so nothing may be fetched.
UNREACHABLE = (
    Hostile.SLOWLORIS,
    Hostile.ENDLESS_HEADERS,
    Hostile.ENDLESS_LINE,
    Hostile.ENDLESS_1XX,
    Hostile.HANG,
    Hostile.RESET,
    Hostile.GARBAGE,
    Hostile.TLS,
)
#: Where a reset page is cut: before the answer, in the status line, the head, at its end and in the body.
RESET_AFTER = (0, 1, 8, 12, 15, 40, 60, 95, 96, 97, 98, 200)
#: Of a robots.txt: in the middle of the head.
ROBOTS_RESET_AFTER = 40
LOOP_DOMAINS = 3
_FLOOD_HEADERS = 10_000
_BIG_BYTES = 10_000_000
#: A write, and the time to the next at full speed: 64 MB a second at most.
_PIECE = 65_536
_BREATH_S = 0.001
#: Lets the client read what came before a reset.
_BEFORE_RESET_S = 0.02
_BOMB_STEP = 1 << 24
_TLS_ALERT = bytes.fromhex("15030300020246") + bytes.fromhex("160303004a020000460303")
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_POISON = b"<html><title>poison</title>the answer to nobody's request</html>\n"
_POISON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_POISON)


_PATH = re.compile(r"/hostile(-robots)?/([a-z0-9-]+)/(\d{1,6})(?:/|\?n=)(\d{1,9})")


class HostilePath(NamedTuple):
    """What a path below /hostile/ or /hostile-robots/ says."""

    kind: Hostile
    origin: int  # the domain that means harm; redirects lead to others, too
    number: int  # the bytes before a reset; how many redirects lie behind
    robots: bool = False

    @property
    def text(self) -> str:
        folder = "hostile-robots" if self.robots else "hostile"
        number = f"?n={self.number}" if self.kind is Hostile.REDIRECT_SELF else f"/{self.number}"
        return f"/{folder}/{self.kind}/{self.origin}{number}"

    def domain(self, domains: int) -> int:
        """The domain of a world of so many that has this path."""
        steps = self.number if self.kind in (Hostile.REDIRECT_LOOP, Hostile.REDIRECT_OTHER) else 0
        return (self.origin + steps) % domains

    def next(self, domains: int) -> Self | None:
        """Where a redirect leads; a number of 0 is the page, or the robots.txt, that it began with."""
        if self.kind is Hostile.REDIRECT_OTHER:
            return self._replace(number=1) if self.number == 0 else None
        if self.kind is Hostile.REDIRECT_LOOP:
            return self._replace(number=(self.number + 1) % min(LOOP_DOMAINS, domains))
        return self._replace(number=self.number + 1) if self.kind in REDIRECTS else None


def parse_path(target: str) -> HostilePath | None:
    match = _PATH.fullmatch(target)
    if match is None or match[2] not in ROBOTS_KINDS:
        return None
    path = HostilePath(Hostile(match[2]), int(match[3]), int(match[4]), match[1] is not None)
    return path if path.text == target else None


class End(StrEnum):
    FINISH = "finish"  # as after any answer: the connection lives on
    CLOSE = "close"
    RESET = "reset"  # RST, not FIN


class Step(NamedTuple):
    data: bytes
    #: After the data.
    wait_s: float = _BREATH_S


class Script(NamedTuple):
    """One hostile answer. *status* is 0 where the client can never know one."""

    status: int
    steps: Iterator[Step]
    end: End


def script(kind: Hostile, number: int, head: bytes, body: bytes, *, step_s: float, bomb_bytes: int) -> Script:
    """How *kind*, any but the redirects, spoils an answer; *head* and *body* are of what it could have been.

    *number* is where a reset comes, in bytes. A step that waits waits *step_s*.
    """
    status = 0 if kind in UNREACHABLE else 200
    if kind is Hostile.RESET:
        sent = (head + body)[:number]
        status = 200 if len(sent) >= len(head) else 0
        return Script(status, iter([Step(sent, _BEFORE_RESET_S)]), End.RESET)
    if kind is Hostile.DRIP:
        drops = (Step(body[n : n + 1], step_s) for n in range(len(body)))
        return Script(status, chain([Step(head)], drops), End.FINISH)
    if endless := _endless(kind, head, body, step_s):
        first, step = endless
        return Script(status, chain([Step(first)], repeat(step)), End.CLOSE)
    end = End.CLOSE if kind in (Hostile.LONG_LENGTH, Hostile.GARBAGE, Hostile.TLS) else End.FINISH
    return Script(status, iter([Step(_whole(kind, head, body, bomb_bytes))]), end)


def _endless(kind: Hostile, head: bytes, body: bytes, step_s: float) -> tuple[bytes, Step] | None:
    """What comes first, and what then repeats forever; None if *kind* has an end."""
    status_line = head[: head.index(b"\r\n") + 2]
    silence = Step(b"", step_s)
    match kind:
        case Hostile.SLOWLORIS:
            return status_line, Step(b"X-Slow: 1\r\n", step_s)
        case Hostile.ENDLESS_HEADERS:
            return status_line, Step(b"X-More: and more\r\n" * 800)
        case Hostile.ENDLESS_LINE:
            return status_line + b"X-Long: ", Step(b"long " * 3000)
        case Hostile.ENDLESS_1XX:
            return b"", Step(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)
        case Hostile.ENDLESS_BODY:
            return _framed(head) + body, Step(b"more " * (_PIECE // 5))
        case Hostile.ENDLESS_CHUNKS:
            first = _framed(head, _CHUNKED) + b"%x\r\n%b\r\n" % (len(body), body)
            return first, Step(b"%x\r\n%b\r\n" % (_PIECE, b"x" * _PIECE))
        case Hostile.CHUNK_OVERFLOW:
            return _framed(head, _CHUNKED) + b"%x\r\n" % 2**68 + body, Step(b"x" * 1000, step_s)
        case Hostile.HANG:
            return b"", silence
        case Hostile.HANG_HEAD:
            return head, silence
        case Hostile.HANG_BODY:
            return head + body[: len(body) // 2], silence
    return None


def _whole(kind: Hostile, head: bytes, body: bytes, bomb_bytes: int) -> bytes:
    """All of an answer that is sent at once."""
    match kind:
        case Hostile.HEADER_FLOOD:
            fields = head.index(b"\r\n") + 2
            flood = b"".join(b"X-Flood-%d: %d\r\n" % (n, n) for n in range(_FLOOD_HEADERS))
            return head[:fields] + flood + head[fields:] + body
        case Hostile.LONG_LENGTH:
            return _framed(head, _length(len(body) + 1000)) + body
        case Hostile.SHORT_LENGTH:
            return _framed(head, _length(len(body) // 2)) + body + _POISON_HEAD + _POISON
        case Hostile.GARBAGE:
            return Random(1).randbytes(_PIECE)
        case Hostile.TLS:
            return _TLS_ALERT
        case Hostile.BIG:
            filler = b"# nothing to see here\n"
            big = body + b"\n" + filler * (_BIG_BYTES // len(filler)) + b"User-agent: *\nDisallow: /\n"
            return _framed(head, _length(len(big))) + big
    codings = b"gzip, gzip" if kind is Hostile.BOMB_NESTED else kind.removeprefix("bomb-").encode()
    packed = bomb(body, kind, bomb_bytes)
    return _framed(head, b"Content-Encoding: %b\r\n" % codings, _length(len(packed))) + packed


def _length(count: int) -> bytes:
    return b"Content-Length: %d\r\n" % count


def _framed(head: bytes, *framing: bytes) -> bytes:
    """The head, with these header lines in place of its Content-Length."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line + b"\r\n" for line in lines if not line.startswith(b"Content-Length:")]
    return b"".join([*kept, *framing, b"\r\n"])


@lru_cache(maxsize=64)
def bomb(prefix: bytes, kind: Hostile, inflated_bytes: int) -> bytes:
    """*prefix* and then blanks, together *inflated_bytes*, compressed; a gigabyte takes up to a second."""
    blanks = inflated_bytes - len(prefix)
    pieces = [prefix, *repeat(b" " * _BOMB_STEP, blanks // _BOMB_STEP), b" " * (blanks % _BOMB_STEP)]
    if kind is Hostile.BOMB_BR:
        br = brotli.Compressor(quality=5, lgwin=24)
        return b"".join([*map(br.process, pieces), br.finish()])
    if kind is Hostile.BOMB_ZSTD:
        zstd = zstandard.ZstdCompressor(level=1).compressobj()
        return b"".join([*map(zstd.compress, pieces), zstd.flush()])
    packed = _gzip(pieces)
    return _gzip([packed]) if kind is Hostile.BOMB_NESTED else packed


def _gzip(pieces: list[bytes]) -> bytes:
    """One gzip member. Equal pieces are deflated once: after a full flush nothing refers back."""
    deflated: dict[int, bytes] = {}
    out, check, size = [b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"], 0, 0
    for piece in pieces:
        if id(piece) not in deflated:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            deflated[id(piece)] = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
        out.append(deflated[id(piece)])
        check, size = zlib.crc32(piece, check), size + len(piece)
    last = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return b"".join([*out, last, check.to_bytes(4, "little"), (size % 2**32).to_bytes(4, "little")])
