from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings

from crawlproj.download.client import BadRequestError, target_of
from crawlproj.download.guard import AddressRefusedError
from crawlproj.download.handler import HttpHandler, http_request_of
from crawlproj.download.wire import BadResponseError
from tests.patience import PATIENCE_S
from tests.unit.download.rawserver import Answer, Serve, Visit

PROJECT = Path(__file__).parents[3]
OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
HTML = OK + b"Content-Type: text/html; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello"

NewHandler = Callable[..., HttpHandler]


@pytest.fixture
async def new_handler() -> AsyncIterator[NewHandler]:
    made: list[HttpHandler] = []

    def make(crawler: Crawler | None = None, **settings: Any) -> HttpHandler:
        if crawler is None:
            crawler = Crawler(Spider, Settings({"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8", **settings}))
        made.append(HttpHandler.from_crawler(crawler))
        return made[-1]

    yield make
    for handler in made:
        await handler.close()


def listen(handler: HttpHandler, signal: object, heard: list[Any], stop: StopDownload | None = None) -> Any:
    def receiver(**facts: Any) -> None:
        heard.append(facts)
        if stop is not None:
            raise stop

    handler.crawler.signals.connect(receiver, signal)
    # Signals hold their receivers weakly.
    return receiver


# --- broken servers -----------------------------------------------------------------------------------

QUIRKS = {
    "a header line without a colon": OK + b"garbage\r\nContent-Length: 5\r\n\r\nhello",
    "the same length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a length and chunks": OK
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a header of 16 KB": OK + b"X-Long: " + b"a" * 16384 + b"\r\nContent-Length: 5\r\n\r\nhello",
    "bytes that are no UTF-8": OK + b"X-Bad: \xff\xfe\r\nContent-Length: 5\r\n\r\nhello",
    "a space before the colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "an early close without a length": OK + b"\r\nhello",
    "LF only": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "ICY": b"ICY 200 OK\r\n\r\nhello",
}


@pytest.mark.parametrize("data", QUIRKS.values(), ids=QUIRKS)
async def test_pages_of_broken_servers_are_had(serve: Serve, new_handler: NewHandler, data: bytes) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(data)

    server, handler = await serve(answer), new_handler()

    response = await handler.download_request(Request(server.url))

    assert (response.status, response.body, response.flags) == (200, b"hello", [])


async def test_a_response_that_is_not_http_has_its_own_error(serve: Serve, new_handler: NewHandler) -> None:
    server, handler = await serve(b"hello"), new_handler()

    with pytest.raises(BadResponseError, match="hello"):
        await handler.download_request(Request(server.url))


# --- what Scrapy means --------------------------------------------------------------------------------


async def test_a_response_is_as_scrapy_makes_it(serve: Serve, new_handler: NewHandler) -> None:
    server, handler = (
        await serve(HTML.replace(b"\r\n\r\n", b"\r\nset-cookie: a\r\nSet-Cookie: b\r\n\r\n")),
        new_handler(),
    )
    request = Request(server.url + "path?q=1#fragment")

    response = await handler.download_request(request)

    assert type(response) is HtmlResponse
    assert response.url == request.url
    assert response.headers.getlist("Set-Cookie") == [b"a", b"b"]
    assert response.headers["content-type"] == b"text/html; charset=utf-8"
    assert (response.ip_address, response.protocol) == (IPv4Address("127.0.0.1"), "HTTP/1.1")
    assert 0 < request.meta["download_latency"] < 5
    assert response.replace(body=b"x").headers == response.headers


async def test_a_request_is_written_as_given(serve: Serve, new_handler: NewHandler) -> None:
    server, handler = await serve(HELLO), new_handler()

    await handler.download_request(
        Request(
            server.url + "a%20b?c=d#e",
            method="POST",
            body=b"sent",
            headers={"X-One": ["1", "2"], "Content-Length": "9"},
        )
    )

    [sent] = server.requests
    assert sent == (
        b"POST /a%%20b?c=d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-One: 1\r\nX-One: 2\r\n"
        b"Content-Length: 4\r\n\r\nsent" % server.port
    )


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://a.test", b"GET / ", b"a.test"),
        ("http://a.test?q", b"GET /?q ", b"a.test"),
        ("http://a.test:80/#x", b"GET / ", b"a.test"),
        ("https://user:pw@a.test:8443/x", b"GET /x ", b"a.test:8443"),
        ("http://[::1]:8080/x", b"GET /x ", b"[::1]:8080"),
        ("https://a.test/x?u=http://b.test/", b"GET /x?u=http://b.test/ ", b"a.test"),
    ],
)
def test_host_and_path_come_from_the_url(url: str, line: bytes, host: bytes) -> None:
    written = http_request_of(Request(url), fails_on_loss=True).wire

    assert written == line + b"HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"


