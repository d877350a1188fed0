"""``python -m crawlproj.config`` prints docs/settings.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import groupby

from crawlproj.config.declare import default_of, limits_of, name_of, noun_of
from crawlproj.config.options import Config


def _lines() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield "Printed by `python -m crawlproj.config`; edit `crawlproj/config/options.py`, not this page."
    yield ""
    yield "Set them in `crawlproj/settings.py`, or for one process with `-s NAME=VALUE`. Names without"
    yield "`CRAWL_` are those of Scrapy and scrapy-redis."
    for (title, introduction), options in groupby(fields(Config), lambda option: option.metadata["group"]):
        yield from ("", f"## {title}", "", introduction, "")
        yield from ("| setting | type | default | limits | |", "|---|---|---|---|---|")
        for option in options:
            kind = noun_of(option).split(" (")[0]
            default = f"`{default_of(option)}`" if default_of(option) else ""
            sentence = option.metadata["sentence"]
            yield f"| `{name_of(option)}` | {kind} | {default} | {limits_of(option)} | {sentence} |"


print("\n".join(_lines()))
