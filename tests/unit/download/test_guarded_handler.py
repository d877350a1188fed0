"""The handler connects to addresses that the guard has passed, and to nothing else.

No test connects to anything but loopback: where an address is not, the attempt is recorded and refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import twisted.internet
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadConnectionRefusedError
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.internet.address import IPv4Address, IPv6Address

from crawlproj.download.guard import AddressRefusedError, NoContactError
from crawlproj.download.handler import HttpHandler

CONTACT = {"CRAWL_CONTACT": "crawler@example.org"}
PUBLIC, PUBLIC_V6, PRIVATE = "8.8.8.8", "2606:4700::1", "10.0.0.1"

Fetch = Callable[..., Awaitable[Response]]


class Names:
    """DNS that says what `known` says at the moment."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}

    def resolveHostName(self, receiver: Any, name: str, *_: Any) -> None:  # noqa: N802
        for address in self.known.get(name, []):
            kind = IPv6Address if ":" in address else IPv4Address
            receiver.addressResolved(kind("TCP", address, 0))
        receiver.resolutionComplete()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(twisted.internet, "reactor", SimpleNamespace(nameResolver=made), raising=False)
    return made


@pytest.fixture
async def connects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were connected to; only loopback is, the others refuse."""
    tried: list[str] = []
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def record(factory: Any, address: str, port: int, **options: Any) -> Any:
        tried.append(address)
        if not address.startswith("127."):
            raise ConnectionRefusedError(address)
        return await connect(factory, address, port, **options)

    monkeypatch.setattr(loop, "create_connection", record)
    return tried


@pytest.fixture
async def fetch(names: Names, connects: list[str]) -> AsyncIterator[Fetch]:
    """Fetches a URL with a handler of these settings; the handler is made at the first call."""
    handlers: list[HttpHandler] = []

    async def fetch_once(url: str, settings: dict[str, Any] = CONTACT, **meta: Any) -> Response:
        if not handlers:
            handlers.append(HttpHandler(Crawler(Spider, Settings(settings))))
        return await handlers[0].download_request(Request(url, meta=meta))

    yield fetch_once
    for handler in handlers:
        await handler.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server on all of loopback that answers and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, ["127.0.0.1"], 0)
    number: int = server.sockets[0].getsockname()[1]
    other = await asyncio.start_server(answer, ["127.0.0.2"], number)
    yield number
    for each in (server, other):
        each.close()
        await each.wait_closed()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", PRIVATE]
)
async def test_an_address_inside_is_not_connected_to(
    host: str, fetch: Fetch, names: Names, connects: list[str]
) -> None:
    # What is not an address by the standard is passed to the system, which reads it as C always did.
    names.known = {"127.1": ["127.0.0.1"], "2130706433": ["127.0.0.1"]}

    with pytest.raises(AddressRefusedError, match="CRAWL_ALLOW_ADDRESSES"):
        await fetch(f"http://{host}/")

    assert connects == []


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_name_that_leads_inside_is_not_connected_to(
    scheme: str, fetch: Fetch, names: Names, connects: list[str]
) -> None:
    names.known["inside.test"] = ["127.0.0.1", "::1"]

    with pytest.raises(AddressRefusedError, match=r"127\.0\.0\.1 is loopback"):
        await fetch(f"{scheme}://inside.test/")

    assert connects == []


async def test_of_a_name_with_addresses_on_both_sides_only_the_public_ones_are_tried(
    fetch: Fetch, names: Names, connects: list[str]
) -> None:
    names.known["both.test"] = [PRIVATE, PUBLIC, "127.0.0.1", PUBLIC_V6, "::1"]

    with pytest.raises(DownloadConnectionRefusedError):
        await fetch("http://both.test/")

    assert connects == [PUBLIC, PUBLIC_V6]


async def test_a_name_that_moves_inside_between_two_requests_is_refused_at_the_second(
    fetch: Fetch, names: Names, connects: list[str], port: int
) -> None:
    settings = {"CRAWL_ALLOW_ADDRESSES": "127.0.0.2", "CRAWL_DNS_SECONDS": 0}
    url = f"http://moving.test:{port}/"
    names.known["moving.test"] = ["127.0.0.2"]
    first = await fetch(url, settings)

    names.known["moving.test"] = ["127.0.0.1"]
    with pytest.raises(AddressRefusedError, match=r"127\.0\.0\.1 is loopback"):
        await fetch(url, settings)

    assert first.body == b"hi"
    assert connects == ["127.0.0.2"]


async def test_the_address_that_was_checked_is_the_one_connected_to_whatever_dns_says_by_then(
    fetch: Fetch, names: Names, connects: list[str], port: int
) -> None:
    settings = {"CRAWL_ALLOW_ADDRESSES": "127.0.0.2"}
    names.known["moving.test"] = ["127.0.0.2"]
    await fetch(f"http://moving.test:{port}/", settings)
    names.known["moving.test"] = ["127.0.0.1"]

    second = await fetch(f"http://moving.test:{port}/", settings)

    assert str(second.ip_address) == "127.0.0.2"
    assert connects == ["127.0.0.2"] * 2


async def test_without_contact_no_public_address_is_connected_to(
    fetch: Fetch, names: Names, connects: list[str]
) -> None:
    names.known["public.test"] = [PUBLIC]

    with pytest.raises(NoContactError, match="CRAWL_CONTACT"):
        await fetch("http://public.test/", {})

    assert connects == []


async def test_a_port_of_another_protocol_is_not_connected_to(
    fetch: Fetch, names: Names, connects: list[str]
) -> None:
    names.known["public.test"] = [PUBLIC]

    with pytest.raises(AddressRefusedError, match="Port 25"):
        await fetch("http://public.test:25/")

    assert connects == []


async def test_a_proxy_is_not_used_for_a_private_address(fetch: Fetch, connects: list[str]) -> None:
    with pytest.raises(AddressRefusedError, match="metadata"):
        await fetch("http://169.254.169.254/", proxy="http://127.0.0.1:3128")

    assert connects == []
