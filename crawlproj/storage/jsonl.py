"""One page as one line of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

#: How the names of such segments end.
SUFFIX = ".jsonl"


class PageRow(msgspec.Struct, kw_only=True, gc=False):
    """What is stored of a page. Failures and what is not text have a row, too, without text."""

    url: str
    final_url: str
    redirected_from: str | None = None
    domain: str
    depth: int
    status: int
    #: ISO 8601, UTC.
    fetched_at: str
    latency_ms: int
    content_type: str | None = None
    charset: str | None = None
    language: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    #: How many different links the page has.
    links: int = 0
    #: Bytes of the body, inflated.
    body_bytes: int = 0
    truncated: bool = False
    content_hash: str | None = None
    shard: int
    attempt: int
    error: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])


def encode(row: PageRow) -> bytes:
    return _encoder.encode(row) + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the row of a line. Raises ValueError for what is not one."""
    return _decoder.decode(line)
