"""Whole HTTP responses of a simulated web, as bytes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from functools import lru_cache
from http import HTTPStatus

import msgspec

from crawlproj.simweb import render
from crawlproj.simweb.faults import ALWAYS, Fault, fault_at
from crawlproj.simweb.graph import World
from crawlproj.simweb.hostile import BOMBS, REDIRECTS, Hostile, Script, script
from crawlproj.simweb.page import Kind
from crawlproj.simweb.sites import number_of
from crawlproj.simweb.spec import WorldSpec

CACHE_BYTES = 64 * 1024 * 1024
#: What an answer without a body takes in the cache, about.
_OVERHEAD = 1000
_CHUNK = 1500


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
    is_robots: bool = False
    hostile: Hostile = Hostile.NONE
    hostile_number: int = 0


class Answers:
    """Every answer of one world, those made last kept in memory; shared by all connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._attempts: dict[str, int] = {}
        #: How often a domain was throttled, or dead.
        self._refusals: Counter[str] = Counter()
        self._cache: OrderedDict[tuple[str, str, bytes], Answer] = OrderedDict()
        self._cached_bytes = 0
        # Bombs at once: while one is being made no other request is answered.
        for number, fields in self.world.spec.overrides.items():
            hosts = self.world.site(number).hosts
            if fields.get("robots_hostile") in BOMBS:
                self.script(self.get(hosts[0], "/robots.txt", b""))
            if fields.get("hostile") in BOMBS:
                for url in self.world.hostile_urls(number):
                    self.script(self.get(hosts[0], url[url.index("/", 7) :], b""))

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
        hostile = Hostile.NONE if page.hostile in REDIRECTS else page.hostile
        return Answer(
            *(start, body, page.url, site.domain, page.status, site.spec),
            fault=page.fault,
            failures=page.failures,
            is_robots=page.kind is Kind.ROBOTS,
            hostile=hostile,
            hostile_number=page.hostile_number,
        )

    def script(self, answer: Answer) -> Script:
        """How a hostile answer goes."""
        spec = answer.spec
        facts = (answer.hostile, answer.hostile_number, answer.head, answer.body)
        return script(*facts, step_s=spec.hostile_step_ms / 1000, bomb_bytes=spec.bomb_bytes)

    def of_dead(self, address: str) -> Answer | None:
        """What a connection to a dead domain at *address* gets: nothing; asking counts as an attempt."""
        number = number_of(address)
        if number is None or number >= self.world.spec.domains:
            return None
        site = self.world.site(number)
        spec = site.spec
        dead = spec.dead and spec.dead_robots and self._refuses(site.domain, spec.dead_attempts)
        return Answer(b"", b"", "", site.domain, 0, spec) if dead else None

    def _refuses(self, domain: str, times: int) -> bool:
        if times != ALWAYS and self._refusals[domain] >= times:
            return False
        self._refusals[domain] += 1
        return True

    def fault(self, answer: Answer) -> Fault:
        """The fault of the request that has just come in; asking counts as an attempt."""
        spec = answer.spec
        dies = spec.dead and not spec.dead_robots and not answer.is_robots
        if dies and self._refuses(answer.domain, spec.dead_attempts):
            return Fault.DEAD
        throttles = spec.throttle_all and (spec.throttle_robots or not answer.is_robots)
        if throttles and self._refuses(answer.domain, spec.throttle_requests):
            return Fault.THROTTLED
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
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
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
