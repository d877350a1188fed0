"""Pages as WARC 1.1: what the server sent, byte by byte, and what we made of it.

A page is a `response` record, a `conversion` record with its text (as in a WET file) and a `metadata` record
with its row as JSON. What got no answer, or has no text, lacks the first or the second. Each record is a
gzip member of its own, so that one can be read without the others.
"""

from __future__ import annotations

import gzip
import uuid
import zlib
from base64 import b32encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import msgspec

from crawlproj.model.records import Page
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.row import SCHEMA_VERSION, PageRow, decode, encode, pick

_LEVEL = 3
_SMALLEST_WINDOW = 10
_VERSION = b"WARC/1.1\r\n"
#: No header line of ours is longer, save for the URL in it.
_LONGEST_LINE = 1 << 20
_REASONS = {status.value: status.phrase for status in HTTPStatus}
#: They tell of a transfer that is over; the length is written anew.
_NOT_KEPT = frozenset({"transfer-encoding", "content-length", "connection", "keep-alive"})


class WarcSink:
    suffix: ClassVar[str] = ".warc.gz"

    def __init__(self, path: Path) -> None:
        self._name = path.name.removesuffix(".part")
        self._file = PartFile(path)

    @property
    def bytes_written(self) -> int:
        return self._file.bytes_written

    def append(self, row: PageRow, page: Page) -> None:
        # In one write: a page is there with all its records or not at all.
        records = [] if self.bytes_written else [self._info(page.run)]
        date, response = _date(row.fetched_at), ""
        if row.status:
            head = _http_head(page)
            response = _new_id()
            records.append(
                _record(
                    "response",
                    response,
                    date,
                    "application/http; msgtype=response",
                    head + page.body,
                    url=row.url,
                    # What came compressed gets no smaller, and trying costs a quarter of a millisecond.
                    level=0 if _came_compressed(page) else _LEVEL,
                    WARC_Payload_Digest=_digest(page.body),
                    WARC_Truncated="length" if page.truncated else "",
                )
            )
        if row.text is not None:
            records.append(
                _record(
                    "conversion",
                    _new_id(),
                    date,
                    "text/plain",
                    row.text.encode(),
                    url=row.url,
                    WARC_Refers_To=response,
                )
            )
        without_text = encode(msgspec.structs.replace(row, text=None))
        records.append(
            _record(
                "metadata",
                _new_id(),
                date,
                "application/json",
                without_text,
                url=row.url,
                WARC_Refers_To=response,
            )
        )
        self._file.write(b"".join(records))

    def close(self) -> None:
        self._file.sync_and_close()

    def abandon(self) -> None:
        self._file.abandon()

    def _info(self, run: str) -> bytes:
        lines = f"software: crawlproj\r\nformat: WARC File Format 1.1\r\nisPartOf: {run}\r\n"
        lines += f"crawlproj-schema: {SCHEMA_VERSION}\r\n"
        now = _date(datetime.now(UTC))
        return _record(
            "warcinfo", _new_id(), now, "application/warc-fields", lines.encode(), WARC_Filename=self._name
        )

    @staticmethod
    def read(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        text = None
        with gzip.open(path) as file:
            records = _records(cast("BinaryIO", file))
            _, info = next(records, ({}, b""))
            if f"crawlproj-schema: {SCHEMA_VERSION}\r\n".encode() not in info:
                raise ValueError(f"its schema is not version {SCHEMA_VERSION}, which this program reads")
            for headers, block in records:
                kind = headers["warc-type"]
                if kind == "conversion":
                    text = block.decode()
                elif kind == "metadata":
                    row = decode(block)
                    row.text, text = text, None
                    yield pick(row, columns)


def _new_id() -> str:
    return f"<{uuid.uuid4().urn}>"


def _date(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _digest(data: bytes) -> str:
    # Not for safety: SHA-1 in Base32 is what the tools of web archives compare by.
    return "sha1:" + b32encode(sha1(data, usedforsecurity=False).digest()).decode()


def _came_compressed(page: Page) -> bool:
    return any(name.lower() == "content-encoding" and value for name, value in page.headers.items())


def _http_head(page: Page) -> bytes:
    lines = [f"HTTP/1.1 {page.status} {_REASONS.get(page.status, '')}".rstrip()]
    for name, value in page.headers.items():
        if name.lower() not in _NOT_KEPT:
            lines.append(f"{name}: {' '.join(value.split())}")
    lines.append(f"Content-Length: {len(page.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _record(
    kind: str,
    record_id: str,
    date: str,
    content_type: str,
    block: bytes,
    url: str = "",
    level: int = _LEVEL,
    **more: str,
) -> bytes:
    """Return a record as a gzip member. ``WARC_Xyz=`` gives the header WARC-Xyz; no value, no header."""
    headers = {
        "WARC-Type": kind,
        "WARC-Record-ID": record_id,
        "WARC-Date": date,
        "WARC-Target-URI": url,
        **{name.replace("_", "-"): value for name, value in more.items()},
        "WARC-Block-Digest": _digest(block),
        "Content-Type": content_type,
        "Content-Length": str(len(block)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return _member(_VERSION + lines.encode() + b"\r\n" + block + b"\r\n\r\n", level)


def _member(data: bytes, level: int) -> bytes:
    # A window as large as the data will do; setting up the largest costs more than a small record.
    window = min(max(len(data).bit_length(), _SMALLEST_WINDOW), zlib.MAX_WBITS)
    member = zlib.compressobj(level, zlib.DEFLATED, 16 + window, memLevel=min(window - 5, 8))
    return member.compress(data) + member.flush()


def _records(file: BinaryIO) -> Iterator[tuple[dict[str, str], bytes]]:
    while version := file.readline(_LONGEST_LINE):
        if version != _VERSION:
            raise ValueError(f"a record begins with {version[:20]!r}")
        headers = {}
        while (line := file.readline(_LONGEST_LINE)) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers["content-length"])
        block = file.read(length)
        if len(block) < length or file.read(4) != b"\r\n\r\n":
            raise ValueError("its last record is cut off")
        yield headers, block
