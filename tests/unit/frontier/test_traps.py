from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.frontier import traps
from crawlproj.frontier.traps import TrapDetector, shape_of

SITE = "http://a.test"


def asked_until_closed(detector: TrapDetector, urls: Iterator[str]) -> tuple[int, str | None]:
    """Return how many URLs were fetched, and why no more."""
    for fetched, url in enumerate(urls):
        if reason := detector.judge("a.test", url):
            return fetched, reason
    return -1, None


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", ""),
        ("/wiki/Some_title", ""),
        ("/item/12345", "/item/{n}"),
        ("/item-12.html", "/item-{n}.html"),
        ("/calendar/2024/05/12", "/calendar/{date}"),
        ("/calendar/2024-5", "/calendar/{date}"),
        ("/news/2024/05/some-title", "/news/{date}/some-title"),
        ("/2024/05/12/98765", "/{date}/{n}"),
        ("/20240512", "/{n}"),
        ("/c/0a1b2c3d4e5f6a7b8c9d/x", "/c/{id}/x"),
        ("/c/3F2504E0-4F89-41D3-9A0C-0305E82C3301", "/c/{id}"),
        ("/c/dQw4w9WgXcQ7kLmN2pQr", "/c/{id}"),
        ("/Presidential_election_of_1996_and_2000", "/Presidential_election_of_{n}_and_{n}"),
        ("/internationalisation-guide", ""),
        ("/list?b=1&a=2", "/list?a&b"),
        ("/list?a=3&b=x&a=4", "/list?a&b"),
        ("/list?a=3&b=x&c", "/list?*"),
        ("/agenda?month=5&year=2024", "/agenda?{date}"),
        ("/agenda?on=2024-05-12", "/agenda?{date}"),
    ],
)
def test_what_varies_has_no_place_in_a_shape(path: str, shape: str) -> None:
    assert shape_of(SITE + path) == ("a.test" + shape if shape else "")


def calendar() -> Iterator[str]:
    day = date(2024, 5, 1)
    while True:
        yield f"{SITE}/calendar/{day.year}/{day.month:02}/{day.day:02}"
        day += timedelta(days=1)


def filters() -> Iterator[str]:
    return (f"{SITE}/list?colour={n}&size={n % 7}&{'sort' if n % 2 else 'view'}=x" for n in range(10**6))


def items() -> Iterator[str]:
    return (f"{SITE}/item/{number}" for number in range(10**6))


def dated_items() -> Iterator[str]:
    return (f"{SITE}/2024/{number % 12 + 1}/{number % 28 + 1}/{number}" for number in range(10**6))


def threads() -> Iterator[str]:
    return (f"{SITE}/viewtopic.php?t={number}" for number in range(10**6))


def sessions() -> Iterator[str]:
    return (f"{SITE}/{sha256(str(number).encode()).hexdigest()}/home" for number in range(10**6))


@pytest.mark.parametrize(
    ("urls", "fetched", "reason"),
    [
        (calendar(), 100, "trap_shape"),
        (filters(), 100, "trap_variants"),
        (items(), 1000, "trap_shape"),
        (dated_items(), 1000, "trap_shape"),
        (threads(), 1000, "trap_variants"),
        (sessions(), 1000, "trap_shape"),
    ],
    ids=["calendar", "filters", "items", "dated items", "threads", "sessions"],
)
def test_urls_without_end_come_to_an_end(urls: Iterator[str], fetched: int, reason: str) -> None:
    assert asked_until_closed(TrapDetector(100), urls) == (fetched, reason)


@pytest.mark.parametrize(
    "url",
    [
        "/wiki/Title_{0}x",
        "/news/2024/05/some-title-{0}x",
        "/2024/05/12/{0}x.html",
        "/{0}x/page/7",
        "/blog/{0}x?page=2",
    ],
)
def test_pages_with_titles_are_not_a_trap_however_many(url: str) -> None:
    words = (SITE + url.format("".join(chr(97 + int(digit)) for digit in str(n))) for n in range(5000))

    assert asked_until_closed(TrapDetector(100), words) == (-1, None)


def test_a_closed_shape_stays_closed_and_the_rest_of_the_domain_open() -> None:
    detector = TrapDetector(10)
    asked_until_closed(detector, calendar())

    assert detector.judge("a.test", f"{SITE}/calendar/1999/01/01") == "trap_shape"
    assert detector.judge("a.test", f"{SITE}/item/1") is None
    assert detector.judge("b.test", "http://b.test/calendar/1999/01/01") is None


def test_closed_shapes_are_kept_by_the_caller() -> None:
    before, after = TrapDetector(10), TrapDetector(10)
    asked_until_closed(before, calendar())

    for domain, shape, reason in before.news:
        after.close(domain, shape, reason)

    assert before.news == [("a.test", "a.test/calendar/{date}", "trap_shape")]
    assert after.news == []
    assert after.judge("a.test", next(calendar())) == "trap_shape"


def test_the_least_recently_used_domains_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "_MOST_DOMAINS", 3)
    detector = TrapDetector(10)
    for domain in ("a.test", "b.test", "c.test", "a.test"):
        detector.close(domain, f"{domain}/{{n}}", "trap_shape")

    detector.judge("d.test", "http://d.test/1")

    urls = {domain: f"http://{domain}/1" for domain in ("a.test", "c.test", "b.test")}
    assert [detector.judge(*asked) for asked in urls.items()] == ["trap_shape", "trap_shape", None]


def test_a_trap_is_found_among_more_shapes_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "_MOST_SHAPES_OF_DOMAIN", 20)
    detector = TrapDetector(100)
    days = calendar()

    for number in range(100):
        assert detector.judge("a.test", next(days)) is None
        detector.judge("a.test", f"{SITE}/title-{'x' * number}-1")

    assert detector.judge("a.test", next(days)) == "trap_shape"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=200))
def test_what_is_remembered_is_bounded(asked: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traps, "_MOST_DOMAINS", 4)
        patch.setattr(traps, "_MOST_SHAPES_OF_DOMAIN", 10)
        patch.setattr(traps, "_MOST_SHAPES", 20)
        detector = TrapDetector(3)

        for domain, length in asked:
            detector.judge(domain, f"http://{domain}/{'x' * length}/1")

        shapes = [len(known.asked) for known in detector._domains.values()]
        assert len(shapes) <= 4
        assert max(shapes, default=0) <= 10
        assert sum(shapes) == detector._shapes <= 20


def test_a_url_that_was_not_counted_cannot_be_taken_back() -> None:
    detector = TrapDetector(2)
    urls = [f"{SITE}/list?a={number}&b=1&c=1" for number in range(3)]
    # The domain is known, but its count of this shape was forgotten, or never begun.
    detector.judge("a.test", f"{SITE}/item/1")

    for url in urls:
        detector.uncount("a.test", url)

    assert [detector.judge("a.test", url) for url in urls] == [None, None, "trap_variants"]
