"""The simulated web as a real process: every fault on the wire, and a referee no sin gets past."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import brotli
import httptools
import pytest
import zstandard
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

from crawlproj.errors import BadUrl
from crawlproj.model.urls import canonicalise, domain_of, origin_of
from crawlproj.simweb.accesslog import Request, read_log
from crawlproj.simweb.connection import is_loopback
from crawlproj.simweb.graph import World
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.render import body
from crawlproj.simweb.spec import WorldSpec
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.e2e


@dataclass
class Response:
    """What came over one connection, parsed as far as it goes."""

    raw: bytes = b""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def fetch(url: str, *headers: str, method: str = "GET", patience_s: float = PATIENCE_S) -> Response:
    """One request on a connection of its own; returns what arrived until it ended or patience did."""
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", *headers]
    writer.write("\r\n".join([*lines, "\r\n"]).encode())
    response = Response()
    parser = httptools.HttpResponseParser(response)
    try:
        async with asyncio.timeout(patience_s):
            while data := await reader.read(65_536):
                response.raw += data
                parser.feed_data(data)
                response.status = parser.get_status_code()
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return response


# -- faults, over a raw socket

FAULTY = {
    1: {"error_500_share": 1.0},
    2: {"throttle_share": 1.0, "retry_after_s": 7},
    3: {"slow_share": 1.0, "slow_ms": 300},
    4: {"hang_share": 1.0, "hang_s": 0.4},
    5: {"drop_share": 1.0},
    6: {"truncate_share": 1.0, "gzip_share": 0.0, "br_share": 0.0, "zstd_share": 0.0},
    7: {"chunked_share": 1.0},
    8: {"gzip_share": 1.0, "br_share": 0.0, "zstd_share": 0.0},
    9: {"gzip_share": 0.0, "br_share": 1.0, "zstd_share": 0.0},
    10: {"gzip_share": 0.0, "br_share": 0.0, "zstd_share": 1.0},
    11: {"huge_share": 1.0, "huge_bytes": 3_000_000},
    12: {"redirect_share": 1.0},
    13: {"error_404_share": 1.0},
    14: {"robots_5xx_share": 1.0},
    15: {"no_robots_share": 1.0},
    16: {"disallow_share": 1.0, "crawl_delay_share": 1.0, "sitemap_share": 1.0},
    17: {"error_500_share": 1.0, "permanent_share": 1.0},
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimwebProcess]:
    overrides = {number: {"pages_per_domain": 40} | change for number, change in FAULTY.items()}
    spec = WorldSpec.calm(domains=18, size_spread=0.0, overrides=overrides)
    with SimwebProcess(spec, tmp_path_factory.mktemp("simweb")) as simweb:
        yield simweb


def home_of(world: World, number: int) -> str:
    return f"http://{world.site(number).domain}:{world.spec.port}/"


def page_of(world: World, number: int, index: int = 0) -> str:
    """A page of the domain that is not its home."""
    home = world.page(home_of(world, number))
    assert home is not None
    return [url for url, _ in home.links if url.startswith(home.url) and url != home.url][index]


async def logged(simweb: SimwebProcess, url: str) -> Request:
    """The last record of *url*."""
    return [request for request in simweb.referee().requests if request.url == url][-1]


async def test_a_plain_page_has_the_bytes_of_the_world(faulty: SimwebProcess) -> None:
    url = page_of(faulty.world, 0)
    page = faulty.world.page(url)
    assert page is not None

    begun_ms = time.time() * 1000
    response = await fetch(url)
    ended_ms = time.time() * 1000

    assert (response.status, response.complete) == (200, True)
    assert response.body == body(faulty.world, page)
    record = await logged(faulty, url)
    assert (record.status, record.fault, record.complete) == (200, "", True)
    assert record.bytes == len(response.raw)
    assert begun_ms - 1 <= record.start_ms <= record.end_ms - 2 <= ended_ms


async def test_a_transient_500_passes_and_a_permanent_one_stays(faulty: SimwebProcess) -> None:
    world = faulty.world
    pages = [page for i in range(4) if (page := world.page(page_of(world, 1, i))) and page.failures == 1]

    statuses = [(await fetch(pages[0].url)).status for _ in range(3)]
    permanent = [(await fetch(page_of(world, 17))).status for _ in range(3)]

    assert statuses == [500, 200, 200]
    assert permanent == [500, 500, 500]


async def test_a_throttled_page_says_when_to_come_back(faulty: SimwebProcess) -> None:
    response = await fetch(page_of(faulty.world, 2))

    assert (response.status, response.headers["retry-after"]) == (429, "7")


async def test_a_slow_page_dribbles_but_arrives(faulty: SimwebProcess) -> None:
    url = page_of(faulty.world, 3)

    response = await fetch(url)

    record = await logged(faulty, url)
    assert response.complete
    assert record.fault == "slow"
    assert record.end_ms - record.start_ms >= 290


async def test_a_hanging_page_sends_nothing_until_the_server_gives_up(faulty: SimwebProcess) -> None:
    url = page_of(faulty.world, 4, 0)

    response = await fetch(url)

    record = await logged(faulty, url)
    assert response.raw == b""
    assert (record.fault, record.status, record.complete) == ("hang", 0, False)
    assert record.end_ms - record.start_ms >= 390


@pytest.mark.parametrize(
    ("fault", "read_bytes"),
    [({"huge_share": 1.0, "huge_bytes": 20_000_000}, 500_000), ({"hang_share": 1.0, "hang_s": 60.0}, 0)],
    ids=["huge", "hanging"],
)
async def test_an_answer_the_client_cut_short_ended_when_it_left_however_late_the_server_learns_of_it(
    tmp_path: Path, fault: dict[str, float], read_bytes: int
) -> None:
    overrides = {0: {"pages_per_domain": 50, **fault}}
    with SimwebProcess(WorldSpec.calm(domains=1, overrides=overrides), tmp_path) as simweb:
        url = page_of(simweb.world, 0)
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        await reader.readexactly(read_bytes)
        # Answered after this one was read: one loop serves both in the order they came.
        await fetch(f"http://{parts.netloc}/robots.txt")
        os.kill(simweb.pid, signal.SIGSTOP)
        writer.transport.abort()
        left_ms = time.time() * 1000
        await asyncio.sleep(0.3)
        os.kill(simweb.pid, signal.SIGCONT)
        simweb.stop()

    [record] = [request for request in read_log(simweb.log_path) if request.url == url]
    assert not record.complete
    assert record.start_ms < record.end_ms < left_ms + 100


async def test_a_dropped_connection_ends_inside_the_header(faulty: SimwebProcess) -> None:
    response = await fetch(page_of(faulty.world, 5))

    assert response.raw.startswith(b"HTTP/1.1 200 OK")
    assert b"\r\n\r\n" not in response.raw


async def test_a_truncated_body_is_shorter_than_promised(faulty: SimwebProcess) -> None:
    response = await fetch(page_of(faulty.world, 6))

    assert response.status == 200
    assert 0 < len(response.body) < int(response.headers["content-length"])
    assert not response.complete


async def test_a_chunked_body_is_whole(faulty: SimwebProcess) -> None:
    page = faulty.world.page(page_of(faulty.world, 7))
    assert page is not None

    response = await fetch(page.url)

    assert response.headers["transfer-encoding"] == "chunked"
    assert response.body == body(faulty.world, page)


@pytest.mark.parametrize(
    ("number", "encoding", "inflate"),
    [(8, "gzip", gzip.decompress), (9, "br", brotli.decompress), (10, "zstd", zstandard.decompress)],
)
async def test_a_body_is_compressed_if_the_client_accepts_it(
    faulty: SimwebProcess, number: int, encoding: str, inflate: object
) -> None:
    page = faulty.world.page(page_of(faulty.world, number))
    assert page is not None
    assert callable(inflate)

    plain = await fetch(page.url, "Accept-Encoding: identity")
    packed = await fetch(page.url, "Accept-Encoding: gzip, br;q=0.9, zstd")

    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == encoding
    assert inflate(packed.body) == plain.body == body(faulty.world, page)


async def test_a_huge_page_is_huge(faulty: SimwebProcess) -> None:
    response = await fetch(page_of(faulty.world, 11))

    assert response.complete
    assert len(response.body) > 2_500_000


async def test_a_redirect_points_where_the_world_says(faulty: SimwebProcess) -> None:
    page = faulty.world.page(page_of(faulty.world, 12))
    assert page is not None

    response = await fetch(page.url)

    assert (response.status, response.headers["location"]) == (page.status, page.location)
    assert response.status in (301, 302, 303, 307, 308)


async def test_a_missing_page_and_an_invented_one_are_404(faulty: SimwebProcess) -> None:
    missing = await fetch(page_of(faulty.world, 13))
    invented = await fetch(home_of(faulty.world, 0) + "invented")

    assert (missing.status, invented.status) == (404, 404)


async def test_robots_is_served_as_it_is_judged(faulty: SimwebProcess) -> None:
    world = faulty.world

    served = {n: await fetch(home_of(world, n) + "robots.txt") for n in (0, 14, 15, 16)}

    assert {n: response.status for n, response in served.items()} == {0: 200, 14: 503, 15: 404, 16: 200}
    assert served[16].body.decode() == world.site(16).robots_text()
    assert Protego.parse(served[16].body.decode()).crawl_delay("crawlproj") == world.site(16).crawl_delay_s
    assert not Protego.parse(served[16].body.decode()).can_fetch(
        home_of(world, 16) + "private/x", "crawlproj"
    )


async def test_a_sitemap_lists_the_domain(faulty: SimwebProcess) -> None:
    response = await fetch(home_of(faulty.world, 16) + "sitemap.xml")

    assert response.headers["content-type"] == "application/xml"
    assert response.body.count(b"<loc>") == faulty.world.site(16).pages


async def test_a_head_request_gets_no_body(faulty: SimwebProcess) -> None:
    response = await fetch(home_of(faulty.world, 0), method="HEAD")

    assert response.status == 200
    assert response.raw.endswith(b"\r\n\r\n")
    assert (await logged(faulty, home_of(faulty.world, 0))).method == "HEAD"


async def test_pipelined_requests_are_answered_in_order(faulty: SimwebProcess) -> None:
    world = faulty.world
    paths = [urlsplit(page_of(world, 0, index)).path for index in range(3)]
    reader, writer = await asyncio.open_connection(world.site(0).domain, world.spec.port)
    host = world.site(0).domain

    last = f"GET {paths[2]} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write("".join(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n" for path in paths[:2]).encode())
    writer.write(last.encode())
    raw = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()

    bodies = [body(world, page) for path in paths if (page := world.lookup(host, path))]
    assert [raw.index(one) for one in bodies] == sorted(raw.index(one) for one in bodies)
    assert raw.count(b"HTTP/1.1 200 OK") == 3


async def test_garbage_is_a_400(faulty: SimwebProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.1.1", faulty.port)

    writer.write(b"this is not HTTP\r\n\r\n")

    assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).startswith(b"HTTP/1.1 400")
    writer.close()


def test_only_loopback_is_answered() -> None:
    assert is_loopback("127.3.2.1")
    assert not is_loopback("10.0.0.5")


# -- the process


def test_the_command_is_ready_writes_its_files_and_ends_on_sigterm(tmp_path: Path) -> None:
    seeds, log = tmp_path / "seeds.txt", tmp_path / "access.jsonl"
    options = [
        "--domains",
        "3",
        "--pages",
        "4",
        "--seed",
        "7",
        "--naming",
        "name",
        "--world",
        "calm",
        "--json",
    ]
    files = ["--seeds-out", str(seeds), "--log", str(log)]

    with subprocess.Popen(
        [sys.executable, "-m", "crawlproj.simweb", *options, *files], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        facts = json.loads(child.stdout.readline())
        url = seeds.read_text().splitlines()[0]
        address = f"http://127.0.1.1:{facts['port']}/"
        response = asyncio.run(fetch_by_name(address, urlsplit(url).netloc))
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0

    assert response.status == 200
    assert facts["seeds_file"] == str(seeds)
    assert [(request.url, request.domain) for request in read_log(log)] == [(url, "d00000.test")]


async def fetch_by_name(address: str, host: str) -> Response:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    response = Response()
    parser = httptools.HttpResponseParser(response)
    parser.feed_data(await asyncio.wait_for(reader.read(), PATIENCE_S))
    response.status = parser.get_status_code()
    writer.close()
    return response


async def test_a_request_in_flight_at_sigterm_is_in_the_log(tmp_path: Path) -> None:
    overrides = {0: {"hang_share": 1.0, "hang_s": 60.0, "pages_per_domain": 50}}
    with SimwebProcess(WorldSpec.calm(domains=1, overrides=overrides), tmp_path) as simweb:
        url = page_of(simweb.world, 0)
        hanging = asyncio.create_task(fetch(url))
        # Answered after the hanging one was read: one loop serves both in the order they came.
        await fetch(home_of(simweb.world, 0))
        simweb.stop()
        await hanging

    [record] = [request for request in read_log(simweb.log_path) if request.url == url]
    assert (record.fault, record.complete) == ("hang", False)


def test_the_server_does_not_outlive_a_killed_test(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from crawlproj.simweb.process import SimwebProcess;"
        "from crawlproj.simweb.spec import WorldSpec;"
        "simweb = SimwebProcess(WorldSpec(), Path(sys.argv[1])).__enter__();"
        "print(simweb.port, flush=True); os.kill(os.getpid(), 9)"
    )

    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False
    )

    deadline_s = time.monotonic() + PATIENCE_S
    while (serving := accepts("127.0.1.1", int(killed.stdout))) and time.monotonic() < deadline_s:
        pass
    assert not serving


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port)).close()
    except OSError:  # refused, or reset while it is closing
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--domains", "0"], "domains=0 is out of range"),
        (["--with", "drop_shar=1"], "Did you mean drop_share"),
        (["--with", "drop_share=lots"], "'lots' is not a number"),
        (["--spec", "no-such-file.json"], "--spec no-such-file.json cannot be read"),
    ],
)
def test_wrong_options_end_in_one_clear_line(arguments: list[str], message: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "crawlproj.simweb", *arguments], capture_output=True, text=True, check=False
    )

    assert child.returncode == 2
    assert message in child.stderr
    assert len(child.stderr.splitlines()) == 1


# -- a reference crawler, and its sins

DELAY_S = 0.03
ROBOTS_TRIES = 3


@dataclass
class ReferenceCrawler:
    """The smallest crawler that keeps every rule, unless asked to break one."""

    sin: str = ""
    queues: dict[str, asyncio.Queue[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    robots: dict[str, Protego] = field(default_factory=dict)
    waiting: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def crawl(self, seeds: list[str]) -> None:
        for url in seeds:
            self.admit(url)
        async with asyncio.timeout(PATIENCE_S):
            await self.done.wait()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def admit(self, url: str) -> None:
        if url in self.seen or url.endswith(".pdf"):
            return
        self.seen.add(url)
        if self.sin == "lose" and len(self.seen) == 7:
            return
        domain = domain_of(url)
        if domain not in self.queues:
            self.queues[domain] = asyncio.Queue()
            for _ in range(2 if self.sin == "two at once" else 1):
                self.tasks.add(asyncio.create_task(self.work(domain)))
        self.waiting += 1
        self.queues[domain].put_nowait(url)

    async def work(self, domain: str) -> None:
        while True:
            url = await self.queues[domain].get()
            if await self.allowed(url):
                for _ in range(2 if self.sin == "twice" else 1):
                    await self.get(url)
            if self.sin == "invent":
                await self.get(origin_of(url) + "/invented.html")
            self.waiting -= 1
            if not self.waiting:
                self.done.set()

    async def allowed(self, url: str) -> bool:
        origin = origin_of(url)
        if self.sin == "no robots":
            return True
        for _ in range(ROBOTS_TRIES):
            if origin in self.robots:
                break
            await self.polite_fetch(origin + "/robots.txt", origin)
        return origin in self.robots and self.robots[origin].can_fetch(url, "crawlproj")

    async def get(self, url: str) -> None:
        for _ in range(1 if self.sin == "no retry" else 3):
            response = await self.polite_fetch(url, origin_of(url))
            if response.complete and response.status < 500 and response.status != 429:
                break
        else:
            return
        if location := response.headers.get("location"):
            self.admit(canonicalise(location, url))
        if "html" not in response.headers.get("content-type", ""):
            return
        tree = LexborHTMLParser(response.body)
        base = tree.css_first("base")
        root = str(base.attributes["href"]) if base else url
        for anchor in tree.css("a[href]"):
            try:
                self.admit(canonicalise(str(anchor.attributes["href"]), root))
            except BadUrl:
                pass

    async def polite_fetch(self, url: str, origin: str) -> Response:
        response = await fetch(url)
        if url.endswith("/robots.txt") and response.complete and response.status < 500:
            self.robots[origin] = Protego.parse(response.body.decode() if response.status == 200 else "")
        delay_s = DELAY_S
        if origin in self.robots:
            delay_s = max(delay_s, self.robots[origin].crawl_delay("crawlproj") or 0)
        if self.sin != "impatient":
            delay_s = max(delay_s, float(response.headers.get("retry-after", 0)))
        if self.sin != "no delay":
            await asyncio.sleep(delay_s)
        return response


ROUGH = WorldSpec.rough(
    seed=11,
    domains=8,
    pages_per_domain=12,
    slow_ms=50,
    hang_s=0.2,
    huge_bytes=300_000,
    crawl_delay_share=0.3,
    crawl_delay_min_s=0.05,
    crawl_delay_max_s=0.08,
    # This crawler reads only charsets that spell ASCII as ASCII does.
    non_utf8_share=0.0,
    overrides={
        2: {"robots_5xx_share": 1.0, "permanent_share": 0.0},
        3: {"closed_share": 1.0, "robots_5xx_share": 0},
    },
)


async def test_the_referee_accepts_a_polite_crawl_of_a_rough_web(tmp_path: Path) -> None:
    with SimwebProcess(ROUGH, tmp_path) as simweb:
        await ReferenceCrawler().crawl(simweb.seeds(2))
        verdict = simweb.referee().verdict(min_gap_ms=DELAY_S * 1000)

    assert verdict.ok, verdict.report()


SMALL = WorldSpec.calm(
    seed=4,
    domains=3,
    pages_per_domain=6,
    size_spread=0.0,
    links_mean=4,
    latency_ms=20,
    disallow_share=1.0,
    private_page_share=0.3,
    overrides={2: {"throttle_share": 0.3, "permanent_share": 0.0}},
)


@pytest.mark.parametrize(
    ("sin", "complaints"),
    [
        ("", []),
        ("lose", ["expected but not fetched"]),
        ("twice", ["fetched more than once"]),
        ("invent", ["forbidden or invented", "fetched more than once"]),
        ("no robots", ["forbidden or invented", "requested before robots.txt"]),
        ("no retry", ["expected but not fetched"]),
        ("no delay", ["requested again too soon", "Retry-After was ignored"]),
        ("impatient", ["Retry-After was ignored"]),
        ("two at once", ["more than 1 at once", "requested again too soon"]),
    ],
)
async def test_the_referee_finds_each_sin(tmp_path: Path, sin: str, complaints: list[str]) -> None:
    with SimwebProcess(SMALL, tmp_path) as simweb:
        await ReferenceCrawler(sin).crawl(simweb.seeds(1))
        # A busy machine waits, too, but not for so long each time.
        delay_s = 10.0 if sin == "no delay" else DELAY_S
        verdict = simweb.referee().verdict(min_gap_ms=delay_s * 1000)

    for complaint in complaints:
        assert complaint in verdict.report()
    assert verdict.ok is (not sin), verdict.report()
