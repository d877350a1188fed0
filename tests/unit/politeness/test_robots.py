from __future__ import annotations

import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.politeness.robots import (
    MAX_ROBOTS_BYTES,
    MAX_SITEMAPS,
    MAX_WILDCARDS,
    KnownRules,
    RobotRules,
    RobotsCache,
)

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


def rules(body: bytes = ROBOTS, status: int = 200, agent: str = "crawlproj") -> RobotRules:
    return RobotRules.from_response(status, body, agent)


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
def test_an_invalid_crawl_delay_is_ignored(value: bytes) -> None:
    assert rules(b"User-agent: *\nCrawl-delay: " + value).crawl_delay_s is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_client_error_allows_everything_whatever_its_body_says(status: int) -> None:
    found = rules(b"User-agent: *\nDisallow: /", status)

    assert found.may_fetch("http://a.test/private")
    assert not found.retry


@pytest.mark.parametrize("status", [429, 500, 502, 503, 599])
def test_a_server_error_or_throttling_forbids_everything_for_now(status: int) -> None:
    found = rules(b"User-agent: *\nAllow: /", status)

    assert not found.may_fetch("http://a.test/")
    assert found.retry


def test_a_redirect_that_cannot_be_followed_allows_everything_as_a_missing_file_does() -> None:
    assert rules(status=301).may_fetch("http://a.test/")


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
        until_s = cache.put("http://a.test", rules(status=503), now_s).expires_at_s
        waits.append(until_s - now_s)
        now_s = until_s

    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


@pytest.mark.parametrize(("max_retry_s", "waits_s"), [(100.0, [60, 100, 100]), (1e6, [60, 120, 240])])
def test_waits_for_a_failing_robots_txt_are_bounded(max_retry_s: float, waits_s: list[float]) -> None:
    cache = RobotsCache(10, 3600.0, 60.0, max_retry_s=max_retry_s)

    waits = [cache.put("http://a.test", rules(status=503), 0.0).expires_at_s for _ in range(20)]

    assert waits[:3] == waits_s
    # Never longer than an hour.
    assert waits[-1] == min(max_retry_s, 3600)


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


def test_the_cache_is_bounded_in_bytes_too() -> None:
    large = b"User-agent: *\n" + b"".join(b"Disallow: /%d/\n" % n for n in range(1000))
    cache = RobotsCache(max_origins=1000, ttl_s=100, max_bytes=1_000_000)

    for n in range(50):
        cache.put(f"http://{n}.test", rules(large), 0)

    assert 5 <= len(cache) <= 1_000_000 // rules(large).size_bytes
    assert cache.get("http://49.test", 1) is not None
    assert cache.get("http://0.test", 1) is None


def test_replacing_rules_does_not_fill_the_cache() -> None:
    cache = RobotsCache(max_origins=1000, ttl_s=100, max_bytes=4 * rules().size_bytes)
    cache.put("http://a.test", rules(), 0)

    for _ in range(100):
        cache.put("http://b.test", rules(), 0)

    assert cache.get("http://a.test", 1) is not None


def test_rules_larger_than_the_whole_cache_are_kept_while_they_are_used() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100, max_bytes=10)

    cache.put("http://a.test", rules(), 0)

    assert cache.get("http://a.test", 1) is not None


def test_older_rules_stay_in_force_while_robots_txt_cannot_be_fetched() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)
    kept = rules()
    cache.put("http://a.test", kept, 0)

    first = cache.put("http://a.test", rules(status=503), 100)
    second = cache.put("http://a.test", rules(status=503), 160)

    assert (first.rules, first.failures, first.expires_at_s) == (kept, 1, 160)
    assert (second.rules, second.failures, second.expires_at_s) == (kept, 2, 280)
    assert cache.get("http://a.test", 279) is kept
    assert cache.get("http://a.test", 280) is None
    assert cache.trouble("http://a.test") == (2, 280)


def test_failures_that_others_met_make_the_wait_longer() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)

    cache.recall("http://a.test", KnownRules(rules(status=503), -5.0, 3))

    assert cache.get("http://a.test", 0) is None
    assert cache.put("http://a.test", rules(status=503), 0).expires_at_s == 480


