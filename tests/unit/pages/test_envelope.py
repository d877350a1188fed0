from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.errors import BadEnvelope
from crawlproj.model.records import Page
from crawlproj.pages.envelope import VERSION, pack, unpack

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(0, 2**53)
pages = st.builds(
    Page,
    url=texts,
    run=texts,
    domain=texts,
    depth=numbers,
    status=st.integers(0, 999),
    fetched_at_ms=numbers,
    latency_ms=numbers,
    headers=st.dictionaries(st.sampled_from(["content-type", "Content-Encoding"]) | texts, texts, max_size=4),
    body=st.binary(max_size=300) | st.binary(min_size=1, max_size=20).map(lambda part: part * 200),
    shard=numbers,
    attempt=numbers,
    truncated=st.booleans(),
    redirected_from=texts,
    error=texts,
    sitemap_level=numbers,
    hops=numbers,
    items=st.lists(texts, max_size=2),
)


def a_page(body: bytes, **headers: str) -> Page:
    return Page(
        "http://a.test/",
        "web",
        "a.test",
        1,
        200,
        5,
        7,
        {k.replace("_", "-"): v for k, v in headers.items()},
        body,
    )


@given(pages)
def test_unpacking_what_was_packed_gives_the_same_page(page: Page) -> None:
    assert unpack(pack(page)) == page


def test_a_page_that_is_tried_again_is_the_same_page() -> None:
    page = a_page(b"word")

    assert unpack(b"failed 2 " + pack(page)) == page


def test_only_items_make_an_envelope_longer_than_parsers_without_items_can_read() -> None:
    fields = len(msgspec.msgpack.decode(pack(a_page(b"word"))[1:]))

    with_items = a_page(b"")
    with_items.items, with_items.is_bare = ["{}"], True

    assert fields == 17
    assert unpack(pack(with_items)) == with_items


def test_a_large_plain_body_travels_compressed() -> None:
    page = a_page(b"<p>word</p>" * 1000)

    data = pack(page)

    assert len(data) < 1000


def test_a_body_the_server_compressed_travels_as_it_came() -> None:
    body = b"A" * 5000
    page = a_page(body, Content_Encoding="gzip")

    data = pack(page)

    assert body in data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xe3older",
        b"\xe5newer",
        b"failed 1 ",
        b"failed 1 \xe3older",
        b"\x80\x04pickle",
        VERSION,
        VERSION + b"\x90",
        VERSION + b"{}",
    ],
)
def test_an_invalid_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(BadEnvelope):
        unpack(data)


def test_a_cut_envelope_is_refused_wherever_it_is_cut() -> None:
    data = pack(a_page(b"<p>word</p>" * 1000))

    for end in range(len(data)):
        with pytest.raises(BadEnvelope):
            unpack(data[:end])


@given(st.data())
def test_a_damaged_envelope_is_a_page_or_refused_but_nothing_else(data: st.DataObject) -> None:
    packed = bytearray(pack(a_page(b"<p>word</p>" * 200)))
    position = data.draw(st.integers(0, len(packed) - 1))
    packed[position] ^= data.draw(st.integers(1, 255))

    try:
        page = unpack(bytes(packed))
    except BadEnvelope:
        return

    assert len(page.body) <= 2200
