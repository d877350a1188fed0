"""A name server under which all names of a simulated web are hosts of one server, as in shared hosting."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet import defer

from crawlproj.simweb.names import SimwebResolver, resolve

ADDRESS = "127.0.0.1"


class OneAddressResolver(SimwebResolver):
    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> defer.Deferred[str]:  # noqa: N802
        return super().getHostByName(name, timeout) if resolve(name) is None else defer.succeed(ADDRESS)
