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
    yield ""
    yield "*Of* says to whom a value belongs: to the process that was given it; to the run, which keeps the"
    yield "one it was created with; or to the run, where `scrapy run --change` may change it"
    yield "([rules.md](rules.md))."
    for (title, introduction), options in groupby(fields(Config), lambda option: option.metadata["group"]):
        yield from ("", f"## {title}", "", introduction, "")
        yield from ("| setting | type | default | limits | of | |", "|---|---|---|---|---|---|")
        for option in options:
            kind = noun_of(option).split(" (")[0]
            default = f"`{default_of(option)}`" if default_of(option) else ""
            sentence = option.metadata["sentence"]
            limits, owner = limits_of(option), option.metadata["owner"]
            yield f"| `{name_of(option)}` | {kind} | {default} | {limits} | {owner} | {sentence} |"


print("\n".join(_lines()))
