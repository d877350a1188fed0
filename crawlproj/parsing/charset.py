"""The charset of a body, as the HTML and Encoding standards find it, and its text."""

from __future__ import annotations

import codecs
import re
from functools import cache

from resiliparse.parse.encoding import detect_encoding  # type: ignore[import-untyped]  # it has no types

from crawlproj.parsing.html import valid_utf8

#: How far into a body to search for a declaration; the HTML standard's own number.
_PRESCAN_BYTES = 1024
#: How far to search a body that is not UTF-8 either: browsers start over at a late declaration.
_LATE_BYTES = 65_536
#: How much of a body that declares nothing is shown to the detector.
_GUESS_BYTES = 16_384

#: The encodings of the Encoding standard, and their labels.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8",
    "ibm866": "866 cp866 csibm866",
    "iso-8859-2": "csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso-8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso-8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 "
    "iso_8859-8 iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i logical",
    "iso-8859-10": "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso-8859-13": "iso8859-13 iso885913",
    "iso-8859-14": "iso8859-14 iso885914",
    "iso-8859-15": "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9",
    "iso-8859-16": "",
    "koi8-r": "cskoi8r koi koi8 koi8_r",
    "koi8-u": "koi8-ru",
    "macintosh": "csmacintosh mac x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "windows-1250": "cp1250 x-cp1250",
    "windows-1251": "cp1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 "
    "iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252",
    "windows-1253": "cp1253 x-cp1253",
    "windows-1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 "
    "l5 latin5 x-cp1254",
    "windows-1255": "cp1255 x-cp1255",
    "windows-1256": "cp1256 x-cp1256",
    "windows-1257": "cp1257 x-cp1257",
    "windows-1258": "cp1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-ukrainian",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk",
    "gb18030": "",
    "big5": "big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese x-euc-jp",
    "iso-2022-jp": "csiso2022jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis",
    "euc-kr": "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "utf-16be": "unicodefffe",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16",
    # Not read at all: encodings in which ASCII bytes can hide other characters, and scripts with them.
    "replacement": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr",
    "x-user-defined": "",
}
_NAMES = {label: name for name, labels in _LABELS.items() for label in (name, *labels.split())}
#: The Python codec that comes nearest to an encoding, where it has another name. Only these and those above
#: are ever used: Python also has codecs that are not for text, or very slow by design (punycode).
_CODECS = {
    "iso-8859-8-i": "iso8859-8",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jp",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "x-user-defined": "latin-1",
}
#: With fewer bytes beyond ASCII the detector can only guess.
_FEWEST_HIGH = 16
_HIGH = bytes(range(0x80, 0x100))
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))

#: Where the standard's tables differ from Python's; but for 198 rare characters of Big5.
_OTHER_BYTES = {
    "koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"},
    "windows-1255": {0xCA: "\u05ba"},
    "x-user-defined": {code: chr(0xF700 + code) for code in range(0x80, 0x100)},
}
_GB18030 = str.maketrans(
    "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7"
    "\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864",
    "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f"
    "\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
)
_CORRECTIONS = {
    "gbk": _GB18030,
    "gb18030": _GB18030,
    "big5": str.maketrans(
        "\u2022\uff64\u203e\u223c\u2641\u2609\xa5\xa2\xa3",
        "\u2027\ufe51\xaf\uff5e\u2295\u2299\uffe5\uffe0\uffe1",
    ),
    "euc-jp": str.maketrans("\u301c\u2016\u2212\xa2\xa3\xac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"),
    "shift_jis": str.maketrans("\uf8f0\uf8f1\uf8f2\uf8f3", "\ufffd" * 4),
}
#: The first bytes of a pair, by Python's codec, in encodings of several bytes a character.
_LEADS = {
    "gb18030": range(0x81, 0xFF),
    "big5hkscs": range(0x81, 0xFF),
    "cp949": range(0x81, 0xFF),
    "cp932": frozenset((*range(0x81, 0xA0), *range(0xE0, 0xFD))),
    "euc_jp": frozenset((0x8E, 0x8F, *range(0xA1, 0xFF))),
}
#: Rows of EUC-JP with the characters of NEC and IBM.
_VENDOR_ROWS = (0xAD, 0xF9, 0xFA, 0xFB, 0xFC)
_MULTI_BYTE = frozenset((*_LEADS, "utf-8", "utf-16le", "utf-16be", "iso-2022-jp"))
#: A body with more errors is in some other encoding, or not text at all.
_MOST_ERRORS = 100_000
_ERRORS = "crawlproj.charset"

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

    In order: byte order mark, header, declaration in the first bytes, and for a body that declares nothing
    there UTF-16 by its zeros, UTF-8 if it is valid, a later declaration, or a guess. Never fails:
    invalid bytes become U+FFFD. *truncated* says that the last character may be cut, *has_markup* that the
    body can declare anything.
    """
    body, name, _ = _identify(body, content_type, truncated, has_markup)
    return _decode(body, name, truncated), name


def transcode(body: bytes, content_type: str, truncated: bool) -> tuple[bytes, str]:
    """Return *body*, which has markup, in valid UTF-8, and the name of its charset as `decode` finds it.

    A valid body, as nearly all are, is returned as it is, without a copy.
    """
    body, name, is_utf8 = _identify(body, content_type, truncated, has_markup=True)
    return (body if is_utf8 else _decode(body, name, truncated).encode("utf-8", "replace")), name


def name_of(label: str) -> str | None:
    """Return the standard's name, in lower case, for a charset label; None for an unknown one."""
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
            # The dashes of "<!-->" also end it.
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
    """Return the attributes of the tag that continues at *position*, and where it ends."""
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


