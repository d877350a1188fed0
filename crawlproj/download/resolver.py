"""From the name of a host to its addresses: kept for a while, asked for once at a time, with an end."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from threading import Thread
from typing import Any, NamedTuple, Self

from scrapy.exceptions import CannotResolveHostError
from twisted.internet._resolver import GAIResolver
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer  # type: ignore[import-untyped]

from crawlproj.config import Config

#: Names looked up at the same time. A thread waits for each, and a name whose servers are silent holds its
#: thread for as long as the system's resolver tries; with Twisted's ten, ten such names would stop the shard.
LOOKUPS = 64

_MAX_NAME = 253
_MAX_LABEL = 63


class _Answer(NamedTuple):
    """What came of a lookup. Without addresses, *problem* says why."""

    addresses: tuple[str, ...]
    problem: str = ""


class Resolver:
    """Turns hosts into addresses by way of Twisted's reactor, so that DNS_RESOLVER keeps its meaning.

    It promises nothing about the addresses: whoever connects has each checked by the guard, each time.
    """

    def __init__(
        self,
        *,
        keep_s: float = 300.0,
        keep_failure_s: float = 60.0,
        size: int = 10_000,
        timeout_s: float = 10.0,
        lookups: int = LOOKUPS,
        now_s: Callable[[], float] = time.monotonic,
        name_resolver: Any = None,
    ) -> None:
        self._keep_s = keep_s
        self._keep_failure_s = keep_failure_s
        self._size = size
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(lookups)
        self._now_s = now_s
        self._name_resolver = name_resolver
        self._kept: OrderedDict[str, tuple[float, _Answer]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Answer]] = {}

    @classmethod
    def from_config(cls, config: Config, name_resolver: Any = None) -> Self:
        kept = config.dnscache_enabled
        return cls(
            keep_s=config.dns_seconds if kept else 0,
            keep_failure_s=config.dns_failure_seconds if kept else 0,
            size=config.dnscache_size,
            timeout_s=config.dns_timeout,
            name_resolver=name_resolver,
        )

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of *host*, IPv4 first; an address, also in brackets, stands for itself.

        Raises CannotResolveHostError if there is none, or none in time. Cancelling it leaves the lookup
        to the others who wait for it.
        """
        name = host.lower()
        answer = self._recall(name)
        if answer is None:
            if address := _literal(name):
                return [address]
            answer = await asyncio.shield(self._asked(name))
        if not answer.addresses:
            raise CannotResolveHostError(answer.problem)
        return list(answer.addresses)

    async def close(self) -> None:
        """Give up the lookups in flight."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _recall(self, name: str) -> _Answer | None:
        until_s, answer = self._kept.get(name, (0.0, None))
        if answer is None:
            return None
        if until_s <= self._now_s():
            del self._kept[name]
            return None
        self._kept.move_to_end(name)
        return answer

    def _keep(self, name: str, answer: _Answer) -> None:
        keep_s = self._keep_s if answer.addresses else self._keep_failure_s
        if keep_s <= 0:
            return
        self._kept[name] = (self._now_s() + keep_s, answer)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def _asked(self, name: str) -> asyncio.Task[_Answer]:
        """Return the lookup of *name* that is under way, or start one."""
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(self._ask(name), name=f"look up {name}")
            task.add_done_callback(lambda _: self._asking.pop(name))
        return task

    async def _ask(self, name: str) -> _Answer:
        if not _may_exist(name):
            return _Answer((), f"{name!r} is not a name that DNS could know.")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._places.acquire()
        except TimeoutError:
            # Says nothing about the name, so it is not kept.
            return _Answer((), f"{name} was not looked up: DNS is slow, and too many names wait for it.")
        answer = await self._look_up(name)
        self._keep(name, answer)
        return answer

    async def _look_up(self, name: str) -> _Answer:
        receiver = _Receiver()
        # Given back when the lookup ends, not when we stop to wait: until then its thread is taken, and a
        # name that had to wait for a thread would be blamed for it.
        receiver.complete.add_done_callback(lambda _: self._places.release())
        self._resolver().resolveHostName(receiver, name, 0, [IPv4Address, IPv6Address])
        await asyncio.wait([receiver.complete], timeout=self._timeout_s)
        if not receiver.complete.done():
            return _Answer((), f"The addresses of {name} did not come within {self._timeout_s:g} s.")
        if not receiver.addresses:
            return _Answer((), f"{name} has no address.")
        v4_first = sorted(receiver.addresses, key=lambda address: isinstance(address, IPv6Address))
        return _Answer(tuple(dict.fromkeys(address.host for address in v4_first)))

    def _resolver(self) -> Any:  # IHostnameResolver, but mypy cannot read zope's interfaces
        if self._name_resolver is not None:
            return self._name_resolver
        from twisted.internet import reactor

        return reactor.nameResolver


@implementer(IResolutionReceiver)
class _Receiver:
    """Collects the addresses of one name as Twisted hands them over, in the reactor's thread."""

    def __init__(self) -> None:
        self.addresses: list[IPv4Address | IPv6Address] = []
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resolutionBegan(self, resolution: IHostResolution) -> None:  # noqa: N802
        pass

    def addressResolved(self, address: IAddress) -> None:  # noqa: N802
        if isinstance(address, IPv4Address | IPv6Address):
            self.addresses.append(address)

    def resolutionComplete(self) -> None:  # noqa: N802
        self.complete.set_result(None)


class SystemResolver:
    """The DNS_RESOLVER of a crawl: the system's getaddrinfo, IPv4 and IPv6, in threads of its own.

    Scrapy's default keeps addresses for ever and knows IPv4 only. This one keeps nothing; `Resolver` does.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    @classmethod
    def from_crawler(cls, crawler: Any, reactor: Any) -> Self:
        return cls(reactor)

    def install_on_reactor(self) -> None:
        threads = ThreadPool(0, LOOKUPS, "dns")
        # Daemons, and never joined: getaddrinfo cannot be interrupted, and a stop would wait for it.
        threads.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
        threads.start()
        self._reactor.installNameResolver(GAIResolver(self._reactor, lambda: threads))


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return None


def _may_exist(name: str) -> bool:
    """Return whether getaddrinfo can be asked for *name*: for others it raises, and Twisted never answers."""
    if not name.isascii() or not name.isprintable() or len(name) > _MAX_NAME:
        return False
    return all(1 <= len(label) <= _MAX_LABEL for label in name.removesuffix(".").split("."))
