from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.pages.inflate import inflate


def raw_deflate(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(body) + stream.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", lambda body: brotli.compress(body, quality=3)),
    "zstd": ("zstd", lambda body: zstandard.ZstdCompressor().compress(body)),
    "zstd without size": (
        "zstd",
        lambda body: zstandard.ZstdCompressor(write_content_size=False).compress(body),
    ),
}
every_encoding = pytest.mark.parametrize("kind", ENCODERS)


@every_encoding
@given(
    body=st.binary(min_size=1, max_size=500)
    | st.binary(min_size=1, max_size=50).map(lambda part: part * 3000)
)
def test_inflating_what_was_compressed_gives_the_body(kind: str, body: bytes) -> None:
    encoding, encode = ENCODERS[kind]

    assert inflate(encode(body), encoding, 1_000_000) == (body, False)


@every_encoding
def test_no_more_than_the_limit_comes_out_and_no_more_is_held(kind: str) -> None:
    encoding, encode = ENCODERS[kind]
    bomb = encode(bytes(32 << 20))

    tracemalloc.start()
    body, truncated = inflate(bomb, encoding, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(body), truncated) == (100_000, True)
    assert peak < 16 << 20


@every_encoding
def test_a_body_of_exactly_the_limit_is_whole(kind: str) -> None:
    encoding, encode = ENCODERS[kind]
    body = b"0123456789" * 10_000

    assert inflate(encode(body), encoding, len(body)) == (body, False)


@every_encoding
def test_of_a_cut_stream_comes_what_can_be_read(kind: str) -> None:
    encoding, encode = ENCODERS[kind]
    whole = b"".join(b"%d " % number for number in range(100_000))
    packed = encode(whole)

    body, truncated = inflate(packed[: len(packed) // 2], encoding, 1_000_000)

    assert truncated
    assert whole.startswith(body)
    assert len(body) > len(whole) // 5


@every_encoding
@given(data=st.data())
def test_a_damaged_stream_never_raises(kind: str, data: st.DataObject) -> None:
    encoding, encode = ENCODERS[kind]
    packed = bytearray(encode(b"".join(b"%d " % number for number in range(3000))))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))

    body, _ = inflate(bytes(packed), encoding, 50_000)

    assert len(body) <= 50_000


@pytest.mark.parametrize(("encoding", "window"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_of_a_damaged_stream_comes_what_was_before_the_damage(encoding: str, window: int) -> None:
    stream = zlib.compressobj(wbits=window)
    whole = b"".join(b"%d " % (number * 7919 % 100_003) for number in range(100_000))
    # The next block starts at a whole byte, and no block starts with these bits.
    packed = stream.compress(whole) + stream.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 5000

    body, truncated = inflate(packed, encoding, 1_000_000)

    assert truncated
    assert whole.startswith(body)
    assert len(whole) - len(body) < 10_000


def test_stacked_encodings_are_undone_last_first() -> None:
    body = b"text " * 100

    assert inflate(brotli.compress(gzip.compress(body)), "gzip, br", 10_000) == (body, False)


def test_zstd_frames_one_behind_the_other_are_one_body() -> None:
    frame = zstandard.ZstdCompressor().compress

    assert inflate(frame(b"one ") + frame(b"two"), "zstd", 100) == (b"one two", False)


def test_gzip_members_one_behind_the_other_are_one_body() -> None:
    assert inflate(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip", 100) == (b"one two", False)


def test_a_body_of_very_many_gzip_members_is_read_in_linear_time() -> None:
    body = gzip.compress(b"") * 100_000 + gzip.compress(b"last")

    started_s = time.process_time()
    inflated = inflate(body, "gzip", 1000)

    assert inflated == (b"last", False)
    # 0.3 s; copying the rest of the body for each member took 8 s.
    assert time.process_time() - started_s < 4


def test_the_limit_holds_across_gzip_members() -> None:
    assert inflate(gzip.compress(b"a" * 80) * 3, "gzip", 100) == (b"a" * 100, True)


def test_no_more_than_the_limit_is_held_however_many_gzip_members_there_are() -> None:
    bomb = gzip.compress(b"") + gzip.compress(bytes(90_000)) * 500

    tracemalloc.start()
    body, truncated = inflate(bomb, "gzip", 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(body), truncated) == (100_000, True)
    assert peak < 2 << 20


def test_of_more_layers_than_any_honest_server_uses_the_last_four_are_undone() -> None:
    inner = packed = gzip.compress(b"text", mtime=0)
    for _ in range(4):
        packed = gzip.compress(packed, mtime=0)

    assert inflate(packed, "gzip, gzip, gzip, gzip, gzip", 10_000) == (inner, False)


def test_a_zstd_window_larger_than_the_web_allows_is_not_allocated() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(b"text") + stream.flush()

    assert inflate(packed, "zstd", 10_000) == (b"", True)


@pytest.mark.parametrize("encoding", ["", "identity", "aws-chunked", "sdch"])
def test_an_unknown_encoding_leaves_the_body_as_it_is(encoding: str) -> None:
    assert inflate(b"plain", encoding, 100) == (b"plain", False)


def test_a_plain_body_is_cut_at_the_limit() -> None:
    assert inflate(b"plain", "", 3) == (b"pla", True)


def test_a_plain_body_labelled_gzip_is_as_it_is() -> None:
    assert inflate(b"<p>plain</p>", "gzip", 100) == (b"<p>plain</p>", False)


@every_encoding
def test_an_empty_body_is_empty_and_whole(kind: str) -> None:
    assert inflate(b"", ENCODERS[kind][0], 100) == (b"", False)