def test_a_host_of_the_user_goes_first_and_alone() -> None:
    request = Request("http://a.test/", headers={"X": "1", "Host": "b.test"})

    written = http_request_of(request, fails_on_loss=True).wire

    assert written.split(b"\r\n")[1:3] == [b"Host: b.test", b"X: 1"]


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://a.test/", headers={"X": "1\r\nY: 2"}),
        Request("http://a.test/", headers={"X": "1\nY: 2"}),
        Request("http://a.test/", headers={"X\r\nY": "2"}),
        Request("http://a.test/", method="GET / HTTP/1.1\r\nX:"),
        Request("http://a.test/a b", meta={"verbatim_url": True}),
    ],
    ids=["CRLF", "LF", "name", "method", "space"],
)
def test_nothing_smuggles_a_line_into_a_request(request_: Request) -> None:
    with pytest.raises(BadRequestError):
        http_request_of(request_, fails_on_loss=True)


async def test_head_has_no_body_and_keeps_its_connection(serve: Serve, new_handler: NewHandler) -> None:
    server, handler = await serve(OK + b"Content-Length: 9\r\n\r\n"), new_handler()

    for _ in range(2):
        response = await handler.download_request(Request(server.url, method="HEAD"))

    assert (response.body, response.headers["Content-Length"], server.connections) == (b"", b"9", 1)


async def test_http_and_https_share_their_connections(serve: Serve, new_handler: NewHandler) -> None:
    server, http = await serve(HELLO), new_handler()
    https = new_handler(http.crawler)

    await http.download_request(Request(server.url))
    await https.download_request(Request(server.url))

    assert server.connections == 1


async def test_the_limits_come_from_the_settings(serve: Serve, new_handler: NewHandler) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK + b"Content-Length: 9\r\n\r\nhello")
        await visit.request()

    server = await serve(answer)
    for settings, name in (
        ({"CRAWL_IDLE_SECONDS": 0.1}, "IdleTimeoutError"),
        ({"DOWNLOAD_TIMEOUT": 0.1}, "TotalTimeoutError"),
    ):
        with pytest.raises(DownloadTimeoutError) as caught:
            await new_handler(**settings).download_request(Request(server.url))

        assert type(caught.value).__name__ == name


async def test_a_request_may_have_its_own_timeout(serve: Serve, new_handler: NewHandler) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.request()

    server, handler = await serve(answer), new_handler()

    with pytest.raises(DownloadTimeoutError):
        await handler.download_request(Request(server.url, meta={"download_timeout": 0.05}))


