"""Who may ask for what: tokens, Host and Origin headers, the size and the rate of requests.

Decided before a route is looked up, and before a body is read. There are no cookies and no CORS headers, so
pages of other sites can neither read an answer nor send a request that changes something.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crawlproj.api.links import Links, is_link
from crawlproj.api.problems import Refused
from crawlproj.config import Config
from crawlproj.errors import BadSetting, Problem

MOST_BODY_BYTES = 2_000_000
#: How long a client may take to send a body.
_BODY_S = 20.0
#: Client addresses whose rate is remembered.
_MOST_CLIENTS = 10_000
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_READS = ("GET", "HEAD")
#: It changes nothing, so a token that reads will do.
_LINK_PATH = "/export-link"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of the server. Without any, everybody who reaches it may do everything."""

    read: tuple[bytes, ...] = ()
    write: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, config: Config) -> Tokens:
        """Return the tokens in the settings and their file. Raises BadSetting."""
        lines = (config.api_tokens or "").replace(",", "\n").splitlines()
        if config.api_tokens_file:
            try:
                lines += Path(config.api_tokens_file).read_text("utf-8").splitlines()
            except OSError as exc:
                wrong = f"CRAWL_API_TOKENS_FILE={config.api_tokens_file!r} cannot be read: {exc.strerror}."
                raise BadSetting(Problem("CRAWL_API_TOKENS_FILE", config.api_tokens_file, wrong)) from exc
        found: dict[str, list[bytes]] = {"read": [], "write": []}
        for line in (line.strip() for line in lines):
            kind, _, token = line.partition(" ")
            if line and not line.startswith("#"):
                if kind not in found or not token.strip():
                    wrong = "CRAWL_API_TOKENS has a line that is neither `read TOKEN` nor `write TOKEN`."
                    raise BadSetting(Problem("CRAWL_API_TOKENS", "", wrong))
                found[kind].append(token.strip().encode())
        return cls(tuple(found["read"]), tuple(found["write"]))

    def __bool__(self) -> bool:
        return bool(self.read or self.write)

    def check(self, authorization: str, *, writes: bool) -> None:
        """Raise Refused unless the header has a token that allows it."""
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""
        # All of them are compared, whatever the result: the time says nothing.
        may_write = sum(hmac.compare_digest(given, known) for known in self.write) > 0
        may_read = sum(hmac.compare_digest(given, known) for known in self.read) > 0 or may_write
        if not may_read:
            what = "This token is unknown." if given else "A token is needed: Authorization: Bearer TOKEN."
            raise Refused(401, what, headers={"WWW-Authenticate": 'Bearer realm="crawlproj"'})
        if writes and not may_write:
            raise Refused(403, "This token is read-only. Use a `write` token.")


def is_loopback(host: str) -> bool:
    """Whether a server at *host* is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Rates:
    """How often each client address may ask: a bucket of two seconds' worth of requests."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        if not self._per_s:
            return
        now_s, full = self._clock(), 2 * self._per_s
        left, at_s = self._buckets.pop(client, (full, now_s))
        left = min(full, left + (now_s - at_s) * self._per_s)
        self._buckets[client] = (max(0.0, left - 1), now_s)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise Refused(429, "Too many requests; CRAWL_API_RATE limits them.", headers={"Retry-After": "1"})


class Access:
    """The outermost layer of the server."""

    def __init__(self, app: ASGIApp, *, config: Config, host: str, tokens: Tokens, links: Links) -> None:
        self._app = app
        self._tokens = tokens
        self._links = links
        self._rates = Rates(config.api_rate)
        self._is_local = is_loopback(host)
        self._hosts = _LOOPBACK | {host.lower(), *(name.lower() for name in config.api_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            self._check(scope)
            receive = await _read_body(scope, receive)
        except Refused as refused:
            if refused.status in (408, 413):
                # What is left of the body is not read.
                refused.headers["Connection"] = "close"
            await refused.response()(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        self._rates.check(scope["client"][0] if scope.get("client") else "")
        self._check_host(headers)
        writes = method not in _READS
        if writes:
            _check_origin(headers)
        if not self._tokens or path == "/api/openapi.json":
            return
        query = scope["query_string"].decode("latin-1")
        if not writes and path.endswith("/export") and is_link(query):
            if not self._links.is_valid(path, query):
                raise Refused(403, "This link has expired, or it is not one of ours. Ask for another one.")
        elif path.startswith("/api/") or path == "/metrics":
            writes = writes and not path.endswith(_LINK_PATH)
            self._tokens.check(headers.get("authorization", ""), writes=writes)

    def _check_host(self, headers: Headers) -> None:
        given = headers.get("host", "")
        name = _name_in(given)
        if name in self._hosts:
            return
        if not self._is_local and _is_address(name):
            # A name is needed to lead a browser here under the origin of another site.
            return
        raise Refused(421, f"This server is not called {given[:100]!r}; see CRAWL_API_HOSTS.")


def _check_origin(headers: Headers) -> None:
    """Raise Refused for a request that a page of another site makes."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise Refused(403, f"Pages of {origin[:100]!r} may not use this server.")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused(403, "Pages of other sites may not use this server.")


def _name_in(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _read_body(scope: Scope, receive: Receive) -> Receive:
    """Return a *receive* with the whole body of a request that writes, which is small and JSON."""
    if scope["method"] in _READS:
        return receive
    headers = Headers(scope=scope)
    length = headers.get("content-length", "0")
    too_large = Refused(413, f"A body may have at most {MOST_BODY_BYTES:,} bytes.")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The request ended before its body.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MOST_BODY_BYTES:
                    raise too_large
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {_BODY_S:g} s.") from None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        # A page of another site may send other kinds without asking first.
        raise Refused(415, "The body must be JSON: Content-Type: application/json.")
    whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

    async def replay() -> Any:
        nonlocal whole
        if whole is None:
            return await receive()
        message, whole = whole, None
        return message

    return replay