def test_what_others_knew_does_not_replace_what_is_newer() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)
    newer = rules()
    cache.put("http://a.test", newer, 0)

    cache.recall("http://a.test", KnownRules(rules(b""), 50.0))

    assert cache.get("http://a.test", 1) is newer


def test_what_others_knew_longer_is_taken() -> None:
    cache = RobotsCache(max_origins=10, ttl_s=100)
    cache.put("http://a.test", rules(b""), 0)
    longer = rules()

    cache.recall("http://a.test", KnownRules(longer, 150.0))

    assert cache.get("http://a.test", 149) is longer


def test_a_file_with_old_mac_lines_is_cut_at_a_line_too() -> None:
    body = b"User-agent: *\rDisallow: /x\r" + b"#" * MAX_ROBOTS_BYTES

    assert not rules(body).may_fetch("http://a.test/x")


def test_octets_that_are_not_utf8_are_compared_as_they_are() -> None:
    found = rules(b"User-agent: *\nDisallow: /caf\xe9")

    assert not found.may_fetch("http://a.test/caf%E9")
    assert not found.may_fetch("http://a.test/caf%e9/x")
    assert found.may_fetch("http://a.test/caf%C3%A9")


@pytest.mark.parametrize(
    ("body", "delay_s"),
    [
        (b"User-agent: *\nCrawl-delay: 2\nDisallow: /x\nCrawl-delay: 5", 5),
        (b"User-agent: *\nCrawl-delay: 5\nDisallow: /x\nCrawl-delay: 2", 5),
        (b"User-agent: *\nDisallow: /x\ncrawl-delay:.5 # slow", 0.5),
        (b"User-agent: other\nCrawl-delay: 9\n\nUser-agent: *\nDisallow: /x", None),
        (b"User-agent: *\nCrawl-delay: 9\n\nUser-agent: crawlproj\nDisallow: /x", None),
        (b"User-agent: crawlproj\nUser-agent: other\nCrawl-delay: 4\nDisallow: /x", 4),
        (b"Crawl-delay: 7\nUser-agent: *\nDisallow: /x", None),
        (b"User-agent: *\nCrawl-delay: 1e3", None),
        (b"User-agent: *\nCrawl-delay: " + b"9" * 400, None),
    ],
)
def test_a_delay_is_for_the_agents_named_above_it_and_the_longest_counts(
    body: bytes, delay_s: float | None
) -> None:
    assert rules(body).crawl_delay_s == delay_s


def test_sitemaps_are_read_wherever_they_stand_each_once_and_not_without_end() -> None:
    found = rules(b"Sitemap: /a\nUser-agent: x\nsite-map: /b\nDisallow: /\nSITEMAP:/a\nSitemap:\n")
    endless = rules(b"".join(b"Sitemap: /%d\n" % n for n in range(1000)))
    long = rules(b"Sitemap: /" + b"a" * 3000)

    assert found.sitemaps == ("/a", "/b")
    assert len(endless.sitemaps) == MAX_SITEMAPS
    assert long.sitemaps == ()


@pytest.mark.parametrize(
    "lines",
    [
        "Disallow: /*b/\nAllow: /a*/",
        "Allow: /a*/\nDisallow: /*b/",
        "Disallow: /ab/\nAllow: /*b/",
        "Allow: /ab/\nDisallow: /*b/",
        "Disallow: /ab/\nDisallow: /ab/and/longer\nAllow: /ab/*",
    ],
)
def test_of_rules_as_long_the_one_that_allows_wins_with_wildcards_too(lines: str) -> None:
    assert rules(f"User-agent: *\n{lines}".encode()).may_fetch("http://a.test/ab/")


def test_no_pattern_makes_matching_explode() -> None:
    found = rules(b"User-agent: *\n" + b"Disallow: /" + b"*a" * 5000 + b"*b\nDisallow: /*a*a*a*a*b$\n")
    url = "http://a.test/" + "a" * 8000

    started_s = time.process_time()
    allowed = [found.may_fetch(url + str(n)) for n in range(10)]
    took_s = time.process_time() - started_s

    assert all(allowed)
    # Measured: 0.02 s. One that backtracks would not come to an end.
    assert took_s < 2


