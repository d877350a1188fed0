"""Scrapy requests as plain values, so that they can wait in the frontier: no pickle, callbacks by name."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinterProtocol, request_from_dict

from crawlproj.config import Config
from crawlproj.errors import RequestNotSerialisable
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Lease, new_mark
from crawlproj.model.urls import canonicalise, fingerprint

#: Default values, which are left out.
_DEFAULTS = Request("http://a.test/").to_dict()
#: The meta key of the settlement, for requests that go through Scrapy's engine.
SETTLEMENT = "crawl_settlement"
#: Set by Scrapy or by us while a request is in flight; not stored.
_PASSING_META = frozenset(
    {
        SETTLEMENT,
        "autothrottle_dont_adjust_delay",
        "depth",
        "download_latency",
        "download_paced",
        "download_slot",
    }
)
_BYTES = "$bytes"
#: More start requests are not counted; of those that come later, equal ones are fetched once.
_MOST_STARTS = 100_000


def encode_request(request: Request, spider: Spider) -> dict[str, Any]:
    """Return what *request* has besides its URL, as JSON values; empty for a plain one.

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
    kind = values.get("_class")
    if kind is not None and _class_of(kind, spider) is not type(request):
        raise RequestNotSerialisable(
            f"{request} cannot wait in the frontier: its class {kind} is not found by that name. "
            "Define it at the top of a module."
        )
    values["meta"] = {name: value for name, value in values["meta"].items() if name not in _PASSING_META}
    return {
        name: _plain(value, request, name)
        for name, value in values.items()
        if name != "url" and value != _DEFAULTS.get(name, _DEFAULTS)
    }


def decode_request(url: str, parts: Mapping[str, Any], spider: Spider) -> Request:
    """Undo `encode_request`."""
    values = {name: _restored(value) for name, value in parts.items()}
    kind = values.get("_class")
    if kind is not None and _class_of(kind, spider) is None:
        raise ValueError(f"its class {kind!r} is not a request that is known here")
    return request_from_dict({"url": url, **values}, spider=spider)


def candidate_of(request: Request, spider: Spider, marks: Marks) -> Candidate:
    """Return *request* as a candidate. Raises BadUrl or RequestNotSerialisable."""
    extra = Extra(request=encode_request(request, spider))
    url = canonicalise(request.url)
    return Candidate(url, depth_of(request), request.priority, extra, marks.of(request))


class Marks:
    """What makes the requests of one process duplicates of each other, and of those of other processes."""

    def __init__(self, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprinter = fingerprinter
        #: How often start() has yielded a request with `dont_filter`.
        self._starts: dict[bytes, int] = {}

    def of(self, request: Request) -> int:
        """Return the mark of *request*. Call it once: the next of the same kind is another one."""
        name = self._fingerprinter.fingerprint(request)
        if not request.dont_filter:
            return int.from_bytes(name[:8], "big") >> 1
        if not request.meta.get("is_start_request") or SETTLEMENT in request.meta:
            return new_mark()
        # By start(), which every shard runs, and again when it is restarted; not a copy that a callback made.
        # The second of two that are equal is the second everywhere.
        before = self._starts.get(name, 0)
        if before or len(self._starts) < _MOST_STARTS:
            self._starts[name] = before + 1
        return fingerprint(f"start {name.hex()}" + (f" {before}" if before else ""))


def depth_of(request: Request) -> int:
    return int(request.meta.get("depth", 0))


class BodyLimits(NamedTuple):
    """How much of a body is read, and of which types; see `HttpRequest`."""

    cut: int
    types: Sequence[str]
    #: A partial page is then better than none.
    is_last_attempt: bool


def body_limits(lease: Lease, config: Config) -> BodyLimits:
    is_last_attempt = lease.attempt + 1 >= config.max_attempts
    if lease.extra.sitemap_level:
        return BodyLimits(config.sitemap_bytes, (), is_last_attempt)
    return BodyLimits(config.max_body, config.content_types, is_last_attempt)


def _class_of(name: str, spider: Spider) -> type[Request] | None:
    """Return the request class of that name, None if there is none that may be used.

    Write access to Redis must not allow choosing code: nothing is imported but from Scrapy and from the
    package of the spider, and everything must be a request.
    """
    module, _, attribute = name.rpartition(".")
    own = type(spider).__module__.partition(".")[0]
    if module.partition(".")[0] in ("scrapy", own):
        with suppress(ImportError):
            import_module(module)
    found = getattr(sys.modules.get(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, Request) else None


def _plain(value: Any, request: Request, part: str) -> Any:
    """Return *value* as JSON values; bytes are marked, so that they are restored as bytes."""
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
