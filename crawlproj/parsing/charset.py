"""The charset of a body, as the HTML and Encoding standards find it, and its text."""

from __future__ import annotations

import codecs
import re

from resiliparse.parse.encoding import detect_encoding  # type: ignore[import-untyped]  # it has no types

#: How far into a body a declaration is looked for; the HTML standard's own number.
_PRESCAN_BYTES = 1024
#: How far it is looked for in a body that is not UTF-8 either: browsers start over when they meet a late one.
_LATE_BYTES = 65_536
#: How much of a body that declares nothing is shown to the detector.
_GUESS_BYTES = 16_384

#: The labels of the Encoding standard, and the Python codec that comes nearest to each of its encodings.
#: Only these are ever used: Python also knows codecs that are no text, or very slow on purpose (punycode).
_ENCODINGS: dict[str, tuple[str, str]] = {
    "utf-8": ("utf-8", "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8"),
    "ibm866": ("cp866", "866 cp866 csibm866"),
    "iso-8859-2": (
        "iso8859-2",
        """
        csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
        """,
    ),
    "iso-8859-3": (
        "iso8859-3",
        """
        csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
        """,
    ),
    "iso-8859-4": (
        "iso8859-4",
        """
        csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
        """,
    ),
    "iso-8859-5": (
        "iso8859-5",
        """
        csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988
        """,
    ),
    "iso-8859-6": (
        "iso8859-6",
        """
        arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i
        iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
        """,
    ),
    "iso-8859-7": (
        "iso8859-7",
        """
        csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7
        iso_8859-7:1987 sun_eu_greek
        """,
    ),
    "iso-8859-8": (
        "iso8859-8",
        """
        csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8
        iso_8859-8:1988 visual
        """,
    ),
    "iso-8859-8-i": ("iso8859-8", "csiso88598i logical"),
    "iso-8859-10": ("iso8859-10", "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6"),
    "iso-8859-13": ("iso8859-13", "iso8859-13 iso885913"),
    "iso-8859-14": ("iso8859-14", "iso8859-14 iso885914"),
    "iso-8859-15": ("iso8859-15", "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9"),
    "iso-8859-16": ("iso8859-16", ""),
    "koi8-r": ("koi8-r", "cskoi8r koi koi8 koi8_r"),
    "koi8-u": ("koi8-u", "koi8-ru"),
    "macintosh": ("mac-roman", "csmacintosh mac x-mac-roman"),
    "windows-874": ("cp874", "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620"),
    "windows-1250": ("cp1250", "cp1250 x-cp1250"),
    "windows-1251": ("cp1251", "cp1251 x-cp1251"),
    "windows-1252": (
        "cp1252",
        """
        ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591
        iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252
        """,
    ),
    "windows-1253": ("cp1253", "cp1253 x-cp1253"),
    "windows-1254": (
        "cp1254",
        """
        cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5
        latin5 x-cp1254
        """,
    ),
    "windows-1255": ("cp1255", "cp1255 x-cp1255"),
    "windows-1256": ("cp1256", "cp1256 x-cp1256"),
    "windows-1257": ("cp1257", "cp1257 x-cp1257"),
    "windows-1258": ("cp1258", "cp1258 x-cp1258"),
    "x-mac-cyrillic": ("mac-cyrillic", "x-mac-ukrainian"),
    "gbk": ("gb18030", "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk"),
    "gb18030": ("gb18030", ""),
    "big5": ("big5hkscs", "big5-hkscs cn-big5 csbig5 x-x-big5"),
    "euc-jp": ("euc_jp", "cseucpkdfmtjapanese x-euc-jp"),
    "iso-2022-jp": ("iso2022_jp", "csiso2022jp"),
    "shift_jis": ("cp932", "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis"),
    "euc-kr": (
        "cp949",
        """
        cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601
        windows-949
        """,
    ),
    "utf-16be": ("utf-16-be", "unicodefffe"),
    "utf-16le": ("utf-16-le", "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16"),
    # Not read at all: encodings in which ASCII bytes can hide other characters, and scripts with them.
    "replacement": ("", "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr"),
    "x-user-defined": ("latin-1", ""),
}
_NAMES = {label: name for name, (_, labels) in _ENCODINGS.items() for label in (name, *labels.split())}
#: Fewer bytes beyond ASCII than this tell the detector nothing.
_FEWEST_HIGH = 16
_HIGH = bytes(range(0x80, 0x100))
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
_USER_DEFINED = {code: 0xF700 + code for code in range(0x80, 0x100)}

_HEADER_CHARSET = re.compile(r";\s*charset\s*=\s*(?:\"([^\"]*)|'([^']*)|([^\s;\"']+))", re.IGNORECASE)
_CONTENT_CHARSET = re.compile(
    rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\"'\t\n\f\r ;][^\t\n\f\r ;]*))",
    re.IGNORECASE,
)
#: Where the prescan stops: a comment, a meta element, another tag, something else in angle brackets.
_MARKUP = re.compile(
    rb"<(?:(!--)|(meta)(?=[\t\n\f\r /])|(/?[a-z][^\t\n\f\r >]*)|[!/?])",
    re.IGNORECASE,
)
#: An attribute as the prescan reads it: name, then the value in one of its three forms.
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"
    rb"(?:[\t\n\f\r ]*=[\t\n\f\r ]*"
    rb"(?:\"([^\"]*)(?:\"|\Z)|'([^']*)(?:'|\Z)|([^\"'>\t\n\f\r ][^>\t\n\f\r ]*)?))?"
)
_NO_ATTRIBUTE = re.compile(rb"[\t\n\f\r /]*")
_XML_ENCODING = re.compile(rb"<\?xml[^>]*?encoding[\x00- ]*=[\x00- ]*([\"'])([^\"'\x00- ]+)\1")


