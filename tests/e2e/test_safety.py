"""No page, redirect, robots.txt, sitemap or name leads a crawl to where its owner did not open the client.

What judges is a canary: a server on an address that was not opened, which writes down who connects. Where a
public address is needed, the shard's process refuses to connect to anything but loopback, guard or no guard.
"""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from crawlproj.errors import EXIT_USAGE
from crawlproj.storage import read_pages
from tests.e2e.conftest import error_lines

pytestmark = pytest.mark.e2e

OPENED = "127.0.1.0/24"
INSIDE = "127.99.0.1"
#: Of the documentation of the web; nothing is ever sent there.
PUBLIC = "93.184.215.14"
CONTACT = "crawler@example.org"

#: Ways to write INSIDE, or 127.0.0.1, for a browser or for the kernel.
SPELLINGS = (
    INSIDE,
    str(int(ipaddress.IPv4Address(INSIDE))),
    "0x7f630001",
    "0x7f.0x63.0x0.0x1",
    "0177.0143.0.01",
    "017730600001",
    "127.99.1",
    "127.6488065",
    "127.99.0.1.",
    "127%2e99%2e0%2e1",
    "１２７.９９.０.１",
    "127。99。0。1",
    "[::ffff:127.99.0.1]",
    "[::ffff:7f63:1]",
    "[0:0:0:0:0:ffff:7f63:0001]",
    "user@127.99.0.1",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
)

#: The resolver of the shards, and a last wall that the guard must not need.
NAMES = '''
import ipaddress, os, sys
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IHostnameResolver
from zope.interface import implementer


def stay_here(event, arguments):
    if event != "socket.connect" or not isinstance(arguments[1], tuple):
        return
    address = ipaddress.ip_address(arguments[1][0])
    address = getattr(address, "ipv4_mapped", None) or address
    if not address.is_loopback and not address.is_unspecified:
        with open(os.environ["OUTSIDE_LOG"], "a") as log:
            log.write(f"{address}\\n")
        raise ConnectionRefusedError(f"{address} is not loopback")


sys.addaudithook(stay_here)


@implementer(IHostnameResolver)
class Names:
    """What a name has, one answer after the other, the last one for ever."""

    answers = ANSWERS

    def __init__(self, reactor):
        self.reactor = reactor

    @classmethod
    def from_crawler(cls, crawler, reactor):
        return cls(reactor)

    def install_on_reactor(self):
        self.reactor.installNameResolver(self)

    def resolveHostName(self, receiver, name, port=0, types=None, semantics="TCP"):
        receiver.resolutionBegan(self)
        answers = self.answers.get(name, [[]])
        for address in answers.pop(0) if len(answers) > 1 else answers[0]:
            receiver.addressResolved(IPv4Address("TCP", address, port))
        receiver.resolutionComplete()
        return receiver
'''


