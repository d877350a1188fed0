"""Dates as pages write them. Pure: never asks what day it is, and takes no date that has two readings."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

#: No date needs more.
_MOST_CHARS = 200
_OLDEST_YEAR, _LAST_YEAR = 1800, 2999
#: In URLs and Unix times, an earlier year means the number is not a date.
_OLDEST_WEB_YEAR = 1990
#: What programs write when they have no date.
_PLACEHOLDERS = frozenset({date(1970, 1, 1), date(1969, 12, 31), date(1900, 1, 1)})

_MONTHS = (
    "january jan januar jänner januari janvier janv enero ene gennaio gen janeiro stycznia styczeń sty",
    "february feb februar februari février fevrier févr fev febrero febbraio fevereiro lutego luty lut",
    "march mar märz maerz mär mrz maart mrt mars marzo março marco marca marzec",
    "april apr avril avr abril abr aprile kwietnia kwiecień kwi",
    "may mai mei mayo maggio mag maio maja maj",
    "june jun juni juin junio giugno giu junho czerwca czerwiec cze",
    "july jul juli juillet juil julio luglio lug julho lipca lipiec lip",
    "august aug août aout agosto ago augustus sierpnia sierpień sie",
    "september sep sept septembre septiembre settembre set setembro września wrzesień wrz",
    "october oct oktober okt octobre octubre ottobre ott outubro out października październik paź",
    "november nov novembre noviembre novembro listopada listopad lis",
    "december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro grudnia grudzień gru",
)
MONTH_OF = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
#: Those of RFC 822, and the common ones of Europe.
_ZONE_HOURS = {
    "z": 0, "ut": 0, "utc": 0, "gmt": 0, "wet": 0, "bst": 1, "cet": 1, "mez": 1, "cest": 2, "mesz": 2,
    "eet": 2, "eest": 3, "msk": 3, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7,
}  # fmt: skip

_ZONE = r"(?:(?P<zone>[A-Za-z]{1,4})?(?P<offset>[+-][0-9]{1,2}:?(?:[0-9]{2})?)?)"
_TIME = (
    r"(?P<hour>[0-9]{1,2})[:h](?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?(?:[.,:][0-9]+)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\b\.?)?"
)
_CLOCK = re.compile(r"[\s,T@|–-]*(?:(?:at|um|à|a las|alle|às|om|o)\s+)?" + _TIME + r"\s*" + _ZONE)
_YMD = re.compile(
    r"(?<![0-9.])(?P<year>[12][0-9]{3})\s?(?P<mark>[-/.年년_])\s?(?P<month>[0-9]{1,2})\s?(?:(?P=mark)|[月월])\s?"
    r"(?P<day>[0-9]{1,2})(?![0-9])"
)
_NUMBERS = re.compile(
    r"(?<![0-9./-])(?P<first>[0-9]{1,2})(?P<mark>[./-])\s?(?P<then>[0-9]{1,2})(?P=mark)\s?(?P<year>[12][0-9]{3})(?![0-9])"
)
_NAME = r"(?P<name>[^\W\d_]{3,12})"
_DMY = re.compile(
    r"(?<![0-9])(?P<day>[0-9]{1,2})(?:\.|st|nd|rd|th|er|º|ª|°)?[\s-]*(?:(?:of|de|den)\s+)?"
    + _NAME
    + r"\.?,?[\s-]*(?:(?:de|del|do)\s+)?(?P<year>[12][0-9]{3})(?![0-9])"
)
_MDY = re.compile(
    _NAME + r"\.?[\s-]*(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?,?[\s-]+(?P<year>[12][0-9]{3})(?![0-9:])"
)
#: As C's ``ctime`` writes it, the year after the time.
_CTIME = re.compile(
    _NAME + r"\s+(?P<day>[0-9]{1,2})\s+" + _TIME + r"\s*" + _ZONE + r"\s*(?P<year>[12][0-9]{3})(?![0-9])"
)
_DIGITS = re.compile(r"(?P<year>[12][0-9]{3})(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?![0-9])")
_STAMP = re.compile(
    r"(?P<year>[12][0-9]{3})(?P<month>[0-9]{2})(?P<day>[0-9]{2})T?"
    r"(?P<hour>[0-9]{2}):?(?P<minute>[0-9]{2}):?(?P<second>[0-9]{2})?(?:[.,][0-9]+)?" + _ZONE + r"$"
)
_IN_PATH = re.compile(
    r"/(?P<year>[12][0-9]{3})(?P<mark>[/_.-]?)(?P<month>[0-9]{2})(?P=mark)(?P<day>[0-9]{2})(?=[/_.-]|$)"
    r"|/(?P<year1>[12][0-9]{3})(?P<mark1>[/-])(?P<month1>[0-9]{1,2})(?P=mark1)(?P<day1>[0-9]{1,2})(?=[/_-]|$)"
)


def moment_of(text: str) -> datetime | None:
    """Return the moment that *text* names, in the time zone it names; None if it names none, or several days.

    A date without a time is midnight, and a time without a zone is taken as UTC, so that the day is
    always the one that was written.
    """
    text = text.strip()
    if not 6 <= len(text) <= _MOST_CHARS:
        return None
    # By far the most.
    try:
        moment = datetime.fromisoformat(text) if text[4] == "-" and len(text) >= 10 else None
    except ValueError:
        moment = None
    if moment is None:
        moment = _number(text) if text.isdecimal() and text.isascii() else _written(text)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment is None or not _OLDEST_YEAR <= moment.year <= _LAST_YEAR or moment.date() in _PLACEHOLDERS:
        return None
    return moment


def in_utc(moment: datetime | None) -> datetime | None:
    """Return *moment* in UTC, to the millisecond: what every format can hold."""
    if moment is None:
        return None
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def date_in_path(path: str) -> datetime | None:
    """Return the full date in the path of a URL, None if there is none, or more than one."""
    days = {_day_in_path(match) for match in _IN_PATH.finditer(path)} - {None}
    return days.pop() if len(days) == 1 else None


def _day_in_path(match: re.Match[str]) -> datetime | None:
    parts = match.group("year", "month", "day") if match["year"] else match.group("year1", "month1", "day1")
    year, month, day = map(int, parts)
    return _day(year, month, day) if year >= _OLDEST_WEB_YEAR else None


def _number(digits: str) -> datetime | None:
    """Return the moment of a number: Unix time in seconds or milliseconds, or a date without any mark."""
    if len(digits) in (10, 13):
        moment = datetime.fromtimestamp(int(digits[:10]), UTC)
        if moment.year >= _OLDEST_WEB_YEAR:
            return moment
    if len(digits) == 8:
        return _day(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    if len(digits) in (12, 14) and (match := _STAMP.match(digits)):
        return _with_clock(_of_match(match), match)
    return None


def _written(text: str) -> datetime | None:
    """Return the one moment that is written in *text*."""
    if match := _STAMP.match(text):
        return _with_clock(_of_match(match), match)
    if match := _CTIME.search(text):
        return _with_clock(_of_match(match), match)
    for pattern in (_YMD, _DMY, _MDY, _NUMBERS, _DIGITS):
        found: datetime | None = None
        for match in pattern.finditer(text):
            day = _of_match(match)
            if found is not None and day is not None and day.date() != found.date():
                return None
            if found is None and day is not None:
                found = _with_clock(day, _CLOCK.match(text, match.end()))
        if found is not None:
            return found
    return None


def _of_match(match: re.Match[str]) -> datetime | None:
    groups = match.groupdict()
    year = int(groups["year"])
    if "first" in groups:
        return _by_order(int(groups["first"]), int(groups["then"]), year, groups["mark"])
    month = MONTH_OF.get(groups["name"].lower()) if "name" in groups else int(groups["month"])
    return _day(year, month, int(groups["day"])) if month else None


def _by_order(first: int, then: int, year: int, mark: str) -> datetime | None:
    """Return the day of a date in numbers: with dots the day is first, else the order must be clear."""
    if mark == "." or first > 12 or first == then:
        return _day(year, then, first)
    return _day(year, first, then) if then > 12 else None


def _day(year: int, month: int, day: int) -> datetime | None:
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None


def _with_clock(day: datetime | None, clock: re.Match[str] | None) -> datetime | None:
    """Return *day* at the time that *clock* found; the day alone if that is not a valid time."""
    if day is None or clock is None:
        return day
    groups = clock.groupdict()
    hour = int(groups["hour"])
    if half := groups.get("half"):
        hour = hour % 12 + (12 if half in "Pp" else 0)
    try:
        moment = day.replace(hour=hour, minute=int(groups["minute"]), second=int(groups["second"] or 0))
    except ValueError:
        return day
    return moment.replace(tzinfo=_zone(groups["zone"], groups["offset"]))


def _zone(name: str | None, offset: str | None) -> timezone:
    minutes = 0
    if offset:
        digits = offset[1:].replace(":", "")
        hours, rest = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
        minutes = (hours * 60 + rest) * (-1 if offset[0] == "-" else 1)
    elif name:
        minutes = _ZONE_HOURS.get(name.lower(), 0) * 60
    return timezone(timedelta(minutes=minutes)) if abs(minutes) <= 14 * 60 else UTC
