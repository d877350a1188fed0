"""All pages of a run as one WARC file."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice

from crawlproj.storage.export import Output
from crawlproj.storage.reader import Places, committed_files, named_damage
from crawlproj.storage.row import COLUMNS, PageRow
from crawlproj.storage.warc import WarcSink, info_record, page_records, records_without_response


def write_warc(output: Output, name: str, run: str, directory: Places, limit: int | None = None) -> int:
    """Write the pages in *directory* to the file *name*; returns how many have no response record.

    Compressed, a gzip member for each record, unless *name* ends in ``.warc``. Only segments that were
    stored as WARC hold responses. Raises BadSegment for a damaged file.
    """
    is_plain = name.lower().endswith(".warc")
    bare = 0
    output.write(_as(info_record(name, run), is_plain))
    for records, has_response in islice(_pages(directory), limit):
        output.write(_as(records, is_plain))
        bare += not has_response
    return bare


def _as(members: bytes, is_plain: bool) -> bytes:
    return gzip.decompress(members) if is_plain else members


def _pages(directory: Places) -> Iterator[tuple[bytes, bool]]:
    """Yield the records of each page, and whether they are all there were."""
    for path, sink in committed_files(directory):
        archive = path.with_name(path.name.removesuffix(sink.suffix) + WarcSink.suffix)
        with named_damage(path):
            if archive.exists():
                yield from ((records, True) for records, _ in page_records(archive))
            else:
                rows = (PageRow(**columns) for columns in sink.read(path, COLUMNS))
                yield from ((records_without_response(row), not row.status) for row in rows)
