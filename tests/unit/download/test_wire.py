from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlproj.download.wire import (
    MAX_CHUNK_LINE_BYTES,
    MAX_HEADER_LINES,
    MAX_INTERIM,
    BadResponseError,
    Head,
    HeadersTooLargeError,
    ResponseParser,
)

OK = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Read:
    head: Head | None
    body: bytes
    is_complete: bool
    loss: str | None
    may_reuse: bool
    error: type[Exception] | None = None


def read(*pieces: bytes, closes: bool = False, is_head: bool = False, max_head_bytes: int = 131072) -> Read:
    parser = ResponseParser(is_head=is_head, max_head_bytes=max_head_bytes)
    body = b""
    for number, piece in enumerate(pieces):
        if parser.is_complete or parser.loss:
            # As a connection does: whatever comes after the end is too much.
            rest = b"".join(pieces[number:])
            return Read(parser.head, body, parser.is_complete, parser.loss, parser.may_reuse and not rest)
        try:
            body += parser.feed(piece)
        except (BadResponseError, HeadersTooLargeError) as error:
            return Read(None, b"", False, None, False, type(error))
    if closes:
        parser.feed_end()
    return Read(parser.head, body, parser.is_complete, parser.loss, parser.may_reuse)


def headers_of(data: bytes) -> dict[bytes, list[bytes]]:
    head = read(data).head
    assert head is not None
    return head.headers


LENGTH = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;why=not\r\nlo\r\n0\r\nX-After: 1\r\n\r\n"

QUIRKS = {
    "a header line without a colon": OK + b"garbage\r\nContent-Length: 5\r\n\r\nhello",
    "the same length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "the same length twice in a line": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "a length and chunks": OK
    + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "two lengths and chunks": OK
    + b"Content-Length: 9\r\nContent-Length: 8\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a header of 16 KB": OK + b"X-Long: " + b"a" * 16384 + b"\r\nContent-Length: 5\r\n\r\nhello",
    "bytes that are no UTF-8": OK + b"X-B\xe4d: \xff\xfe\r\nContent-Length: 5\r\n\r\nhello",
    "a space before the colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "no reason but a space": b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello",
    "LF only": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "LF at the end only": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\nhello",
    "LF between chunks": OK + b"Transfer-Encoding: chunked\n\n5\nhello\n0\n\n",
    "blank lines first": b"\r\n\n\r\n" + LENGTH,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "no minor version": b"HTTP/1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "a folded line": OK + b"X-Fold: one\r\n\ttwo\r\nContent-Length: 5\r\n\r\nhello",
    "a first line that is folded": OK + b" what\r\nContent-Length: 5\r\n\r\nhello",
    "interim responses": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH,
    "spaces after a chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n5   \r\nhello\r\n000\r\n\r\n",
    "a plain length": LENGTH,
    "chunks, extensions and trailers": CHUNKED,
}


@pytest.mark.parametrize("data", QUIRKS.values(), ids=QUIRKS)
def test_what_browsers_read_is_read(data: bytes) -> None:
    found = read(data)

    assert (found.body, found.is_complete, found.error) == (b"hello", True, None)


@pytest.mark.parametrize(
    "data",
    [OK + b"\r\nhello", b"ICY 200 OK\r\n\r\nhello", OK + b"Content-Length: many\r\n\r\nhello"],
    ids=["HTTP/1.1", "ICY", "unreadable length"],
)
def test_a_body_without_a_length_ends_with_the_connection(data: bytes) -> None:
    assert not read(data).is_complete

    found = read(data, closes=True)

    assert (found.body, found.is_complete, found.may_reuse) == (b"hello", True, False)


@pytest.mark.parametrize("data", [*QUIRKS.values(), OK + b"\r\nhello"], ids=[*QUIRKS, "no length"])
@settings(max_examples=25)
@given(st.data())
def test_the_pieces_make_no_difference(data: bytes, drawn: st.DataObject) -> None:
    cuts = sorted(drawn.draw(st.sets(st.integers(1, len(data) - 1), max_size=20)))

    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    assert read(*pieces, closes=True) == read(data, closes=True)


@pytest.mark.parametrize("data", QUIRKS.values(), ids=QUIRKS)
def test_byte_by_byte_is_the_same(data: bytes) -> None:
    assert read(*(bytes([byte]) for byte in data)) == read(data)


_WORDS = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 100",
    b"HTTP/1.1 304 x",
    b"ICY 200",
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\r",
    b":",
    b"Content-Length: 5",
    b"Content-Length: 7",
    b"Transfer-Encoding: chunked",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffffff",
    b" ",
    b";",
    b"\x00\xff",
    b"HTTP/",
    b"x" * 50,
]


