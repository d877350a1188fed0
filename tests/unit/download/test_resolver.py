"""Names are kept with a limit in time and number, asked for once, and a slow one delays no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scrapy.exceptions import CannotResolveHostError
from twisted.internet.address import IPv4Address, IPv6Address

from crawlproj.config import Config
from crawlproj.download.guard import AddressGuard, AddressRefusedError
from crawlproj.download.resolver import Resolver
from tests.clock import Clock
from tests.patience import PATIENCE_S

PUBLIC = "8.8.8.8"


class Names:
    """A Twisted name resolver that answers from `known`, at once or, if `slow`, when `held` is called."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.held: dict[str, Callable[[], None]] = {}
        self.slow: set[str] = set()
        self.holding = asyncio.Event()

    def resolveHostName(self, receiver: Any, name: str, port: int = 0, types: Any = None) -> None:  # noqa: N802
        self.asked.append(name)
        if name in self.slow:
            self.held[name] = lambda: self._answer(receiver, name)
            self.holding.set()
        else:
            self._answer(receiver, name)

    def _answer(self, receiver: Any, name: str) -> None:
        for address in self.known.get(name, []):
            kind = IPv6Address if ":" in address else IPv4Address
            receiver.addressResolved(kind("TCP", address, 0))
        receiver.resolutionComplete()


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
async def resolver(names: Names, clock: Clock) -> AsyncIterator[Resolver]:
    made = Resolver(Config(dnscache_size=3), name_resolver=names, now_s=clock)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::1", "::1"), ("[2606:4700::A]", "2606:4700::a")],
)
async def test_an_address_stands_for_itself(
    host: str, address: str, resolver: Resolver, names: Names
) -> None:
    assert await resolver.resolve(host) == [address]
    assert names.asked == []


async def test_all_addresses_of_a_name_come_once_and_ipv4_first(resolver: Resolver, names: Names) -> None:
    names.known["a.test"] = ["2606:4700::1", "8.8.4.4", PUBLIC, "8.8.4.4"]

    assert await resolver.resolve("a.test") == ["8.8.4.4", PUBLIC, "2606:4700::1"]


async def test_a_name_is_believed_for_a_while_and_then_looked_up_again(
    resolver: Resolver, names: Names, clock: Clock
) -> None:
    names.known["a.test"] = [PUBLIC]
    await resolver.resolve("a.test")
    names.known["a.test"] = ["8.8.4.4"]

    clock.now_s += 299
    early = await resolver.resolve("A.test")
    clock.now_s += 1
    late = await resolver.resolve("a.test")

    assert (early, late) == ([PUBLIC], ["8.8.4.4"])


async def test_a_failure_is_believed_for_a_shorter_while(
    resolver: Resolver, names: Names, clock: Clock
) -> None:
    with pytest.raises(CannotResolveHostError, match=r"a\.test has no address"):
        await resolver.resolve("a.test")
    names.known["a.test"] = [PUBLIC]

    clock.now_s += 59
    with pytest.raises(CannotResolveHostError, match=r"a\.test has no address"):
        await resolver.resolve("a.test")
    clock.now_s += 1

    assert await resolver.resolve("a.test") == [PUBLIC]


async def test_the_name_not_used_for_longest_is_forgotten_first(resolver: Resolver, names: Names) -> None:
    names.known = {name: [PUBLIC] for name in "abcd"}
    for name in "abc":
        await resolver.resolve(name)
    await resolver.resolve("a")
    await resolver.resolve("d")
    names.asked.clear()

    for name in "acdb":
        await resolver.resolve(name)

    assert names.asked == ["b"]


async def test_what_the_caller_does_with_the_addresses_does_not_change_them(
    resolver: Resolver, names: Names
) -> None:
    names.known["a.test"] = [PUBLIC]

    (await resolver.resolve("a.test")).clear()

    assert await resolver.resolve("a.test") == [PUBLIC]


async def test_without_a_cache_every_request_asks(names: Names) -> None:
    resolver = Resolver(Config(dnscache_enabled=False), name_resolver=names)
    names.known["a.test"] = [PUBLIC]

    for _ in range(2):
        await resolver.resolve("a.test")
        with pytest.raises(CannotResolveHostError):
            await resolver.resolve("b.test")

    assert names.asked == ["a.test", "b.test"] * 2


async def test_a_name_is_looked_up_once_for_all_who_ask_and_a_cancelled_one_takes_nothing_from_the_others(
    resolver: Resolver, names: Names
) -> None:
    names.slow, names.known["a.test"] = {"a.test"}, [PUBLIC]
    askers = [asyncio.create_task(resolver.resolve("a.test")) for _ in range(3)]
    await names.holding.wait()

    askers[0].cancel()
    await asyncio.wait(askers[:1])
    names.held["a.test"]()

    assert await asyncio.gather(*askers[1:]) == [[PUBLIC], [PUBLIC]]
    assert askers[0].cancelled()
    assert names.asked == ["a.test"]


