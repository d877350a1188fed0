"""Google's specification tests and RFC 9309's examples, as tables; docs/robots.md defends the deviations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.politeness.robots import RobotRules

DATA = Path(__file__).parents[2] / "data"

#: (rule, URL): where the RFC and Google's tests contradict each other, or the RFC itself, and we differ.
DEVIATIONS = {
    # Google leaves it to the caller to escape a URL; the RFC compares both sides escaped.
    ("Allow: /foo/bar/ツ", "http://foo.bar/foo/bar/ツ"),
    ("Allow: /foo/bar/%E3%83%84", "http://foo.bar/foo/bar/ツ"),
    # Google compares escaped letters as they are; the RFC unescapes them (row 5 of its table).
    ("Allow: /foo/bar/%62%61%7A", "http://foo.bar/foo/bar/baz"),
    # The RFC's table escapes ':' and '/' in a query; Google's tests do not, nor does any browser.
    ("Disallow: /foo/bar?baz=http://foo.bar", "https://www.example.com/foo/bar?baz=http%3A%2F%2Ffoo.bar"),
}


def cases(table: str) -> Iterator[object]:
    for case in json.loads((DATA / table).read_text("utf-8")):
        robots = "".join(f"{spelt_out(line)}\n" for line in case["robots"])
        for agent, url, allowed in case["checks"]:
            yield pytest.param(robots, agent, spelt_out(url), allowed, id=f"{case['name']} {agent} {url}")


def spelt_out(text: str) -> str:
    """Return *text* with ``a*16649`` as so many letters."""
    return re.sub(r"([ab])\*(\d{5})", lambda found: found[1] * int(found[2]), text)


def is_deviation(robots: str, url: str) -> bool:
    return any(rule in robots.splitlines() and url == deviating for rule, deviating in DEVIATIONS)


@pytest.mark.parametrize(
    ("robots", "agent", "url", "allowed"), [*cases("robots_google.json"), *cases("robots_rfc9309.json")]
)
def test_a_case_of_the_tables_is_decided_as_it_says(robots: str, agent: str, url: str, allowed: bool) -> None:
    rules = RobotRules.from_response(200, robots.encode(), agent)

    expected = allowed is not is_deviation(robots, url)

    assert rules.may_fetch(url) is expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\r\n"])
def test_lines_may_end_in_any_way(end: str) -> None:
    robots = end.join(["User-Agent: foo", "Allow: /some/path", "User-Agent: bar", "", "Disallow: /"])

    assert not RobotRules.from_response(200, robots.encode(), "bar").may_fetch("http://a.test/some/path")
    assert RobotRules.from_response(200, robots.encode(), "foo").may_fetch("http://a.test/")


@pytest.mark.parametrize(
    ("start", "is_read"),
    [
        (b"\xef\xbb\xbf", True),
        (b"\xef\xbb", True),
        (b"\xef", True),
        (b"\xef\x11\xbf", False),
        (b"\xbb\xbf", False),
        (b"#\n\xef\xbb\xbf", False),
    ],
)
def test_a_byte_order_mark_is_skipped_at_the_very_start_also_a_broken_one(
    start: bytes, is_read: bool
) -> None:
    rules = RobotRules.from_response(200, start + b"User-agent: foo\nDisallow: /\n", "foo")

    assert rules.may_fetch("http://a.test/") is not is_read
