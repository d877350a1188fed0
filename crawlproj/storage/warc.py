"""Pages as WARC 1.1: the response byte by byte, and what was extracted from it.

A page is a `response` record, a `conversion` record with its text (as in a WET file) and a `metadata` record
with its row as JSON. Without a response or text, the first or second is missing. Each record is a gzip member
of its own, so that one can be read without the others.
"""

from __future__ import annotations

import gzip
import re
import uuid
import zlib
from base64 import b32encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha1
from http import HTTPStatus
from typing import Any, BinaryIO, ClassVar, cast

import msgspec

from crawlproj.model.records import Page
from crawlproj.storage.objects import Place, open_file
from crawlproj.storage.partfile import PART, PartFile
from crawlproj.storage.row import SCHEMA_VERSION, PageRow, decode, encode, pick

_LEVEL = 3
_SMALLEST_WINDOW = 10
_VERSION = b"WARC/1.1\r\n"

_LONGEST_LINE = 1 << 20
_CHUNK_BYTES = 1 << 17
_KIND = re.compile(rb"\r\nWARC-Type: (\w+)\r\n")
_REASONS = {status.value: status.phrase for status in HTTPStatus}
#: About the transfer, not the page; the length is written again.
_NOT_KEPT = frozenset({"transfer-encoding", "content-length", "connection", "keep-alive"})


class WarcSink(PartFile):
    suffix: ClassVar[str] = ".warc.gz"
    close = PartFile.sync_and_close

    def append(self, row: PageRow, page: Page) -> None:
        # In one write, so that a page has all its records or none.
        records = [] if self.bytes_written else [info_record(self.path.name.removesuffix(PART), page.run)]
        record = partial(_record, date=row.fetched_at, url=row.url)
        response = _new_id() if row.status else ""
        if response:
            records.append(
                record(
                    "response",
                    "application/http; msgtype=response",
                    _http_head(page) + page.body,
                    record_id=response,
                    # A compressed body gets no smaller, and trying costs a quarter of a millisecond.
                    level=0 if _came_compressed(page) else _LEVEL,
                    WARC_Payload_Digest=_digest(page.body),
                    WARC_Truncated="length" if page.truncated else "",
                )
            )
        records += _extracted(row, response)
        self.write(b"".join(records))

    @staticmethod
    def read(path: Place, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        text = None
        with open_file(path) as opened, gzip.open(opened) as file:
            records = _records(cast("BinaryIO", file))
            _, info = next(records, ({}, b""))
            if f"crawlproj-schema: {SCHEMA_VERSION}\r\n".encode() not in info:
                raise ValueError(f"not schema version {SCHEMA_VERSION}, which this program reads")
            for headers, block in records:
                kind = headers["warc-type"]
                if kind == "conversion":
                    text = block.decode()
                elif kind == "metadata":
                    row = decode(block)
                    row.text, text = text, None
                    yield pick(row, columns)


def info_record(name: str, run: str) -> bytes:
    """Return the first record of the file *name*."""
    lines = f"software: crawlproj\r\nformat: WARC File Format 1.1\r\nisPartOf: {run}\r\n"
    lines += f"crawlproj-schema: {SCHEMA_VERSION}\r\n"
    fields = "application/warc-fields"
    return _record("warcinfo", fields, lines.encode(), datetime.now(UTC), WARC_Filename=name)


def records_without_response(row: PageRow) -> bytes:
    """Return the records of a page whose response is not stored."""
    return b"".join(_extracted(row))


def page_records(path: Place) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of each page of a file, as the gzip members they are, and its row as JSON."""
    page: list[bytes] = []
    for member, record in _members(path):
        kind = _KIND.search(record)
        if kind is None:
            raise ValueError(f"a record begins with {record[:20]!r}")
        if kind[1] != b"warcinfo":
            page.append(member)
        if kind[1] == b"metadata":
            yield b"".join(page), record.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n")
            page.clear()
    if page:
        raise ValueError("the file is truncated")


def _members(path: Place) -> Iterator[tuple[bytes, bytes]]:
    """Yield each gzip member of a file, compressed and plain."""
    with open_file(path) as file:
        rest = file.read(_CHUNK_BYTES)
        while rest:
            inflater, member, plain = zlib.decompressobj(16 + zlib.MAX_WBITS), [], []
            while not inflater.eof:
                if not rest:
                    raise ValueError("the file is truncated")
                plain.append(inflater.decompress(rest))
                member.append(rest[: len(rest) - len(inflater.unused_data)])
                rest = inflater.unused_data or file.read(_CHUNK_BYTES)
            yield b"".join(member), b"".join(plain)


def _extracted(row: PageRow, response: str = "") -> Iterator[bytes]:
    record = partial(_record, date=row.fetched_at, url=row.url, WARC_Refers_To=response)
    if row.text is not None:
        yield record("conversion", "text/plain", row.text.encode())
    yield record("metadata", "application/json", encode(msgspec.structs.replace(row, text=None)))


def _new_id() -> str:
    return f"<{uuid.uuid4().urn}>"


def _digest(data: bytes) -> str:
    # Not for security: web archive tools compare SHA-1 in Base32.
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
    content_type: str,
    block: bytes,
    date: datetime,
    url: str = "",
    record_id: str = "",
    level: int = _LEVEL,
    **more: str,
) -> bytes:
    """Return a record as a gzip member. ``WARC_Xyz=`` sets the header WARC-Xyz unless it is empty."""
    headers = {
        "WARC-Type": kind,
        "WARC-Record-ID": record_id or _new_id(),
        "WARC-Date": date.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "WARC-Target-URI": url,
        **{name.replace("_", "-"): value for name, value in more.items()},
        "WARC-Block-Digest": _digest(block),
        "Content-Type": content_type,
        "Content-Length": str(len(block)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return _member(_VERSION + lines.encode() + b"\r\n" + block + b"\r\n\r\n", level)


def _member(data: bytes, level: int) -> bytes:
    # A window no larger than the data: setting up the largest costs more than a small record.
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
            raise ValueError("the last record is truncated")
        yield headers, block
