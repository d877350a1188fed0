from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadConnectionRefusedError, DownloadFailedError

from crawlproj.config import Config
from crawlproj.download.connection import DRAIN_BYTES, DRAIN_S, Origin, Peer
from crawlproj.download.errors import (
    CertificateError,
    ConnectionLostError,
    ConnectTimeoutError,
    HeaderTimeoutError,
    IdleTimeoutError,
    NoAnswerError,
    StaleConnectionError,
    TlsError,
    TotalTimeoutError,
)
from crawlproj.download.guard import AddressGuard, AddressRefusedError
from crawlproj.download.handler import HttpHandler
from crawlproj.download.pool import Pool, make_tls_context
from crawlproj.download.wire import BadResponseError, Head, HeadersTooLargeError
from tests.loopclock import LoopClock
from tests.unit.download.rawserver import Serve, Visit, until

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Names:
    """A resolver that knows the names a test gives it, and literal addresses."""

    def __init__(self, **known: list[str]) -> None:
        self.known = known
        self.asked: list[str] = []

    async def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.known.get(host.partition(".")[0], [host])


@dataclass
class Kept:
    """Takes a response whole, or up to *wanted* bytes."""

    wanted: int = 10**9
    head: Head | None = None
    address: str = ""
    certificate: bytes | None = None
    body: bytes = b""
    pieces: list[int] = field(default_factory=list)

    def take_head(self, head: Head, peer: Peer) -> bool:
        self.head, self.address, self.certificate = head, peer.address, peer.certificate
        return self.wanted > 0

    def take_body(self, data: bytes) -> bool:
        self.body += data
        self.pieces.append(len(data))
        return len(self.body) < self.wanted


NewPool = Callable[..., Pool]


@pytest.fixture
async def new_pool() -> AsyncIterator[NewPool]:
    pools: list[Pool] = []

    def make(
        resolver: Names | None = None,
        allow: tuple[str, ...] = ("127.0.0.0/8",),
        tls: ssl.SSLContext | None = None,
        **limits: Any,
    ) -> Pool:
        pool = Pool(
            resolver=resolver or Names(),
            guard=AddressGuard(allow, None),
            config=Config(**limits),
            tls=tls or make_tls_context(is_verified=False),
        )
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        await pool.close()
        assert pool.open_connections == pool.idle_connections == 0


async def fetch(
    pool: Pool,
    port: int,
    kept: Kept | None = None,
    *,
    host: str = "127.0.0.1",
    scheme: str = "http",
    request: bytes = REQUEST,
    may_repeat: bool = True,
    is_paced: bool = False,
    total_s: float = 5.0,
) -> tuple[Kept, str | None]:
    kept = kept or Kept()
    deadline_s = asyncio.get_running_loop().time() + total_s
    loss = await pool.exchange(
        Origin(scheme, host, port),
        request,
        kept,
        is_head=False,
        may_repeat=may_repeat,
        is_paced=is_paced,
        deadline_s=deadline_s,
    )
    return kept, loss


def open_sockets() -> int:
    links = (path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    count = 0
    try:
        for link in links:
            count += str(link).startswith("socket:")
    except FileNotFoundError:
        # The descriptor of the listing itself.
        pass
    return count


# --- using a connection again -------------------------------------------------------------------------


async def test_a_connection_is_used_again(serve: Serve, new_pool: NewPool) -> None:
    server, pool = await serve(HELLO), new_pool()

    answers = [(await fetch(pool, server.port))[0].body for _ in range(3)]

    assert answers == [b"hello"] * 3
    assert (server.connections, pool.idle_connections) == (1, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        HELLO + b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=1\r\n\r\nhello",
    ],
    ids=["HTTP/1.0", "close", "too much", "the server closes soon"],
)
async def test_some_connections_are_not_used_again(serve: Serve, new_pool: NewPool, answer: bytes) -> None:
    server, pool = await serve(answer), new_pool()

    kept, loss = await fetch(pool, server.port)

    assert (kept.body, loss) == (b"hello", None)
    assert pool.open_connections == 0


