"""The fields a user asked for: CRAWL_FIELDS, each a CSS or XPath selector. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parsel import Selector

from crawlproj.errors import BadSetting, Problem

_MOST_VALUES = 1000


def make_field(name: str, value: object) -> Callable[[Selector], list[str]]:
    """Return what selects the field *name*: *value* is ``"css:..."``, ``"xpath:..."`` or ``{"css": ...}``.

    Raises BadSetting for a selector that cannot be used.
    """
    kind, query = "", ""
    if isinstance(value, str):
        kind, _, query = value.partition(":")
    elif isinstance(value, Mapping) and len(value) == 1:
        [(kind, query)] = value.items()
    setting = f"CRAWL_FIELDS[{name!r}]"
    if kind not in ("css", "xpath") or not isinstance(query, str) or not query.strip():
        remedy = "Write 'css:.price::text' or 'xpath://h1/text()'."
        raise BadSetting(Problem(setting, str(value), f"{setting}={value!r} is not a selector.", remedy))

    def select(page: Selector) -> list[str]:
        matches = page.css(query) if kind == "css" else page.xpath(query)
        return matches[:_MOST_VALUES].getall()

    try:
        select(Selector(text="<html></html>"))
    except (ValueError, SyntaxError, RuntimeError) as exc:  # XPath raises the first, CSS the others
        wrong = f"{setting}={value!r} cannot be read as {kind}: {exc}."
        raise BadSetting(Problem(setting, str(value), wrong, "Try it in `scrapy shell`.")) from exc
    return select


def field_problems(fields: Mapping[str, object]) -> Iterator[Problem]:
    """Yield what is wrong with each of *fields*."""
    for name, value in fields.items():
        try:
            make_field(name, value)
        except BadSetting as exc:
            yield from exc.problems