async def test_a_slow_name_does_not_hold_up_another(resolver: Resolver, names: Names) -> None:
    names.slow, names.known["b.test"] = {"a.test"}, [PUBLIC]
    slow = asyncio.create_task(resolver.resolve("a.test"))
    await names.holding.wait()

    assert await resolver.resolve("b.test") == [PUBLIC]
    assert not slow.done()


async def test_a_name_that_takes_too_long_fails_and_is_not_looked_up_again_at_once(names: Names) -> None:
    resolver = Resolver(Config(dns_timeout=0.01), name_resolver=names)
    names.slow = {"a.test"}

    for _ in range(2):
        with pytest.raises(
            CannotResolveHostError, match=r"a\.test was not resolved within DNS_TIMEOUT=0\.01"
        ):
            await resolver.resolve("a.test")

    assert names.asked == ["a.test"]


async def test_lookups_are_bounded_and_one_that_timed_out_keeps_its_place_until_it_ends(names: Names) -> None:
    resolver = Resolver(Config(dns_timeout=0.01), name_resolver=names, lookups=1)
    names.slow, names.known["b.test"] = {"a.test"}, [PUBLIC]
    with pytest.raises(CannotResolveHostError, match="was not resolved"):
        await resolver.resolve("a.test")

    with pytest.raises(CannotResolveHostError, match=r"b\.test was not looked up: DNS is slow"):
        await resolver.resolve("b.test")
    names.held["a.test"]()

    assert await resolver.resolve("b.test") == [PUBLIC]


async def test_close_ends_lookups_in_flight(names: Names) -> None:
    resolver = Resolver(Config(), name_resolver=names)
    names.slow = {"a.test"}
    asker = asyncio.create_task(resolver.resolve("a.test"))
    await names.holding.wait()

    await resolver.close()
    await asyncio.wait([asker])

    assert asker.cancelled()
    names.held["a.test"]()  # A late answer has no waiter, which is not an error.


@pytest.mark.parametrize(
    "host", ["a" * 64 + ".test", "a..test", ".test", "ä.test", "a\0.test", "a." * 127 + "b"]
)
async def test_an_impossible_name_is_not_looked_up(host: str, resolver: Resolver, names: Names) -> None:
    with pytest.raises(CannotResolveHostError, match="not a valid host name"):
        await resolver.resolve(host)

    assert names.asked == []


async def test_a_name_that_moves_inside_is_refused_when_it_is_connected_to(
    resolver: Resolver, names: Names, clock: Clock
) -> None:
    guard = AddressGuard(contact="crawler@example.org")
    names.known["evil.test"] = [PUBLIC]
    [first] = await resolver.resolve("evil.test")
    guard.check(first, 80)

    names.known["evil.test"] = ["127.0.0.1"]
    clock.now_s += 301
    [second] = await resolver.resolve("evil.test")

    with pytest.raises(AddressRefusedError, match=r"127\.0\.0\.1 is loopback"):
        guard.check(second, 80)


async def test_a_kept_address_is_still_checked_by_each_guard(resolver: Resolver, names: Names) -> None:
    names.known["inside.test"] = ["127.0.0.1"]
    AddressGuard(["127.0.0.0/8"]).check((await resolver.resolve("inside.test"))[0], 80)

    with pytest.raises(AddressRefusedError):
        AddressGuard(contact="crawler@example.org").check((await resolver.resolve("inside.test"))[0], 80)

    assert names.asked == ["inside.test"]


UNDER_SCRAPY = """
import asyncio, socket, sys, threading
def getaddrinfo(host, port, family=0, kind=0, *rest):
    print("asked", host, threading.current_thread().daemon, socket.AddressFamily(family).name)
    v4, v6 = ("127.0.0.1", port), ("::1", port, 0, 0)
    return [(socket.AF_INET6, kind, 6, "", v6), (socket.AF_INET, kind, 6, "", v4)]
import twisted.internet._resolver as twisted_resolver
twisted_resolver.GAIResolver.__init__.__defaults__ = (None, getaddrinfo)
import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from crawlproj.config import Config
from crawlproj.download.resolver import Resolver
class Probe(scrapy.Spider):
    name = "probe"
    async def start(self):
        resolver = Resolver(Config())
        for _ in range(2):
            print("got", *await resolver.resolve("d00001.test"))
        await resolver.close()
        return
        yield
process = AsyncCrawlerProcess({
    "TWISTED_DNS_RESOLVER": sys.argv[1], "LOG_ENABLED": False, "TELNETCONSOLE_ENABLED": False,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor"})
process.crawl(Probe)
process.start()
"""


def resolved_under_scrapy(dns_resolver: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_SCRAPY, dns_resolver],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_under_scrapy_the_system_is_asked_for_both_families_in_a_thread_that_holds_up_no_stop() -> None:
    lines = resolved_under_scrapy("crawlproj.download.resolver.SystemResolver")

    assert lines == ["asked d00001.test True AF_UNSPEC", *["got 127.0.0.1 ::1"] * 2]


def test_under_scrapy_the_resolver_of_the_user_is_asked() -> None:
    lines = resolved_under_scrapy("crawlproj.simweb.names.SimwebResolver")

    assert len(lines) == 2
    assert all(line.startswith("got 127.") for line in lines)
