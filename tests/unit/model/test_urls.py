"""URLs: one canonical form, one domain, one partition, in every process and for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawlproj.errors import BadUrl
from crawlproj.model.partition import partition_of
from crawlproj.model.urls import (
    UrlRules,
    canonicalise,
    domain_of,
    escape_raw_bytes,
    expand,
    fingerprint,
    host_of,
    origin_of,
    shorten,
)

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

    printed = subprocess.run(
        [sys.executable, "-c", script, *(url for url, *_ in GOLDEN)],
        env=os.environ | {"PYTHONHASHSEED": "random", "PYTHONPATH": root, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert printed == [" ".join(map(str, rest)) for _, *rest in GOLDEN]


@settings(max_examples=300)
@given(canonical_urls)
def test_a_canonical_url_is_its_own_canonical_form(url: str) -> None:
    assert canonicalise(url) == url


@settings(max_examples=300)
@given(canonical_urls)
def test_a_canonical_url_is_ascii_without_spaces_fragment_or_credentials(url: str) -> None:
    authority = url.partition("://")[2].partition("/")[0]

    assert url.isascii()
    assert url.isprintable()
    assert " " not in url
    assert "#" not in url
    assert "@" not in authority
    assert not host_of(url).endswith(".")


@settings(max_examples=300)
@given(canonical_urls)
def test_a_domain_is_the_host_or_a_parent_of_it(url: str) -> None:
    host, domain = host_of(url), domain_of(url)

    assert domain
    assert f".{host}".endswith(f".{domain}")


@settings(max_examples=300)
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


#: What the rest of a URL is made of, with everything that `UrlRules` looks at, whole and broken.
nasty_rests = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                "/",
                "//",
                ".",
                "..",
                "/.",
                "/..",
                "?",
                "&",
                "&&",
                "=",
                ";",
                "%",
                "%2",
                "%2e",
                "%2E",
                "%7e",
            ),
            *("%7E", "%2f", "%25", "%%32e", "%3b", "%3d", "%26", "%6Asessionid=1", ";jsessionid=", "1", "F"),
            *(";JSESSIONID=A1", "utm_source=x", "utm%5fsource=x", "UTM_", "gclid=", "sid=", "sid=abc"),
            *("0123456789abcdef", "PHPSESSID", "b=1", "'", " ", "ü", "#", "@", ":", "[", "|"),
        ]
    ),
    max_size=10,
).map("".join)
rules = st.sampled_from([UrlRules(), UrlRules(()), UrlRules(("a*", "SID", "b"))])


@settings(max_examples=500)
@given(
    st.builds(
        lambda host, rest: canonicalise(f"http://{host}/{rest}"),
        st.sampled_from(["a.test", "[::1]:81"]),
        nasty_rests,
    ),
    rules,
)
@example("http://a.test/a/..;jsessionid=1/b", UrlRules())
@example("http://a.test/%%32e/%%36a", UrlRules())
@example("http://a.test/%2e;jsessionid=1", UrlRules())
@example("http://a.test/%2e;jsessionid=%%32e", UrlRules())
@example("http://a.test/;%6Asessionid=1?&utm_a&", UrlRules())
def test_a_clean_url_is_canonical_and_stays_as_it_is(url: str, rules: UrlRules) -> None:
    clean = rules.clean(url)

    assert rules.clean(clean) == clean
    assert canonicalise(clean) == clean


@settings(max_examples=300)
@given(canonical_urls)
def test_any_canonical_url_can_be_cleaned(url: str) -> None:
    clean = UrlRules().clean(url)

    assert (UrlRules().clean(clean), canonicalise(clean)) == (clean, clean)
    assert host_of(clean) == host_of(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.test/x?utm_source=n&b=2&a=1&UTM_Campaign=c", "http://a.test/x?b=2&a=1"),
        ("http://a.test/x?gclid=1", "http://a.test/x"),
        ("http://a.test/x?fbclid", "http://a.test/x"),
        ("http://a.test/x?utm%5Fsource=n", "http://a.test/x"),
        ("http://a.test/x?", "http://a.test/x"),
        ("http://a.test/x?&a=1&&b=2&", "http://a.test/x?a=1&b=2"),
        ("http://a.test/x?PHPSESSID=abc&p=1", "http://a.test/x?p=1"),
        ("http://a.test/x;jsessionid=0A1B.node1?p=1", "http://a.test/x?p=1"),
        ("http://a.test/x;JSESSIONID=0A1B;v=2/y", "http://a.test/x;v=2/y"),
        ("http://a.test/x?sid=0123456789abcdef0123", "http://a.test/x"),
        ("http://a.test/%7euser/%2fx/%c3%bc", "http://a.test/~user/%2Fx/%C3%BC"),
        ("http://a.test/x?q=%41%2b%26", "http://a.test/x?q=A%2B%26"),
        ("http://a.test/a/../b/./c", "http://a.test/b/c"),
        ("http://B\u00dcCHER.example:80/#top", "http://xn--bcher-kva.example/"),
        ("https://a.test:443?utm_source=n#x", "https://a.test/"),
        ("http://a.test/pub/?C=M;O=D", "http://a.test/pub/"),
        ("http://a.test/pub/?C=N&O=A&utm_source=n", "http://a.test/pub/"),
    ],
)
def test_writings_of_one_page_come_to_one_url(url: str, expected: str) -> None:
    assert UrlRules().clean(canonicalise(url)) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/x?b=2&a=1",
        "http://a.test/x?sid=42",
        "http://a.test/x?sid=introductions-to-us",
        "http://a.test/x?session=autumn",
        "http://a.test/x?ref=y&source=z&id=1&s=q",
        "http://a.test/x?u=http://b.test/?utm_source=n",
        "http://a.test/100%?x=%zz",
        "http://a.test/%2F%3F%23",
        "http://a.test/x;v=1;w=2?a;b",
        "http://a.test/gclid=1/utm_source",
        "http://a.test/notes?C=M;O=D",
        "http://a.test/pub/?C=M;O=D&page=2",
    ],
)
def test_what_may_change_the_page_is_kept(url: str) -> None:
    assert UrlRules().clean(url) == url


def test_people_choose_what_is_dropped() -> None:
    rules = UrlRules(("Ref", "my_*"))

    assert rules.clean("http://a.test/?utm_source=n&REF=1&my_x=2&my=3") == "http://a.test/?utm_source=n&my=3"
    assert rules.clean("http://a.test/x;jsessionid=1") == "http://a.test/x;jsessionid=1"


@pytest.mark.parametrize("byte", range(256))
def test_every_escape_has_one_spelling(byte: int) -> None:
    unreserved = chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-._~") else ""
    expected = f"http://a.test/x{unreserved or f'%{byte:02X}'}y?x{unreserved or f'%{byte:02X}'}y"

    assert UrlRules().clean(f"http://a.test/x%{byte:02x}y?x%{byte:02X}y") == expected
    assert UrlRules().clean(f"http://a.test/x%{byte:02X}y?x%{byte:02x}y") == expected


def test_a_suffix_in_another_script_is_known_in_its_ascii_form() -> None:
    assert domain_of("http://www.xn--85x722f.xn--55qx5d.cn/") == "xn--85x722f.xn--55qx5d.cn"


@pytest.mark.parametrize(
    ("sent", "url"),
    [
        (b"/plain?q=%C3%BC", "https://a.test/plain?q=%C3%BC"),
        ("/b\u00fccher?q=\u0434".encode(), "https://a.test/b%C3%BCcher?q=%D0%B4"),
        ("/caf\u00e9".encode("latin-1"), "https://a.test/caf%E9"),
        (b"/\x80\xff", "https://a.test/%80%FF"),
        ("//b\u00fccher.example/".encode(), "https://xn--bcher-kva.example/"),
    ],
)
def test_the_raw_bytes_of_a_header_are_those_of_its_url(sent: bytes, url: str) -> None:
    header = sent.decode("latin-1")

    assert canonicalise(escape_raw_bytes(header), "https://a.test/") == url
