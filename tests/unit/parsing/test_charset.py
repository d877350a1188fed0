from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.charset import decode, name_of, prescan, transcode
from tests.patience import PATIENCE_S

CACHE = Path(__file__).parents[3] / ".cache"
#: html5lib's own test data, as its source distribution carries it.
HTML5LIB = "html5lib-1.1"
HTML5LIB_SHA256 = "b2e5b40261e20f354d198eae92afc10d750afb487ed5e50f9c4eaf07c184146f"
UTF_16_WORDS = "<!doctype html><p>grün"


@pytest.mark.parametrize(
    ("body", "content_type", "charset"),
    [
        # A byte order mark goes over everything.
        ("\ufeffgrün".encode(), "text/html; charset=windows-1251", "utf-8"),
        ("\ufeffgrün".encode("utf-16-le"), "text/html; charset=utf-8", "utf-16le"),
        ("\ufeffgrün".encode("utf-16-be"), "text/html", "utf-16be"),
        # Then the header.
        ("grün".encode("latin-1"), "text/html; charset=ISO-8859-1", "windows-1252"),
        ("grün".encode("latin-1"), 'text/html; Charset="latin1"', "windows-1252"),
        ("grün".encode("latin-1"), "text/html;charset = 'l1' ; x=y", "windows-1252"),
        ("grün".encode("utf-16-le"), "text/html; charset=utf-16", "utf-16le"),
        ('<meta charset="latin1">grün'.encode(), "text/html; charset=utf-8", "utf-8"),
        # Then the declaration in the document.
        ('<meta charset="iso-8859-2">grün'.encode("iso-8859-2"), "text/html", "iso-8859-2"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">gr', "text/html", "koi8-r"),
        ('<meta charset="utf-16">grün'.encode(), "text/html", "utf-8"),
        ("<meta charset=x-user-defined>grün".encode("latin-1"), "text/html", "windows-1252"),
        ('<?xml version="1.0" encoding="iso-8859-2"?>ü'.encode("iso-8859-2"), "text/html", "iso-8859-2"),
        # Then the content.
        ("grün".encode(), "text/html", "utf-8"),
        ("grün".encode("latin-1"), "text/html", "windows-1252"),
        (UTF_16_WORDS.encode("utf-16-le"), "text/html", "utf-16le"),
        (UTF_16_WORDS.encode("utf-16-be"), "text/html", "utf-16be"),
        ((" " * 2000 + "<meta charset=iso-8859-2>ü").encode("iso-8859-2"), "text/html", "iso-8859-2"),
        # A label that is not an encoding of the web is ignored.
        ("grün".encode(), "text/html; charset=no-such", "utf-8"),
        ("grün".encode(), "text/html; charset=punycode", "utf-8"),
        ("grün".encode(), "text/html; charset=hex", "utf-8"),
        ("grün".encode(), "text/html; charset=utf-7", "utf-8"),
        ("grün".encode(), "text/html; charset=", "utf-8"),
    ],
)
def test_the_charset_is_found_as_browsers_find_it(body: bytes, content_type: str, charset: str) -> None:
    text, found = decode(body, content_type, truncated=False)

    assert found == charset
    assert "\ufffd" not in text
    assert "ü" in text or charset == "koi8-r"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("日本語", "shift_jis"),
        ("日本語", "euc-jp"),
        ("日本語", "iso-2022-jp"),
        ("中文", "gb2312"),
        ("中文", "big5"),
        ("한국어", "euc-kr"),
        ("привет", "koi8-r"),
        ("привет", "windows-1251"),
        ("γειά", "iso-8859-7"),
        ("שלום", "windows-1255"),
    ],
)
def test_encodings_of_the_world_are_read(text: str, label: str) -> None:
    assert decode(text.encode(label), f"text/html; charset={label}", truncated=False)[0] == text


@pytest.mark.parametrize(
    ("text", "encoding", "charset"),
    [
        ("Съешь же ещё этих мягких французских булок, да выпей чаю. ", "cp1251", "windows-1251"),
        ("Съешь же ещё этих мягких французских булок, да выпей чаю. ", "koi8-r", "koi8-r"),
        ("これは日本語のページです。こんにちは世界。", "shift_jis", "shift_jis"),
        ("这是一个中文网页，欢迎光临我们的网站。", "gbk", "gb18030"),
        ("Die Straße ist schön und größer als über Köln. ", "latin-1", "windows-1252"),
    ],
)
def test_what_declares_nothing_is_guessed(text: str, encoding: str, charset: str) -> None:
    assert decode((text * 5).encode(encoding), "text/html", truncated=False) == (text * 5, charset)


@pytest.mark.parametrize("label", ["iso-2022-kr", "hz-gb-2312", "replacement"])
def test_encodings_that_hide_ascii_are_not_read(label: str) -> None:
    assert decode(b"<script>", f"text/html; charset={label}", truncated=False) == ("\ufffd", "replacement")


