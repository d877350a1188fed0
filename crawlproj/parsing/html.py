"""What is read from HTML: one pass of the reader over the page. Pure.

The reader is C (`crawlproj/parsing/reader`, docs/decisions/0010), built by ``make`` and by ``pip``. Where it
cannot be built, `plain` reads pages with a library: slower, and with less care for the text.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.resources import as_file, files
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from zipimport import zipimporter

from crawlproj.config import Config
from crawlproj.parsing.head import Head, Html
from crawlproj.parsing.plain import read_plainly

logger = logging.getLogger(__name__)

_READER = "crawlproj.parsing._reader"
_DEFAULTS = Config()


def _import_reader() -> ModuleType | None:
    try:
        if isinstance(globals()["__loader__"], zipimporter):
            return _unpack_reader()
        return import_module(_READER)
    except (ImportError, OSError) as exc:
        logger.warning(
            "The HTML reader is not built (%s): pages are read by a slower library, whose texts are less "
            "exact, and have no simhash. Install a C compiler and Python's headers (gcc, python3-dev), then "
            "run make.",
            exc,
        )
        return None


def _unpack_reader() -> ModuleType:
    """Load the reader out of an egg, as scrapyd has them: the system loads no library from a zip."""
    with as_file(files("crawlproj.parsing") / "_reader.abi3.so") as path:
        loader = ExtensionFileLoader(_READER, str(path))
        reader = module_from_spec(spec_from_loader(_READER, loader))  # type: ignore[arg-type]  # never None here
        loader.exec_module(reader)
    return reader


_reader = _import_reader()
#: The elements whose links can be asked for. ``link`` stands for ``<link rel=next>``.
_LINKS: dict[str, int] = (
    {
        "a": _reader.LINKS_A,
        "area": _reader.LINKS_AREA,
        "iframe": _reader.LINKS_IFRAME,
        "frame": _reader.LINKS_FRAME,
        "link": _reader.LINKS_NEXT,
    }
    if _reader
    else {}
)


def read_html(html: bytes, config: Config = _DEFAULTS) -> Html:
    """Read *html*, which is UTF-8: the text, links and headings that *config* asks for."""
    if _reader is None:
        return read_plainly(html, config)
    wanted = _reader.MAIN_TEXT if config.text == "main" else _reader.ALL_TEXT
    for tag in config.link_tags:
        wanted |= _LINKS[tag]
    if config.full_text:
        wanted |= _reader.ALL_TEXT
    if config.headings:
        wanted |= _reader.HEADINGS
    if config.obey_rel_nofollow:
        wanted |= _reader.OBEY_NOFOLLOW
    *head, hrefs, main, everything = _reader.read(html, wanted)
    if main is None:
        source = "all" if everything else None
        return Html(Head(*head), hrefs, everything, source, everything if config.full_text else None)
    found, source = main
    return Html(Head(*head), hrefs, found, source, everything)


def simhash_of(text: str) -> int | None:
    """Return 64 bits, signed, of which texts that are nearly the same differ in few; None without words.

    Each bit is set if it is in the hashes of most of the different words; those with the same CRC are taken
    for one. It is the same on every machine, and no secret: a page that wants to resemble another one can.
    """
    if _reader is None:
        return None
    number: int | None = _reader.simhash(text.encode("utf-8", "replace"))
    return number


def valid_utf8(body: bytes) -> int:
    """Return how many bytes of *body*, from its start, are whole and valid characters."""
    if _reader is not None:
        end: int = _reader.valid_utf8(body)
        return end
    try:
        return codecs.utf_8_decode(body, "strict", False)[1]
    except UnicodeDecodeError as exc:
        return exc.start


def plain_links(
    hrefs: list[str],
    origin: str,
    folder: str,
    is_canonical: Callable[[str], bool],
    clean: Callable[[str], str],
) -> list[str | None]:
    """Return the canonical URLs of those *hrefs* that need no URL parser, None for the others.

    *origin* is that of the page, *folder* its URL up to the last slash. *is_canonical* judges other origins;
    *clean* is asked for what has a query, escapes or parameters.
    """
    if _reader is None:
        return [None] * len(hrefs)
    links: list[str | None] = _reader.plain_links(hrefs, origin, folder, is_canonical, clean)
    return links
