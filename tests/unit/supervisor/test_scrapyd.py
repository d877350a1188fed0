"""Addresses of scrapyd servers: what is made of them, and what is never shown."""

from __future__ import annotations

import pytest

from crawlproj.errors import BadArgument
from crawlproj.supervisor.scrapyd import ScrapydServer, is_local


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://host", "http://host:6800"),
        ("https://host/", "https://host:443"),
        ("http://host:80/crawlers/", "http://host:80/crawlers"),
        ("http://[::1]:6800", "http://[::1]:6800"),
        ("http://me:secret@host:6800", "http://host:6800"),
    ],
)
def test_a_server_is_named_by_its_address_without_the_password(address: str, name: str) -> None:
    assert ScrapydServer(address).name == name


@pytest.mark.parametrize(
    "address", ["host:6800", "", "ftp://me:secret@host", "me:secret@host:6800", "http://me:secret@host:port"]
)
def test_an_invalid_address_is_refused_without_showing_a_password(address: str) -> None:
    with pytest.raises(BadArgument, match="expected http://host:6800") as refused:
        ScrapydServer(address)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://localhost", True),
        ("http://127.0.0.2", True),
        ("http://[::1]", True),
        ("http://10.0.0.1", False),
    ],
)
def test_a_server_on_loopback_is_local(address: str, expected: bool) -> None:
    assert is_local(ScrapydServer(address).host) is expected