def decode(body: bytes, content_type: str, truncated: bool, *, has_markup: bool = True) -> tuple[str, str]:
    """Return the text of *body* and the standard's name of its charset.

    In order: byte order mark, header, declaration in the first bytes, and for what declares nothing
    there UTF-16 by its zeros, UTF-8 if it is valid, a later declaration, or a guess. Never fails: what
    is wrong becomes U+FFFD. *truncated* says that the last character may be cut, *has_markup* that the
    body can declare anything.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decode(body[len(mark) :], name), name
    declared = _of_header(content_type) or (prescan(body[:_PRESCAN_BYTES]) if has_markup else None)
    if declared is not None:
        return _decode(body, declared), declared
    zeros = _utf16_by_zeros(body)
    if zeros is not None:
        return _decode(body, zeros), zeros
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not truncated), "utf-8"
    except UnicodeDecodeError:
        guess = (prescan(body[:_LATE_BYTES]) if has_markup else None) or _guess(body)
        return _decode(body, guess), guess


def transcode(body: bytes, content_type: str, truncated: bool) -> tuple[bytes, str]:
    """Return *body*, which has markup, in valid UTF-8, and the name of its charset as `decode` finds it."""
    text, name = decode(body, content_type, truncated)
    # Nearly all bodies are what they should be already.
    if name == "utf-8" and not truncated and "\ufffd" not in text and not body.startswith(codecs.BOM_UTF8):
        return body, name
    return text.encode("utf-8", "replace"), name


def name_of(label: str) -> str | None:
    """Return the standard's name, in small letters, for a charset label; None for what is not one."""
    return _NAMES.get(label.strip("\t\n\f\r ").lower())


def prescan(start: bytes) -> str | None:
    """Return the charset that the *start* of an HTML body declares, by the standard's prescan."""
    if start.startswith(b"<\0?\0x\0"):
        return "utf-16le"
    if start.startswith(b"\0<\0?\0x"):
        return "utf-16be"
    position = 0
    while markup := _MARKUP.search(start, position):
        position = markup.end()
        if markup[1]:
            # The dashes of "<!-->" are those of its end, too.
            end = start.find(b"-->", position - 2)
            if end < 0:
                break
            position = end + 3
        elif markup[2] or markup[3]:
            attributes, position = _attributes(start, position)
            if position >= len(start):
                break
            if markup[2] and (name := _of_meta(attributes)):
                return name
        else:
            position = start.find(b">", position - 1)
            if position < 0:
                break
    # An XML declaration counts when nothing else does.
    if start.startswith(b"<?xml") and (declaration := _XML_ENCODING.match(start)):
        return _readable(name_of(declaration[2].decode("latin-1")))
    return None


def _attributes(start: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    """Return the attributes of the tag that goes on at *position*, and where it ends."""
    attributes: dict[bytes, bytes] = {}
    while attribute := _ATTRIBUTE.match(start, position):
        position = attribute.end()
        value = attribute[2] or attribute[3] or attribute[4] or b""
        attributes.setdefault(attribute[1].lower(), value)
    blank = _NO_ATTRIBUTE.match(start, position)
    return attributes, blank.end() if blank else position


def _of_meta(attributes: dict[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        return _readable(name_of(attributes[b"charset"].decode("latin-1")))
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    found = _CONTENT_CHARSET.search(attributes.get(b"content", b""))
    if found is None:
        return None
    return _readable(name_of((found[1] or found[2] or found[3] or b"").decode("latin-1")))


def _readable(name: str | None) -> str | None:
    """Return what the standard uses in place of *name* when a document declares it about itself."""
    if name in ("utf-16le", "utf-16be"):
        # A declaration that could be read as ASCII is not in UTF-16, whatever it says.
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name


def _of_header(content_type: str) -> str | None:
    found = _HEADER_CHARSET.search(content_type)
    return name_of(found[1] or found[2] or found[3] or "") if found else None


def _utf16_by_zeros(body: bytes) -> str | None:
    """Return which UTF-16 *body* is in if every other byte of its start is mostly zero: markup is ASCII."""
    start = body[:_PRESCAN_BYTES]
    half = len(start) // 2
    if half < 2 or b"\0" not in start:
        return None
    zeros_first, zeros_second = start[::2].count(0), start[1::2].count(0)
    if zeros_second > half * 0.4 and zeros_first < half * 0.05:
        return "utf-16le"
    if zeros_first > half * 0.4 and zeros_second < half * 0.05:
        return "utf-16be"
    return None


def _guess(body: bytes) -> str:
    start = body[:_GUESS_BYTES]
    if len(start) - len(start.translate(None, _HIGH)) < _FEWEST_HIGH:
        return "windows-1252"
    guess: str | None = detect_encoding(start)
    name = name_of(guess) if guess else None
    # It can only be a charset of one or more bytes a character that is not UTF-8: that was tried.
    return name if name and not name.startswith(("utf-", "replacement", "x-")) else "windows-1252"


def _decode(body: bytes, name: str) -> str:
    if name == "replacement":
        return "\ufffd" if body else ""
    text = body.decode(_ENCODINGS[name][0], "replace")
    return text.translate(_USER_DEFINED) if name == "x-user-defined" else text
