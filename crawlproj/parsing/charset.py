"""The charset of a body, as the HTML standard finds it, and its text."""

from __future__ import annotations

import codecs

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
)

#: The encodings of the web, by their Python names. Others are refused, because Python knows
#: encodings that are no text, or that a hostile page can make very slow (punycode).
_WEB_ENCODINGS = frozenset(
    {
        *(
            "utf-8",
            "utf-16-le",
            "utf-16-be",
            "koi8-r",
            "koi8-u",
            "mac-roman",
            "mac-cyrillic",
            "cp866",
            "cp874",
        ),
        *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949"),
    }
)
#: How far into a body a declaration is looked for.
_PRESCAN_BYTES = 4096


def decode(body: bytes, content_type: str, truncated: bool) -> tuple[str, str]:
    """Return the text of *body* and the name of its charset. Never fails: what is wrong becomes U+FFFD.

    In order: byte order mark, header, declaration in the body, UTF-8 if it is valid, windows-1252.
    *truncated* says that the last character may be cut.
    """
    marked, mark = read_bom(body)
    if marked is not None and mark is not None:
        # UTF-32 is not an encoding of the web; its mark begins like that of UTF-16.
        name = "utf-16-le" if marked == "utf-32-le" else marked
        if name in _WEB_ENCODINGS:
            return body[len(mark) :].decode(name, "replace"), name
    declared = _allowed(http_content_type_encoding(content_type))
    if declared is None:
        declared = _allowed(html_body_declared_encoding(body[:_PRESCAN_BYTES]))
        # A declaration that could be read as ASCII is not in UTF-16, whatever it says.
        if declared is not None and declared.startswith("utf-16"):
            declared = "utf-8"
    if declared is not None:
        return body.decode(declared, "replace"), declared
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not truncated), "utf-8"
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace"), "windows-1252"


def _allowed(encoding: str | None) -> str | None:
    if encoding is None:
        return None
    if encoding == "utf-16":
        encoding = "utf-16-le"
    name = codecs.lookup(encoding).name
    return name if name in _WEB_ENCODINGS else None