async def test_bytes_that_nobody_asked_for_close_an_idle_connection(serve: Serve, new_pool: NewPool) -> None:
    speak = asyncio.Event()

    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(HELLO)
        await speak.wait()
        await visit.send(HELLO)
        await visit.request()

    server, pool = await serve(answer), new_pool()
    await fetch(pool, server.port)
    assert pool.idle_connections == 1

    speak.set()
    await server.wait_until(lambda: server.gone == 1)

    assert pool.idle_connections == pool.open_connections == 0


async def test_idle_connections_are_bounded_per_host_and_in_total(serve: Serve, new_pool: NewPool) -> None:
    servers = [await serve(HELLO) for _ in range(4)]
    pool = new_pool(idle_per_host=2, idle_connections=5)

    for server in servers:
        await asyncio.gather(*(fetch(pool, server.port) for _ in range(4)))
        assert pool.idle_connections <= 5
    await servers[0].wait_until(lambda: servers[0].gone == 4)

    assert pool.idle_connections == pool.open_connections == 5


async def test_an_idle_connection_is_closed_when_its_time_is_over(serve: Serve, new_pool: NewPool) -> None:
    server, pool = await serve(HELLO), new_pool(keep_alive_seconds=0.05)
    await fetch(pool, server.port)

    await server.wait_until(lambda: server.gone == 1)

    assert pool.open_connections == 0


async def test_an_expired_connection_is_not_used_even_before_it_is_swept(
    serve: Serve, new_pool: NewPool
) -> None:
    server, pool = await serve(HELLO), new_pool(keep_alive_seconds=1e-9)

    await fetch(pool, server.port)
    await fetch(pool, server.port)

    assert server.connections == 2


