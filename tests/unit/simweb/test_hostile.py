"""Hostile, throttled and dead domains over a raw socket: what they send, that it ends, and is in the log."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import brotli
import pytest
import zstandard

from crawlproj.errors import BadArgument
from crawlproj.simweb.accesslog import Request
from crawlproj.simweb.faults import Fault
from crawlproj.simweb.graph import World
from crawlproj.simweb.hostile import PAGE_KINDS, REDIRECTS, ROBOTS_KINDS, Hostile, bomb, parse_path
from crawlproj.simweb.page import Kind
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.patience import PATIENCE_S

STEP_S = 0.02
LIMIT_S = 0.3
#: The server's timers count whole milliseconds, so one may fire a little early.
EARLY_S = 0.02
#: What a busy machine may take besides; without the limit there would be no end.
LATE_S = 60.0
BOMB_BYTES = 40_000_000
PAGES = {kind: number for number, kind in enumerate(PAGE_KINDS, 1)}
ROBOTS = {kind: number for number, kind in enumerate(ROBOTS_KINDS, len(PAGES) + 1)}
FIRST = len(PAGES) + len(ROBOTS) + 2  # one between: the last robots.txt redirects there
OTHERS: dict[str, dict[str, Any]] = {
    "429": {"throttle_all": 429},
    "429 twice": {"throttle_all": 429, "throttle_requests": 2},
    "503 in seconds": {"throttle_all": 503, "throttle_retry_after": "seconds", "retry_after_s": 3},
    "429 until a date": {"throttle_all": 429, "throttle_retry_after": "date", "retry_after_s": 3},
    "429 with robots": {"throttle_all": 429, "throttle_robots": True},
    "dead": {"dead": "reset"},
    "dead twice": {"dead": "reset", "dead_attempts": 2},
    "dead and silent": {"dead": "hang"},
    "dead but for robots": {"dead": "reset", "dead_robots": False},
}
NUMBERS = {name: FIRST + index for index, name in enumerate(OTHERS)}
OVERRIDES: dict[int, dict[str, Any]] = {
    **{number: {"hostile": str(kind)} for kind, number in PAGES.items()},
    **{number: {"robots_hostile": str(kind)} for kind, number in ROBOTS.items()},
    **{NUMBERS[name]: fields for name, fields in OTHERS.items()},
}
SPEC = WorldSpec.calm(
    domains=FIRST + len(OTHERS),
    pages_per_domain=3,
    hostile_step_ms=int(STEP_S * 1000),
    hostile_s=LIMIT_S,
    hostile_bytes=10_000_000,
    bomb_bytes=BOMB_BYTES,
    overrides=OVERRIDES,
)
QUICK = {
    Hostile.ENDLESS_BODY,  # by its limit in bytes
    Hostile.ENDLESS_CHUNKS,
    Hostile.HEADER_FLOOD,
    Hostile.LONG_LENGTH,
    Hostile.SHORT_LENGTH,
    Hostile.RESET,
    Hostile.GARBAGE,
    Hostile.TLS,
    Hostile.BIG,
    *REDIRECTS,
    *(kind for kind in Hostile if kind.startswith("bomb-")),
}


@dataclass
class Received:
    data: bytes
    was_reset: bool
    took_s: float

    @property
    def head(self) -> str:
        return self.data.partition(b"\r\n\r\n")[0].decode("latin-1")

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.head.split(" ")[1])

    def header(self, name: str) -> str | None:
        found = [line for line in self.head.split("\r\n") if line.lower().startswith(name.lower() + ":")]
        return found[0].partition(":")[2].strip() if found else None


async def ask(url: str, *, at_most: int = 2_000_000) -> Received:
    """Everything that comes until the server ends it, or *at_most* so many bytes."""
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    data, was_reset, started = bytearray(), False, time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            with closing(writer):
                writer.write(
                    f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
                )
                while len(data) < at_most and (piece := await reader.read(65_536)):
                    data += piece
    except ConnectionError:
        was_reset = True
    return Received(bytes(data), was_reset, time.monotonic() - started)


@pytest.fixture(scope="module")
def simweb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimwebProcess]:
    with SimwebProcess(SPEC, tmp_path_factory.mktemp("hostile")) as simweb:
        yield simweb


def home_of(simweb: SimwebProcess, number: int) -> str:
    return f"http://{simweb.world.site(number).domain}:{simweb.port}/"


def robots_of(simweb: SimwebProcess, kind: Hostile) -> str:
    return home_of(simweb, ROBOTS[kind]) + "robots.txt"


def page_of(simweb: SimwebProcess, kind: Hostile) -> str:
    return simweb.world.hostile_urls(PAGES[kind])[0]


def records(simweb: SimwebProcess, domain: str) -> list[Request]:
    return [request for request in simweb.referee().requests if request.domain == domain]


async def records_of(simweb: SimwebProcess, name: str, count: int) -> list[Request]:
    """The records of one of OTHERS, once there are *count*: the server may see an end a moment after us."""
    domain = simweb.world.site(NUMBERS[name]).domain
    async with asyncio.timeout(PATIENCE_S):
        while len(found := records(simweb, domain)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


# -- in the world


def test_the_home_page_of_a_hostile_domain_leads_to_its_hostile_pages() -> None:
    world = World(SPEC)

    for kind, number in PAGES.items():
        home = world.page(f"http://{world.site(number).domain}/")
        assert home is not None
        linked = [world.page(link.url) for link in home.links if "/hostile/" in link.url]
        assert {page and page.hostile for page in linked} == {kind}
        assert {page and page.kind for page in linked} == {Kind.HOSTILE}


def test_a_world_without_hostile_domains_has_no_hostile_page() -> None:
    hostile, calm = World(SPEC), World(WorldSpec.calm(domains=SPEC.domains))

    assert all(calm.page(url) is None for number in PAGES.values() for url in hostile.hostile_urls(number))


def test_every_hostile_path_reads_as_it_was_written() -> None:
    world = World(SPEC)
    urls = [url for number in PAGES.values() for url in world.hostile_urls(number)]

    assert len(urls) > len(PAGES)
    for target in ("/" + url.split("/", 3)[3] for url in urls):
        path = parse_path(target)
        assert path is not None
        assert path.text == target
        assert parse_path(target.replace("hostile", "friendly")) is None


@pytest.mark.parametrize("field", ["hostile", "robots_hostile", "throttle_retry_after", "dead"])
def test_an_unknown_kind_is_refused_with_the_choices(field: str) -> None:
    with pytest.raises(BadArgument, match=f"{field}='sloworis' is unknown; it is one of ''"):
        WorldSpec.calm(domains=2, **{field: "sloworis"})


# -- all of them


@pytest.mark.parametrize("kind", PAGE_KINDS)
async def test_a_hostile_page_ends_within_its_limit_and_is_in_the_log(
    simweb: SimwebProcess, kind: Hostile
) -> None:
    url = page_of(simweb, kind)

    received = await ask(url, at_most=100_000_000)

    [record] = [request for request in simweb.referee().requests if request.url == url][-1:]
    assert received.took_s < LIMIT_S + LATE_S
    assert received.took_s >= LIMIT_S - EARLY_S or kind in QUICK
    assert (record.end_ms - record.start_ms) / 1000 <= received.took_s + 1
    assert record.fault == ("" if kind in REDIRECTS else kind)


async def test_robots_txt_can_be_as_hostile(simweb: SimwebProcess) -> None:
    urls = [robots_of(simweb, kind) for kind in ROBOTS]

    received = await asyncio.gather(*(ask(url, at_most=100_000) for url in urls))

    assert all(one.took_s < LIMIT_S + LATE_S for one in received)
    faults = {r.url: r.fault for r in simweb.referee().requests if r.url in urls}
    assert faults == {robots_of(simweb, kind): "" if kind in REDIRECTS else kind for kind in ROBOTS}


async def test_other_pages_of_a_hostile_domain_are_served(simweb: SimwebProcess) -> None:
    homes = [await ask(home_of(simweb, number)) for number in PAGES.values()]

    assert {home.status for home in homes} == {200}


async def test_a_server_with_open_hostile_connections_stops_at_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    spec = WorldSpec.calm(domains=2, hostile_s=600.0, overrides={1: {"hostile": "hang"}})
    with SimwebProcess(spec, tmp_path_factory.mktemp("stop")) as simweb:
        waiting = asyncio.create_task(ask(simweb.world.hostile_urls(1)[0]))
        await asyncio.sleep(0.1)

        started = time.monotonic()
        await asyncio.to_thread(simweb.stop)
        received = await waiting

    assert time.monotonic() - started < LATE_S
    assert received.data == b""


# -- one by one


async def test_slowloris_never_ends_its_head(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.SLOWLORIS))

    assert received.data.startswith(b"HTTP/1.1 200 OK\r\nX-Slow: 1\r\n")
    assert b"\r\n\r\n" not in received.data
    assert received.data.count(b"X-Slow") <= LIMIT_S / STEP_S + 1


@pytest.mark.parametrize("kind", [Hostile.ENDLESS_HEADERS, Hostile.ENDLESS_LINE, Hostile.ENDLESS_1XX])
async def test_an_endless_head_is_fast(simweb: SimwebProcess, kind: Hostile) -> None:
    received = await ask(page_of(simweb, kind), at_most=50_000)

    assert len(received.data) >= 50_000
    assert not received.was_reset


async def test_a_header_flood_is_followed_by_a_page(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.HEADER_FLOOD))

    assert received.head.count("\r\n") > 10_000
    assert b"<title>" in received.body


@pytest.mark.parametrize("kind", [Hostile.ENDLESS_BODY, Hostile.ENDLESS_CHUNKS])
async def test_an_endless_body_is_limited_in_bytes_by_the_server(
    simweb: SimwebProcess, kind: Hostile
) -> None:
    received = await ask(page_of(simweb, kind), at_most=100_000_000)

    assert received.header("Content-Length") is None
    assert 200_000 < len(received.data) < SPEC.hostile_bytes + 1_000_000
    assert received.was_reset


async def test_a_chunk_can_be_larger_than_any_integer(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.CHUNK_OVERFLOW))

    assert received.header("Transfer-Encoding") == "chunked"
    assert int(received.body.partition(b"\r\n")[0], 16) > 2**64


async def test_a_drip_is_one_byte_a_step(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.DRIP))

    assert 1 <= len(received.body) <= LIMIT_S / STEP_S + 1


async def test_a_long_length_promises_more_than_comes(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.LONG_LENGTH))

    assert int(received.header("Content-Length") or 0) == len(received.body) + 1000
    assert not received.was_reset


async def test_a_short_length_is_followed_by_an_answer_nobody_asked_for(simweb: SimwebProcess) -> None:
    received = await ask(page_of(simweb, Hostile.SHORT_LENGTH))

    beyond = received.body[int(received.header("Content-Length") or 0) :]
    assert b"</html>\nHTTP/1.1 200 OK\r\n" in beyond
    assert beyond.endswith(b"nobody's request</html>\n")


async def test_resets_come_after_so_many_bytes_as_the_path_says(simweb: SimwebProcess) -> None:
    urls = simweb.world.hostile_urls(PAGES[Hostile.RESET])

    received = [await ask(url) for url in urls]

    assert [len(one.data) for one in received] == [int(url.rpartition("/")[2]) for url in urls]
    assert all(one.was_reset for one in received)
    head_bytes = len(received[-1].head) + 4
    assert {head_bytes - 1, head_bytes, head_bytes + 1} <= {len(one.data) for one in received}


def inflate(data: bytes, kind: Hostile) -> bytes:
    if kind is Hostile.BOMB_BR:
        inflated: bytes = brotli.decompress(data)
        return inflated
    if kind is Hostile.BOMB_ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return gzip.decompress(gzip.decompress(data) if kind is Hostile.BOMB_NESTED else data)


@pytest.mark.parametrize("kind", [kind for kind in PAGE_KINDS if kind.startswith("bomb-")])
async def test_a_bomb_is_small_and_inflates_to_a_page_and_blanks(
    simweb: SimwebProcess, kind: Hostile
) -> None:
    received = await ask(page_of(simweb, kind))

    inflated = inflate(received.body, kind)
    assert len(received.body) < BOMB_BYTES / 900
    assert received.header("Content-Encoding") == {
        Hostile.BOMB_NESTED: "gzip, gzip"
    }.get(kind, kind.removeprefix("bomb-"))  # fmt: skip
    assert len(inflated) == BOMB_BYTES
    assert b"<title>" in inflated[:1000]
    assert inflated[-1_000_000:].isspace()


def test_a_gigabyte_fits_in_a_few_kilobytes() -> None:
    packed = bomb(b"<html>", Hostile.BOMB_NESTED, 1 << 30)

    assert len(packed) < 5000
    unpacker = zlib.decompressobj(31)
    assert unpacker.decompress(gzip.decompress(packed), 10).startswith(b"<html>")


async def test_garbage_is_not_http(simweb: SimwebProcess) -> None:
    garbage = await ask(page_of(simweb, Hostile.GARBAGE))
    tls = await ask(page_of(simweb, Hostile.TLS))

    assert not garbage.data.startswith(b"HTTP")
    assert tls.data.startswith(b"\x15\x03\x03")


# -- redirects


async def follow(url: str, hops: int) -> list[str]:
    seen = [url]
    for _ in range(hops):
        location = (await ask(seen[-1])).header("Location")
        assert location is not None, seen
        seen.append(location)
    return seen


async def test_a_redirect_loop_goes_over_three_domains(simweb: SimwebProcess) -> None:
    urls = await follow(page_of(simweb, Hostile.REDIRECT_LOOP), 3)

    assert urls[3] == urls[0]
    assert len({urlsplit(url).hostname for url in urls}) == 3


@pytest.mark.parametrize("kind", [Hostile.REDIRECT_CHAIN, Hostile.REDIRECT_SELF])
async def test_a_chain_of_redirects_has_no_end(simweb: SimwebProcess, kind: Hostile) -> None:
    urls = await follow(page_of(simweb, kind), 30)

    assert len(set(urls)) == 31
    assert len({url.partition("?")[0] for url in urls}) == (1 if kind is Hostile.REDIRECT_SELF else 31)


async def test_a_robots_txt_of_another_domain_has_the_rules_of_this_one(simweb: SimwebProcess) -> None:
    _, other = await follow(robots_of(simweb, Hostile.REDIRECT_OTHER), 1)

    rules = await ask(other)

    number = ROBOTS[Hostile.REDIRECT_OTHER]
    assert urlsplit(other).hostname != simweb.world.site(number).domain
    assert (rules.status, rules.body.decode()) == (200, simweb.world.site(number).robots_text())


async def test_a_redirect_loop_of_robots_comes_back_to_robots(simweb: SimwebProcess) -> None:
    urls = await follow(robots_of(simweb, Hostile.REDIRECT_LOOP), 3)

    assert urls[3] == urls[0]


async def test_a_big_robots_txt_has_its_rules_first_and_another_at_the_end(simweb: SimwebProcess) -> None:
    received = await ask(robots_of(simweb, Hostile.BIG), at_most=100_000_000)

    assert len(received.body) > 9_900_000
    rules = simweb.world.site(ROBOTS[Hostile.BIG]).robots_text().encode()
    assert received.body.startswith(rules)
    assert received.body.endswith(b"Disallow: /\n")


# -- throttled


async def test_a_throttled_domain_answers_429_to_everything_but_robots(simweb: SimwebProcess) -> None:
    home = home_of(simweb, NUMBERS["429"])

    statuses = [(await ask(url)).status for url in (home, home + "robots.txt", home, home + "nowhere")]

    assert statuses == [429, 200, 429, 429]
    faults = [record.fault for record in await records_of(simweb, "429", 4)]
    assert faults == [Fault.THROTTLED, "", Fault.THROTTLED, Fault.THROTTLED]


async def test_robots_can_be_throttled_too(simweb: SimwebProcess) -> None:
    assert (await ask(home_of(simweb, NUMBERS["429 with robots"]) + "robots.txt")).status == 429


async def test_a_domain_can_be_throttled_for_a_while(simweb: SimwebProcess) -> None:
    home = home_of(simweb, NUMBERS["429 twice"])

    assert [(await ask(home)).status for _ in range(4)] == [429, 429, 200, 200]


async def test_retry_after_in_seconds_is_also_in_the_log(simweb: SimwebProcess) -> None:
    received = await ask(home_of(simweb, NUMBERS["503 in seconds"]))

    [record] = await records_of(simweb, "503 in seconds", 1)
    assert (received.status, received.header("Retry-After")) == (503, "3")
    assert record.quiet_until_ms == pytest.approx(record.end_ms + 3000, abs=10)


async def test_retry_after_can_be_a_date(simweb: SimwebProcess) -> None:
    received = await ask(home_of(simweb, NUMBERS["429 until a date"]))

    [record] = await records_of(simweb, "429 until a date", 1)
    said_ms = parsedate_to_datetime(received.header("Retry-After") or "").timestamp() * 1000
    assert said_ms == record.quiet_until_ms
    assert 3000 <= said_ms - record.start_ms <= 4100


# -- dead


async def test_every_connection_to_a_dead_domain_is_counted(simweb: SimwebProcess) -> None:
    received = [await ask(home_of(simweb, NUMBERS["dead"])) for _ in range(3)]

    found = await records_of(simweb, "dead", 3)
    assert all(one.was_reset and not one.data for one in received)
    assert [(r.status, r.fault, r.url) for r in found] == [(0, Fault.DEAD, "")] * 3
    assert simweb.referee().connections_to_the_dead()[found[0].domain] == 3


async def test_a_dead_domain_can_come_back(simweb: SimwebProcess) -> None:
    home = home_of(simweb, NUMBERS["dead twice"])

    assert [(await ask(home)).was_reset for _ in range(2)] == [True, True]
    assert (await ask(home)).status == 200


async def test_a_dead_domain_can_hang_at_accept(simweb: SimwebProcess) -> None:
    received = await ask(home_of(simweb, NUMBERS["dead and silent"]))

    [record] = await records_of(simweb, "dead and silent", 1)
    assert received.data == b""
    assert LIMIT_S - EARLY_S <= received.took_s < LIMIT_S + LATE_S
    assert LIMIT_S * 1000 - 20 <= record.end_ms - record.start_ms < (LIMIT_S + LATE_S) * 1000


async def test_robots_of_a_dead_domain_can_be_alive(simweb: SimwebProcess) -> None:
    home = home_of(simweb, NUMBERS["dead but for robots"])

    assert (await ask(home + "robots.txt")).status == 200
    assert (await ask(home)).was_reset
    assert [r.fault for r in await records_of(simweb, "dead but for robots", 2)] == ["", Fault.DEAD]
