"""Names of the simulated web are resolved without asking anybody."""

from __future__ import annotations

import pytest
from twisted.internet.error import DNSLookupError

from crawlproj.simweb.names import SimwebResolver, resolve
from crawlproj.simweb.sites import address_of


@pytest.mark.parametrize("name", ["d00042.test", "www.d00042.test", "blog.d00042.test"])
def test_all_hosts_of_a_domain_have_its_address(name: str) -> None:
    assert resolve(name) == address_of(42)


def test_an_address_stands_for_itself() -> None:
    assert resolve("127.0.9.9") == "127.0.9.9"


@pytest.mark.parametrize("name", ["example.org", "localhost", "test", "d00042.test.example.org"])
def test_any_other_name_is_refused(name: str) -> None:
    failures = []

    SimwebResolver(None).getHostByName(name).addErrback(failures.append)

    assert failures[0].check(DNSLookupError)
    assert name in str(failures[0].value)
