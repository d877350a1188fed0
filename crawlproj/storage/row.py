"""What is stored of a page, in every format."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from crawlproj.errors import BadArgument
from crawlproj.model.records import Heading

#: Stands in every file. A column more keeps it; a column with another meaning or type takes a new one.
SCHEMA_VERSION = "1"


class PageRow(msgspec.Struct, kw_only=True, gc=False):
    """One page. Failures and what is not text have a row, too, without text."""

    url: str
    final_url: str
    redirected_from: str | None = None
    #: What the page itself calls its address.
    canonical_url: str | None = None
    domain: str
    depth: int
    #: 0 when there was no answer; `error` then says why.
    status: int
    #: In UTC, to the millisecond.
    fetched_at: datetime
    latency_ms: int
    content_type: str | None = None
    charset: str | None = None
    language: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    #: How the text was found.
    text_source: str | None = None
    #: All text, navigation included; only with CRAWL_FULL_TEXT.
    full_text: str | None = None
    #: The headings, in the order of the page; only with CRAWL_HEADINGS.
    headings: list[Heading] | None = None
    #: What the page declares: in UTC; midnight for a date without a time.
    published: datetime | None = None
    modified: datetime | None = None
    author: str | None = None
    site_name: str | None = None
    #: One of the kinds of docs/extraction.md.
    kind: str | None = None
    image: str | None = None
    paywalled: bool | None = None
    #: How many different links the page has.
    links: int = 0
    #: The links themselves; only with CRAWL_STORE_LINKS.
    link_urls: list[str] | None = None
    #: Bytes of the body, inflated.
    body_bytes: int = 0
    truncated: bool = False
    content_hash: str | None = None
    #: 64 bits as a signed integer, which every format and database has.
    simhash: int | None = None
    shard: int
    attempt: int
    error: str | None = None
    #: What the user's own selectors found, by their names.
    fields: dict[str, list[str]] | None = None


_HIGHEST_STATUS = 999

#: Every column, in the order of the files.
COLUMNS: tuple[str, ...] = PageRow.__struct_fields__

_encoder = msgspec.json.Encoder()
_checker = msgspec.msgpack.Encoder()
_decoder = msgspec.json.Decoder(PageRow)


def encode(row: PageRow) -> bytes:
    """Return *row* as JSON. Raises ValueError for text that is not Unicode (half a surrogate pair)."""
    return _encoder.encode(row)


def check(row: PageRow) -> None:
    """Raise ValueError for a row that not every format can hold."""
    # Whatever JSON cannot hold MessagePack cannot, either, and it tells three times sooner.
    _checker.encode(row)
    # The one number that a server chooses freely.
    if not 0 <= row.status <= _HIGHEST_STATUS:
        raise ValueError(f"status {row.status} is none of HTTP's")


def decode(data: bytes) -> PageRow:
    """Return the row that `encode` made into *data*. Raises ValueError for anything else."""
    return _decoder.decode(data)


def pick(row: PageRow, columns: Sequence[str]) -> dict[str, Any]:
    """Return the values of *columns*, in their order."""
    return {column: getattr(row, column) for column in columns}


def check_columns(columns: Sequence[str]) -> None:
    """Refuse names that are no columns."""
    for name in columns:
        if name not in COLUMNS:
            close = get_close_matches(name, COLUMNS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(COLUMNS)}."
            raise BadArgument(f"Unknown column {name!r}. {hint}")
