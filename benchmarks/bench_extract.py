"""What reading a page costs, part by part, beside Scrapy's LinkExtractor and parsel in the same run.

The pages are the .html files under the directory named by BENCH_HTML, or else Python's documentation as
Debian packs it, downloaded once with apt-get into .cache/.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from measuring import Goal, Report, median, read_options, spread
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from selectolax.lexbor import LexborHTMLParser

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.model.urls import UrlRules
from crawlproj.parsing.charset import transcode
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.html import read_html, simhash_of
from crawlproj.parsing.language import language_of
from crawlproj.parsing.links import canonical_links
from crawlproj.parsing.memory import settle_memory

CACHE = Path(__file__).parent.parent / ".cache" / "python-doc"
#: Pages of documentation of about 34 KB, as the issue has them.
LEAST_BYTES, MOST_BYTES = 10_000, 66_000
PAGES = 400
#: What extraction may take: with the main text, and with all of it.
TARGET_MS: dict[str, float] = {"main": 1.0, "all": 0.7}
TIMES_FASTER = 8
MODES: tuple[str, ...] = ("main", "all")
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
    links = [len(extract(page, ExtractOptions(Config(obey_rel_nofollow=False))).links) for page in pages]
    table = report.table(
        f"reading {len(pages)} pages of {size / 1000:.1f} KB, {sum(links) / len(links):.0f} different links",
        "what", "CPU ms a page", "all runs",
    )  # fmt: skip

    def measure(what: str, step: Callable[[Any], object], things: Sequence[object]) -> float:
        all_ms = [cpu_ms(step, things) for _ in range(runs)]
        table.add(what, f"{median(all_ms):.3f}", spread(all_ms, ".3f"))
        return median(all_ms)

    html = [page.body for page in pages]
    read = [read_html(body) for body in html]
    measure("decode", lambda page: transcode(page.body, "text/html", False), pages)
    measure("hash of the body", lambda page: sha256(page.body).hexdigest(), pages)
    measure("parse, by lexbor, for comparison", LexborHTMLParser, html)
    for mode in MODES:
        measure(f"read: parse, head, links, {mode} text", partial(read_html, config=Config(text=mode)), html)
    measure(
        "resolve links",
        lambda hrefs: canonical_links(hrefs, pages[0].url, 5000, UrlRules()),
        [page.hrefs for page in read],
    )
    measure("language", language_of, [page.text for page in read])
    measure("simhash", simhash_of, [page.text for page in read])
    whole = {}
    for mode in MODES:
        step = partial(extract, options=ExtractOptions(Config(text=mode)))
        whole[mode] = measure(f"extract() as a whole, {mode}", step, pages)
    theirs = measure("Scrapy LinkExtractor + parsel text", scrapy_reads, pages)

    for mode, target_ms in TARGET_MS.items():
        ours = whole[mode]
        report.goals.append(
            Goal(f"extraction, {mode}", f"at most {target_ms} ms CPU", f"{ours:.2f} ms", ours <= target_ms)
        )
    report.goals.append(
        Goal(
            "beside Scrapy LinkExtractor + parsel text",
            f"{TIMES_FASTER} times faster",
            f"{theirs / whole['main']:.1f} times",
            theirs >= TIMES_FASTER * whole["main"],
        )
    )
    report.finish(options)


def cpu_ms(step: Callable[[Any], object], things: Sequence[object]) -> float:
    """CPU time of *step* for one thing."""
    start_ns = time.process_time_ns()
    for thing in things:
        step(thing)
    return (time.process_time_ns() - start_ns) / len(things) / 1e6


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
                f"Python's documentation cannot be downloaded with apt ({exc}). Set BENCH_HTML."
            ) from exc
    return CACHE


if __name__ == "__main__":
    main()
