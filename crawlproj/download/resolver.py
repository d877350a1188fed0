"""Resolves hosts to addresses: cached, one lookup at a time per name, with a timeout."""

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

#: Concurrent lookups. Each blocks a thread, for as long as the system's resolver tries if name servers are
#: silent; with Twisted's ten threads, ten such names would stop the shard.
LOOKUPS = 64

_MAX_NAME = 253
_MAX_LABEL = 63


class _Answer(NamedTuple):
    """The result of a lookup. Without addresses, *problem* says why."""

    addresses: tuple[str, ...]
    problem: str = ""


class Resolver:
    """Resolves hosts through Twisted's reactor, so that DNS_RESOLVER keeps its meaning.

    The addresses are not checked here: the guard checks each one at every connection.
    """

    def __init__(
        self,
        config: Config,
        *,
        lookups: int = LOOKUPS,
        now_s: Callable[[], float] = time.monotonic,
        name_resolver: Any = None,
    ) -> None:
        self._config = config
        self._slots = asyncio.Semaphore(lookups)
        self._now_s = now_s
        self._name_resolver = name_resolver
        self._answers: OrderedDict[str, tuple[float, _Answer]] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of *host*, IPv4 first; an IP address, also in brackets, is returned as it is.

        Raises CannotResolveHostError if there is none, or none in time. Cancelling the call does not cancel
        the lookup, for which others may wait.
        """
        name = host.lower()
        answer = self._cached(name)
        if answer is None:
            if address := _literal(name):
                return [address]
            answer = await asyncio.shield(self._lookup(name))
        if not answer.addresses:
            raise CannotResolveHostError(answer.problem)
        return list(answer.addresses)

    async def close(self) -> None:
        """Cancel all lookups."""
        tasks = list(self._lookups.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cached(self, name: str) -> _Answer | None:
        until_s, answer = self._answers.get(name, (0.0, None))
        if answer is None:
            return None
        if until_s <= self._now_s():
            del self._answers[name]
            return None
        self._answers.move_to_end(name)
        return answer

    def _cache(self, name: str, answer: _Answer) -> None:
        config = self._config
        keep_s = config.dns_seconds if answer.addresses else config.dns_failure_seconds
        if keep_s <= 0 or not config.dnscache_enabled:
            return
        self._answers[name] = (self._now_s() + keep_s, answer)
        if len(self._answers) > config.dnscache_size:
            self._answers.popitem(last=False)

    def _lookup(self, name: str) -> asyncio.Task[_Answer]:
        """Return the running lookup of *name*, or start one."""
        task = self._lookups.get(name)
        if task is None:
            task = self._lookups[name] = asyncio.create_task(self._run_lookup(name), name=f"look up {name}")
            task.add_done_callback(lambda _: self._lookups.pop(name))
        return task

    async def _run_lookup(self, name: str) -> _Answer:
        if not _is_host_name(name):
            return _Answer((), f"{name!r} is not a valid host name.")
        try:
            async with asyncio.timeout(self._config.dns_timeout):
                await self._slots.acquire()
        except TimeoutError:
            # Says nothing about the name, so it is not cached.
            return _Answer((), f"{name} was not looked up: DNS is slow, and too many lookups are waiting.")
        answer = await self._look_up(name)
        self._cache(name, answer)
        return answer

    async def _look_up(self, name: str) -> _Answer:
        receiver = _Receiver()
        # Released when the lookup ends, not when we stop waiting: until then its thread is busy, and another
        # name would time out waiting for a thread.
        receiver.complete.add_done_callback(lambda _: self._slots.release())
        self._resolver().resolveHostName(receiver, name, 0, [IPv4Address, IPv6Address])
        timeout_s = self._config.dns_timeout
        await asyncio.wait([receiver.complete], timeout=timeout_s)
        if not receiver.complete.done():
            return _Answer((), f"{name} was not resolved within DNS_TIMEOUT={timeout_s:g}.")
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
    """Collects the addresses of one name from Twisted, in the reactor's thread."""

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
    """The DNS_RESOLVER of a crawl: the system's getaddrinfo, IPv4 and IPv6, in its own threads.

    Scrapy's default caches addresses forever and knows IPv4 only. This one does not cache; `Resolver` does.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    @classmethod
    def from_crawler(cls, crawler: Any, reactor: Any) -> Self:
        return cls(reactor)

    def install_on_reactor(self) -> None:
        threads = ThreadPool(0, LOOKUPS, "dns")
        # Daemon threads, never joined: getaddrinfo cannot be interrupted, and would delay a stop.
        threads.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
        threads.start()
        self._reactor.installNameResolver(GAIResolver(self._reactor, lambda: threads))


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return None


def _is_host_name(name: str) -> bool:
    """Return whether *name* is a valid host name: for others getaddrinfo raises and Twisted never answers."""
    if not name.isascii() or not name.isprintable() or len(name) > _MAX_NAME:
        return False
    return all(1 <= len(label) <= _MAX_LABEL for label in name.removesuffix(".").split("."))
