"""What reading a page costs, part by part, beside Scrapy's LinkExtractor and parsel in the same run.

The pages are the .html files under the directory named by BENCH_HTML, or else Python's documentation as
Debian packs it, downloaded once with apt-get into .cache/.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from measuring import Goal, Report, median, read_options, spread
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from crawlproj.model.records import Page
from crawlproj.model.urls import UrlRules
from crawlproj.parsing.charset import decode
from crawlproj.parsing.extract import _ELEMENTS, ExtractOptions, extract
from crawlproj.parsing.language import language_of
from crawlproj.parsing.links import canonical_links
from crawlproj.parsing.memory import settle_memory
from crawlproj.parsing.nesting import harmless
from crawlproj.parsing.simhash import simhash
from crawlproj.parsing.text import full_text, main_text, mark_lines, undress

CACHE = Path(__file__).parent.parent / ".cache" / "python-doc"
#: Pages of documentation of about 34 KB, as the issue has them.
LEAST_BYTES, MOST_BYTES = 10_000, 66_000
PAGES = 400
#: What extraction may take of the millisecond a parser has for a page.
TARGET_MS = 0.6
TIMES_FASTER = 8
HEADERS = {"Content-Type": "text/html"}
LINK_EXTRACTOR = LinkExtractor()


def main() -> None:
    options = read_options(__doc__ or "")
    report = Report(redis_version="")
    # As in a parser; Scrapy's part of this benchmark gains from it, too.
    settle_memory()
    pages = documents()[: 40 if options.quick else PAGES]
    runs = 1 if options.quick else 3
    size = sum(len(page.body) for page in pages) / len(pages)
    links = [len(extract(page, ExtractOptions(obey_rel_nofollow=False)).links) for page in pages]
    table = report.table(
        f"reading {len(pages)} pages of {size / 1000:.1f} KB, {sum(links) / len(links):.0f} different links",
        "what", "CPU ms a page", "all runs",
    )  # fmt: skip

    def measure(what: str, step: Callable[[Any], object], prepare: Callable[[], Sequence[object]]) -> float:
        all_ms = [cpu_ms(step, prepare()) for _ in range(runs)]
        table.add(what, f"{median(all_ms):.3f}", spread(all_ms, ".3f"))
        return median(all_ms)

    html = [page.body.decode() for page in pages]
    plain = [undress(text) for text in html]
    marked = [mark_lines(text) for text in plain]
    hrefs = [[node.attributes["href"] or "" for node in parsed(text).css("a[href]")] for text in plain]
    texts = [main_text(parsed(text), "fast") for text in plain]

    def new_trees() -> list[LexborHTMLParser]:
        return [parsed(text) for text in plain]

    measure("decode", lambda page: decode(page.body, "text/html", False), lambda: pages)
    measure("hash of the body", lambda page: sha256(page.body).hexdigest(), lambda: pages)
    measure("look for hostile nesting", harmless, lambda: html)
    measure("leave out tags that dress words", undress, lambda: html)
    measure("parse", parsed, lambda: plain)
    measure(
        "find links, metas, title", lambda tree: [node.attributes for node in tree.css(_ELEMENTS)], new_trees
    )
    measure(
        "resolve links", lambda found: canonical_links(found, pages[0].url, 5000, UrlRules()), lambda: hrefs
    )
    measure("mark the ends of lines (only for all text)", mark_lines, lambda: plain)
    measure("all text", full_text, lambda: [parsed(text) for text in marked])
    measure("main text, fast", lambda tree: main_text(tree, "fast"), new_trees)
    measure("main text, article", lambda tree: main_text(tree, "article"), new_trees)
    measure("language", language_of, lambda: texts)
    measure("simhash", simhash, lambda: texts)
    ours = measure("extract() as a whole, fast", lambda page: extract(page, ExtractOptions()), lambda: pages)
    article = ExtractOptions(text="article")
    measure("extract() as a whole, article", lambda page: extract(page, article), lambda: pages)
    theirs = measure("Scrapy LinkExtractor + parsel text", scrapy_reads, lambda: pages)

    report.goals += [
        Goal("extraction, fast text", f"at most {TARGET_MS} ms CPU", f"{ours:.2f} ms", ours <= TARGET_MS),
        Goal(
            "beside Scrapy LinkExtractor + parsel text",
            f"{TIMES_FASTER} times faster",
            f"{theirs / ours:.1f} times",
            theirs >= TIMES_FASTER * ours,
        ),
    ]
    report.finish(options)


def parsed(html: str) -> LexborHTMLParser:
    return LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS)


def cpu_ms(step: Callable[[Any], object], arguments: Sequence[object]) -> float:
    before_s = time.process_time()
    for argument in arguments:
        step(argument)
    return (time.process_time() - before_s) / len(arguments) * 1000


def scrapy_reads(page: Page) -> tuple[list[str], str]:
    """What a Scrapy spider does for links and text; the response is new for each, as it is there."""
    response = HtmlResponse(page.url, body=page.body, headers=HEADERS)
    links = [link.url for link in LINK_EXTRACTOR.extract_links(response)]
    parts = response.xpath("//body//text()[not(ancestor::script or ancestor::style)]").getall()
    return links, "\n".join(part.strip() for part in parts if part.strip())


def documents() -> list[Page]:
    folder = Path(os.environ.get("BENCH_HTML") or downloaded())
    bodies = {
        path.read_bytes(): path.relative_to(folder)
        for path in sorted(folder.rglob("*.html"))
        if LEAST_BYTES < path.stat().st_size < MOST_BYTES
    }
    if not bodies:
        raise SystemExit(f"No HTML pages of {LEAST_BYTES} to {MOST_BYTES} bytes in {folder}. Set BENCH_HTML.")
    return [
        Page(f"https://docs.example/{path}", "bench", "docs.example", 0, 200, 0, 0, HEADERS, body)
        for body, path in bodies.items()
    ]


def downloaded() -> Path:
    if not CACHE.exists():
        CACHE.mkdir(parents=True)
        try:
            depends = subprocess.check_output(["apt-cache", "depends", "python3-doc"], text=True)
            package = next(line.split()[-1] for line in depends.splitlines() if "Depends: python3." in line)
            subprocess.run(["apt-get", "download", package], cwd=CACHE, check=True, capture_output=True)
            for archive in CACHE.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", archive, CACHE], check=True)
        except (OSError, StopIteration, subprocess.CalledProcessError) as exc:
            CACHE.rmdir()
            raise SystemExit(
                f"Python's documentation cannot be had from apt ({exc}). Set BENCH_HTML."
            ) from exc
    return CACHE


if __name__ == "__main__":
    main()