@pytest.mark.parametrize("data", [HELLO, OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
async def test_a_body_beyond_the_largest_size_is_an_error(
    serve: Serve, new_handler: NewHandler, data: bytes
) -> None:
    server, handler = await serve(data), new_handler(DOWNLOAD_MAXSIZE=4)

    with pytest.raises(DownloadCancelledError, match="DOWNLOAD_MAXSIZE=4"):
        await handler.download_request(Request(server.url))
    response = await handler.download_request(Request(server.url, meta={"download_maxsize": 5}))

    assert response.body == b"hello"


async def test_a_large_body_is_warned_of_once(
    serve: Serve, new_handler: NewHandler, caplog: pytest.LogCaptureFixture
) -> None:
    server, handler = await serve(HELLO), new_handler(DOWNLOAD_WARNSIZE=4)

    with caplog.at_level(logging.WARNING):
        await handler.download_request(Request(server.url))

    assert [record.message for record in caplog.records] == ["a response is larger than DOWNLOAD_WARNSIZE"]


async def close_early(visit: Visit) -> None:
    await visit.request()
    await visit.send(OK + b"Content-Length: 9\r\n\r\nhello")


async def end_without_last_chunk(visit: Visit) -> None:
    await visit.request()
    await visit.send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")


@pytest.mark.parametrize("answer", [close_early, end_without_last_chunk])
async def test_a_body_that_is_not_whole_is_an_error_or_flagged(
    serve: Serve, new_handler: NewHandler, answer: Answer
) -> None:
    server, handler = await serve(answer), new_handler()

    with pytest.raises(ResponseDataLossError):
        await handler.download_request(Request(server.url))
    response = await handler.download_request(Request(server.url, meta={"download_fail_on_dataloss": False}))

    assert (response.body, response.flags) == (b"hello", ["dataloss"])


@pytest.mark.parametrize("url", ["http://a.test:99999/", "http:///x", "http://[::1/"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(BadRequestError):
        target_of(url)


async def test_a_local_address_of_a_request_is_not_silently_ignored(new_handler: NewHandler) -> None:
    request = Request("http://127.0.0.1:1/", meta={"bindaddress": "127.0.0.2"})

    with pytest.raises(BadRequestError, match="DOWNLOAD_BIND_ADDRESS"):
        await new_handler().download_request(request)


async def test_the_local_address_of_all_requests_is_a_setting(serve: Serve, new_handler: NewHandler) -> None:
    peers: list[str] = []

    async def answer(visit: Visit) -> None:
        peers.append(visit.writer.get_extra_info("peername")[0])
        await visit.request()
        await visit.send(HELLO)

    server, handler = await serve(answer), new_handler(DOWNLOAD_BIND_ADDRESS="127.0.0.2")

    await handler.download_request(Request(server.url))

    assert peers == ["127.0.0.2"]


async def test_errors_are_scrapys(new_handler: NewHandler) -> None:
    handler = new_handler()

    with pytest.raises(UnsupportedURLSchemeError):
        await handler.download_request(Request("ftp://a.test/"))
    with pytest.raises(CannotResolveHostError):
        await handler.download_request(Request("http://no_such..name/"))


# --- signals ------------------------------------------------------------------------------------------


async def test_signals_are_sent_to_listeners(serve: Serve, new_handler: NewHandler) -> None:
    server, handler = await serve(HELLO), new_handler()
    heads: list[Any] = []
    pieces: list[Any] = []
    receivers = [
        listen(handler, signals.headers_received, heads),
        listen(handler, signals.bytes_received, pieces),
    ]
    request = Request(server.url)

    await handler.download_request(request)

    assert [fact["body_length"] for fact in heads] == [5]
    assert heads[0]["headers"]["Content-Length"] == b"5"
    assert b"".join(fact["data"] for fact in pieces) == b"hello"
    assert all(fact["request"] is request for fact in heads + pieces)
    assert receivers


@pytest.mark.parametrize(
    ("signal", "body"), [(signals.headers_received, b""), (signals.bytes_received, b"hello")]
)
@pytest.mark.parametrize("fails", [True, False])
async def test_a_listener_can_stop_a_download_and_is_named_in_the_log(
    serve: Serve,
    new_handler: NewHandler,
    signal: object,
    body: bytes,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")

    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(OK + b"Content-Length: 1000000\r\n\r\nhello")
        await visit.request()

    server, handler = await serve(answer), new_handler()
    receiver = listen(handler, signal, [], StopDownload(fail=fails))

    response: Response | None
    if fails:
        with pytest.raises(StopDownload) as caught:
            await handler.download_request(Request(server.url))
        response = caught.value.response
    else:
        response = await handler.download_request(Request(server.url))

    assert response is not None
    assert (response.body, response.flags) == (body, ["download_stopped"])
    name = receiver.__qualname__
    assert f"Download stopped for <GET {server.url}> from signal handler {name}" in caplog.messages


# --- our own meta keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "body", "flags"), [(4, b"hell", ["cut"]), (5, b"hello", []), (6, b"hello", []), (0, b"", ["cut"])]
)
@pytest.mark.parametrize(
    "data", [HELLO, OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"]
)
async def test_a_body_is_cut_and_the_connection_kept(
    serve: Serve, new_handler: NewHandler, data: bytes, cut: int, body: bytes, flags: list[str]
) -> None:
    server, handler = await serve(data), new_handler(DOWNLOAD_MAXSIZE=1)

    for _ in range(2):
        response = await handler.download_request(Request(server.url, meta={"download_cut": cut}))

        assert (type(response), response.body, response.flags) == (Response, body, flags)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("head", "is_read"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: TEXT/html;charset=x\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n", False),
        (b"HTTP/1.1 404 OK\r\nContent-Type: image/png\r\n", True),
        (b"HTTP/1.1 200 OK\r\n", True),
    ],
)
async def test_the_body_of_an_unwanted_type_is_not_read(
    serve: Serve, new_handler: NewHandler, head: bytes, is_read: bool
) -> None:
    server, handler = await serve(head + b"Content-Length: 5\r\n\r\nhello"), new_handler()
    types = ("text/*", "application/xml")

    response = await handler.download_request(Request(server.url, meta={"download_types": types}))

    assert (response.body, response.flags) == ((b"hello", []) if is_read else (b"", ["unwanted"]))


# --- proxies and Scrapy itself ------------------------------------------------------------------------


async def test_an_inner_address_is_refused_also_by_proxy(new_handler: NewHandler) -> None:
    handler = new_handler(CRAWL_ALLOW_ADDRESSES="127.0.0.1")

    with pytest.raises(AddressRefusedError):
        await handler.download_request(Request("http://10.0.0.1/", meta={"proxy": "http://127.0.0.1:1"}))


SPIDER = textwrap.dedent(
    """
    import json, sys
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.downloadermiddlewares import cookies
    from scrapy.exceptions import StopDownload
    from tldextract import TLDExtract

    # Scrapy's own would fetch the public suffix list from the web; this one takes the copy that it carries.
    cookies._split_domain = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)

    class Own(scrapy.Spider):
        name = "own"
        found = {}

        @classmethod
        def from_crawler(cls, crawler, *args, **kwargs):
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.stop_large, scrapy.signals.bytes_received)
            return spider

        def stop_large(self, data, request, spider):
            if request.url.endswith("/large"):
                raise StopDownload(fail=False)

        async def start(self):
            yield scrapy.FormRequest(BASE + "login", formdata={"user": "me"}, callback=self.logged_in)

        def logged_in(self, response):
            self.found["login"] = response.text
            yield scrapy.Request(BASE + "large", callback=self.large)
            yield scrapy.Request(BASE + "proxied", callback=self.proxied, meta={"proxy": BASE})
            meta = {"proxy": BASE, "download_cut": 1000}
            yield scrapy.Request(BASE + "too-long", callback=self.proxied, errback=self.refused, meta=meta)

        def large(self, response):
            self.found["large"] = [response.flags, len(response.body) < 1000000]

        def proxied(self, response):
            self.found["proxied"] = response.text

        def refused(self, failure):
            self.found["refused"] = type(failure.value).__name__

    BASE = sys.argv[1]
    handler = "crawlproj.download.handler.HttpHandler"
    process = CrawlerProcess({
        "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.1",
        "TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False, "LOG_LEVEL": "WARNING",
    })
    process.crawl(Own)
    process.start()
    print(json.dumps(Own.found))
    """
)


async def test_a_spider_of_another_kind_runs_on_it(serve: Serve, tmp_path: Path) -> None:
    async def answer(visit: Visit) -> None:
        while sent := await visit.request():
            line = sent.splitlines()[0]
            if b"/login" in line:
                body = b"body " + sent.rpartition(b"\r\n\r\n")[2]
                more = b"Set-Cookie: key=1\r\nContent-Type: text/plain\r\n"
            elif b"/large" in line or b"/too-long" in line:
                body, more = b"x" * 1_000_000, b""
            else:
                body, more = line, b"Content-Type: text/plain\r\n"
            await visit.send(OK + more + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    server = await serve(answer)
    script = tmp_path / "spider.py"
    script.write_text(SPIDER)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        server.url,
        env={"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(child.communicate(), PATIENCE_S)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()

    assert json.loads(out or b"{}") == {
        "login": "body user=me",
        "large": [["download_stopped"], True],
        "proxied": f"GET {server.url}proxied HTTP/1.1",
        "refused": "DownloadCancelledError",
    }, errors.decode()
    assert any(b"/large" in sent and b"Cookie: key=1" in sent for sent in server.requests)
