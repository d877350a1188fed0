"""The URL standard, as far as a crawler meets it: our own table of its rules, and its own test data.

The data is ``url/resources/urltestdata.json`` of web-platform-tests. It is not kept here; name a copy to have
it checked: ``WHATWG_URLS=urltestdata.json pytest tests/unit/model/test_whatwg_urls.py``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import BadUrl
from crawlproj.model.urls import canonicalise

BASE = "http://base.test/dir/page?query#fragment"

#: A reference, relative to BASE, and its URL.
TABLE = [
    # Relative references.
    ("", "http://base.test/dir/page?query"),
    ("x", "http://base.test/dir/x"),
    ("./x", "http://base.test/dir/x"),
    ("../x", "http://base.test/x"),
    ("../../../x", "http://base.test/x"),
    ("/x", "http://base.test/x"),
    ("//other.test", "http://other.test/"),
    ("?x", "http://base.test/dir/page?x"),
    (".", "http://base.test/dir/"),
    ("..", "http://base.test/"),
    ("x:y", None),
    ("./x:y", "http://base.test/dir/x:y"),
    ("http:x", "http://base.test/dir/x"),
    ("https:x", "https://x/"),
    ("http:/x", "http://base.test/x"),
    ("https:/other.test/x", "https://other.test/x"),
    ("http:///other.test/x", "http://other.test/x"),
    # Backslashes are slashes, white space at the ends and line breaks anywhere are nothing.
    ("\\\\other.test\\x", "http://other.test/x"),
    ("http:\\\\other.test\\x?a\\b", "http://other.test/x?a\\b"),
    ("  x \n", "http://base.test/dir/x"),
    ("ht\ntp://oth\ter.test/x\ry", "http://other.test/xy"),
    ("\x00\x1fx", "http://base.test/dir/x"),
    # Dot segments, written in any way.
    ("http://a.test/a/./b/../c", "http://a.test/a/c"),
    ("http://a.test/a/%2e/b/%2E%2e/c", "http://a.test/a/c"),
    ("http://a.test/a/.%2e", "http://a.test/"),
    ("http://a.test/a/b/..", "http://a.test/a/"),
    ("http://a.test/a/...", "http://a.test/a/..."),
    ("http://a.test/a//../b", "http://a.test/a/b"),
    ("http://a.test/.x/%2ex", "http://a.test/.x/%2ex"),
    ("http://a.test/?a/../b", "http://a.test/?a/../b"),
    # Scheme, host and port.
    ("HTTP://A.TEST", "http://a.test/"),
    ("http://a.test:80/", "http://a.test/"),
    ("https://a.test:443/", "https://a.test/"),
    ("https://a.test:80/", "https://a.test:80/"),
    ("http://a.test:/", "http://a.test/"),
    ("http://a.test:0081/", "http://a.test:81/"),
    ("http://a.test:65535/", "http://a.test:65535/"),
    ("http://a.test:65536/", None),
    ("http://a.test:x/", None),
    ("http://a.test:-1/", None),
    ("http://", None),
    ("http://:80/", None),
    ("http://?x", None),
    ("http://a b/", None),
    ("http://a<b/", None),
    ("http://a^b/", None),
    ("http://a|b/", None),
    ("http://a%zz/", None),
    ("http://a%00b/", None),
    ("http://%61.test/", "http://a.test/"),
    ("http://a_b.test/", "http://a_b.test/"),
    # Names in other scripts.
    ("http://b\u00fccher.test/", "http://xn--bcher-kva.test/"),
    ("http://B\u00dcCHER.test/", "http://xn--bcher-kva.test/"),
    ("http://bu\u0308cher.test/", "http://xn--bcher-kva.test/"),
    ("http://b%C3%BCcher.test/", "http://xn--bcher-kva.test/"),
    ("http://fa\u00df.test/", "http://xn--fa-hia.test/"),
    ("http://\uff41\uff0e\uff54\uff45\uff53\uff54/", "http://a.test/"),
    ("http://a\u3002test/", "http://a.test/"),
    ("http://so\u00adft.test/", "http://soft.test/"),
    ("http://\u00ad/", None),
    # Plain letters are not looked into, whatever they claim to encode.
    ("http://xn--/", "http://xn--/"),
    ("http://\u2665.test/", "http://xn--g6h.test/"),
    # Addresses in any of their spellings.
    ("http://127.0.0.1/", "http://127.0.0.1/"),
    ("http://127.1/", "http://127.0.0.1/"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://0177.0.0.01/", "http://127.0.0.1/"),
    ("http://2130706433/", "http://127.0.0.1/"),
    ("http://0x7F000001/", "http://127.0.0.1/"),
    ("http://\uff11\uff12\uff17.1/", "http://127.0.0.1/"),
    ("http://127.0.0.1./", "http://127.0.0.1/"),
    ("http://256.0.0.1/", None),
    ("http://4294967296/", None),
    ("http://1.2.3.4.5/", None),
    ("http://1.2.3.08/", None),
    ("http://a.1/", None),
    ("http://[::1]/", "http://[::1]/"),
    ("http://[1:0:0:0:0:0:0:8]/", "http://[1::8]/"),
    ("http://[2001:DB8:0:0:1:0:0:1]/", "http://[2001:db8::1:0:0:1]/"),
    ("http://[::127.0.0.1]/", "http://[::7f00:1]/"),
    ("http://[::ffff:1.2.3.4]/", "http://[::ffff:102:304]/"),
    ("http://[::1%25eth0]/", None),
    ("http://[::1", None),
    ("http://[1::2::3]/", None),
    ("http://[12345::]/", None),
    ("http://[]/", None),
    # What is escaped where.
    ("http://a.test/\u00e4 \"<>`{}^|'", "http://a.test/%C3%A4%20%22%3C%3E%60%7B%7D%5E|'"),
    ("http://a.test/?\u00e4 \"<>`{}^|'", "http://a.test/?%C3%A4%20%22%3C%3E`{}^|%27"),
    ("http://a.test/%", "http://a.test/%"),
    ("http://a.test/%7e%2f%zz", "http://a.test/%7e%2f%zz"),
    ("http://a.test/\u65e5\u672c", "http://a.test/%E6%97%A5%E6%9C%AC"),
    ("http://a.test/\U0001f525", "http://a.test/%F0%9F%94%A5"),
    ("http://a.test/a;b=c,d@e:f&g", "http://a.test/a;b=c,d@e:f&g"),
    ("http://a.test?x", "http://a.test/?x"),
    ("http://a.test/??", "http://a.test/??"),
    # Where we differ, on purpose.
    ("#top", "http://base.test/dir/page?query"),
    ("http://a.test/#", "http://a.test/"),
    ("http://a.test/?", "http://a.test/"),
    ("http://a.test/?#x", "http://a.test/"),
    ("http://user:pass@a.test/", "http://a.test/"),
    ("http://user@@a.test/", "http://a.test/"),
    ("http://a.test./x", "http://a.test/x"),
    ("http://./", None),
    # Not for a crawler.
    ("ftp://a.test/", None),
    ("javascript:x", None),
    ("mailto:a@a.test", None),
    ("data:,x", None),
    ("file:///x", None),
]


#: Hosts of the data that end in two dots and, without them, in a number: no address, so no host.
NO_HOSTS_WITHOUT_DOT = ("foo.09",)


def result(reference: str, base: str | None) -> str | None:
    try:
        return canonicalise(reference, base)
    except BadUrl:
        return None


@pytest.mark.parametrize(("reference", "expected"), TABLE)
def test_a_reference_is_resolved_as_the_standard_says(reference: str, expected: str | None) -> None:
    assert result(reference, canonicalise(BASE)) == expected


def differing(case: dict[str, Any]) -> str | None:
    """Return what we make of a case's URL: the deviations that docs/urls.md defends, and no others."""
    host = case["host"].removesuffix(":" + case["port"]) if case["port"] else case["host"]
    host = host.rstrip(".")
    if not host or host in NO_HOSTS_WITHOUT_DOT:
        return None
    port = ":" + case["port"] if case["port"] else ""
    return f"{case['protocol']}//{host}{port}{case['pathname']}{case['search']}"


def wanted(case: object) -> bool:
    """Whether a crawler can meet this case: its URL is http or https, or would be if it were one."""
    if not isinstance(case, dict):
        return False
    if "failure" not in case:
        return str(case["protocol"]) in ("http:", "https:")
    texts = (str(case["input"]).strip().lower(), str(case.get("base")))
    return any(text.startswith(("http:", "https:")) for text in texts)


@pytest.mark.skipif("WHATWG_URLS" not in os.environ, reason="WHATWG_URLS names no copy of urltestdata.json")
def test_the_data_of_the_standard_holds_but_for_the_deviations_that_are_documented() -> None:
    cases = json.loads(Path(os.environ["WHATWG_URLS"]).read_text(encoding="utf-8"))
    met = [case for case in cases if wanted(case)]
    wrong = []

    for case in met:
        base = None if case.get("base") in (None, "about:blank") else case["base"]
        expected = None if "failure" in case else differing(case)
        if (got := result(case["input"], base)) != expected:
            wrong.append((case["input"], base, expected, got))

    assert len(met) > 400
    assert wrong == []
