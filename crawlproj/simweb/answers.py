"""Whole HTTP responses of a simulated web, as bytes."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from http import HTTPStatus

import msgspec

from crawlproj.simweb import render
from crawlproj.simweb.faults import Fault, fault_at
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind
from crawlproj.simweb.spec import WorldSpec

CACHE_BYTES = 64 * 1024 * 1024
#: What an answer without a body takes in the cache, about.
_OVERHEAD = 1000
_CHUNK = 1500
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


# Without gc: the collector would walk tens of thousands of them again and again.
class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole response of one URL to one Accept-Encoding, and how it is to be spoiled."""

    head: bytes
    body: bytes
    url: str
    domain: str
    status: int
    spec: WorldSpec  # with the domain's overrides
    fault: Fault = Fault.NONE
    failures: int = 0
    error_status: int = 500


class Answers:
    """Every answer of one world, those made last kept in memory; shared by all connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._attempts: dict[str, int] = {}
        self._cache: OrderedDict[tuple[str, str, bytes], Answer] = OrderedDict()
        self._cached_bytes = 0

    def get(self, host: str, target: str, accept: bytes) -> Answer:
        key = (host, target, accept)
        answer = self._cache.get(key)
        if answer is not None:
            self._cache.move_to_end(key)
            return answer
        answer = self._make(host, target, accept)
        self._cache[key] = answer
        self._cached_bytes += _OVERHEAD + len(answer.body)
        while self._cached_bytes > CACHE_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= _OVERHEAD + len(oldest.body)
        return answer

    def _make(self, host: str, target: str, accept: bytes) -> Answer:
        site = self.world.site_of(host)
        page = self.world.lookup(host, target)
        if page is None or site is None:
            url = f"http://{host}:{self.world.spec.port}{target}"
            body = b"<html><title>404</title>no such page</html>\n"
            domain, spec = (site.domain, site.spec) if site else (host, self.world.spec)
            return Answer(head(404, len(body)), body, url, domain, 404, spec)
        body = render.body(self.world, page)
        headers = []
        if page.location is not None:
            headers.append(f"Location: {page.location}")
        if page.encoding != "identity" and page.encoding in accepted(accept):
            body = render.compress(body, page.encoding)
            headers.append(f"Content-Encoding: {page.encoding}\r\nVary: Accept-Encoding")
        content_type = page.content_type
        if page.declared != "meta" and content_type == "text/html":
            content_type += f"; charset={page.charset}"
        length: int | None = len(body)
        if page.chunked:
            body, length = _chunked(body), None
        start = head(page.status, length, content_type, *headers)
        error_status = 503 if page.kind is Kind.ROBOTS else 500
        facts = (page.fault, page.failures, error_status)
        return Answer(start, body, page.url, site.domain, page.status, site.spec, *facts)

    def fault(self, answer: Answer) -> Fault:
        """The fault of the request that has just come in; asking counts as an attempt."""
        if answer.fault is Fault.NONE or answer.fault is Fault.SLOW:
            return answer.fault
        attempt = self._attempts.get(answer.url, 0)
        self._attempts[answer.url] = attempt + 1
        return fault_at(answer.fault, answer.failures, attempt)


@lru_cache(maxsize=256)
def accepted(header: bytes) -> frozenset[str]:
    """The codings an Accept-Encoding header names, without those it refuses with q=0."""
    names = set()
    for entry in header.decode("latin-1").lower().split(","):
        name, _, weight = entry.replace(" ", "").partition(";")
        if weight not in ("q=0", "q=0.0"):
            names.add(name)
    return frozenset(names)


def head(status: int, length: int | None, content_type: str = "text/html", *headers: str) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [
        f"HTTP/1.1 {status} {_PHRASES[status]}",
        "Server: simweb",
        f"Content-Type: {content_type}",
    ]
    return "\r\n".join([*lines, *headers, framing, "\r\n"]).encode()


def _chunked(body: bytes) -> bytes:
    pieces: list[bytes] = []
    for start in range(0, len(body), _CHUNK):
        piece = body[start : start + _CHUNK]
        pieces += (b"%x\r\n" % len(piece), piece, b"\r\n")
    return b"".join([*pieces, b"0\r\n\r\n"])
