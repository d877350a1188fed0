from __future__ import annotations

import pytest

from crawlproj.politeness.robots import MAX_ROBOTS_BYTES, RobotRules, RobotsCache

ROBOTS = b"""
User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$
Crawl-delay: 2.5

User-agent: otherbot
Disallow: /

Sitemap: http://a.test/sitemap.xml
"""


def rules(
    body: bytes = ROBOTS, status: int | None = 200, agent: str = "crawlproj", redirects: int = 0
) -> RobotRules:
    return RobotRules.from_response(status, body, agent, redirects)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private", False),
        ("/private/x", False),
        ("/private/open/x", True),
        ("/a.pdf", False),
        ("/a.pdf?x", True),
    ],
)
def test_the_longest_rule_decides(path: str, allowed: bool) -> None:
    assert rules().may_fetch(f"http://a.test{path}") is allowed


def test_a_group_of_our_own_is_ours_alone() -> None:
    ours = rules(agent="OtherBot/2.0")

    assert not ours.may_fetch("http://a.test/")
    assert ours.crawl_delay_s is None


def test_delay_and_sitemaps_are_read() -> None:
    assert rules().crawl_delay_s == 2.5
    assert rules().sitemaps == ("http://a.test/sitemap.xml",)


@pytest.mark.parametrize("value", [b"nan", b"inf", b"-1", b"soon", b""])
def test_a_delay_that_is_no_number_of_seconds_is_none(value: bytes) -> None:
    assert rules(b"User-agent: *\nCrawl-delay: " + value).crawl_delay_s is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_client_error_allows_everything_whatever_its_body_says(status: int) -> None:
    found = rules(b"User-agent: *\nDisallow: /", status)

    assert found.may_fetch("http://a.test/private")
    assert not found.retry


@pytest.mark.parametrize("status", [None, 429, 500, 502, 503, 599])
def test_a_server_or_network_error_or_throttling_forbids_everything_for_now(status: int | None) -> None:
    found = rules(b"User-agent: *\nAllow: /", status)

    assert not found.may_fetch("http://a.test/")
    assert found.retry


def test_a_redirect_forbids_until_there_were_five_of_them() -> None:
    assert not rules(status=301, redirects=4).may_fetch("http://a.test/")
    assert rules(status=301, redirects=5).may_fetch("http://a.test/")


def test_a_byte_order_mark_and_bad_bytes_are_tolerated() -> None:
    found = rules(b"\xef\xbb\xbfUser-agent: *\r\n# \xff\xfe\r\nDisallow: /x\r\n\x00\r\n")

    assert not found.may_fetch("http://a.test/x")


def test_only_the_first_500_kib_count_and_no_rule_is_cut() -> None:
    line = b"Disallow: /long-name\n"
    body = b"User-agent: *\n" + b"#" * (MAX_ROBOTS_BYTES - 14 - 1 - 13) + b"\n" + line + b"Disallow: /late\n"

    found = rules(body)

    assert body[:MAX_ROBOTS_BYTES].endswith(b"\nDisallow: /lo")
    assert found.may_fetch("http://a.test/long-name")
    assert found.may_fetch("http://a.test/lock")


def test_an_empty_file_allows_everything() -> None:
    assert rules(b"").may_fetch("http://a.test/x")


def test_cached_rules_hold_until_they_expire() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)
    kept = rules()

    cache.put("http://a.test", kept, now_s=1000)

    assert cache.get("http://a.test", now_s=1099) is kept
    assert cache.get("http://a.test", now_s=1100) is None
    assert cache.get("http://b.test", now_s=1000) is None


def test_failures_are_asked_again_after_a_minute_then_later_and_later() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=86_400)
    now_s, waits = 0.0, []

    for _ in range(8):
        until_s = cache.put("http://a.test", rules(status=None), now_s).expires_at_s
        waits.append(until_s - now_s)
        now_s = until_s

    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_success_ends_the_count_of_failures() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)
    cache.put("http://a.test", rules(status=500), 0)
    cache.put("http://a.test", rules(status=500), 60)

    cache.put("http://a.test", rules(), 180)

    assert cache.put("http://a.test", rules(status=500), 280).expires_at_s == 340


def test_the_origin_used_longest_ago_is_forgotten() -> None:
    cache = RobotsCache(max_origins=2, ttl_s=100)
    cache.put("http://a.test", rules(), 0)
    cache.put("http://b.test", rules(), 0)

    cache.get("http://a.test", 1)
    cache.put("http://c.test", rules(), 1)

    assert len(cache) == 2
    assert cache.get("http://a.test", 1) is not None
    assert cache.get("http://b.test", 1) is None
