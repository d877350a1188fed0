"""How well and how fast the main text of a page is found, beside resiliparse, trafilatura and readability.

The pages are those of `gold`: give the directory of the clones with ``--gold``. Half of each set is held out
from training; the other half was learnt from, and says only how much was learnt. Each set has a measure of
its own, named there. CPU is that of the whole page, parsing included, in times of what lexbor takes to parse
it.

Reference documentation has a table of its own, by generator: there the share of the words that are found
(recall) counts most, for who looks something up misses what was left out.

The peers are measured if they are installed: ``pip install trafilatura readability-lxml``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from gold import GoldPage, read_sets, score, word_f1, words
from measuring import Goal, Options, Report, say
from selectolax.lexbor import LexborHTMLParser

from crawlproj.parsing.html import read_html

#: F1 of the pages held out ...
GOALS = {"readability": 0.95, "articles": 0.96}
#: ... and the most CPU, in times of lexbor's.
MOST_TIMES = 2.0
QUICK_PAGES = 10


def ours(html: bytes) -> str:
    return read_html(html).text


def peers() -> dict[str, Callable[[bytes], str]]:
    """The others, with the options that suit the sets: no comments, no texts of images."""
    found: dict[str, Callable[[bytes], str]] = {}
    html2text = import_module("resiliparse.extract.html2text")
    extract = partial(html2text.extract_plain_text, main_content=True, alt_texts=False)
    found[f"resiliparse {version('resiliparse')}"] = lambda html: extract(html.decode("utf-8", "replace"))
    try:
        trafilatura = import_module("trafilatura")
        name = f"trafilatura {version('trafilatura')}"
        found[name] = lambda html: trafilatura.extract(html, include_comments=False) or ""
    except ImportError:
        say("trafilatura is not installed")
    try:
        readability = import_module("readability")
        fromstring = import_module("lxml.html").fromstring
        found[f"readability-lxml {version('readability-lxml')}"] = lambda html: str(
            fromstring(readability.Document(html.decode("utf-8", "replace")).summary()).text_content()
        )
    except ImportError:
        say("readability-lxml is not installed")
    return found


def texts_of(read: Callable[[bytes], str], pages: Sequence[GoldPage]) -> list[str]:
    """The texts that *read* finds; none for a page that it cannot read."""
    texts = []
    for page in pages:
        try:
            texts.append(read(page.html))
        except Exception as exc:  # noqa: BLE001  # peers raise whatever they like
            say(f"{page.of_set}/{page.name if not page.is_held_out else '(held out)'}: {exc!r:.100}")
            texts.append("")
    return texts


def shares(page: GoldPage, text: str) -> tuple[float, float, float]:
    """F1, recall and precision of the words of a text."""
    found, wanted = Counter(words(text)), Counter(words(page.text))
    right = (found & wanted).total()
    return word_f1(text, page.text), right / max(1, wanted.total()), right / max(1, found.total())


def add_docs(report: Report, pages: Sequence[GoldPage]) -> None:
    """Ours, of pages that were held out, by generator; "unseen": nothing is learnt from any page by it."""
    table = report.table(
        "reference documentation, held out", "generator", "pages", "F1", "recall", "precision", "least recall"
    )
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for page, text in zip(pages, texts_of(ours, pages), strict=True):
        for kind in (page.kind, f"all {page.kind.partition(' ')[0]}"):
            kinds.setdefault(kind, []).append(shares(page, text))
    for kind, found in sorted(kinds.items()):
        means = [f"{statistics.mean(values):.3f}" for values in zip(*found, strict=True)]
        table.add(kind, len(found), *means, f"{min(recall for _, recall, _ in found):.2f}")


def cpu_s(read: Callable[[bytes], object], pages: Sequence[GoldPage]) -> float:
    """CPU time for all pages, the best of two passes: other load on the machine only adds."""
    best = float("inf")
    for _ in range(2):
        start_s = time.process_time()
        for page in pages:
            read(page.html)
        best = min(best, time.process_time() - start_s)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gold", type=Path, required=True, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="few pages of each: does it run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    given = parser.parse_args()
    sets: dict[tuple[str, bool], list[GoldPage]] = {}
    for page in read_sets(given.gold):
        sets.setdefault((page.of_set, page.is_held_out), []).append(page)
    if not sets:
        raise SystemExit(f"No set of pages in {given.gold}. Clone those that benchmarks/gold.py names there.")
    if given.quick:
        sets = {key: pages[:QUICK_PAGES] for key, pages in sets.items()}
    report = Report(redis_version="none")
    others = peers()
    methods = {"crawlproj": ours, **others}
    table = report.table("main text: F1 by the measure of each set", "pages", "count", *methods)
    held_out: dict[str, float] = {}
    for (of_set, is_held_out), pages in sorted(sets.items()):
        scores = [score(pages, texts_of(read, pages)) for read in methods.values()]
        if is_held_out:
            held_out[of_set] = scores[0]
        half = "held out" if is_held_out else "learnt"
        table.add(f"{of_set}, {half}", len(pages), *(f"{f1:.3f}" for f1 in scores))
    if ("docs", True) in sets:
        add_docs(report, sets["docs", True])
    everything = [page for pages in sets.values() for page in pages]
    parsing_s = cpu_s(LexborHTMLParser, everything)
    times = cpu_s(ours, everything) / parsing_s
    cpu = report.table("CPU", "method", "times of lexbor's parsing", "pages")
    cpu.add("lexbor alone", f"1.0 ({parsing_s / len(everything) * 1000:.2f} ms a page)", len(everything))
    cpu.add("crawlproj", f"{times:.2f}", len(everything))
    some = everything[:: max(1, len(everything) // 200)]
    for name, read in others.items():
        cost = cpu_s(lambda html, read=read: texts_of(read, [GoldPage("", "", html, True)]), some)
        cpu.add(name, f"{cost / cpu_s(LexborHTMLParser, some):.1f}", len(some))
    for of_set, wanted in GOALS.items():
        if of_set in held_out:
            f1 = held_out[of_set]
            report.goals.append(Goal(f"{of_set}, held out", f"F1 >= {wanted}", f"{f1:.3f}", f1 >= wanted))
    report.goals.append(
        Goal("CPU", f"<= {MOST_TIMES} times lexbor's parsing", f"{times:.2f}", times <= MOST_TIMES)
    )
    report.finish(Options(quick=given.quick, redis_server="", most_urls=0, json_path=given.json))


if __name__ == "__main__":
    main()
