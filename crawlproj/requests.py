"""Scrapy requests as JSON, so that they can wait in the frontier: no pickle, callbacks by name."""

from __future__ import annotations

import base64
import json
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from crawlproj.errors import RequestNotSerialisable

#: What a request is without saying so; left out of the JSON.
_DEFAULTS: dict[str, Any] = {
    "callback": None,
    "errback": None,
    "headers": {},
    "method": "GET",
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
}
#: Set by Scrapy or by us while a request is on its way; of no use to the next one who fetches it.
_PASSING_META = frozenset({"crawl_lease", "download_slot", "download_paced", "download_latency", "depth"})
_BYTES = "$bytes"


def encode_request(request: Request, spider: Spider) -> str:
    """Return what *request* carries beyond its URL as a JSON object, '' for a plain one.

    Raises RequestNotSerialisable, naming the request and the part.
    """
    try:
        values = request.to_dict(spider=spider)
    except ValueError as exc:
        is_fine = request.callback is None or getattr(request.callback, "__self__", None) is spider
        part, value = ("errback", request.errback) if is_fine else ("callback", request.callback)
        raise RequestNotSerialisable(
            f"{request} cannot wait in the frontier: its {part} is {value!r}, not a method of the spider "
            f"{spider.name!r}. Make it one."
        ) from exc
    values["meta"] = {name: value for name, value in values["meta"].items() if name not in _PASSING_META}
    parts = {
        name: _plain(value, request, name)
        for name, value in values.items()
        if name != "url" and value != _DEFAULTS.get(name, _DEFAULTS)
    }
    # ASCII only: half a surrogate pair, which JSON can escape, would not become bytes on the way to Redis.
    return json.dumps(parts, separators=(",", ":")) if parts else ""


def decode_request(url: str, extra: str, spider: Spider) -> Request:
    """Return the request of which `encode_request` made *extra*."""
    values = {name: _restored(value) for name, value in json.loads(extra).items()} if extra else {}
    _check_class(values.get("_class"), spider)
    return request_from_dict({"url": url, **values}, spider=spider)


def _check_class(name: str | None, spider: Spider) -> None:
    """Refuse a class no request of this spider can have: who can write to Redis must not choose code."""
    if name is None or name.startswith("scrapy."):
        return
    package = type(spider).__module__.partition(".")[0]
    if name.partition(".")[0] != package:
        raise ValueError(f"its class {name!r} is neither Scrapy's nor of the package {package!r}")


def _plain(value: Any, request: Request, part: str) -> Any:
    """Return *value* as JSON can say it; bytes are marked, so that they come back as bytes."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [_plain(member, request, f"{part}[{index}]") for index, member in enumerate(value)]
    if isinstance(value, dict):
        plain = {}
        for name, member in value.items():
            if isinstance(name, bytes):
                name = name.decode("latin-1")
            if not isinstance(name, str) or name == _BYTES:
                raise RequestNotSerialisable(
                    f"{request} cannot wait in the frontier: its {part} has the key {name!r}; use text."
                )
            plain[name] = _plain(member, request, f"{part}[{name!r}]")
        return plain
    raise RequestNotSerialisable(
        f"{request} cannot wait in the frontier: its {part} is {value!r}, a {type(value).__name__}. "
        "Use text, numbers, bytes, lists and dicts, or keep the object in the spider and put its key here."
    )


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(member) for member in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES}:
            return base64.b64decode(value[_BYTES])
        return {name: _restored(member) for name, member in value.items()}
    return value
