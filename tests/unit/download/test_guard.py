"""No spelling of an inside address gets past canonicalise, resolver and guard; public ones do."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.config import Config
from crawlproj.download.guard import BAD_PORTS, AddressGuard, AddressRefusedError, NoContactError
from crawlproj.download.resolver import Resolver
from crawlproj.errors import BadUrl
from crawlproj.model.urls import canonicalise, host_of

CONTACT = "crawler@example.org"

SPELLINGS = [
    # The plain ones, and URL decoration around them.
    "http://127.0.0.1/",
    "HTTP://127.0.0.1/",
    "http://127.0.0.1:80/",
    "https://127.0.0.1:443/x?y#z",
    "http://user:pass@127.0.0.1/",
    "http://8.8.8.8@127.0.0.1/",
    "http://8.8.8.8:80@127.0.0.1/",
    "http:\\\\127.0.0.1\\",
    "http:127.0.0.1",
    "http:///127.0.0.1/",
    " \thttp://127.0.0.1/",
    "ht\ntp://127.0.\n0.1/",
    "http://127.0.0.1./",
    "http://127.0.0.1../",
    "http://127.255.255.254/",
    # Numbers as C once read them.
    "http://2130706433/",
    "http://2130706433./",
    "http://0x7f000001/",
    "http://0X7F000001/",
    "http://0x7F.1/",
    "http://017700000001/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://0x7f.0.0.0x1/",
    "http://0x7f.0.1/",
    "http://127.0x0.00.1/",
    "http://00000177.0.0.1/",
    "http://127.0.0.256/",
    "http://4294967296/",
    "http://0x7f000001./",
    # Characters that are mapped to others.
    "http://127。0。0。1/",
    "http://127．0．0．1/",
    "http://127｡0｡0｡1/",
    "http://１２７.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏/",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/",
    "http://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1/",
    "http://127.0.0.1%00.example.org/",
    "http://127.0.0.1%2f@8.8.8.8%00/",
    "http://127\u00ad.0.0.1/",
    "http://0\u200b.0.0.0/",
    # Other places inside.
    "http://0/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://012.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://0xc0a80101/",
    "http://3232235777/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://169.254.1.1/",
    "http://192.0.0.170/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.19.255.255/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://4294967295/",
    # Metadata services.
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/",
    "http://0xA9FEA9FE/",
    "http://0251.0376.0251.0376/",
    "http://0xa9.254.0251.0xfe/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://[::ffff:168.63.129.16]/",
    # IPv6 of its own.
    "http://[::]/",
    "http://[::1]/",
    "http://[::1]:8080/",
    "http://user@[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    "http://[fe80::1]/",
    "http://[FE80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[febf::1]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fdff:ffff::1]/",
    "http://[ff02::1]/",
    "http://[ff0e::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[3ffe::1]/",
    "http://[5f00::1]/",
    "http://[2001:10::1]/",
    "http://[4000::1]/",
    "http://[e000::1]/",
    # IPv4 within IPv6.
    "http://[::ffff:127.0.0.1]/",
    "http://[::FFFF:7F00:1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:0.0.0.0]/",
    "http://[::127.0.0.1]/",
    "http://[::7f00:1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::10.0.0.1]/",
    "http://[64:ff9b:1:a00:0:100::]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:c0a8:101::1]/",
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
    "http://[2001:0:7f00:1::1]/",
    "http://[2606:4700::5efe:127.0.0.1]/",
    "http://[2606:4700::200:5efe:10.0.0.1]/",
    "http://[2002:808:808::5efe:10.0.0.1]/",
    "http://[fe80::5efe:8.8.8.8]/",
]

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "3fff:1000::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "2606:4700::5efe:8.8.8.8",
]

addresses = st.one_of(st.ip_addresses(), st.sampled_from([IPv4Address("127.0.0.1"), IPv6Address("::1")]))
networks = st.builds(
    lambda address, prefix: f"{type_of_network(address)((address, prefix), strict=False)}",
    addresses,
    st.integers(0, 32),
)


def type_of_network(address: IPv4Address | IPv6Address) -> type[IPv4Network | IPv6Network]:
    return IPv4Network if address.version == 4 else IPv6Network


class NoNames:
    """A Twisted name resolver that no literal may reach."""

    def resolveHostName(self, receiver: Any, name: str, *_: Any) -> None:  # noqa: N802
        raise AssertionError(f"{name} was looked up")


def passes(guard: AddressGuard, address: object, port: int = 80) -> bool:
    try:
        guard.check(str(address), port)
    except AddressRefusedError:
        return False
    return True


@pytest.mark.parametrize("url", SPELLINGS)
async def test_a_spelling_of_the_inside_is_refused(url: str) -> None:
    guard = AddressGuard(contact=CONTACT)
    resolver = Resolver(Config(), name_resolver=NoNames())

    try:
        found = await resolver.resolve(host_of(canonicalise(url)))
    except BadUrl:
        return

    assert not any(passes(guard, address) for address in found)


def test_the_table_has_few_urls_that_are_none() -> None:
    # Refused as URLs they prove nothing about the guard.
    def is_url(url: str) -> bool:
        try:
            return bool(canonicalise(url))
        except BadUrl:
            return False

    assert sum(map(is_url, SPELLINGS)) >= 100


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_passes(address: str) -> None:
    assert passes(AddressGuard(contact=CONTACT), address)


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.0.0.1", "010.0.0.1", "[::1]", "8.8.8.8:80"])
def test_an_invalid_address_is_refused(text: str) -> None:
    assert not passes(AddressGuard(contact=CONTACT), text)


def test_a_zone_does_not_hide_an_address() -> None:
    guard = AddressGuard(contact=CONTACT)

    assert not passes(guard, "fe80::1%eth0")
    assert not passes(guard, "::ffff:127.0.0.1%1")


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("127.0.0.0/8", "127.9.9.9"),
        ("127.0.0.0/8", "::ffff:127.9.9.9"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("fe80::/10", "fe80::1%eth0"),
        ("169.254.169.254", "169.254.169.254"),
        ("64:ff9b::/96", "64:ff9b::10.0.0.1"),
    ],
)
def test_what_the_owner_names_is_open_on_every_port_and_without_contact(allow: str, address: str) -> None:
    guard = AddressGuard([allow])

    guard.check(address, 80)
    guard.check(address, 22)


@pytest.mark.parametrize("address", ["10.1.2.4", "127.0.0.1", "::1", "64:ff9b::10.1.2.3", "2002:a01:203::1"])
def test_what_the_owner_did_not_name_stays_shut(address: str) -> None:
    assert not passes(AddressGuard(["10.1.2.3"], CONTACT), address)


@pytest.mark.parametrize("port", [0, 22, 25, 6000, 6667, 10080])
def test_a_port_of_another_protocol_is_refused(port: int) -> None:
    with pytest.raises(AddressRefusedError, match=f"Port {port} of 8.8.8.8.*CRAWL_ALLOW_ADDRESSES"):
        AddressGuard(contact=CONTACT).check("8.8.8.8", port)


def test_ports_of_web_servers_are_not_among_the_bad_ones() -> None:
    assert not BAD_PORTS & {80, 81, 443, 3000, 5000, 8000, 8080, 8081, 8443, 8888, 9000}


@pytest.mark.parametrize("contact", [None, ""])
def test_without_contact_a_public_address_is_refused_with_the_remedy(contact: str | None) -> None:
    with pytest.raises(NoContactError, match=r"8\.8\.8\.8 is public.*set CRAWL_CONTACT"):
        AddressGuard(contact=contact).check("8.8.8.8", 443)


def test_a_refusal_names_address_reason_and_remedy() -> None:
    with pytest.raises(AddressRefusedError) as refusal:
        AddressGuard(contact=CONTACT).check("::ffff:10.0.0.1", 443)

    for part in ("::ffff:10.0.0.1", "another form of 10.0.0.1", "private", "CRAWL_ALLOW_ADDRESSES"):
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("169.254.169.254", "a metadata service"),
        ("100.100.100.200", "a metadata service"),
        ("fd00:ec2::254", "a metadata service"),
        ("255.255.255.255", "the broadcast address"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("64:ff9b:1::1", "private"),
        ("fc00::1", "private"),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("4000::1", "not a public address"),
    ],
)
def test_a_refusal_gives_the_most_specific_reason(address: str, reason: str) -> None:
    with pytest.raises(AddressRefusedError, match=f"{address} is {reason}"):
        AddressGuard(contact=CONTACT).check(address, 443)


def test_an_address_is_judged_for_every_guard_and_port() -> None:
    shut, opened = AddressGuard(contact=CONTACT), AddressGuard(["127.0.0.1"])

    assert passes(opened, "127.0.0.1")
    assert not passes(shut, "127.0.0.1")
    assert passes(shut, "8.8.8.8", 80)
    assert not passes(shut, "8.8.8.8", 22)


refused_v4 = st.one_of(
    st.ip_addresses(v=4),
    *(
        st.ip_addresses(network=n)
        for n in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "100.64.0.0/10")
    ),
).filter(lambda address: not passes(AddressGuard(contact=CONTACT), address))


@given(refused_v4, st.integers(0, 2**64 - 1))
def test_every_ipv6_form_of_a_refused_ipv4_address_is_refused(v4: IPv4Address, rest: int) -> None:
    guard, number = AddressGuard(contact=CONTACT), int(v4)
    prefix = 0x2606_4700 << 96 | (rest & 0xFFFF_FFFF) << 64
    forms = {
        "mapped": 0xFFFF << 32 | number,
        "compatible": number,
        "translated": 0xFFFF << 48 | number,
        "NAT64": 0x64_FF9B << 96 | number,
        "NAT64 of the site": 0x64_FF9B_0001 << 80 | (rest & 0xFFFF_FFFF) << 32 | number,
        "6to4": 0x2002 << 112 | number << 80 | rest,
        "Teredo client": 0x2001_0000 << 96 | rest << 32 | (number ^ 0xFFFF_FFFF),
        "Teredo server": 0x2001_0000 << 96 | number << 64 | rest,
        "ISATAP": prefix | 0x0000_5EFE << 32 | number,
        "ISATAP, unique": prefix | 0x0200_5EFE << 32 | number,
    }

    assert [name for name, form in forms.items() if passes(guard, IPv6Address(form))] == []


@given(addresses, st.lists(networks, max_size=4), networks)
def test_opening_more_never_shuts_anything(
    address: IPv4Address | IPv6Address, allow: list[str], more: str
) -> None:
    before = AddressGuard(allow, CONTACT)
    after = AddressGuard([*allow, more], CONTACT)

    assert passes(after, address) or not passes(before, address)
