"""``crawlproj init``: make a Scrapy project of one's own."""

from __future__ import annotations

import argparse
import re
from keyword import iskeyword
from pathlib import Path

from crawlproj.console import ConsoleCommand, spoken
from crawlproj.errors import EXIT_OK, BadArgument

_FILES = {
    "scrapy.cfg": """\
[settings]
default = {package}.settings
""",
    "{package}/__init__.py": "",
    "{package}/settings.py": '''\
"""Settings of this project. All that crawlproj knows: docs/settings.md; all others are Scrapy's."""

#: Scheduler, HTTP client, page queue and logs of crawlproj, and its defaults for what is not set here.
ADDONS = {{"crawlproj.addon.CrawlprojAddon": 300}}

BOT_NAME = "{package}"
SPIDER_MODULES = ["{package}.spiders"]
NEWSPIDER_MODULE = "{package}.spiders"
#: `scrapy status` and the others besides `crawlproj status`.
COMMANDS_MODULE = "crawlproj.commands"

#: A mail address or URL where site owners can reach you. Public sites are crawled only with it.
# CRAWL_CONTACT = "you@example.org"
''',
    "{package}/spiders/__init__.py": "",
    "{package}/spiders/titles.py": '''\
"""An example: one item per page. Try it: scrapy crawl titles -a url=https://example.org/ -O titles.jsonl"""

from collections.abc import AsyncIterator, Iterator

import scrapy
from scrapy.http import Response


class TitlesSpider(scrapy.Spider):
    name = "titles"

    def __init__(self, url: str = "https://example.org/", **arguments: str) -> None:
        super().__init__(**arguments)
        self.url = url

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.url)

    def parse(self, response: Response) -> Iterator[dict[str, str | None] | scrapy.Request]:
        yield {{"url": response.url, "title": response.css("title::text").get()}}
        yield from response.follow_all(css="a[rel=next]")
''',
    ".gitignore": "/data/\n__pycache__/\n",
}


class Command(ConsoleCommand):
    group = "develop"
    arguments = "[options] DIR"
    summary = "Make a Scrapy project of your own, with its spiders and settings"
    takes_arguments = True
    examples = """\
  crawlproj init news          a directory `news` with scrapy.cfg, settings.py and an example spider
  crawlproj init .             the same in this directory"""

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        if len(args) != 1:
            raise BadArgument(f"Give one directory, such as: {self.name} news")
        folder = Path(args[0])
        package = _package_of(folder.resolve().name)
        files = {folder / name.format(package=package): text for name, text in _FILES.items()}
        for path in files:
            if path.exists():
                raise BadArgument(f"{str(path)!r} exists; nothing was written. Choose another directory.")
        try:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.format(package=package), encoding="utf-8")
        except OSError as exc:
            raise BadArgument(f"Cannot write {str(folder)!r}: {exc.strerror or exc}.") from exc
        print(
            f"made a project in {folder}; settings in {folder / package / 'settings.py'}\n"
            + spoken(f"Next: cd {folder} && scrapy run https://example.org/ -s CRAWL_CONTACT=you@example.org")
        )
        return EXIT_OK


def _package_of(name: str) -> str:
    """Return the name of the project's package: that of its directory, as Python spells names."""
    package = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")
    if not package.isidentifier() or iskeyword(package) or package in ("crawlproj", "scrapy"):
        raise BadArgument(
            f"{name!r} cannot name a Python package. Choose a directory such as `news` or `my_crawl`."
        )
    return package