def test_of_more_wildcards_than_can_be_tried_the_rest_forbids_rather_than_allows() -> None:
    first = b"".join(b"Allow: /*%05d\n" % n for n in range(MAX_WILDCARDS))

    found = rules(
        b"User-agent: *\n" + first + b"Disallow: /*xx\nAllow: /*late-and-allowed\nAllow: /long/open\n"
    )

    assert found.may_fetch("http://a.test/00007")
    assert not found.may_fetch("http://a.test/late-and-allowed")
    assert not found.may_fetch("http://a.test/anything")
    assert found.may_fetch("http://a.test/long/open/page")


pieces = st.sampled_from(["/", "a", "b", "ab", "*", "**", "$", "%61", "%2F", "%2a", "é", "?", " ", "'"])
paths = st.lists(pieces, max_size=8).map(lambda parts: "/" + "".join(parts))
rule_lines = st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), paths), max_size=12)


def matches(path: str, pattern: str) -> bool:
    """Whether *pattern* matches by the book: every set of places a prefix of it can end, one by one."""
    places = {0}
    for n, character in enumerate(pattern):
        if character == "$" and n == len(pattern) - 1:
            return len(path) in places
        if character == "*":
            places = set(range(min(places), len(path) + 1))
        else:
            places = {place + 1 for place in places if path[place : place + 1] == character}
        if not places:
            return False
    return True


def decided_by_the_book(rules: str, path: str) -> bool:
    found = [
        (len(rule) - 1, rule[0] == "+") for rule in rules.split("\n") if rule and matches(path, rule[1:])
    ]
    return max(found)[1] if found else True


@given(rule_lines, paths)
def test_the_longest_match_is_found_as_one_that_tries_every_rule_would(
    lines: list[tuple[str, str]], path: str
) -> None:
    text = "User-agent: *\n" + "".join(f"{name}: {pattern}\n" for name, pattern in lines)
    found = rules(text.encode())
    literal = path.replace("*", "%2A").replace("$", "%24").replace("'", "%27").replace(" ", "%20")
    normal = literal.replace("é", "%C3%A9").replace("%61", "a").replace("%2a", "%2A")

    assert found.may_fetch("http://a.test" + path) is decided_by_the_book(found.rules, normal)


@given(st.binary(max_size=400), st.sampled_from(["crawlproj", "x", ""]))
def test_any_bytes_are_read_without_an_error(body: bytes, agent: str) -> None:
    found = RobotRules.from_response(200, b"User-agent: *\nDisallow: /" + body, agent)

    assert isinstance(found.may_fetch("http://a.test/x"), bool)


@given(rule_lines, paths, st.none() | st.integers(0, 10**6), st.sampled_from([200, 404, 503]))
def test_packed_rules_decide_as_before(
    lines: list[tuple[str, str]], path: str, delay_s: int | None, status: int
) -> None:
    text = "User-agent: *\nSitemap: /ä\n" + "".join(f"{name}: {pattern}\n" for name, pattern in lines)
    text += "" if delay_s is None else f"Crawl-delay: {delay_s}\n"
    before = rules(text.encode(), status)

    after = RobotRules.from_bytes(before.to_bytes())

    assert after == before
    assert after.may_fetch("http://a.test" + path) is before.may_fetch("http://a.test" + path)


def test_packed_rules_of_another_format_or_cut_off_are_refused() -> None:
    packed = rules().to_bytes()

    for data in (b"", b"\x02" + packed[1:], packed[:-9], packed[:1] + zlib.compress(b"\x90")):
        with pytest.raises(ValueError, match="robots rules"):
            RobotRules.from_bytes(data)


def test_packed_rules_that_grow_too_large_are_refused_before_they_do() -> None:
    bomb = rules().to_bytes()[:1] + zlib.compress(bytes(20_000_000), 1)

    tracemalloc.start()
    with pytest.raises(ValueError, match="damaged robots rules"):
        RobotRules.from_bytes(bomb)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 10_000_000


def test_preparing_changes_no_answer() -> None:
    assert not rules().prepare().may_fetch("http://a.test/private")
    assert rules(status=404).prepare().may_fetch("http://a.test/private")
