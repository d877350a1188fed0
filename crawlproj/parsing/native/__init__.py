"""Pages read by C code, where that was built: `make` does it if the machine has a C compiler.

It comes to the same as `html`, `text` and `simhash`, which do it in Python with half as much CPU again, and
serve where it is missing or does not fit the installed selectolax, whose HTML parser it borrows.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from array import array
from collections.abc import Iterable, Set
from functools import cache
from pathlib import Path

import selectolax.lexbor

from crawlproj.parsing import text
from crawlproj.parsing.html import Head, canonical_of, may_follow

logger = logging.getLogger(__name__)

_LIBRARY = Path(__file__).with_name("libpage.so")
#: Versions of lexbor whose functions are as page.c declares them.
_KNOWN_LEXBORS = frozenset({(3, 1)})

#: That of page.c.
_VERSION = 2
#: The number lexbor gives to texts.
_TEXT_TAG = 2
#: What page.c wants to know of each tag, in the order of its bits.
_KINDS: tuple[Set[int], ...] = (
    text.UNWRAPPED,
    text.UNSEEN,
    text.DROPPED,
    text.NAMED,
    text.tag_ids({"p"}),
    text.tag_ids(text.ASIDE),
    text.tag_ids(text.ARTICLE),
    text.tag_ids({"body"}),
    text.tag_ids({"title"}),
    text.tag_ids({"head", "body", "noscript"}),
    text.tag_ids({"meta"}),
    text.tag_ids({"base"}),
    text.tag_ids({"a"}),
    text.tag_ids({"area"}),
    text.tag_ids({"iframe"}),
    text.tag_ids({"frame"}),
    text.tag_ids({"link"}),
    {_TEXT_TAG},
)
_LINK_KINDS = {"a": 1 << 12, "area": 1 << 13, "iframe": 1 << 14, "frame": 1 << 15, "link": 1 << 16}
_HEAD, _HREFS, _NAMES, _TEXT, _LINKED = range(5)
_FAST, _ALL = 0, 1
_NO_MEMORY = 1
#: What nesting.c needs for the name of an open element.
_NAME_BYTES = 24


class _Part(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("room", ctypes.c_size_t))


class _Library:
    """The C code beside this file, with the lexbor of selectolax. Raises OSError if it cannot be had."""

    def __init__(self) -> None:
        version = selectolax.lexbor.LEXBOR_VERSION_MAJOR, selectolax.lexbor.LEXBOR_VERSION_MINOR
        if version not in _KNOWN_LEXBORS:
            raise OSError("it was not tried with lexbor {}.{}".format(*version))
        library = ctypes.CDLL(str(_LIBRARY))
        if library.page_version() != _VERSION:
            raise OSError("it is of another version; run make")
        library.page_lend.restype = ctypes.c_char_p
        lexbor = ctypes.CDLL(selectolax.lexbor.__file__)
        if missing := library.page_lend(ctypes.c_void_p(lexbor._handle)):
            raise OSError(f"selectolax has no {missing.decode()}")
        # page.c keeps their address.
        self._kinds = (ctypes.c_uint32 * (1 + max(map(max, _KINDS))))()
        for bit, tags in enumerate(_KINDS):
            for tag in tags:
                self._kinds[tag] |= 1 << bit
        self._new_page = library.page_new
        self._new_page.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._new_page.restype = ctypes.c_void_p
        self.free = library.page_free
        self.free.argtypes = (ctypes.c_void_p,)
        self.free.restype = None
        self.read = library.page_read
        self.read.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32)
        self.text = library.page_text
        self.text.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        self.simhash = library.text_simhash
        self.simhash.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
        self.simhash.restype = ctypes.c_uint64
        self.is_deep = library.html_is_deep
        self.is_deep.argtypes = (
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
        )
        self.is_deep.restype = ctypes.c_bool

    def new_page(self) -> int:
        address: int | None = self._new_page(self._kinds, len(self._kinds))
        if address is None:
            raise MemoryError
        return address


@cache
def _library() -> _Library | None:
    if not _LIBRARY.exists():
        logger.info("Pages are read by Python. `make` builds what saves a third of it, with a C compiler.")
        return None
    try:
        return _Library()
    except (OSError, AttributeError) as exc:
        logger.warning("Pages are read by Python, with more CPU. %s cannot be used: %s", _LIBRARY, exc)
        return None


_of_thread = threading.local()


def reader() -> Reader | None:
    """Return what reads pages in this thread, None if Python has to."""
    library = _library()
    if library is None:
        return None
    found: Reader | None = getattr(_of_thread, "reader", None)
    if found is None:
        found = _of_thread.reader = Reader(library)
    return found


def simhash(words: bytes, most_words: int) -> tuple[int, int] | None:
    """Return the simhash of *words* as an unsigned number, and how many there were; None if Python has to."""
    library = _library()
    if library is None:
        return None
    count = ctypes.c_long()
    found = library.simhash(words, len(words), most_words, ctypes.addressof(count))
    if count.value < 0:
        raise MemoryError
    return found, count.value


def is_deep(html: bytes, shallow: Set[bytes], reopened: Set[bytes], most: int) -> bool | None:
    """Say whether elements of *html* are nested deeper than *most*; None if Python has to."""
    library = _library()
    if library is None:
        return None
    names = ctypes.create_string_buffer(most * _NAME_BYTES)
    return bool(library.is_deep(html, len(html), b" ".join(shallow), b" ".join(reopened), names, most))


class Reader:
    """Reads one page at a time: what `read` returns is good until it is called again."""

    def __init__(self, library: _Library) -> None:
        self._library = library
        self._page = library.new_page()
        self._parts = tuple((_Part * 5).from_address(self._page))
        self._has_odd_space = ctypes.c_bool.from_address(self._page + ctypes.sizeof(_Part) * 5)

    def __del__(self) -> None:
        if page := getattr(self, "_page", None):
            self._library.free(page)

    def read(self, html: bytes, link_tags: Iterable[str]) -> NativeHtml:
        links = sum(_LINK_KINDS[tag] for tag in set(link_tags))
        _check(self._library.read(self._page, html, len(html), links))
        return NativeHtml(self)

    def find_text(self, mode: int, hints: bytes) -> None:
        _check(self._library.text(self._page, mode, hints))

    def part(self, number: int) -> str:
        part = self._parts[number]
        return ctypes.string_at(part.data, part.length).decode("utf-8", "replace") if part.length else ""

    def lines(self, number: int) -> list[str]:
        lines = self.part(number).split("\n")
        if not self._has_odd_space.value and lines != [""]:
            return lines
        # C code strips what is white space to HTML.
        return [stripped for line in lines if (stripped := line.strip())]

    def fields(self, part: int, count: int) -> list[list[str]]:
        """Return the fields of *part* as *count* columns."""
        values = self.part(part).split("\0")
        return [values[column:-1:count] for column in range(count)]


def _check(status: int) -> None:
    if status == _NO_MEMORY:
        raise MemoryError
    if status:
        raise ValueError("the HTML parser gave up")


class NativeHtml:
    """A page that C code has read; see `Html`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def head(self) -> Head:
        found: dict[str, list[tuple[str, str, str]]] = {letter: [] for letter in "bhlmt"}
        letters, *values = self._reader.fields(_HEAD, 4)
        for letter, record in zip(letters, zip(*values, strict=True), strict=True):
            found[letter].append(record)
        base, language, title = (next((r[0] for r in found[letter] if r[0]), "") for letter in "bht")
        canonical = canonical_of((rel, href) for rel, href, _ in found["l"])
        return Head(title, found["m"], base, canonical, language)

    def hrefs(self, *, obey_rel_nofollow: bool) -> list[str]:
        tags, rels, hrefs = self._reader.fields(_HREFS, 3)
        if not any(rels) and not any(tags):
            return hrefs
        return [
            href
            for tag, rel, href in zip(tags, rels, hrefs, strict=True)
            if not (rel or tag) or may_follow(tag, rel, obey_rel_nofollow=obey_rel_nofollow)
        ]

    def text(self, mode: text.TextMode, *, is_last: bool = True) -> str:
        if mode == "all":
            self._reader.find_text(_ALL, b"")
            return "\n".join(self._reader.lines(_TEXT))
        if mode != "fast" or not is_last:
            raise ValueError(mode)
        hints = map(text.hint_of, *self._reader.fields(_NAMES, 3))
        self._reader.find_text(_FAST, array("b", hints).tobytes())
        return text.without_menus(self._reader.lines(_TEXT), self._reader.lines(_LINKED))
