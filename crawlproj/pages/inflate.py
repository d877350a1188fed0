"""Decompresses HTTP bodies, never beyond a limit and without failing."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import zstandard
from isal import isal_zlib

#: No honest server uses more layers.
_MOST_LAYERS = 4
_CHUNK_BYTES = 65_536
_PIECE_BYTES = 1024
_GZIP = 16 + zlib.MAX_WBITS
#: RFC 9659 allows no larger window for Content-Encoding: zstd.
_ZSTD_WINDOW_BYTES = 8 << 20
#: A block has at least 4 bytes and gives at most 128 KiB: 4 MiB from one piece.
_ZSTD_PIECE_BYTES = 128


def inflate(body: bytes, content_encoding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Return *body* decompressed, and whether some of it is missing.

    At most *max_bytes* are returned, and no layer is inflated further; of a damaged stream, what could be
    read. At an unknown encoding it stops and returns the body as it is at that layer.
    """
    layers = [name for part in content_encoding.lower().split(",") if (name := part.strip())]
    truncated = False
    for name in reversed(layers[-_MOST_LAYERS:]):
        if not body:
            break
        if name == "identity":
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            break
        body, damaged = decode(body, max_bytes)
        truncated = truncated or damaged
    if len(body) > max_bytes:
        return body[:max_bytes], True
    return body, truncated


def _gzip(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    if not body.startswith(b"\x1f\x8b"):
        # Some servers label plain bodies as gzip.
        return body, False
    first, missing, position = _inflated(body, max_bytes, _GZIP)
    members, left_bytes = [first], max_bytes - len(first)
    # A gzip stream may have several members; anything else after the first is padding. By position, since a
    # body may have a hundred thousand empty ones, and copying the rest for each would take minutes.
    while not missing and body.startswith(b"\x1f\x8b", position):
        member, missing, position = _salvaged(body, position, left_bytes, _GZIP)
        members.append(member)
        left_bytes -= len(member)
    return b"".join(members), missing


def _deflate(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    # The standard says zlib; some servers send a raw stream.
    out, missing, _ = _inflated(body, max_bytes, zlib.MAX_WBITS)
    if missing and not out:
        out, missing, _ = _inflated(body, max_bytes, -zlib.MAX_WBITS)
    return out, missing


def _inflated(body: bytes, max_bytes: int, window: int) -> tuple[bytes, bool, int]:
    """Inflate the stream at the start of *body*, like `_salvaged`, but faster if it is intact."""
    stream = isal_zlib.decompressobj(window)
    try:
        out = stream.decompress(body, max_bytes + 1)
    except isal_zlib.IsalError:  # type: ignore[misc]  # its stub has the class as an instance
        out = b""
    if len(out) > max_bytes:
        return out[:max_bytes], True, len(body)
    if not stream.eof:
        return _salvaged(body, 0, max_bytes, window)
    return out, False, len(body) - len(stream.unused_data)


def _salvaged(body: bytes, position: int, max_bytes: int, window: int) -> tuple[bytes, bool, int]:
    """Inflate the stream at *position*; returns the output, whether some is missing, and where it ends."""
    stream = zlib.decompressobj(window)
    out = bytearray()
    try:
        while position < len(body) and not stream.eof and len(out) <= max_bytes:
            # In small pieces, since zlib returns nothing of a piece that fails.
            piece = body[position : position + _PIECE_BYTES]
            position += len(piece)
            while piece and len(out) <= max_bytes:
                out += stream.decompress(piece, max_bytes + 1 - len(out))
                piece = stream.unconsumed_tail
    except zlib.error:
        return bytes(out[:max_bytes]), True, position
    missing = not stream.eof or len(out) > max_bytes
    return bytes(out[:max_bytes]), missing, position - len(stream.unused_data)


def _brotli(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = brotli.Decompressor()
    chunks: list[bytes] = []
    got_bytes, piece = 0, body
    try:
        while not stream.is_finished() and got_bytes <= max_bytes:
            chunk = stream.process(piece, output_buffer_limit=_CHUNK_BYTES)
            if not chunk and stream.can_accept_more_data():
                break
            chunks.append(chunk)
            got_bytes += len(chunk)
            piece = b""
        missing = not stream.is_finished() or got_bytes > max_bytes
    except brotli.error:
        missing = True
    return b"".join(chunks)[:max_bytes], missing


def _zstd(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    stream = decompressor.decompressobj()
    out = bytearray()
    position = 0
    try:
        while position < len(body) and len(out) <= max_bytes:
            if stream.eof:
                stream = decompressor.decompressobj()
            # The library cannot limit its output, only its input.
            piece = body[position : position + _ZSTD_PIECE_BYTES]
            out += stream.decompress(piece)
            position += len(piece) - len(stream.unused_data)
    except zstandard.ZstdError:
        return bytes(out[:max_bytes]), True
    return bytes(out[:max_bytes]), not stream.eof or len(out) > max_bytes


_DECODERS: dict[str, Callable[[bytes, int], tuple[bytes, bool]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
