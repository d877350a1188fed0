"""Committed pages, read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawlproj.errors import BadArgument, CrawlError
from crawlproj.storage import jsonl


def read_pages(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all committed segments in *directory*, one dict a page, segment by segment.

    Segments still being written are left out, so this is safe while a crawl runs.
    """
    path = Path(directory)
    if not path.is_dir():
        raise BadArgument(f"{str(path)!r} is not a directory; pages are in DATA/runs/RUN/pages.")
    for segment in sorted(path.glob("*" + jsonl.SUFFIX)):
        with segment.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield jsonl.decode(line)
                except ValueError as exc:
                    raise CrawlError(f"{segment} line {number} is not a page: {exc}") from exc