def _identify(body: bytes, content_type: str, truncated: bool, has_markup: bool) -> tuple[bytes, str, bool]:
    """Return *body* without its mark, the name of its charset, and whether it is known to be valid UTF-8.

    If it is, a character cut off at its end is dropped.
    """
    mark, marked = next((pair for pair in _MARKS if body.startswith(pair[0])), (b"", None))
    body = body[len(mark) :]
    declared = marked or _of_header(content_type) or (prescan(body[:_PRESCAN_BYTES]) if has_markup else None)
    name = declared or _utf16_by_zeros(body)
    if name in (None, "utf-8"):
        end = _utf8_end(body, truncated)
        if end is not None:
            return body[:end], "utf-8", True
    if name is None:
        name = (prescan(body[:_LATE_BYTES]) if has_markup else None) or _guess(body)
    return body, name, False


def _utf8_end(body: bytes, truncated: bool) -> int | None:
    """Return where *body* ends but for a character that was cut, or None if it is not valid UTF-8."""
    end = valid_utf8(body)
    try:
        # Nothing, or a character that may be cut.
        codecs.utf_8_decode(body[end:], "strict", not truncated)
    except UnicodeDecodeError:
        return None
    return end


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


def _decode(body: bytes, name: str, truncated: bool) -> str:
    if name == "replacement":
        return "\ufffd" if body else ""
    codec = _CODECS.get(name, name)
    if codec not in _MULTI_BYTE:
        return codecs.charmap_decode(body, "strict", _table(name))[0]
    make_decoder = codecs.getincrementaldecoder(codec)
    text = make_decoder("replace").decode(body, final=not truncated)
    # Our own error handler takes 0.7 us for each.
    if codec in _LEADS and 0 < text.count("\ufffd") <= _MOST_ERRORS:
        text = make_decoder(_ERRORS).decode(body, final=not truncated)
    # Searched one by one: hardly any text has one of them, and translate() takes 60 ns a character.
    if any(chr(code) in text for code in _CORRECTIONS.get(name, ())):
        text = text.translate(_CORRECTIONS[name])
    return text


@cache
def _table(name: str) -> str:
    """Return the character of each byte: that of Python's codec; where it has none, the control character."""
    table = dict(enumerate(bytes(range(256)).decode(_CODECS.get(name, name), "replace")))
    gaps = {code: chr(code) for code in range(0x80, 0xA0) if table[code] == "\ufffd"}
    return "".join((table | gaps | _OTHER_BYTES.get(name, {})).values())


def _multi_byte_error(error: UnicodeError) -> tuple[str, int]:
    """Return what the standard has for bytes that Python's codec cannot read, and where to continue.

    The second byte of an invalid pair is dropped, too, unless it is ASCII: it may be markup.
    """
    assert isinstance(error, UnicodeDecodeError)
    start, body = error.start, error.object
    lead, *rest = body[start : start + 3]
    if error.encoding == "gb18030" and lead == 0x80:
        return "€", start + 1
    if error.encoding == "euc_jp" and lead in _VENDOR_ROWS and rest and 0xA1 <= rest[0] < 0xFF:
        return _vendor_character(lead, rest[0]), start + 2
    if lead not in _LEADS[error.encoding] or not rest or rest[0] < 0x80:
        return "\ufffd", start + 1
    is_triple = error.encoding == "euc_jp" and lead == 0x8F and 0xA1 <= rest[0] < 0xFF
    return "\ufffd", start + (3 if is_triple and len(rest) > 1 and rest[1] >= 0x80 else 2)


def _vendor_character(lead: int, trail: int) -> str:
    """Return the character of a pair of EUC-JP that only vendors have: Python knows it in their Shift_JIS."""
    row, cell = lead - 0xA1, trail - 0xA1
    first = row // 2 + (0x81 if row < 62 else 0xC1)
    second = cell + (0x9F if row % 2 else 0x40 + (cell >= 63))
    text = bytes((first, second)).decode("cp932", "replace")
    return text if len(text) == 1 else "\ufffd"


codecs.register_error(_ERRORS, _multi_byte_error)
