"""URLs: one canonical form, one domain, one partition, in every process and for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlproj.errors import BadUrl
from crawlproj.model.partition import partition_of
from crawlproj.model.urls import canonicalise, domain_of, expand, fingerprint, host_of, origin_of, shorten

#: url, canonical form, domain, its partition of 64, fingerprint. A change here loses every stored run.
GOLDEN = [
    (
        "http://bücher.example/",
        "http://xn--bcher-kva.example/",
        "xn--bcher-kva.example",
        57,
        6570306944239512144,
    ),
    (
        "https://BÜCHER.example./x",
        "https://xn--bcher-kva.example/x",
        "xn--bcher-kva.example",
        57,
        7152605480554407332,
    ),
    (
        "https://пример.рф/",
        "https://xn--e1afmkfd.xn--p1ai/",
        "xn--e1afmkfd.xn--p1ai",
        32,
        9064256330844997495,
    ),
    ("http://192.168.0.1:8080/", "http://192.168.0.1:8080/", "192.168.0.1", 54, 143647547894643711),
    ("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1", 12, 6456858236431087192),
    ("http://[2001:DB8:0:0::1]:81/", "http://[2001:db8::1]:81/", "[2001:db8::1]", 56, 6050528978255455735),
    ("https://WWW.Example.ORG:443/", "https://www.example.org/", "example.org", 53, 8505161510405187788),
    ("https://example.org.:8443/a", "https://example.org:8443/a", "example.org", 53, 9139283962666305021),
    ("https://u:p@example.org/?", "https://example.org/", "example.org", 53, 3991302586495623132),
    ("https://user.github.io/x", "https://user.github.io/x", "user.github.io", 7, 4448332407927258637),
    ("https://a.b.user.github.io/", "https://a.b.user.github.io/", "user.github.io", 7, 6515431949269163288),
    ("https://github.io/", "https://github.io/", "github.io", 24, 7052774823081727893),
    ("https://shop.example.co.uk/", "https://shop.example.co.uk/", "example.co.uk", 56, 8184107459068549215),
    ("http://co.uk/", "http://co.uk/", "co.uk", 16, 1400169754376904617),
    ("http://localhost:6800/", "http://localhost:6800/", "localhost", 14, 634504673653113296),
    ("http://a..b/", "http://a..b/", "a..b", 20, 2391153697957483730),
]

hosts = st.one_of(
    st.text(min_size=1, max_size=12),
    st.from_regex(r"[a-zA-Z0-9.\-_%@:\[\]{}~!$&'()*+,;=üß。]{1,15}", fullmatch=True),
    st.from_regex(r"[a-z0-9]{1,5}(\.[a-z0-9]{1,5}){0,3}", fullmatch=True),
    st.ip_addresses().map(lambda ip: f"[{ip}]" if ip.version == 6 else str(ip)),
)
urls = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(["http://", "https://", "HTTP://", "http:\\\\", "https://user:pass@"]),
    hosts,
    st.sampled_from(["", ":80", ":443", ":81", ":", ".:80", "."]),
    st.one_of(
        st.text(max_size=20).map("/".__add__),
        st.text(max_size=8),
        st.sampled_from(["", "?", "#", "/?#", "/a/../b?x#y"]),
    ),
)


def canonical_or_none(url: str) -> str | None:
    try:
        return canonicalise(url)
    except BadUrl:
        return None


canonical_urls = urls.map(canonical_or_none).filter(bool)


def as_told(url: str) -> tuple[str, str, int, int]:
    canonical = canonicalise(url)
    domain = domain_of(canonical)
    return canonical, domain, partition_of(domain, 64), fingerprint(canonical)


@pytest.mark.parametrize(("url", "expected"), [(url, tuple(rest)) for url, *rest in GOLDEN])
def test_a_url_has_its_golden_domain_partition_and_fingerprint(
    url: str, expected: tuple[object, ...]
) -> None:
    assert as_told(url) == expected


def test_another_process_with_another_hash_seed_agrees() -> None:
    script = (
        "import sys\n"
        "from crawlproj.model.urls import *\n"
        "from crawlproj.model.partition import partition_of\n"
        "for url in sys.argv[1:]:\n"
        "    c = canonicalise(url); d = domain_of(c)\n"
        "    print(c, d, partition_of(d, 64), fingerprint(c))\n"
    )
    root = str(Path(__file__).parents[3])

    told = subprocess.run(
        [sys.executable, "-c", script, *(url for url, *_ in GOLDEN)],
        env=os.environ | {"PYTHONHASHSEED": "random", "PYTHONPATH": root, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert told == [" ".join(map(str, rest)) for _, *rest in GOLDEN]


@settings(max_examples=300, deadline=None)
@given(canonical_urls)
def test_a_canonical_url_is_its_own_canonical_form(url: str) -> None:
    assert canonicalise(url) == url


@settings(max_examples=300, deadline=None)
@given(canonical_urls)
def test_a_canonical_url_is_ascii_without_spaces_fragment_or_credentials(url: str) -> None:
    authority = url.partition("://")[2].partition("/")[0]

    assert url.isascii()
    assert url.isprintable()
    assert " " not in url
    assert "#" not in url
    assert "@" not in authority
    assert not host_of(url).endswith(".")


@settings(max_examples=300, deadline=None)
@given(canonical_urls)
def test_a_domain_is_the_host_or_a_parent_of_it(url: str) -> None:
    host, domain = host_of(url), domain_of(url)

    assert domain
    assert f".{host}".endswith(f".{domain}")


@settings(max_examples=300, deadline=None)
@given(canonical_urls)
def test_expanding_what_was_shortened_gives_the_url(url: str) -> None:
    domain = domain_of(url)

    assert expand(shorten(url, domain), domain) == url


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://a.test/x", "s/x"),
        ("https://www.a.test/", "w/"),
        ("http://a.test/x?y", "h/x?y"),
        ("http://www.a.test/x", "http://www.a.test/x"),
        ("https://b.a.test/x", "https://b.a.test/x"),
        ("https://a.test:81/x", "https://a.test:81/x"),
    ],
)
def test_common_urls_of_a_domain_are_kept_short(url: str, short: str) -> None:
    assert shorten(url, "a.test") == short
    assert expand(short, "a.test") == url


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org", "//example.org/", "ftp://example.org/", "mailto:a@b.org", "javascript:1"),
        *("http://", "http://./", "http://a b/", "http://[::1/", "http://a:99999/", "http://\ud800/"),
    ],
)
def test_what_cannot_be_crawled_is_refused_naming_it(url: str) -> None:
    with pytest.raises(BadUrl) as refusal:
        canonicalise(url)

    assert repr(url) in str(refusal.value)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("b?c#d", "https://a.test/x/b?c"),
        ("/b", "https://a.test/b"),
        ("//b.test", "https://b.test/"),
        ("?q=a b", "https://a.test/x/y?q=a%20b"),
        ("HTTP://B.test:80", "http://b.test/"),
        ("", "https://a.test/x/y"),
    ],
)
def test_a_link_is_joined_to_the_page_it_was_found_in(link: str, expected: str) -> None:
    assert canonicalise(link, "https://a.test/x/y") == expected


def test_the_origin_is_what_one_robots_txt_speaks_for() -> None:
    assert origin_of("https://www.a.test:81/x/y?z") == "https://www.a.test:81"
    assert origin_of("http://[::1]:8080/") == "http://[::1]:8080"


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_fingerprint_is_a_positive_integer_of_63_bits(text: str) -> None:
    assert 0 <= fingerprint(text) < 2**63
