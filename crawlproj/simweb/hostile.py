"""Sites that mean harm, or are broken beyond use: what they send, step by step. Pure; the server plays it.

Every kind is a page that the home page of its domain links to, or the domain's robots.txt. A step is drawn
only when the one before it has left for the socket, so that endless answers take no memory.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import repeat
from random import Random
from typing import NamedTuple, Self

import brotli
import zstandard


class Hostile(StrEnum):
    NONE = ""
    SLOWLORIS = "slowloris"  # the head dribbles, a line a step, for ever
    ENDLESS_HEADERS = "endless-headers"  # at full speed
    ENDLESS_LINE = "endless-line"  # one header line that never ends
    ENDLESS_1XX = "endless-1xx"  # "100 Continue" for ever
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
    REDIRECT_CHAIN = "redirect-chain"  # a path that counts up, for ever
    REDIRECT_SELF = "redirect-self"  # the same path, a query that counts up, for ever
    # Only of a robots.txt:
    BIG = "big"  # 10 MB; rules first, "Disallow: /" last
    REDIRECT_OTHER = "redirect-other"  # to a file of the next domain that has the rules of this one


REDIRECTS = (Hostile.REDIRECT_LOOP, Hostile.REDIRECT_CHAIN, Hostile.REDIRECT_SELF, Hostile.REDIRECT_OTHER)
BOMBS = (Hostile.BOMB_GZIP, Hostile.BOMB_BR, Hostile.BOMB_ZSTD, Hostile.BOMB_NESTED)
ROBOTS_ONLY = (Hostile.BIG, Hostile.REDIRECT_OTHER)
#: The hostile pages, and what a robots.txt can be as well.
PAGE_KINDS = tuple(kind for kind in Hostile if kind and kind not in ROBOTS_ONLY)
ROBOTS_KINDS = tuple(kind for kind in Hostile if kind)
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


class _Good(NamedTuple):
    """The answer that is to be spoilt."""

    head: bytes
    body: bytes
    step_s: float
    reset_after: int
    bomb_bytes: int

    @property
    def status_line(self) -> bytes:
        return self.head[: self.head.index(b"\r\n") + 2]

    @property
    def fields(self) -> bytes:
        return self.head[len(self.status_line) :]

    def framed(self, *framing: bytes) -> bytes:
        """The head, with these header lines in place of its Content-Length."""
        return self.status_line + _without_length(self.fields) + b"".join(framing) + b"\r\n"

    def silence(self) -> Iterator[Step]:
        return repeat(Step(b"", self.step_s))


def script(kind: Hostile, number: int, head: bytes, body: bytes, *, step_s: float, bomb_bytes: int) -> Script:
    """How *kind* spoils an answer; *head* and *body* are those of the page it could have been.

    *number* is where a reset comes, in bytes. A step that waits waits *step_s*.
    """
    return _SCRIPTS[kind](_Good(head, body, step_s, number, bomb_bytes))


def _endless(status: int, first: bytes, rest: Iterator[Step]) -> Script:
    return Script(status, _then(first, rest), End.CLOSE)


def _once(status: int, data: bytes, end: End = End.FINISH) -> Script:
    return Script(status, iter([Step(data)]), end)


def _then(first: bytes, rest: Iterator[Step]) -> Iterator[Step]:
    yield Step(first)
    yield from rest


def _slowloris(good: _Good) -> Script:
    return _endless(0, good.status_line, repeat(Step(b"X-Slow: 1\r\n", good.step_s)))


def _endless_headers(good: _Good) -> Script:
    return _endless(0, good.status_line, repeat(Step(b"X-More: and more\r\n" * 800)))


def _endless_line(good: _Good) -> Script:
    return _endless(0, good.status_line + b"X-Long: ", repeat(Step(b"long " * 3000)))


def _endless_1xx(good: _Good) -> Script:
    return _endless(0, b"", repeat(Step(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)))


def _header_flood(good: _Good) -> Script:
    flood = b"".join(b"X-Flood-%d: %d\r\n" % (n, n) for n in range(_FLOOD_HEADERS))
    return _once(200, good.status_line + flood + good.fields + good.body)


def _endless_body(good: _Good) -> Script:
    return _endless(200, good.framed() + good.body, repeat(Step(b"more " * (_PIECE // 5))))


def _endless_chunks(good: _Good) -> Script:
    first = good.framed(_CHUNKED) + b"%x\r\n%b\r\n" % (len(good.body), good.body)
    return _endless(200, first, repeat(Step(b"%x\r\n%b\r\n" % (_PIECE, b"x" * _PIECE))))


def _chunk_overflow(good: _Good) -> Script:
    first = good.framed(_CHUNKED) + b"%x\r\n" % 2**68
    return _endless(200, first + good.body, repeat(Step(b"x" * 1000, good.step_s)))


def _drip(good: _Good) -> Script:
    drops = (Step(good.body[n : n + 1], good.step_s) for n in range(len(good.body)))
    return Script(200, _then(good.head, drops), End.FINISH)


def _hang(good: _Good) -> Script:
    return _endless(0, b"", good.silence())


def _hang_head(good: _Good) -> Script:
    return _endless(200, good.head, good.silence())


def _hang_body(good: _Good) -> Script:
    return _endless(200, good.head + good.body[: len(good.body) // 2], good.silence())


def _long_length(good: _Good) -> Script:
    return _once(200, good.framed(_length(len(good.body) + 1000)) + good.body, End.CLOSE)


def _short_length(good: _Good) -> Script:
    lying = good.framed(_length(len(good.body) // 2))
    return _once(200, lying + good.body + _POISON_HEAD + _POISON)


def _reset(good: _Good) -> Script:
    sent = (good.head + good.body)[: good.reset_after]
    status = 200 if len(sent) >= len(good.head) else 0
    return Script(status, iter([Step(sent, _BEFORE_RESET_S)]), End.RESET)


def _bomb(kind: Hostile) -> Callable[[_Good], Script]:
    codings = b"gzip, gzip" if kind is Hostile.BOMB_NESTED else kind.removeprefix("bomb-").encode()

    def make(good: _Good) -> Script:
        packed = bomb(good.body, kind, good.bomb_bytes)
        return _once(200, good.framed(b"Content-Encoding: %b\r\n" % codings, _length(len(packed))) + packed)

    return make


def _garbage(good: _Good) -> Script:
    return _once(0, Random(1).randbytes(_PIECE), End.CLOSE)


def _tls(good: _Good) -> Script:
    return _once(0, _TLS_ALERT, End.CLOSE)


def _big(good: _Good) -> Script:
    filler = b"# nothing to see here\n"
    big = good.body + b"\n" + filler * (_BIG_BYTES // len(filler)) + b"User-agent: *\nDisallow: /\n"
    return _once(200, good.framed(_length(len(big))) + big)


#: All but the redirects, which are answers like any other.
_SCRIPTS: dict[Hostile, Callable[[_Good], Script]] = {
    Hostile.SLOWLORIS: _slowloris,
    Hostile.ENDLESS_HEADERS: _endless_headers,
    Hostile.ENDLESS_LINE: _endless_line,
    Hostile.ENDLESS_1XX: _endless_1xx,
    Hostile.HEADER_FLOOD: _header_flood,
    Hostile.ENDLESS_BODY: _endless_body,
    Hostile.ENDLESS_CHUNKS: _endless_chunks,
    Hostile.CHUNK_OVERFLOW: _chunk_overflow,
    Hostile.DRIP: _drip,
    Hostile.HANG: _hang,
    Hostile.HANG_HEAD: _hang_head,
    Hostile.HANG_BODY: _hang_body,
    Hostile.LONG_LENGTH: _long_length,
    Hostile.SHORT_LENGTH: _short_length,
    Hostile.RESET: _reset,
    Hostile.GARBAGE: _garbage,
    Hostile.TLS: _tls,
    Hostile.BIG: _big,
    **{kind: _bomb(kind) for kind in BOMBS},
}


def _length(count: int) -> bytes:
    return b"Content-Length: %d\r\n" % count


def _without_length(fields: bytes) -> bytes:
    """The header lines before the empty one, Content-Length left out."""
    lines = fields.removesuffix(b"\r\n\r\n").split(b"\r\n")
    return b"".join(line + b"\r\n" for line in lines if not line.startswith(b"Content-Length:"))


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
