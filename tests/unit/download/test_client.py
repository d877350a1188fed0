"""What the HTTP client adds to its pool: which requests are sent a second time, and that it closes all."""

from __future__ import annotations

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from crawlproj.download.client import Download, HttpClient, HttpRequest, target_of, write_request
from crawlproj.download.errors import NoAnswerError, StaleConnectionError
from crawlproj.errors import BadSetting
from tests.unit.download.rawserver import RawServer, Serve, Visit

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture
async def client() -> HttpClient:
    return HttpClient(Crawler(Spider, Settings({"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8"})))


def request_to(server: RawServer, method: str = "GET") -> HttpRequest:
    target = target_of(server.url)
    return HttpRequest(server.url, target.origin, write_request(target, [], method), method)


async def drop_the_second_request(visit: Visit) -> None:
    await visit.request()
    await visit.send(HELLO)
    await visit.request()
    visit.reset()


async def test_a_fetch_is_never_sent_twice(serve: Serve, client: HttpClient) -> None:
    server = await serve(drop_the_second_request)

    answer = await client.fetch(request_to(server))
    with pytest.raises(StaleConnectionError):
        await client.fetch(request_to(server))

    assert (answer.status, answer.body, len(server.requests)) == (200, b"hello", 2)
    await client.close()
    assert client.pool.open_connections == 0


@pytest.mark.parametrize(("method", "sent"), [("GET", 3), ("HEAD", 3), ("POST", 2)])
async def test_of_other_requests_only_those_without_effects_are(
    serve: Serve, client: HttpClient, method: str, sent: int
) -> None:
    server = await serve(drop_the_second_request)
    await client.fetch(request_to(server))

    if sent == 3:
        await client.receive(request_to(server, method), Download(None, ()))
    else:
        with pytest.raises(NoAnswerError):
            await client.receive(request_to(server, method), Download(None, ()))

    assert len(server.requests) == sent
    await client.close()


@pytest.mark.parametrize("name", ["DOWNLOAD_TLS_MIN_VERSION", "DOWNLOAD_TLS_MAX_VERSION"])
def test_an_unknown_version_of_tls_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=f"{name}='TLS1.2' .* Choose from TLSv1.0, TLSv1.1, TLSv1.2"):
        HttpClient(Crawler(Spider, Settings({name: "TLS1.2"})))
