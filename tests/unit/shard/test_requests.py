"""Requests of any spider wait in the frontier as JSON and come back the same, or are refused by name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest, Response
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from crawlproj.errors import RequestNotSerialisable
from crawlproj.model.extra import Extra
from crawlproj.shard.requests import Marks, candidate_of, decode_request, encode_request


class Shop(Spider):
    name = "shop"

    def parse(self, response: Response, **kwargs: Any) -> None: ...

    def parse_item(self, response: Response, **kwargs: Any) -> None: ...

    def on_error(self, failure: object) -> None: ...


@pytest.fixture
def spider() -> Shop:
    return Shop()


def there_and_back(request: Request, spider: Spider) -> Request:
    return decode_request(request.url, encode_request(request, spider), spider)


def test_a_plain_request_carries_nothing(spider: Shop) -> None:
    assert encode_request(Request("https://a.test/"), spider) == {}
    assert (
        there_and_back(Request("https://a.test/"), spider).to_dict() == Request("https://a.test/").to_dict()
    )


def test_everything_a_request_carries_comes_back(spider: Shop) -> None:
    request = Request(
        "https://a.test/",
        method="POST",
        headers={"X-One": ["1", "2"], b"X-Raw": b"\xff\x00"},
        body=b"\x00\xff body",
        cookies={"a": "b"},
        meta={"deep": {"list": [1, 2.5, None, True, "ü"], "raw": b"\xff"}},
        encoding="latin-1",
        priority=-7,
        dont_filter=True,
        callback=spider.parse_item,
        errback=spider.on_error,
        flags=["flag"],
        cb_kwargs={"page": 3},
    )

    back = there_and_back(request, spider)

    assert back.to_dict(spider=spider) == request.to_dict(spider=spider)
    assert back.headers == request.headers
    assert back.callback == spider.parse_item


@pytest.mark.parametrize(
    "request_",
    [
        FormRequest("https://a.test/", formdata={"q": "x"}),
        JsonRequest("https://a.test/", data={"q": ["x", 1]}),
    ],
)
def test_kinds_of_requests_keep_their_kind(request_: Request, spider: Shop) -> None:
    back = there_and_back(request_, spider)

    assert type(back) is type(request_)
    assert (back.method, back.body, back.headers) == (request_.method, request_.body, request_.headers)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "$bytes"), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text().map("x".__add__), json_values, max_size=4))
@example({"x": "half a pair \ud800"})
def test_meta_of_plain_values_comes_back_as_it_was_and_can_travel_as_bytes(meta: dict[str, Any]) -> None:
    spider = Shop()

    text = Extra(request=encode_request(Request("https://a.test/", meta=meta), spider)).encode()

    request = Extra.decode(text.encode().decode()).request
    assert decode_request("https://a.test/", request, spider).meta == meta


def test_what_scrapy_notes_on_the_way_is_left_behind(spider: Shop) -> None:
    request = Request("https://a.test/", meta={"depth": 3, "download_slot": "x", "mine": 1})

    assert encode_request(request, spider) == {"meta": {"mine": 1}}
    assert request.meta == {"depth": 3, "download_slot": "x", "mine": 1}


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"meta": {"a": {"b": [0, object()]}}}, "meta['a']['b'][1] is <object"),
        ({"meta": {"a": {1, 2}}}, "meta['a'] is {1, 2}, a set"),
        ({"cb_kwargs": {"when": 1j}}, "cb_kwargs['when'] is 1j, a complex"),
        ({"meta": {"a": {1: "x"}}}, "meta['a'] has the key 1"),
        ({"meta": {"a": {"$bytes": "x"}}}, "meta['a'] has the key '$bytes'"),
    ],
)
def test_a_part_that_is_not_plain_is_refused_naming_request_and_part(
    spider: Shop, parts: dict[str, Any], named: str
) -> None:
    with pytest.raises(RequestNotSerialisable) as refusal:
        encode_request(Request("https://a.test/x", **parts), spider)

    assert "<GET https://a.test/x>" in str(refusal.value)
    assert named in str(refusal.value)


def test_a_callback_that_is_not_a_method_of_the_spider_is_refused(spider: Shop) -> None:
    with pytest.raises(RequestNotSerialisable, match=r"<GET https://a.test/>.*method of the spider 'shop'"):
        encode_request(Request("https://a.test/", callback=lambda response: None), spider)


@pytest.mark.parametrize(
    "name",
    [
        "subprocess.Popen",
        "scrapy.utils.misc.load_object",
        "scrapy.spiders.Spider",
        "tests.unit.shard.test_requests.Shop",
        "antigravity.Request",
        "Request",
    ],
)
def test_a_class_that_is_no_request_is_refused_and_not_imported(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not a request"):
        decode_request("https://a.test/", {"_class": name}, Shop())

    assert "antigravity" not in sys.modules


def test_a_request_of_a_package_that_the_spider_imported_keeps_its_class(
    spider: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("rendering")
    package.RenderedRequest = type("RenderedRequest", (Request,), {"__module__": "rendering"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rendering", package)

    assert type(there_and_back(package.RenderedRequest("https://a.test/"), spider)) is package.RenderedRequest


def test_a_request_whose_class_has_no_place_in_a_module_is_refused(spider: Shop) -> None:
    class Inner(Request):
        pass

    with pytest.raises(RequestNotSerialisable, match=r"its class .*Inner is not found by that name"):
        encode_request(Inner("https://a.test/"), spider)


def test_a_request_that_is_not_filtered_has_a_mark_of_its_own(spider: Shop) -> None:
    crawler = get_crawler(Shop)
    marks = Marks(RequestFingerprinter(crawler))

    filtered, free = (
        {candidate_of(Request("https://a.test/", dont_filter=free), spider, marks).mark for _ in "123"}
        for free in (False, True)
    )

    assert (len(filtered), len(free)) == (1, 3)


def test_a_start_request_is_admitted_once_by_all_shards_and_restarts_and_its_copies_are_not_it(
    spider: Shop,
) -> None:
    one, other = (Marks(RequestFingerprinter.from_crawler(get_crawler())) for _ in range(2))

    def mark(process: Marks, **meta: object) -> int:
        request = Request("https://a.test/", dont_filter=True, meta=meta)
        return candidate_of(request, spider, process).mark

    # Twice the same: both are fetched, as in Scrapy.
    started = [mark(one, is_start_request=True) for _ in range(2)]
    plain = candidate_of(Request("https://a.test/"), spider, one).mark

    assert [mark(other, is_start_request=True) for _ in range(2)] == started
    # A callback that copies the meta of its response, or a retry.
    copies = {mark(one, is_start_request=True, crawl_settlement=None) for _ in range(2)}
    others = {mark(one) for _ in range(2)}
    assert len({*started, plain, *copies, *others}) == 7


def test_of_too_many_start_requests_equal_ones_are_one(spider: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawlproj.shard.requests._MOST_STARTS", 1)
    marks = Marks(RequestFingerprinter.from_crawler(get_crawler()))

    def mark(path: str) -> int:
        request = Request(f"https://a.test/{path}", dont_filter=True, meta={"is_start_request": True})
        return candidate_of(request, spider, marks).mark

    assert len({mark("a"), mark("a"), mark("b"), mark("b")}) == 3