@given(st.lists(st.sampled_from(_WORDS), max_size=30), st.data())
def test_garbage_reads_the_same_in_all_pieces_and_raises_nothing_else(
    words: list[bytes], drawn: st.DataObject
) -> None:
    data = b"".join(words)
    cuts = sorted(drawn.draw(st.sets(st.integers(0, len(data)), max_size=20)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    found = read(*(piece for piece in pieces if piece), closes=True, max_head_bytes=100)

    assert found == read(*([data] if data else []), closes=True, max_head_bytes=100)


@given(st.binary(max_size=300))
def test_any_bytes_after_a_head_raise_nothing(data: bytes) -> None:
    found = read(OK + b"Transfer-Encoding: chunked\r\n\r\n" + data, closes=True)

    assert found.is_complete or found.loss


def test_names_are_in_title_case_and_values_in_order() -> None:
    headers = headers_of(
        OK + b"set-cookie: a\r\nSET-COOKIE:b\r\nx-fold : one\r\n  two\r\nX-Bytes: \xff\r\n\r\n"
    )

    assert headers == {b"Set-Cookie": [b"a", b"b"], b"X-Fold": [b"one two"], b"X-Bytes": [b"\xff"]}


@pytest.mark.parametrize(
    "data",
    [
        b"<html>hello",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 020 OK\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1),
        b"\r\n" * 70_000,
    ],
)
def test_an_invalid_response_is_refused(data: bytes) -> None:
    assert read(data).error is BadResponseError


@pytest.mark.parametrize(
    "data",
    [
        OK + b"X: " + b"a" * 131072,
        OK + b"X: " + b"a" * 131072 + b"\r\n\r\n",
        OK + b"X: 1\r\n" * (MAX_HEADER_LINES + 1) + b"\r\n",
    ],
    ids=["endless", "ended", "many lines"],
)
def test_headers_beyond_their_limit_are_refused(data: bytes) -> None:
    assert read(data).error is HeadersTooLargeError


def test_as_many_header_lines_as_allowed_are_read() -> None:
    assert read(OK + b"X: 1\r\n" * MAX_HEADER_LINES + b"\r\n").error is None


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    found = read(b"HTTP/1.1 %d x\r\nContent-Length: 5\r\n\r\n" % status)

    assert (found.is_complete, found.body, found.may_reuse) == (True, b"", True)


def test_the_answer_to_head_has_no_body() -> None:
    found = read(OK + b"Content-Length: 5\r\n\r\n", is_head=True)

    assert (found.is_complete, found.may_reuse) == (True, True)
    assert found.head is not None
    assert found.head.content_length == 5


@pytest.mark.parametrize(
    ("data", "may"),
    [
        (LENGTH, True),
        (CHUNKED, True),
        (LENGTH + b"H", False),
        (CHUNKED + b"H", False),
        (b"HTTP/1.1 304 x\r\n\r\nH", False),
        (b"HTTP/1.1 101 x\r\n\r\n", False),
        (OK + b"Connection: Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", True),
        (QUIRKS["a length and chunks"], False),
    ],
)
def test_a_connection_is_used_again_only_when_its_state_is_sure(data: bytes, may: bool) -> None:
    found = read(data)

    assert (found.is_complete, found.may_reuse) == (True, may)


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello\r\n",
        b"5\r\nhello",
        b"5\r\nhellooo\r\n0\r\n\r\n",
        b"5\r\nhello\r\nxyz\r\n",
        b"5\r\nhello\r\n-1\r\n",
        b"5\r\nhello\r\n0x0\r\n\r\n",
        b"5\r\nhello\r\n" + b"0" * (MAX_CHUNK_LINE_BYTES + 1),
        b"5\r\nhello\r\n\r\n0\r\n\r\n",
    ],
)
def test_chunks_that_do_not_end_as_they_should_are_a_loss_and_keep_what_came(body: bytes) -> None:
    found = read(OK + b"Transfer-Encoding: chunked\r\n\r\n" + body, closes=True)

    assert (found.body, found.is_complete, found.loss is None) == (b"hello", False, False)


def test_an_early_close_is_a_loss() -> None:
    found = read(OK + b"Content-Length: 7\r\n\r\nhello", closes=True)

    assert found.loss == "the connection was closed 2 bytes before Content-Length"


@pytest.mark.parametrize("trailers", [b"", b"X: 1\r\n", b"X: 1\r\n" * 40_000, b"X" * 5000])
def test_trailers_are_not_worth_waiting_for(trailers: bytes) -> None:
    found = read(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n" + trailers, closes=True)

    assert (found.body, found.is_complete, found.may_reuse) == (b"hello", True, False)


@pytest.mark.parametrize("trailers", [b"X: 1\r\n" * 40_000, b"X" * 5000])
def test_endless_trailers_are_not_read(trailers: bytes) -> None:
    found = read(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n" + trailers)

    assert (found.is_complete, found.may_reuse) == (True, False)


def test_an_interim_response_may_be_all_there_is_so_far() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n").head is None


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"timeout=5, max=100", 5.0), (b"max=3,Timeout = 7", 7.0), (b"300", None)]
)
def test_the_server_says_how_long_it_keeps_a_connection(value: bytes, seconds: float | None) -> None:
    head = read(OK + b"Keep-Alive: " + value + b"\r\n\r\n").head

    assert head is not None
    assert head.keep_alive_s == seconds


def test_how_much_is_left_is_known_by_its_length_only() -> None:
    by_length = ResponseParser(is_head=False, max_head_bytes=1000)
    by_chunks = ResponseParser(is_head=False, max_head_bytes=1000)

    by_length.feed(OK + b"Content-Length: 9\r\n\r\nhello")
    by_chunks.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello")

    assert (by_length.left_bytes, by_chunks.left_bytes) == (4, None)
