"""A page as bytes: one version byte, then its fields as MessagePack. Never pickle."""

from __future__ import annotations

import msgspec
import zstandard

from crawlproj.errors import BadEnvelope
from crawlproj.model.records import Page

#: First byte of every envelope. A new layout takes a new byte.
VERSION = b"\xe3"
#: Below this many bytes compressing costs more than it saves.
_SMALL_BYTES = 1024
#: No page is larger; a size beyond it in an envelope means damage.
_LARGEST_BYTES = 1 << 30


class _Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields in the order they are written; a change of it is a new version."""

    url: str
    run: str
    domain: str
    depth: int
    status: int
    fetched_at_ms: int
    latency_ms: int
    headers: dict[str, str]
    body: bytes
    #: Bytes of the body before we compressed it, or -1 when it is as it came from the server.
    plain_bytes: int
    shard: int
    attempt: int
    partition: int
    lease: int
    truncated: bool
    redirected_from: str
    error: str
    sitemap_level: int
    hops: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Envelope)
#: One for all pages: a new one for each costs a third more. So pages are packed, and unpacked, in one thread.
#: By level 1 as it is for large inputs: what zstd itself takes for small ones costs 8 % more and saves 1 %.
_compressor = zstandard.ZstdCompressor(
    compression_params=zstandard.ZstdCompressionParameters.from_level(1, write_content_size=True)
)
_decompressor = zstandard.ZstdDecompressor()


def pack(page: Page) -> bytes:
    """Return *page* as bytes. A body the server did not compress is compressed when that makes it smaller."""
    body, plain_bytes = page.body, -1
    if len(body) > _SMALL_BYTES and not _came_compressed(page.headers):
        smaller = _compressor.compress(body)
        if len(smaller) < len(body):
            body, plain_bytes = smaller, len(body)
    return VERSION + _encoder.encode(
        _Envelope(
            url=page.url,
            run=page.run,
            domain=page.domain,
            depth=page.depth,
            status=page.status,
            fetched_at_ms=page.fetched_at_ms,
            latency_ms=page.latency_ms,
            headers=page.headers,
            body=body,
            plain_bytes=plain_bytes,
            shard=page.shard,
            attempt=page.attempt,
            partition=page.partition,
            lease=page.lease,
            truncated=page.truncated,
            redirected_from=page.redirected_from,
            error=page.error,
            sitemap_level=page.sitemap_level,
            hops=page.hops,
        )
    )


def unpack(data: bytes) -> Page:
    """Return the page that `pack` made into *data*. Raises BadEnvelope for anything else."""
    if data[:1] != VERSION:
        raise BadEnvelope(
            f"page record begins with {data[:1]!r}, expected {VERSION!r}: "
            "written by another version, or not a page record."
        )
    try:
        fields = _decoder.decode(memoryview(data)[1:])
        body = fields.body if fields.plain_bytes < 0 else _decompress(fields.body, fields.plain_bytes)
    except (msgspec.DecodeError, UnicodeDecodeError, zstandard.ZstdError, ValueError) as exc:
        raise BadEnvelope(f"page record of {len(data)} bytes is damaged: {exc}") from exc
    return Page(
        url=fields.url,
        run=fields.run,
        domain=fields.domain,
        depth=fields.depth,
        status=fields.status,
        fetched_at_ms=fields.fetched_at_ms,
        latency_ms=fields.latency_ms,
        headers=fields.headers,
        body=body,
        shard=fields.shard,
        attempt=fields.attempt,
        partition=fields.partition,
        lease=fields.lease,
        truncated=fields.truncated,
        redirected_from=fields.redirected_from,
        error=fields.error,
        sitemap_level=fields.sitemap_level,
        hops=fields.hops,
    )


def _came_compressed(headers: dict[str, str]) -> bool:
    for name, value in headers.items():
        if name.lower() == "content-encoding":
            return value.strip().lower() not in ("", "identity")
    return False


def _decompress(body: bytes, plain_bytes: int) -> bytes:
    # zstd allocates what the frame claims, so the claim is checked first.
    claimed = zstandard.frame_content_size(body)
    if claimed != plain_bytes or claimed > _LARGEST_BYTES:
        raise ValueError(f"body claims {claimed} bytes, its record {plain_bytes}")
    return _decompressor.decompress(body)
