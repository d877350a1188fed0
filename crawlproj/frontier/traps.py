"""Detects traps by the number of similar URLs: sites that generate URLs endlessly. Pure, in memory, bounded.

URLs that differ only in numbers, ids or parameter values have one *shape*. A shape that was requested too
often from a domain is closed. docs/urls.md says how the limits were chosen, and which sites they could hurt.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

#: Shapes whose URLs are usually real, such as /item/12345, may have this many times as many.
_REAL_TIMES = 10
#: From this many parameters on, their combinations are endless.
_MANY_PARAMETERS = 3
_MOST_DOMAINS = 10_000
_MOST_SHAPES_OF_DOMAIN = 2_000
_MOST_SHAPES = 500_000

_DATE = re.compile(r"(?<![0-9])[0-9]{4}([/-])[0-9]{1,2}(?:\1[0-9]{1,2})?(?![0-9])")
_NUMBER = re.compile(r"[0-9]+")
_ID = re.compile(
    r"""(?<=/)(?:
        (?=[^/]*[0-9])(?=[^/]*[A-Fa-f])[0-9A-Fa-f]{16,}                               # a hash
      | [0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}   # a UUID
      | (?=[^/]*[A-Z])(?=[^/]*[a-z])(?=[^/0-9]*[0-9]+[^/0-9]+[0-9])[A-Za-z0-9]{20,}   # random, base64
    )(?=[/.]|$)""",
    re.VERBOSE,
)
_DATE_NAMES = frozenset({"year", "month", "week", "day", "date"})


def shape_of(url: str) -> str:
    """Return the shape of a canonical URL: {date}, {id} and {n} stand for what varies, a query for its names.

    ``http://a.test/calendar/2024/05?view=3`` has ``a.test/calendar/{date}?view``. A query with three or more
    parameters is ``?*``. The shape of a URL with nothing that varies is empty.
    """
    start = url.find("/", 8)
    path, mark, query = url[start:].partition("?")
    # Dates, numbers and all ids but some UUIDs have a digit.
    if not mark and path.count("-") < 4 and _NUMBER.search(path) is None:
        return ""
    # Canonical paths have no braces.
    shape = _NUMBER.sub("{n}", _DATE.sub("{date}", _ID.sub("{id}", path)))
    if not mark and shape == path:
        return ""
    host = url[url.index("//") + 2 : start]
    return f"{host}{shape}?{_shape_of_query(query)}" if mark else host + shape


def _shape_of_query(query: str) -> str:
    names = sorted({part.partition("=")[0] for part in query.split("&")})
    if not _DATE_NAMES.isdisjoint(names) or _DATE.search(query):
        return "{date}"
    return "&".join(names) if len(names) < _MANY_PARAMETERS else "*"


def _limit(shape: str, variants: int) -> int:
    """Return how many URLs of *shape* are fetched.

    Dates alone are a calendar, many parameters a filter: both are endless and have no new content. A number
    or an id usually stands for a real item.
    """
    path, _, query = shape.partition("?")
    is_calendar = "{date}" in path and "{n}" not in path and "{id}" not in path
    return variants if is_calendar or query in ("*", "{date}") else variants * _REAL_TIMES


@dataclass(slots=True)
class _Domain:
    asked: Counter[int] = field(default_factory=Counter)
    closed: dict[str, str] = field(default_factory=dict)


class TrapDetector:
    """Counts the URLs requested from a domain, by shape; its owner calls `judge` before each fetch.

    Memory is bounded: the least recently used domains are dropped, and the rarest shapes of a domain. A
    dropped count starts again, so a limit may come late, but no shape is closed early. The caller stores
    closed shapes: it takes them out of `news`, and may `close` them again later.
    """

    def __init__(self, trap_variants: int) -> None:
        self._variants = trap_variants
        self._domains: OrderedDict[str, _Domain] = OrderedDict()
        self._shapes = 0
        #: Domain, shape and reason of newly closed shapes.
        self.news: list[tuple[str, str, str]] = []

    def judge(self, domain: str, url: str) -> str | None:
        """Count *url* and return why it is a trap, or None.

        "trap_shape": too many paths of one shape; "trap_variants": too many queries of one path. Call it once
        per URL, at its first attempt: a retry would count again.
        """
        shape = shape_of(url)
        if not shape:
            return None
        known = self._known(domain)
        if shape in known.closed:
            return known.closed[shape]
        # The hash is enough, at a tenth of the memory.
        mark = hash(shape)
        known.asked[mark] += 1
        asked = known.asked[mark]
        if asked == 1:
            self._shapes += 1
            self._make_room(known)
        if asked <= self._variants or asked <= _limit(shape, self._variants):
            return None
        reason = "trap_shape" if "{" in shape.partition("?")[0] else "trap_variants"
        self.close(domain, shape, reason)
        self.news.append((domain, shape, reason))
        return reason

    def uncount(self, domain: str, url: str) -> None:
        """Uncount *url*: it was not fetched after all, and will be judged again."""
        known, mark = self._domains.get(domain), hash(shape_of(url))
        if known is None or not known.asked[mark]:
            return
        known.asked[mark] -= 1
        if not known.asked[mark]:
            del known.asked[mark]
            self._shapes -= 1

    def close(self, domain: str, shape: str, reason: str) -> None:
        """Treat every URL of *shape* as a trap from now on."""
        known = self._known(domain)
        known.closed[shape] = reason
        if known.asked.pop(hash(shape), 0):
            self._shapes -= 1

    def _known(self, domain: str) -> _Domain:
        known = self._domains.get(domain)
        if known is None:
            known = self._domains[domain] = _Domain()
            if len(self._domains) > _MOST_DOMAINS:
                self._forget_oldest()
        else:
            self._domains.move_to_end(domain)
        return known

    def _make_room(self, known: _Domain) -> None:
        if len(known.asked) > _MOST_SHAPES_OF_DOMAIN:
            # Half of them at once, so that this is rare.
            kept = Counter(dict(known.asked.most_common(_MOST_SHAPES_OF_DOMAIN // 2)))
            self._shapes -= len(known.asked) - len(kept)
            known.asked = kept
        while self._shapes > _MOST_SHAPES and len(self._domains) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, forgotten = self._domains.popitem(last=False)
        self._shapes -= len(forgotten.asked)
