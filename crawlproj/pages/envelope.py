"""A page as bytes: a version byte, then its fields as MessagePack. Never pickle."""

from __future__ import annotations

import re
from operator import attrgetter

import msgspec
import zstandard

from crawlproj.errors import BadEnvelope
from crawlproj.model.records import Page

#: First byte of every envelope. A new layout needs a new byte.
VERSION = b"\xe4"
#: What `fail_page.lua` puts before the envelope of a page that is tried again: how often it has failed.
_FAILED = re.compile(rb"failed \d+ ")
#: Below this size compressing costs more than it saves.
_SMALL_BYTES = 1024
#: No page is larger; a greater size in an envelope means damage.
_LARGEST_BYTES = 1 << 30


class _Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields of a `Page` in the order they are written; another order needs a new version."""

    url: str
    run: str
    domain: str
    depth: int
    status: int
    fetched_at_ms: int
    latency_ms: int
    headers: dict[str, str]
    body: bytes
    #: Bytes of the body before we compressed it; -1 if we did not.
    plain_bytes: int
    shard: int
    attempt: int
    truncated: bool
    redirected_from: str
    error: str
    sitemap_level: int
    hops: int
    #: The last two are left out when there are no items.
    items: list[str] = []
    is_bare: bool = False


_BODY = _Envelope.__struct_fields__.index("body")
_all_but_body = attrgetter(
    *(name for name in _Envelope.__struct_fields__ if name not in ("body", "plain_bytes"))
)
#: How many there are before the items.
_ITEMS = len(_Envelope.__struct_fields__) - len(("items", "is_bare")) - len(("body", "plain_bytes"))
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Envelope)
#: Shared, so pages are packed and unpacked in one thread: a new one per page costs a third more. The
#: parameters of level 1 for large inputs: those zstd picks for small ones cost 8 % more time and save 1 %.
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
    others = _all_but_body(page)
    if not page.items:
        others = others[:_ITEMS]
    return VERSION + _encoder.encode((*others[:_BODY], body, plain_bytes, *others[_BODY:]))


def unpack(data: bytes) -> Page:
    """Return the page that `pack` made into *data*. Raises BadEnvelope for anything else."""
    data = envelope_of(data)
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
    others = _all_but_body(fields)
    values = (*others[:_BODY], body, *others[_BODY:])
    return Page(*values)


def envelope_of(data: bytes) -> bytes:
    """Return *data*, an element of the page queue, without the count of its failures."""
    if data[:1] == VERSION:
        return data
    failed = _FAILED.match(data)
    return data[failed.end() :] if failed else data


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
