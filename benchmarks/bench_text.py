"""How well and how fast the text of an article is found, beside resiliparse, trafilatura and readability.

The gold standard is the repository scrapinghub/article-extraction-benchmark (181 articles, with the text a
person marked); clone it and give its directory with ``--gold``. Scores are computed as it does: shingles of
four words, precision and recall averaged over pages. The rules of `crawlproj.parsing.text` were tuned on
the even half of it (pages ordered by their names). The odd half was held out, but some of its pages are of
sites that are in the even half, too; those of new sites are the ones to believe, and they are few.

The peers are measured if they are installed: ``pip install resiliparse trafilatura readability-lxml``.
``--pages DIR`` adds the CPU time for a directory of other pages (``*.html``, of 15 to 60 KB).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from measuring import Goal, Options, Report, say
from selectolax.lexbor import LexborHTMLParser

from crawlproj.parsing.text import page_text

_Thing = TypeVar("_Thing")
_PASSES = 2
_WORD = re.compile(r"\w+")
_SHINGLE_WORDS = 4


@dataclass(frozen=True, slots=True)
class Gold:
    html: str
    site: str
    shingles: Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Score:
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / (self.precision + self.recall)

    def __str__(self) -> str:
        return f"{self.f1:.3f} ({self.precision:.3f}, {self.recall:.3f})"


def shingles_of(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    last = max(1, len(words) - _SHINGLE_WORDS + 1) if words else 0
    return Counter(tuple(words[start : start + _SHINGLE_WORDS]) for start in range(last))


def score_of(pages: list[Gold], texts: list[str]) -> Score:
    precisions, recalls = [], []
    for page, text in zip(pages, texts, strict=True):
        found = shingles_of(text)
        right = (found & page.shingles).total()
        if found:
            precisions.append(right / found.total())
        if page.shingles:
            recalls.append(right / page.shingles.total())
    return Score(statistics.mean(precisions), statistics.mean(recalls))


def read_gold(folder: Path) -> list[Gold]:
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    pages = []
    for name in sorted(truth):
        html = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()).decode("utf-8", "replace")
        site = (urlsplit(truth[name].get("url") or "").hostname or "").removeprefix("www.")
        pages.append(Gold(html, site, shingles_of(truth[name]["articleBody"])))
    return pages


def cpu_ms(work: Callable[[_Thing], object], things: Callable[[], Iterable[_Thing]]) -> float:
    """CPU time of *work* for one thing, the best pass of several: neighbours on the machine only add."""
    best = float("inf")
    for _ in range(_PASSES):
        batch = list(things())
        start_s = time.process_time()
        for thing in batch:
            work(thing)
        best = min(best, (time.process_time() - start_s) / len(batch))
    return best * 1000


def peers() -> dict[str, Callable[[str], str]]:
    """The others, with the options that suit the gold standard: no comments, no texts of images."""
    found: dict[str, Callable[[str], str]] = {}
    try:
        html2text = import_module("resiliparse.extract.html2text")
        name = f"resiliparse {version('resiliparse')}"
        found[name] = partial(html2text.extract_plain_text, main_content=True, alt_texts=False)
    except ImportError:
        say("resiliparse is not installed")
    try:
        trafilatura = import_module("trafilatura")
        name = f"trafilatura {version('trafilatura')}"
        found[name] = lambda html: trafilatura.extract(html, include_comments=False) or ""
        found[f"{name} fast"] = lambda html: (
            trafilatura.extract(html, include_comments=False, fast=True) or ""
        )
    except ImportError:
        say("trafilatura is not installed")
    try:
        readability = import_module("readability")
        lxml_html = import_module("lxml.html")
        found[f"readability-lxml {version('readability-lxml')}"] = lambda html: str(
            lxml_html.fromstring(readability.Document(html).summary()).text_content()
        )
    except ImportError:
        say("readability-lxml is not installed")
    return found


def parse(html: str) -> LexborHTMLParser:
    return LexborHTMLParser(html)


def ours() -> dict[str, Callable[[LexborHTMLParser], str]]:
    return {
        "crawlproj fast": lambda tree: page_text(tree, "fast"),
        "crawlproj article": lambda tree: page_text(tree, "article"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gold", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pages", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    given = parser.parse_args()
    report = Report(redis_version="none")
    gold = read_gold(given.gold)
    pages = [page.html for page in gold]
    kilobytes = statistics.mean(map(len, pages)) / 1000
    scores = report.table(
        f"main text: {len(gold)} articles of {kilobytes:.0f} KB; F1 (precision, recall)",
        *(
            "method",
            "odd half (held out)",
            "of it new sites",
            "even half (tuned on)",
            "all",
            "CPU ms/page",
            "of it after the parse",
        ),
    )
    tuned_on = {page.site for page in gold[::2]}
    new = [number for number in range(1, len(gold), 2) if gold[number].site not in tuned_on]
    scores.notes.append(
        f"{len(gold[1::2])} pages held out, {len(new)} of them of sites not in the other half"
    )
    held_out: dict[str, float] = {}
    new_sites: dict[str, float] = {}
    cost: dict[str, float] = {}
    for name, extract in peers().items():
        texts = [extract(html) for html in pages]
        cost[name] = cpu_ms(extract, lambda: pages)
        odd, even = score_of(gold[1::2], texts[1::2]), score_of(gold[::2], texts[::2])
        unseen = score_of([gold[number] for number in new], [texts[number] for number in new])
        held_out[name], new_sites[name] = odd.f1, unseen.f1
        scores.add(name, odd, unseen, even, score_of(gold, texts), f"{cost[name]:.2f}", "")
    parse_ms = cpu_ms(parse, lambda: pages)
    for name, read in ours().items():
        texts = [read(parse(html)) for html in pages]
        read_ms = cpu_ms(read, lambda: map(parse, pages))
        cost[name] = parse_ms + read_ms
        odd, even = score_of(gold[1::2], texts[1::2]), score_of(gold[::2], texts[::2])
        unseen = score_of([gold[number] for number in new], [texts[number] for number in new])
        held_out[name], new_sites[name] = odd.f1, unseen.f1
        scores.add(name, odd, unseen, even, score_of(gold, texts), f"{cost[name]:.2f}", f"{read_ms:.2f}")
    scores.notes.append(f"parse, shared with the links: {parse_ms:.2f} ms a page")
    if given.pages:
        others = [
            path.read_text(encoding="utf-8", errors="replace") for path in sorted(given.pages.rglob("*.html"))
        ]
        others = [html for html in others if 15_000 < len(html) < 60_000]
        kilobytes = statistics.mean(map(len, others)) / 1000
        times = report.table(f"CPU of {len(others)} other pages of {kilobytes:.0f} KB", "step", "ms/page")
        times.add("parse", f"{cpu_ms(parse, lambda: others):.2f}")
        for name, read in ours().items():
            times.add(
                name.replace("crawlproj ", "after the parse: "),
                f"{cpu_ms(read, lambda: map(parse, others)):.2f}",
            )
    fast, article = "crawlproj fast", "crawlproj article"
    report.goals.append(
        Goal(
            "fast",
            "F1 >= 0.90 at <= 3 ms",
            f"{held_out[fast]:.3f} ({new_sites[fast]:.3f} on new sites) at {cost[fast]:.2f} ms",
            held_out[fast] >= 0.90 and cost[fast] <= 3.0,
        )
    )
    for name in [name for name in cost if name.startswith("trafilatura") and not name.endswith("fast")]:
        part = cost[article] / cost[name]
        report.goals.append(
            Goal(
                "article",
                "F1 >= 0.95 at <= 1/3 of trafilatura's CPU",
                f"{held_out[article]:.3f} ({new_sites[article]:.3f} on new sites) at 1/{1 / part:.1f}",
                held_out[article] >= 0.95 and part <= 1 / 3,
            )
        )
    report.finish(Options(quick=False, redis_server="", most_urls=0, json_path=given.json))


if __name__ == "__main__":
    main()