async def test_a_connection_that_the_server_closed_while_idle_is_removed(
    serve: Serve, new_pool: NewPool
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(HELLO)

    server, pool = await serve(answer), new_pool()
    await fetch(pool, server.port)
    await server.wait_until(lambda: server.gone == 1)
    # The close is on its way through the kernel.
    await until(lambda: pool.open_connections == 0)

    kept, _ = await fetch(pool, server.port)

    assert (kept.body, server.connections) == (b"hello", 2)


async def drop_the_second_request(visit: Visit) -> None:
    await visit.request()
    await visit.send(HELLO)
    await visit.request()
    visit.reset()


async def test_a_request_that_met_a_closing_connection_is_sent_once_more(
    serve: Serve, new_pool: NewPool
) -> None:
    server, pool = await serve(drop_the_second_request), new_pool()
    await fetch(pool, server.port)

    kept, _ = await fetch(pool, server.port)

    assert (kept.body, server.connections, len(server.requests)) == (b"hello", 2, 3)


async def test_a_request_that_must_not_be_repeated_is_not(serve: Serve, new_pool: NewPool) -> None:
    server, pool = await serve(drop_the_second_request), new_pool()
    await fetch(pool, server.port)

    with pytest.raises(NoAnswerError):
        await fetch(pool, server.port, may_repeat=False)

    assert len(server.requests) == 2


async def test_a_paced_request_that_met_a_closing_connection_is_put_off(
    serve: Serve, new_pool: NewPool
) -> None:
    server, pool = await serve(drop_the_second_request), new_pool()
    await fetch(pool, server.port)

    with pytest.raises(StaleConnectionError) as put_off:
        await fetch(pool, server.port, is_paced=True)

    assert (put_off.value.wait_s, len(server.requests)) == (None, 2)


async def test_a_connection_that_ends_within_the_headers_is_called_lost(
    serve: Serve, new_pool: NewPool
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Ty")

    server, pool = await serve(answer), new_pool()

    with pytest.raises(ConnectionLostError):
        await fetch(pool, server.port)


async def test_a_request_is_repeated_only_once(serve: Serve, new_pool: NewPool) -> None:
    answered = 0

    async def answer(visit: Visit) -> None:
        nonlocal answered
        await visit.request()
        if not answered:
            answered += 1
            await visit.send(HELLO)
            await visit.request()
        visit.reset()

    server, pool = await serve(answer), new_pool()
    await fetch(pool, server.port)

    with pytest.raises(NoAnswerError):
        await fetch(pool, server.port)

    assert len(server.requests) == 3


# --- what is not read ---------------------------------------------------------------------------------


async def test_a_short_rest_is_read_and_the_connection_kept(serve: Serve, new_pool: NewPool) -> None:
    body = b"x" * DRAIN_BYTES
    server, pool = (
        await serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body),
        new_pool(),
    )

    kept, loss = await fetch(pool, server.port, Kept(wanted=0))

    assert (kept.body, loss, pool.idle_connections) == (b"", None, 1)


async def test_a_long_rest_closes_its_own_connection_only(serve: Serve, new_pool: NewPool) -> None:
    body = b"x" * 5_000_000
    large = await serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    small, pool = await serve(HELLO), new_pool()
    await fetch(pool, small.port)

    kept, loss = await fetch(pool, large.port, Kept(wanted=1000))
    await fetch(pool, small.port)

    assert loss is None
    assert 1000 <= len(kept.body) < 1_000_000
    assert (pool.open_connections, small.connections) == (1, 1)


async def test_a_rest_that_does_not_come_is_not_waited_for(
    serve: Serve, new_pool: NewPool, clock: LoopClock
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello")
        await visit.request()

    server, pool, kept = await serve(answer), new_pool(idle_seconds=60), Kept(wanted=5)
    download = asyncio.create_task(fetch(pool, server.port, kept, total_s=60))
    await until(lambda: bool(kept.body))

    await clock.go_to(DRAIN_S + 1)
    async with asyncio.timeout(10):
        _, loss = await download

    assert (kept.body, loss, pool.open_connections) == (b"hello", None, 0)


async def test_an_endless_body_costs_one_read_more_than_wanted(serve: Serve, new_pool: NewPool) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await visit.send(b"x" * 100_000)

    server, pool = await serve(answer), new_pool()

    kept, _ = await fetch(pool, server.port, Kept(wanted=1_000_000))

    assert len(kept.body) - kept.pieces[-1] < 1_000_000
    assert max(kept.pieces) <= 262_144


def is_connected_to(port: int) -> bool:
    """Whether the kernel has a socket here whose other end is *port* of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


async def test_a_download_that_is_cut_short_has_ended_when_its_socket_is_closed(
    serve: Serve, new_pool: NewPool
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000)
        await visit.request()

    server, pool = await serve(answer), new_pool()

    await fetch(pool, server.port, Kept(wanted=1))

    # At once, without a turn of the loop: the waiting request counts the domain's pause from now on.
    assert not is_connected_to(server.port)


# --- time ---------------------------------------------------------------------------------------------


async def hold(visit: Visit) -> None:
    await visit.request()
    await visit.request()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    return LoopClock(monkeypatch)


async def ends_at(
    clock: LoopClock, download: asyncio.Task[Any], limit_s: float, error: type[Exception]
) -> None:
    """Assert that *download* ends with *error* at *limit_s*, not a second earlier or later."""
    await clock.go_to(limit_s - 1)
    assert not download.done()
    await clock.go_to(limit_s + 1)
    # Long before any other limit.
    with pytest.raises(error):
        async with asyncio.timeout(10):
            await download


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "limits", "limit_s", "error"),
    [
        ({}, {}, 20, HeaderTimeoutError),
        ({5: b"HTTP/1.1 200 OK\r\n", 10: b"A: b\r\n", 19: b"C: d\r\n"}, {}, 20, HeaderTimeoutError),
        ({}, {"header_seconds": 100}, 60, TotalTimeoutError),
        ({10: HEAD}, {}, 25, IdleTimeoutError),
        ({10: HEAD, 20: b"x", 30: b"x"}, {}, 45, IdleTimeoutError),
        ({10: HEAD, 20: b"x", 30: b"x", 40: b"x", 50: b"x"}, {}, 60, TotalTimeoutError),
        ({10: HEAD}, {"idle_seconds": 100}, 60, TotalTimeoutError),
    ],
    ids=["silent", "slow head", "total", "silent body", "body stops", "slow body", "patient"],
)
async def test_every_phase_has_its_limit(
    serve: Serve,
    new_pool: NewPool,
    clock: LoopClock,
    sent: dict[float, bytes],
    limits: dict[str, float],
    limit_s: float,
    error: type[Exception],
) -> None:
    visits: list[Visit] = []

    async def answer(visit: Visit) -> None:
        await visit.request()
        visits.append(visit)
        await visit.request()

    server, pool, kept = await serve(answer), new_pool(**limits), Kept()
    download = asyncio.create_task(fetch(pool, server.port, kept, total_s=60))
    await until(lambda: bool(visits))

    for at_s, data in sent.items():
        await clock.go_to(at_s)
        body = kept.body + data
        await visits[0].send(data)
        # A part of the head is not reported; the header limit does not ask when it came.
        if data == HEAD:
            await until(lambda: kept.head is not None)
        elif kept.head is not None:
            await until(lambda body=body: kept.body == body)

    await ends_at(clock, download, limit_s, error)
    assert pool.open_connections == 0


async def test_exchanges_under_way_together_end_each_at_its_own_limit(
    serve: Serve, new_pool: NewPool, clock: LoopClock
) -> None:
    server, pool = await serve(hold), new_pool(header_seconds=100)

    def begin(total_s: float) -> asyncio.Task[Any]:
        return asyncio.create_task(fetch(pool, server.port, total_s=total_s))

    # The first to begin is not the first to end, and one begins when another has ended.
    slow, middle, quick = begin(50), begin(20), begin(10)
    await until(lambda: len(server.requests) == 3)
    await ends_at(clock, quick, 10, TotalTimeoutError)
    late = begin(4)
    await until(lambda: len(server.requests) == 4)
    await ends_at(clock, late, 15, TotalTimeoutError)
    await ends_at(clock, middle, 20, TotalTimeoutError)
    await ends_at(clock, slow, 50, TotalTimeoutError)


async def test_a_slow_but_steady_body_is_read(serve: Serve, new_pool: NewPool, clock: LoopClock) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        for number in range(9):
            await until(lambda number=number: len(kept.body) == number)
            await clock.go_to(10.0 * (number + 1))
            await visit.send(b"x")

    server, pool, kept = await serve(answer), new_pool(idle_seconds=15), Kept()

    _, loss = await fetch(pool, server.port, kept, total_s=100)

    assert (kept.body, loss) == (b"x" * 9, None)


async def test_a_connection_that_is_not_made_in_time_is_given_up(
    serve: Serve, new_pool: NewPool, clock: LoopClock
) -> None:
    # Speaks no TLS, so the handshake never ends.
    server, pool = await serve(hold), new_pool(connect_seconds=10)
    download = asyncio.create_task(fetch(pool, server.port, scheme="https", total_s=60))
    await until(lambda: server.connections == 1)

    await ends_at(clock, download, 10, ConnectTimeoutError)

    await server.wait_until(lambda: server.gone == 1)
    assert pool.open_connections == 0


@pytest.mark.parametrize("host", ["slow.test", "127.0.0.1"], ids=["name", "connection"])
async def test_looking_up_a_name_and_connecting_count_in_the_total(
    serve: Serve, new_pool: NewPool, clock: LoopClock, host: str
) -> None:
    class Slow(Names):
        async def resolve(self, host: str) -> list[str]:
            if host == "slow.test":
                await asyncio.Event().wait()
            return [host]

    server, pool = await serve(hold), new_pool(Slow(), connect_seconds=100)
    download = asyncio.create_task(fetch(pool, server.port, host=host, scheme="https", total_s=60))
    await clock.go_to(0)

    await ends_at(clock, download, 60, TotalTimeoutError)


async def test_a_download_that_is_cancelled_closes_its_connection(serve: Serve, new_pool: NewPool) -> None:
    server, pool = await serve(hold), new_pool()
    task = asyncio.create_task(fetch(pool, server.port))
    await until(lambda: bool(server.requests))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await server.wait_until(lambda: server.gone == 1)
    assert pool.open_connections == 0


@pytest.mark.parametrize("at_once", [True, False], ids=["while it comes", "just when it is complete"])
async def test_a_cancelled_download_leaves_nothing_open_though_its_response_came(
    serve: Serve, new_pool: NewPool, at_once: bool
) -> None:
    class Cancelling(Kept):
        def take_body(self, data: bytes) -> bool:
            if at_once:
                task.cancel()
            else:
                asyncio.get_running_loop().call_soon(task.cancel)
            return True

    server, pool = await serve(HELLO), new_pool()
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    task = asyncio.create_task(fetch(pool, server.port, Cancelling()))

    with pytest.raises(asyncio.CancelledError):
        await task

    assert (pool.open_connections, broken) == (0, [])


# --- broken connections -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [HELLO, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_an_end_at_every_byte_is_noticed(
    serve: Serve, new_pool: NewPool, data: bytes, ending: str
) -> None:
    upto = 0

    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(data[:upto])
        if ending == "reset":
            linger = struct.pack("ii", 1, 0)
            visit.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            visit.reset()

    server, pool = await serve(answer), new_pool()
    head_bytes = data.index(b"\r\n\r\n") + 4
    whole_bytes = data.index(b"0\r\n\r\n") + 3 if b"0\r\n\r\n" in data and ending == "close" else len(data)
    for upto in range(whole_bytes):
        try:
            kept, loss = await fetch(pool, server.port)
        except DownloadFailedError:
            # A reset may overtake the bytes before it.
            assert upto < head_bytes or ending == "reset"
        else:
            assert upto >= head_bytes
            assert loss is not None
            assert b"hello".startswith(kept.body)

    assert pool.open_connections == 0


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"SSH-2.0-x\r\n", BadResponseError), (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2000, HeadersTooLargeError)],
)
async def test_what_cannot_be_read_ends_the_connection(
    serve: Serve, new_pool: NewPool, data: bytes, error: type[Exception]
) -> None:
    server, pool = await serve(data), new_pool(max_headers=1000)

    with pytest.raises(error):
        await fetch(pool, server.port)

    assert pool.open_connections == 0


async def test_what_a_receiver_raises_reaches_the_caller(serve: Serve, new_pool: NewPool) -> None:
    class Broken(Kept):
        def take_body(self, data: bytes) -> bool:
            raise KeyError("mine")

    server, pool = await serve(HELLO), new_pool()

    with pytest.raises(KeyError, match="mine"):
        await fetch(pool, server.port, Broken())

    assert pool.open_connections == 0


async def test_no_socket_is_left_behind(serve: Serve, new_pool: NewPool) -> None:
    number = 0

    async def answer(visit: Visit) -> None:
        nonlocal number
        while await visit.request():
            number += 1
            await visit.send(HELLO if number % 3 else b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
            if number % 5 == 0:
                return

    server, pool = await serve(answer), new_pool(idle_seconds=0.01)
    before = open_sockets()

    for _ in range(50):
        await asyncio.gather(*(fetch(pool, server.port) for _ in range(10)), return_exceptions=True)
    await pool.close()
    await server.wait_until(lambda: server.gone == server.connections)

    assert open_sockets() <= before


# --- addresses ----------------------------------------------------------------------------------------


async def test_a_name_is_connected_to_at_its_address(serve: Serve, new_pool: NewPool) -> None:
    server, names = await serve(HELLO), Names(site=["127.0.0.1"])

    kept, _ = await fetch(new_pool(names), server.port, host="site.test")

    assert (kept.address, names.asked) == ("127.0.0.1", ["site.test"])


async def test_a_refused_address_is_not_connected_to(serve: Serve, new_pool: NewPool) -> None:
    server, pool = await serve(HELLO), new_pool(Names(site=["127.0.0.1"]), allow=())

    with pytest.raises(AddressRefusedError):
        await fetch(pool, server.port, host="site.test")

    assert server.connections == 0


async def test_only_the_allowed_of_several_addresses_is_tried(serve: Serve, new_pool: NewPool) -> None:
    server = await serve(HELLO)
    pool = new_pool(Names(site=["127.0.0.2", "127.0.0.1"]), allow=("127.0.0.1",))

    kept, _ = await fetch(pool, server.port, host="site.test")

    assert kept.address == "127.0.0.1"


async def test_a_second_address_is_tried_and_no_third(serve: Serve, new_pool: NewPool) -> None:
    server = await serve(HELLO)

    kept, _ = await fetch(new_pool(Names(site=["127.0.0.2", "127.0.0.1"])), server.port, host="site.test")
    names = Names(site=["127.0.0.2", "127.0.0.3", "127.0.0.1"])
    with pytest.raises(DownloadConnectionRefusedError):
        await fetch(new_pool(names), server.port, host="site.test")

    assert kept.address == "127.0.0.1"


# --- TLS ----------------------------------------------------------------------------------------------


@dataclass
class Authority:
    """A certificate authority and a server's certificate from it, for the host site.test."""

    ca_pem: str
    server: ssl.SSLContext
    names: list[str | None] = field(default_factory=list)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    now = datetime.datetime.now(datetime.UTC)

    def certify(name: str, key: Any, issuer: str, signer: Any, **more: Any) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension in more["extensions"]:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(signer, hashes.SHA256())

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = certify("ca", ca_key, "ca", ca_key, extensions=[x509.BasicConstraints(ca=True, path_length=None)])
    alternatives = x509.SubjectAlternativeName(
        [x509.DNSName("site.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    certificate = certify("site.test", key, "ca", ca_key, extensions=[alternatives])
    pem = tmp_path_factory.mktemp("tls") / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    made = Authority(ca.public_bytes(serialization.Encoding.PEM).decode(), context)
    context.sni_callback = lambda _, name, __: made.names.append(name)
    return made


@pytest.mark.parametrize("host", ["site.test", "site.test.", "127.0.0.1"])
async def test_a_server_with_a_certificate_for_its_name_is_trusted(
    serve: Serve, new_pool: NewPool, authority: Authority, host: str
) -> None:
    tls = make_tls_context(is_verified=True)
    tls.load_verify_locations(cadata=authority.ca_pem)
    server, pool = await serve(HELLO, authority.server), new_pool(Names(site=["127.0.0.1"]), tls=tls)
    authority.names.clear()

    for _ in range(2):
        kept, _ = await fetch(pool, server.port, host=host, scheme="https")

    assert (kept.body, server.connections) == (b"hello", 1)
    # TLS names no addresses.
    assert authority.names == [None if host == "127.0.0.1" else "site.test"]


@pytest.mark.parametrize("known", [True, False], ids=["another name", "an unknown authority"])
async def test_a_server_with_another_certificate_is_refused(
    serve: Serve, new_pool: NewPool, authority: Authority, known: bool
) -> None:
    tls = make_tls_context(is_verified=True)
    if known:
        tls.load_verify_locations(cadata=authority.ca_pem)
    host = "other.test" if known else "site.test"
    # At its second address, where nothing answers, it would fare no better.
    names = Names(site=["127.0.0.1", "127.0.0.2"], other=["127.0.0.1", "127.0.0.2"])
    server, pool = await serve(HELLO, authority.server), new_pool(names, tls=tls)

    with pytest.raises(CertificateError):
        await fetch(pool, server.port, host=host, scheme="https")

    assert (server.requests, pool.open_connections) == ([], 0)


async def test_without_verification_any_certificate_will_do(
    serve: Serve, new_pool: NewPool, authority: Authority
) -> None:
    server, pool = await serve(HELLO, authority.server), new_pool(Names(other=["127.0.0.1"]))

    kept, _ = await fetch(pool, server.port, host="other.test", scheme="https")

    assert kept.body == b"hello"


async def test_a_response_has_the_certificate_of_its_server(serve: Serve, authority: Authority) -> None:
    settings = {"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8", "DOWNLOAD_VERIFY_CERTIFICATES": False}
    handler = HttpHandler(Crawler(Spider, settings))
    server, without_tls = await serve(HELLO, authority.server), await serve(HELLO)

    response = await handler.download_request(Request(f"https://127.0.0.1:{server.port}/"))
    plain = await handler.download_request(Request(without_tls.url))
    await handler.close()

    assert isinstance(response.certificate, bytes)
    subject = x509.load_der_x509_certificate(response.certificate).subject
    assert subject.rfc4514_string() == "CN=site.test"
    assert plain.certificate is None


async def test_a_server_without_tls_has_its_own_error(serve: Serve, new_pool: NewPool) -> None:
    async def answer(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await visit.request()

    server, pool = await serve(answer), new_pool()

    with pytest.raises(TlsError):
        await fetch(pool, server.port, scheme="https")


async def test_a_cut_over_tls_does_not_wait_for_the_peer(
    serve: Serve, new_pool: NewPool, authority: Authority
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        # Deaf from here on: it would not answer to TLS's goodbye.
        cast(asyncio.Transport, visit.writer.transport).pause_reading()
        try:
            await asyncio.Event().wait()
        finally:
            visit.reset()

    server, pool = await serve(answer, authority.server), new_pool()
    before = open_sockets()

    kept, _ = await fetch(pool, server.port, Kept(wanted=1), scheme="https")
    # What stays is the server's end.
    await until(lambda: open_sockets() <= before + 1)

    assert (kept.body, pool.open_connections) == (b"hello", 0)


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["close_notify", "a bare end of the socket"])
async def test_over_tls_too_a_body_without_a_length_ends_with_the_connection(
    serve: Serve, new_pool: NewPool, authority: Authority, says_goodbye: bool
) -> None:
    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        if not says_goodbye:
            visit.reset()

    server, pool = await serve(answer, authority.server), new_pool()

    kept, loss = await fetch(pool, server.port, scheme="https")

    assert (kept.body, loss, pool.open_connections) == (b"hello", None, 0)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("by_scrapy", [False, True], ids=["direct", "by Scrapy's engine"])
async def test_a_request_aborted_before_it_was_sent_is_never_delivered(
    serve: Serve, new_pool: NewPool, authority: Authority, scheme: str, by_scrapy: bool
) -> None:
    read = bytearray()
    resume = asyncio.Event()

    async def answer(visit: Visit) -> None:
        # As behind a link that was cut: what the client writes stays in its kernel.
        visit.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await resume.wait()
        visit.writer.transport.resume_reading()  # type: ignore[attr-defined]
        try:
            while data := await visit.reader.read(1 << 16):
                read.extend(data)
        except ConnectionResetError:
            pass

    server = await serve(answer, authority.server if scheme == "https" else None, window_bytes=4096)
    pool = new_pool(header_seconds=0.2)
    body = b"x" * 16_000_000
    handler = HttpHandler(Crawler(Spider, {"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8"}))

    url = f"{scheme}://127.0.0.1:{server.port}/"
    request = Request(url, method="POST", body=body, meta={"download_timeout": 0.5})
    head = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 16000000\r\n\r\n"

    with pytest.raises((TotalTimeoutError, HeaderTimeoutError)):
        await (
            handler.download_request(request)
            if by_scrapy
            else fetch(pool, server.port, scheme=scheme, request=head + body, total_s=0.5)
        )
    resume.set()

    await server.wait_until(lambda: server.gone == 1)
    # What the client's kernel still held, some megabytes, was discarded.
    assert len(read) < 1_000_000
    await handler.close()


async def test_a_kept_connection_is_closed_without_a_reset(serve: Serve, new_pool: NewPool) -> None:
    ends: list[bytes | Exception] = []

    async def answer(visit: Visit) -> None:
        await visit.request()
        await visit.send(HELLO)
        try:
            ends.append(await visit.reader.read(1))
        except ConnectionError as exc:
            ends.append(exc)

    server, pool = await serve(answer), new_pool()
    await fetch(pool, server.port)

    await pool.close()

    await server.wait_until(lambda: server.gone == 1)
    assert ends == [b""]
