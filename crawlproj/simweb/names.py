"""Names of a simulated web without DNS: ``TWISTED_DNS_RESOLVER = "crawlproj.simweb.names.SimwebResolver"``.

It answers ``*.test`` with loopback addresses and refuses every other name; it never asks a real resolver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from twisted.internet import defer
from twisted.internet.abstract import isIPAddress
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IResolverSimple
from zope.interface import implementer  # type: ignore[import-untyped]

from crawlproj.simweb.sites import address_of, number_of


def resolve(name: str) -> str | None:
    """The address of a simulated host, None for any other name; addresses stand for themselves."""
    if isIPAddress(name):
        return name
    number = number_of(name)
    return None if number is None else address_of(number)


@implementer(IResolverSimple)
class SimwebResolver:
    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    @classmethod
    def from_crawler(cls, crawler: Any, reactor: Any) -> Self:
        return cls(reactor)

    def install_on_reactor(self) -> None:
        self._reactor.installResolver(self)

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> defer.Deferred[str]:  # noqa: N802
        address = resolve(name)
        if address is None:
            return defer.fail(DNSLookupError(f"{name!r} is not a host of the simulated web (dNNNNN.test)."))
        return defer.succeed(address)
