"""Which addresses a crawl may connect to: public ones, and those in CRAWL_ALLOW_ADDRESSES.

The tables are ours: `ipaddress.is_global` differs between versions of Python and does not know some forms
(Azure's metadata service, ISATAP, NAT64). Addresses are checked, never names, because only an address says
where a connection goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from scrapy.exceptions import DownloadFailedError

#: Cached verdicts: a shard connects to an address again and again.
_CACHED_ADDRESSES = 16_384

#: The first match wins, so the more specific one comes first.
_REFUSED_V4 = tuple(
    (IPv4Network(network), why)
    for network, why in (
        ("169.254.169.254", "a metadata service"),
        ("100.100.100.200", "a metadata service"),
        # Public by all tables, and on every machine of Azure the way to its secrets.
        ("168.63.129.16", "a metadata service"),
        ("255.255.255.255", "the broadcast address"),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a provider's customers"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_REFUSED_V6 = tuple(
    (IPv6Network(network), why)
    for network, why in (
        ("fd00:ec2::254", "a metadata service"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("64:ff9b:1::/48", "private"),
        ("2001::/23", "reserved"),  # includes Teredo
        ("2001:db8::/32", "for documentation"),
        ("3ffe::/16", "reserved"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
)

#: All that was ever allocated; everything outside is refused without being listed.
_GLOBAL_V6 = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
#: The upper half of an ISATAP interface identifier, with and without the universal bit.
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

# fmt: off
#: The Fetch standard's bad ports: services that could mistake a request for their own protocol.
BAD_PORTS = frozenset({
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513,
    514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720,
    1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
})
# fmt: on


class AddressRefusedError(DownloadFailedError):
    """A crawl may not connect to this address or port."""


class NoContactError(DownloadFailedError):
    """The address is public, and CRAWL_CONTACT is not set."""


class AddressGuard:
    """Checks every connection just before it is made.

    Addresses and networks in *allow* pass on every port, with or without a *contact*. All others must be
    public, and need a *contact* and a port that is not in `BAD_PORTS`.
    """

    def __init__(self, allow: Sequence[str] = (), contact: str | None = None) -> None:
        self._allowed = [ip_network(text) for text in allow]
        self.contact = contact
        self._verdict = lru_cache(_CACHED_ADDRESSES)(self._judge)

    def check(self, address: str, port: int) -> None:
        """Raise AddressRefusedError or NoContactError unless a connection to *address* is allowed.

        Call it with the address of each connection: the name may resolve to another one by then.
        """
        is_allowed, refusal = self._verdict(address)
        if is_allowed:
            return
        if refusal:
            raise AddressRefusedError(
                f"{address} is {refusal} and not crawled. To crawl it, add it to CRAWL_ALLOW_ADDRESSES."
            )
        if port in BAD_PORTS:
            raise AddressRefusedError(
                f"Port {port} of {address} is not for web pages and not crawled. "
                "To crawl it, add the address to CRAWL_ALLOW_ADDRESSES."
            )
        if not self.contact:
            raise NoContactError(
                f"{address} is public, and its owner must be able to reach you: set CRAWL_CONTACT to an "
                "email address or a URL in crawlproj/settings.py, or -s CRAWL_CONTACT=..."
            )

    def _judge(self, text: str) -> tuple[bool, str]:
        """Return whether *text* is in the allow list, and if not, why it is refused; "" if it is public."""
        try:
            address = ip_address(text)
        except ValueError:
            return False, "not an IP address"
        if any(form in network for form in _same_host(address) for network in self._allowed):
            return True, ""
        return False, _refusal(address)


def _same_host(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield *address*, and for ::ffff:127.0.0.1 also 127.0.0.1: both lead to the same host."""
    yield address
    if isinstance(address, IPv6Address) and address in _MAPPED:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _refusal(address: IPv4Address | IPv6Address) -> str:
    """Return why *address* is not public, or ""."""
    if isinstance(address, IPv4Address):
        return next((why for network, why in _REFUSED_V4 if address in network), "")
    for inner in _inner_v4(address):
        if why := _refusal(inner):
            return f"another form of {inner}, which is {why}"
    if address in _MAPPED or address in _NAT64:
        return ""
    outside = "" if address in _GLOBAL_V6 else "not a public address"
    return next((why for network, why in _REFUSED_V6 if address in network), outside)


def _inner_v4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which the kernel, a tunnel or a translator would deliver *address*."""
    number = int(address)
    if address in _6TO4:
        yield IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if address in _MAPPED or address in _NAT64 or (number >> 32 & 0xFFFF_FFFF) in _ISATAP:
        yield IPv4Address(number & 0xFFFF_FFFF)