def test_user_defined_bytes_are_private_characters() -> None:
    text, charset = decode(b"a\x80\xff", "text/html; charset=x-user-defined", truncated=False)

    assert (text, charset) == ("a\uf780\uf7ff", "x-user-defined")


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("windows-1252", b"\x81\x8d\x8f\x90\x9d", "\x81\x8d\x8f\x90\x9d"),
        ("windows-874", b"\xa1\x9f\xff", "\u0e01\x9f\ufffd"),
        ("windows-1255", b"\xca\xd9", "\u05ba\ufffd"),
        ("koi8-u", b"\xae\xbe", "\u045e\u040e"),
        ("gbk", b"\x80 \xa3\xa0", "€ \u3000"),
        ("big5", b"\xa1\x45", "\u2027"),
        ("euc-jp", b"\xad\xa1\xf9\xa1\xfc\xfe\xa1\xc1", "\u2460\u7e8a\uff02\uff5e"),
        # Of a pair that is none the second byte is lost as well, unless it may be markup.
        ("gbk", b"\x81\xff<p>1234567", "\ufffd<p>1234567"),
        ("gbk", b"\xff\x81<p>1234567", "\ufffd\ufffd<p>1234567"),
        ("shift_jis", b"\x81\xad<p>1234567", "\ufffd<p>1234567"),
        ("shift_jis", b"\xa0<p>1234567", "\ufffd<p>1234567"),
        ("euc-kr", b"\x81\x80<p>1234567", "\ufffd<p>1234567"),
        ("big5", b"\x81\x80<p>1234567", "\ufffd<p>1234567"),
        ("euc-jp", b"\x8f\xa1\xa1<p>1234567", "\ufffd<p>1234567"),
        ("euc-jp", b"\x8e\xe1<p>1234567", "\ufffd<p>1234567"),
        ("euc-jp", b"\xa9\xa1<p>1234567", "\ufffd<p>1234567"),
        # A cell of a vendor's row that is empty: its second byte in Shift_JIS would be an ASCII letter.
        ("euc-jp", b"\xad\xd7<p>1234567", "\ufffd<p>1234567"),
    ],
)
def test_bytes_are_what_chromium_makes_of_them(label: str, body: bytes, text: str) -> None:
    assert decode(body, f"text/html; charset={label}", truncated=False)[0] == text


@pytest.mark.parametrize("label", ["gbk", "big5", "euc-jp", "shift_jis", "euc-kr", "windows-1252"])
def test_a_binary_body_is_decoded_in_linear_time(label: str) -> None:
    started_s = time.process_time()
    for byte in (b"\x81", b"\xff"):
        transcode(byte * 2_000_000, f"text/html; charset={label}", truncated=False)

    # 0.1 s; 3 s with an error handler of our own for each byte.
    assert time.process_time() - started_s < 1


@pytest.mark.parametrize("label", ["utf-8", "gbk", "euc-jp", "shift_jis"])
def test_of_a_truncated_body_the_character_that_was_cut_is_left_out(label: str) -> None:
    body = "a日本".encode(label)

    assert decode(body[:-1], f"text/html; charset={label}", truncated=True)[0] == "a日"
    assert transcode(body[:-1], f"text/html; charset={label}", truncated=True)[0] == "a日".encode()


@pytest.mark.parametrize("declaration", ["text/html; charset=utf-8", "text/html"])
@pytest.mark.parametrize("content", ["", "plain", "grün \ufffd 日本 \U0001f600" * 10_000])
def test_a_body_of_valid_utf_8_is_not_copied(content: str, declaration: str) -> None:
    body = content.encode()

    assert transcode(body, declaration, truncated=False) == (body, "utf-8")
    assert transcode(body, declaration, truncated=False)[0] is body


@pytest.mark.parametrize("padding", range(16_380, 16_386))
def test_a_wrong_byte_is_found_wherever_the_pieces_meet(padding: int) -> None:
    right = b"a" * padding + "€".encode() + b"b" * 20_000

    assert transcode(right, "text/html", truncated=False)[0] is right
    wrong = right.replace(b"\x82", b"\x41")
    assert (
        transcode(wrong, "text/html;charset=utf-8", truncated=False)[0]
        == wrong.decode("utf-8", "replace").encode()
    )


def test_text_without_markup_declares_nothing() -> None:
    body = b"<meta charset=koi8-r> is how you say it"

    assert decode(body, "text/plain", truncated=False, has_markup=False)[1] == "utf-8"


@pytest.mark.parametrize("truncated", [True, False])
def test_a_character_cut_at_the_end_counts_against_utf_8_unless_the_body_was_cut(truncated: bool) -> None:
    assert (decode("üü".encode()[:-1], "", truncated)[1] == "utf-8") is truncated


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("utf8", "utf-8"),
        (" UTF-8\n", "utf-8"),
        ("latin1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("iso-8859-9", "windows-1254"),
        ("gb2312", "gbk"),
        ("ks_c_5601-1987", "euc-kr"),
        ("iso-8859-1 ", "windows-1252"),
        ("\xa0utf-8", None),
        ("utf-32", None),
        ("", None),
    ],
)
def test_labels_are_those_of_the_encoding_standard(label: str, name: str | None) -> None:
    assert name_of(label) == name


