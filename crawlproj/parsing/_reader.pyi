# Its code is in reader/module.c.
from collections.abc import Callable
from typing import Any

LINKS_A: int
LINKS_AREA: int
LINKS_IFRAME: int
LINKS_FRAME: int
LINKS_NEXT: int
OBEY_NOFOLLOW: int
MAIN_TEXT: int
ALL_TEXT: int
HEADINGS: int
LINE_FEATURES: int
PAGE_FEATURES: int

def read(html: bytes, wanted: int, /) -> tuple[Any, ...]: ...
def simhash(utf8: bytes, /) -> int | None: ...
def plain_links(
    hrefs: list[str],
    origin: str,
    folder: str,
    is_canonical: Callable[[str], bool],
    clean: Callable[[str], str],
    /,
) -> list[str | None]: ...
def valid_utf8(body: bytes, /) -> int: ...
def inspect(html: bytes, /) -> tuple[list[tuple[str, list[tuple[str, float]]]], bytes, bytes]: ...
