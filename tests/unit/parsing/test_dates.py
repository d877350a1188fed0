from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.dates import date_in_path, in_utc, moment_of

DAY = datetime(2020, 1, 5, tzinfo=UTC)
TIME = datetime(2020, 1, 5, 10, 20, 30, tzinfo=UTC)


def at(hours: float) -> datetime:
    return TIME.replace(tzinfo=timezone(timedelta(hours=hours)))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-01-05", DAY),
        (" 2020-01-05\n", DAY),
        ("2020-1-5", DAY),
        ("2020/01/05", DAY),
        ("2020.01.05", DAY),
        ("20200105", DAY),
        ("20200105T102030Z", TIME),
        ("20200105102030", TIME),
        ("202001051020", TIME.replace(second=0)),
        ("2020-01-05T10:20:30Z", TIME),
        ("2020-01-05T10:20:30", TIME),
        ("2020-01-05 10:20:30", TIME),
        ("2020-01-05T10:20Z", TIME.replace(second=0)),
        ("2020-01-05T10:20:30.000Z", TIME),
        ("2020-01-05T10:20:30.000000000Z", TIME),
        ("2020-01-05T10:20:30.0000000+01:00", at(1)),
        ("2020-01-05T10:20:30+01:00", at(1)),
        ("2020-01-05T10:20:30+0100", at(1)),
        ("2020-01-05T10:20:30+01", at(1)),
        ("2020-01-05T10:20:30 +0530", at(5.5)),
        ("2020-01-05 10:20:30 UTC", TIME),
        ("2020-01-05 10:20:30 EST", at(-5)),
        ("2020-01-05T10:20:30-08:00[America/Los_Angeles]", at(-8)),
        ("2020-1-5T10:20:30+02:00", at(2)),
        ("2020-01-05T24:00:00Z", DAY),
        ("2020-01-05T10:20:30+99:00", TIME),
        ("Sun, 05 Jan 2020 10:20:30 GMT", TIME),
        ("Sun, 5 Jan 2020 10:20:30 -0500", at(-5)),
        ("05 Jan 2020 10:20:30 PDT", at(-7)),
        ("Sun Jan 05 2020 10:20:30 GMT+0100 (CET)", at(1)),
        ("Sun Jan  5 10:20:30 2020", TIME),
        ("Sun Jan 05 10:20:30 CET 2020", at(1)),
        ("1578219630", TIME),
        ("1578219630123", TIME),
        ("Jan 5, 2020", DAY),
        ("Jan. 5, 2020", DAY),
        ("January 5th, 2020", DAY),
        ("JANUARY 5 2020", DAY),
        ("5 January 2020", DAY),
        ("5th of January 2020", DAY),
        ("05-Jan-2020", DAY),
        ("Published: January 5, 2020", DAY),
        ("Jan 5, 2020 at 10:20 PM", DAY.replace(hour=22, minute=20)),
        ("January 5, 2020 12:20 a.m.", DAY.replace(minute=20)),
        ("5. Januar 2020", DAY),
        ("Sonntag, 5. Januar 2020, 10:20 Uhr", TIME.replace(second=0)),
        ("5 janvier 2020", DAY),
        ("1er février 2020", datetime(2020, 2, 1, tzinfo=UTC)),
        ("5 janvier 2020 à 10h20", TIME.replace(second=0)),
        ("5 de enero de 2020", DAY),
        ("5 gennaio 2020", DAY),
        ("5 de janeiro de 2020", DAY),
        ("5 januari 2020", DAY),
        ("5 stycznia 2020", DAY),
        ("5. März 2020", datetime(2020, 3, 5, tzinfo=UTC)),
        ("5 août 2020", datetime(2020, 8, 5, tzinfo=UTC)),
        ("5 października 2020", datetime(2020, 10, 5, tzinfo=UTC)),
        ("05.01.2020", DAY),
        ("05.01.2020, 10:20", TIME.replace(second=0)),
        ("13/04/2020", datetime(2020, 4, 13, tzinfo=UTC)),
        ("04/13/2020", datetime(2020, 4, 13, tzinfo=UTC)),
        ("04-13-2020", datetime(2020, 4, 13, tzinfo=UTC)),
        ("05/05/2020", datetime(2020, 5, 5, tzinfo=UTC)),
        ("2020年1月5日", DAY),
        ("2020년 1월 5일", DAY),
        ("1851-09-18", datetime(1851, 9, 18, tzinfo=UTC)),
    ],
)
def test_a_date_is_read_in_every_common_spelling(text: str, moment: datetime) -> None:
    found = moment_of(text)

    assert found is not None
    assert found.replace(microsecond=0) == moment
    assert found.utcoffset() == moment.utcoffset()