class Canary:
    """Takes connections to an address and writes down that they came."""

    def __init__(self, address: str, port: int = 0) -> None:
        self.seen: list[str] = []
        self._socket = socket.create_server(
            (address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with suppress(OSError):
            while True:
                connection, peer = self._socket.accept()
                self.seen.append(str(peer))
                connection.close()

    def stop(self) -> None:
        # Wakes the thread, which a close would not.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def canary_at() -> Iterator[Callable[..., Canary]]:
    canaries: list[Canary] = []

    def start(address: str = INSIDE, port: int = 0) -> Canary:
        canaries.append(Canary(address, port))
        return canaries[-1]

    yield start
    for canary in canaries:
        canary.stop()


class Crawl:
    """Whole crawls by the spider `web` with names of the test's own."""

    def __init__(self, directory: Path, scrapy: Callable[..., Any]) -> None:
        self._directory = directory
        self._scrapy = scrapy
        self.outside_log = directory / "outside.log"

    def command(self, *arguments: str, answers: dict[str, list[list[str]]], **settings: str) -> Any:
        (self._directory / "safetynames.py").write_text(NAMES.replace("ANSWERS", repr(answers)))
        return self._scrapy(
            *arguments,
            environment={
                "PYTHONPATH": str(self._directory),
                "OUTSIDE_LOG": str(self.outside_log),
                "CRAWL_CONTACT": "",
            },
            **{
                "CRAWL_ALLOW_ADDRESSES": OPENED,
                "TWISTED_DNS_RESOLVER": "safetynames.Names",
                "DOWNLOAD_DELAY": "0.02",
                **settings,
            },
        )

    def shard(self, *seeds: str, **options: Any) -> Any:
        path = self._directory / "seeds.txt"
        path.write_text("".join(f"{seed}\n" for seed in seeds))
        return self.command("crawl", "web", "-ashard=0", f"-aseeds={path}", **({"answers": {}} | options))

    def rows(self, *seeds: str, **options: Any) -> dict[str, dict[str, Any]]:
        """Crawl from *seeds* to the end; return what is stored, by the path of its URL."""
        shard, parser = self.shard(*seeds, **options), self._scrapy("parser")
        assert shard.wait() == 0, shard.log
        assert parser.wait() == 0, parser.log
        assert not self.outside_log.exists(), self.outside_log.read_text()
        pages = read_pages(self._directory / "data" / "runs" / "web" / "pages")
        return {urlsplit(page["url"]).path: page for page in pages}


@pytest.fixture
def crawl(tmp_path: Path, scrapy: Callable[..., Any]) -> Crawl:
    return Crawl(tmp_path, scrapy)


def html(*urls: str) -> tuple[int, dict[str, str], bytes]:
    links = "".join(f'<a href="{url}">{url}</a>\n' for url in urls)
    page = f"<html><meta charset=utf-8><title>links</title>{links}</html>"
    return 200, {"Content-Type": "text/html; charset=utf-8"}, page.encode()


def moved(url: str) -> tuple[int, dict[str, str], bytes]:
    return 302, {"Location": url}, b""


def test_no_spelling_of_an_address_inside_and_no_name_for_it_is_connected_to(
    crawl: Crawl, echo_at: Callable[[str], Any], canary_at: Callable[..., Canary]
) -> None:
    canary = canary_at()
    canaries = [canary, canary_at("127.0.0.1", canary.port), canary_at("::1", canary.port)]
    echo = echo_at("127.0.1.1")
    hosts = [*SPELLINGS, "inside.test", "www.inside.test"]
    links = [f"http://{host}:{canary.port}/{number}" for number, host in enumerate(hosts)]
    echo.answers["/"] = [html(*links, f"{echo.url}/fine")]

    rows = crawl.rows(
        f"{echo.url}/", answers={"inside.test": [[INSIDE]], "www.inside.test": [["127.0.0.1", INSIDE]]}
    )

    assert [connection for canary in canaries for connection in canary.seen] == []
    assert rows["/fine"]["status"] == 200
    errors = {host: rows.get(f"/{number}", {}).get("error") for number, host in enumerate(hosts)}
    assert errors == dict.fromkeys(hosts, "address_refused")


def test_no_redirect_leads_inside(
    crawl: Crawl, echo_at: Callable[[str], Any], canary_at: Callable[..., Canary]
) -> None:
    canary = canary_at()
    first, second = echo_at("127.0.1.1"), echo_at("127.0.1.2")
    first.answers |= {
        "/": [html("/address", "/name", "/far")],
        "/address": [moved(f"http://{INSIDE}:{canary.port}/by-address")],
        "/name": [moved(f"http://inside.test:{canary.port}/by-name")],
        "/far": [moved(f"{second.url}/farther")],
    }
    second.answers["/farther"] = [moved(f"http://[::ffff:{INSIDE}]:{canary.port}/from-far")]

    rows = crawl.rows(f"{first.url}/", answers={"inside.test": [[INSIDE]]})

    assert canary.seen == []
    targets = ("/by-address", "/by-name", "/from-far")
    assert [rows[path]["error"] for path in targets] == ["address_refused"] * 3
    assert [urlsplit(rows[path]["redirected_from"]).path for path in targets] == [
        *("/address", "/name", "/farther"),
    ]


def test_no_robots_txt_and_no_sitemap_leads_inside(
    crawl: Crawl, echo_at: Callable[[str], Any], canary_at: Callable[..., Canary]
) -> None:
    canary = canary_at()
    away, near, maps = echo_at("127.0.1.1"), echo_at("127.0.1.2"), echo_at("127.0.1.3")
    away.answers["/robots.txt"] = [moved(f"http://{INSIDE}:{canary.port}/robots.txt")]
    # In the same domain a redirect is followed at once.
    near.answers["/robots.txt"] = [moved(f"http://inside.near.test:{canary.port}/robots.txt")]
    sitemaps = "".join(
        f"Sitemap: http://{host}:{canary.port}/map.xml\n" for host in ("inside.maps.test", INSIDE)
    )
    maps.answers["/robots.txt"] = [(200, {"Content-Type": "text/plain"}, sitemaps.encode())]
    ports = [urlsplit(server.url).port for server in (near, maps)]

    rows = crawl.rows(
        f"{away.url}/away",
        f"http://www.near.test:{ports[0]}/near",
        f"http://www.maps.test:{ports[1]}/fine",
        answers={
            "www.near.test": [["127.0.1.2"]],
            "inside.near.test": [[INSIDE]],
            "www.maps.test": [["127.0.1.3"]],
            "inside.maps.test": [[INSIDE]],
        },
        CRAWL_SITEMAPS="True",
        CRAWL_BACKOFF_SECONDS="0.1",
        CRAWL_MAX_BACKOFF_SECONDS="0.2",
    )

    assert canary.seen == []
    assert {path: row["error"] for path, row in rows.items()} == {
        "/away": "robots_unreachable",
        "/near": "address_refused",
        "/fine": None,
        "/map.xml": "address_refused",
    }


def test_a_name_that_moves_inside_after_the_first_pages_is_refused_from_then_on(
    crawl: Crawl, echo_at: Callable[[str], Any], canary_at: Callable[..., Canary]
) -> None:
    echo = echo_at("127.0.1.1")
    port = urlsplit(echo.url).port
    canary = canary_at(INSIDE, port)
    echo.answers["/"] = [html("/second")]

    rows = crawl.rows(
        f"http://moving.test:{port}/",
        # For robots.txt, the first page, the second.
        answers={"moving.test": [["127.0.1.1"], ["127.0.1.1"], [INSIDE]]},
        CRAWL_DNS_SECONDS="0",
        # A connection that is kept stays where it was checked.
        CRAWL_IDLE_CONNECTIONS="0",
    )

    assert canary.seen == []
    assert rows["/"]["status"] == 200
    assert rows["/second"]["error"] == "address_refused"


def test_a_public_site_without_a_contact_stops_the_shard_and_keeps_the_url(
    crawl: Crawl, json_of: Callable[[str], Any]
) -> None:
    shard = crawl.shard("http://public.test/", answers={"public.test": [[PUBLIC]]})
    code = shard.wait()
    status = crawl.command("status", "--json", answers={})

    assert code == EXIT_USAGE, shard.log
    assert not crawl.outside_log.exists()
    [line] = error_lines(shard.log)
    assert re.search(rf"{PUBLIC} is public, .* set CRAWL_CONTACT to an email address or a URL", line)
    assert "Traceback" not in shard.log
    assert status.wait() == 0, status.log
    figures = json_of(status.log)
    assert (figures["waiting"], figures["leased"], figures["failed"]) == (1, 0, 0)


def test_the_contact_is_sent_to_every_site_with_robots_txt_and_pages(
    crawl: Crawl, echo_at: Callable[[str], Any]
) -> None:
    echo = echo_at("127.0.1.1")
    echo.answers["/"] = [html("/more")]

    crawl.rows(f"{echo.url}/", CRAWL_CONTACT=CONTACT)

    agents = {seen.path: seen.headers["User-Agent"] for seen in echo.log}
    assert agents.keys() == {"/robots.txt", "/", "/more"}
    assert set(agents.values()) == {f"crawlproj/0.1 (+{CONTACT})"}


@pytest.fixture
def self_signed(tmp_path: Path) -> Iterator[str]:
    """The URL of an https server with a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.1.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.1.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Not needed."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = http.server.ThreadingHTTPServer(("127.0.1.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://127.0.1.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("is_verified", "status", "error"), [("True", 0, "certificate"), ("False", 200, None)]
)
def test_an_untrusted_certificate_is_refused_by_default(
    crawl: Crawl, self_signed: str, is_verified: str, status: int, error: str | None
) -> None:
    rows = crawl.rows(f"{self_signed}/page", DOWNLOAD_VERIFY_CERTIFICATES=is_verified)

    assert (rows["/page"]["status"], rows["/page"]["error"]) == (status, error)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("CRAWL_CONTACT", "nobody", "CRAWL_CONTACT='nobody' is neither a mail address nor a URL"),
        (
            "CRAWL_ALLOW_ADDRESSES",
            "10.0.0.1/8",
            "CRAWL_ALLOW_ADDRESSES.*10.0.0.1/8.*Give addresses or networks",
        ),
        ("CRAWL_EXCLUDE", "[", r"CRAWL_EXCLUDE='\[' is not a valid list"),
        ("CRAWL_EXCLUDE", "(a", r"CRAWL_EXCLUDE has '\(a', which is not a regular expression"),
        ("CRAWL_EXCLUDE_FILE", "missing.txt", "CRAWL_EXCLUDE_FILE.*missing.txt"),
        ("CRAWL_SCOPE", "galaxy", "CRAWL_SCOPE='galaxy'.*domain"),
    ],
)
def test_a_wrong_setting_of_safety_or_scope_is_one_clear_line(
    crawl: Crawl, setting: str, value: str, says: str
) -> None:
    shard = crawl.shard("http://127.0.1.1:9/", **{setting: value})

    assert shard.wait() == EXIT_USAGE, shard.log
    [line] = error_lines(shard.log)
    assert re.search(says, line)
    assert "Traceback" not in shard.log


SPIDER = """
from scrapy import Request, Spider


class Mine(Spider):
    name = "mine"

    async def start(self):
        for url in URLS:
            yield Request(url, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "got": response.status}

    def failed(self, failure):
        yield {"url": failure.request.url, "got": type(failure.value).__name__}
"""


def test_spiders_of_other_people_are_guarded_as_well(
    crawl: Crawl, tmp_path: Path, echo_at: Callable[[str], Any], canary_at: Callable[..., Canary]
) -> None:
    canary = canary_at()
    echo = echo_at("127.0.1.1")
    inside = f"http://{INSIDE}:{canary.port}"
    echo.answers["/away"] = [moved(f"{inside}/away")]
    urls = [
        f"{inside}/direct",
        f"http://inside.test:{canary.port}/name",
        f"{echo.url}/away",
        f"{echo.url}/ok",
    ]
    (tmp_path / "mine.py").write_text(f"URLS = {urls!r}\n{SPIDER}")
    out = tmp_path / "out.jsonl"

    process = crawl.command(
        "crawl",
        "mine",
        f"--overwrite-output={out}",
        answers={"inside.test": [[INSIDE]]},
        SPIDER_MODULES="mine",
        CRAWL_CONTACT=CONTACT,
    )

    assert process.wait() == 0, process.log
    assert canary.seen == []
    assert f'"url": "{echo.url}/ok", "got": 200' in out.read_text()
    assert out.read_text().count('"got": 200') == 1
    assert {seen.headers["User-Agent"] for seen in echo.log} == {f"crawlproj/0.1 (+{CONTACT})"}
