"""The stored columns of a page, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from crawlproj.errors import BadArgument
from crawlproj.model.records import Heading

#: Written to every file. A new column keeps it; a changed meaning or type of a column needs a new one.
SCHEMA_VERSION = "1"


class PageRow(msgspec.Struct, kw_only=True, gc=False):
    """One page. Failures and non-text responses have a row, too, without text."""

    url: str
    final_url: str
    redirected_from: str | None = None
    #: The address the page declares for itself.
    canonical_url: str | None = None
    domain: str
    depth: int
    #: 0 without a response; `error` then says why.
    status: int
    #: UTC, with milliseconds.
    fetched_at: datetime
    latency_ms: int
    content_type: str | None = None
    charset: str | None = None
    language: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    #: How the text was extracted.
    text_source: str | None = None
    #: All text, navigation included; only with CRAWL_FULL_TEXT.
    full_text: str | None = None
    #: In the order of the page; only with CRAWL_HEADINGS.
    headings: list[Heading] | None = None
    #: As the page declares, in UTC; midnight for a date without a time.
    published: datetime | None = None
    modified: datetime | None = None
    author: str | None = None
    site_name: str | None = None
    #: One of the kinds of docs/extraction.md.
    kind: str | None = None
    image: str | None = None
    paywalled: bool | None = None
    #: How many distinct links the page has.
    links: int = 0
    #: The links themselves; only with CRAWL_STORE_LINKS.
    link_urls: list[str] | None = None
    #: Bytes of the body, decompressed.
    body_bytes: int = 0
    truncated: bool = False
    content_hash: str | None = None
    #: 64 bits as a signed integer, which every format and database supports.
    simhash: int | None = None
    shard: int
    attempt: int
    error: str | None = None
    #: Results of the user's own selectors (CRAWL_FIELDS), by name.
    fields: dict[str, list[str]] | None = None


_HIGHEST_STATUS = 999

#: Every column, in the order of the files.
COLUMNS: tuple[str, ...] = PageRow.__struct_fields__

_encoder = msgspec.json.Encoder()
_checker = msgspec.msgpack.Encoder()
_decoder = msgspec.json.Decoder(PageRow)


def encode(row: PageRow) -> bytes:
    """Return *row* as JSON. Raises ValueError for text that is not Unicode (a lone surrogate)."""
    return _encoder.encode(row)


def check(row: PageRow) -> None:
    """Raise ValueError for a row that not every format can hold."""
    # MessagePack rejects the same rows as JSON, in a third of the time.
    _checker.encode(row)
    # The only number that a server chooses freely.
    if not 0 <= row.status <= _HIGHEST_STATUS:
        raise ValueError(f"{row.status} is not an HTTP status")


def decode(data: bytes) -> PageRow:
    """Return the row that `encode` made into *data*. Raises ValueError for anything else."""
    return _decoder.decode(data)


def pick(row: PageRow, columns: Sequence[str]) -> dict[str, Any]:
    return {column: getattr(row, column) for column in columns}


def check_columns(columns: Sequence[str]) -> None:
    """Raise BadArgument for an unknown column."""
    for name in columns:
        if name not in COLUMNS:
            close = get_close_matches(name, COLUMNS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Use: {', '.join(COLUMNS)}."
            raise BadArgument(f"Unknown column {name!r}. {hint}")