@pytest.mark.parametrize(
    "text",
    [
        "03/04/2020",
        "3-4-2020",
        "31 February 2020",
        "2020-02-31",
        "2020-13-01",
        "2019-02-29",
        "0001-01-01",
        "0001-01-01T00:00:00Z",
        "1970-01-01",
        "1970-01-01T00:00:00+00:00",
        "1969-12-31T19:00:00-05:00",
        "0000-00-00 00:00:00",
        "-0001-11-30T00:00:00+00:00",
        "1900-01-01",
        "9999-12-31",
        "0",
        "0000000000",
        "",
        "2020",
        "2020-01",
        "January 2020",
        "today",
        "yesterday",
        "2 hours ago",
        "1.2.3.2020",
        "192.168.2020",
        "5 Foo 2020",
        "Jan 5, 2020 - Feb 7, 2020",
        "2020-01-05/2020-02-07",
        "12345678901234567890",
        "٢٠٢٠-٠١-٠٥",
        "2020-01-05" + " " * 300 + "x",
    ],
)
def test_an_ambiguous_date_is_ignored(text: str) -> None:
    assert moment_of(text) is None


@given(st.text() | st.from_regex(r"[0-9]{1,4}[-/. ][A-Za-z0-9]{1,4}[-/. ,][0-9]{1,4}.*"))
def test_any_text_is_a_moment_with_a_zone_or_none(text: str) -> None:
    moment = moment_of(text)

    assert moment is None or moment.tzinfo is not None


@given(st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_what_python_writes_comes_back(moment: datetime) -> None:
    assert moment_of(moment.isoformat()) == moment
    assert moment_of(moment.strftime("%a, %d %b %Y %H:%M:%S +0000")) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    "path",
    [
        "/2020/01/05/title",
        "/news/2020/01/05",
        "/2020/1/5/title",
        "/2020-01-05-title.html",
        "/blog/2020-01-05",
        "/20200105/title",
        "/a/20200105.html",
        "/2020_01_05/",
        "/2020/01/05/2020-01-05-title",
    ],
)
def test_a_full_date_in_the_path_of_a_url_is_found(path: str) -> None:
    assert date_in_path(path) == DAY


@pytest.mark.parametrize(
    "path",
    [
        "/2020/01/title",
        "/2020/",
        "/2020/13/05/",
        "/2020/02/31/",
        "/1234/01/05/",
        "/120200105/",
        "/202001051/",
        "/product-20200105x",
        "/id20200105/",
        "/2020/01/05/to/2020/02/07/",
        "/",
        "",
    ],
)
def test_an_incomplete_date_in_a_path_is_ignored(path: str) -> None:
    assert date_in_path(path) is None


def test_a_moment_is_stored_in_utc_to_the_millisecond() -> None:
    moment = datetime(2020, 1, 5, 1, 2, 3, 456_789, timezone(timedelta(hours=2)))

    stored = in_utc(moment)

    assert stored == datetime(2020, 1, 4, 23, 2, 3, 456_000, UTC)
    assert stored.tzinfo is UTC
    assert in_utc(None) is None