@pytest.mark.parametrize(
    ("start", "charset"),
    [
        (b"<!-- <meta charset=koi8-r> --><meta charset=koi8-u>", "koi8-u"),
        (b"<!--><meta charset=koi8-u>", "koi8-u"),
        (b"<p title='<meta charset=koi8-r>'><meta charset=koi8-u>", "koi8-u"),
        (b"<?php <meta charset=koi8-r> ?><meta charset=koi8-u>", "koi8-u"),
        (b"<meta charset=bogus><meta charset=koi8-u>", "koi8-u"),
        (b"<meta content='charset=koi8-r'><meta charset=koi8-u>", "koi8-u"),
        (b"<META/CHARSET='koi8-u'/>", "koi8-u"),
        (b"<meta charset=koi8-r charset=koi8-u>", "koi8-r"),
        (b"<meta charset=koi8-u", None),
        (b"<meta charset='koi8-u", None),
        (b"<metadata charset=koi8-u>", None),
        (b"<\0?\0x\0m\0", "utf-16le"),
        (b"\0<\0?\0x\0m", "utf-16be"),
        (b"", None),
    ],
)
def test_the_prescan_reads_as_the_standard_says(start: bytes, charset: str | None) -> None:
    assert prescan(start) == charset


@given(
    st.lists(st.sampled_from([b"<meta ", b"charset", b"=", b"'", b'"', b">", b"<!--", b"-->", b"</", b"a"]))
)
def test_the_prescan_never_fails(pieces: list[bytes]) -> None:
    assert prescan(b"".join(pieces)) is None


def html5lib_archive() -> Path:
    """Return the pinned source distribution, downloaded once; skips the test where that fails."""
    archive = CACHE / f"{HTML5LIB}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        # Without its build tools: only the archive is wanted.
        command += ["--no-build-isolation", "--dest", str(CACHE), HTML5LIB.replace("-", "==")]
        subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    if not archive.exists():
        pytest.skip(f"{HTML5LIB}.tar.gz, which holds the test data, could not be downloaded with pip")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert digest == HTML5LIB_SHA256, f"{archive} is not what was pinned; delete it"
    return archive


def html5lib_cases() -> Iterator[tuple[str, bytes, str]]:
    """Yield the file, the document and the name of the expected encoding of every case."""
    with tarfile.open(html5lib_archive()) as archive:
        for member in archive.getmembers():
            if re.search(r"testdata/encoding/[^/]*\.dat$", member.name) and (
                file := archive.extractfile(member)
            ):
                for case in re.split(rb"(?:^|\n)#data\n", file.read())[1:]:
                    document, _, encoding = case.partition(b"\n#encoding\n")
                    yield Path(member.name).name, document, encoding.strip().decode().lower()


def test_the_encoding_tests_of_html5lib_are_decoded_as_expected() -> None:
    cases = list(html5lib_cases())

    wrong = [
        (name, document[:80], expected, found)
        for name, document, expected in cases
        for text, found in [decode(document, "text/html", truncated=False)]
        if text != decode(document, f"text/html; charset={expected}", truncated=False)[0]
    ]

    assert len(cases) == 83
    assert wrong == []


def test_the_encoding_tests_of_html5lib_give_the_expected_names_but_for_the_listed() -> None:
    """docs/extraction.md says why: a document of ASCII alone is UTF-8 when it declares nothing in time."""
    others = [
        (document, expected, found)
        for _, document, expected in html5lib_cases()
        for _, found in [decode(document, "text/html", truncated=False)]
        if found != expected
    ]

    assert all(document.isascii() and found == "utf-8" for document, _, found in others)
    declared_late = [document for document, expected, _ in others if expected != "windows-1252"]
    assert len(declared_late) == 7
    assert all(len(document) > 1024 or b"document.write" in document for document in declared_late)


@pytest.mark.parametrize(
    ("body", "truncated"),
    [
        (b"plain", False),
        ("<p>ä\u4e00".encode(), False),
        ("<p>ä".encode()[:-1], True),
        (b"\xef\xbb\xbf<p>\xc3\xa4", False),
        (b"<meta charset=utf-8>\xff\xc3", False),
        ("<p>\ufffd".encode(), False),
        ("<p>ä".encode("utf-16"), False),
        (b"<meta charset=koi8-r>\xc1\xc2", False),
    ],
)
def test_a_body_made_utf_8_is_what_it_is_decoded_to(body: bytes, truncated: bool) -> None:
    text, charset = decode(body, "text/html", truncated)

    assert transcode(body, "text/html", truncated) == (text.encode(), charset)
