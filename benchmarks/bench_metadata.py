"""How often what is read of a page's date, author, site and kind is right, beside htmldate and trafilatura.

The truth is that of four public collections; give the directory that holds their clones with ``--sets``:

    Murrough-Foley/web-content-extraction-benchmark    WCXB: day, author, kind; its half `test` is held out
    adbar/htmldate                                     day
    adbar/trafilatura                                  day, author, site
    flairNLP/fundus                                    day, authors

Each clone is in a directory OWNER+NAME. Of all but WCXB every second page, ordered by name, is held out,
unless another collection has it among those that are not: the rules were written without looking at them.

Right is a day that is the day of the truth, as the page writes it; authors with the same words, in any order;
a site or a kind of the same name. Precision is of the pages where both the truth and the program say
something, recall of those where the truth does. Often the truth is the day that a reader sees, which may be
that of the last change, and sometimes the day in another time zone: the second table separates these.

The peers are measured if they are installed: ``pip install htmldate trafilatura``.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import Goal, Options, Report, say

from crawlproj.parsing.charset import decode, transcode
from crawlproj.parsing.head import Head
from crawlproj.parsing.html import read_html
from crawlproj.parsing.metadata import Metadata, metadata_of

_PASSES = 3
_WORD = re.compile(r"\w+")
#: Our words for the kinds of WCXB; for its `service` and `documentation` there are none.
_KINDS = {
    "article": "article",
    "product": "product",
    "forum": "forum",
    "collection": "list",
    "listing": "list",
}


@dataclass(slots=True)
class Gold:
    collection: str
    name: str
    url: str
    body: bytes
    is_held_out: bool
    published: str = ""
    author: str = ""
    site_name: str = ""
    kind: str = ""


@dataclass(slots=True)
class Found:
    published: str = ""
    author: str = ""
    site_name: str = ""
    kind: str = ""


FIELDS = ("published", "author", "site_name", "kind")


def head_of(body: bytes) -> Head:
    """Return the declarations of a page."""
    return read_html(transcode(body, "", False)[0]).head


def read_wcxb(sets: Path) -> Iterator[Gold]:
    folder = sets / "Murrough-Foley+web-content-extraction-benchmark"
    for half in ("dev", "test"):
        for path in sorted((folder / half / "ground-truth").glob("*.json")):
            page = json.loads(path.read_text())
            truth = page["ground_truth"]
            yield Gold(
                "WCXB",
                path.stem,
                page.get("url") or "",
                gzip.decompress((folder / half / "html" / f"{path.stem}.html.gz").read_bytes()),
                half == "test",
                truth.get("publish_date") or "",
                truth.get("author") or "",
                kind=_KINDS.get(page["_internal"]["page_type"]["primary"], ""),
            )


def read_htmldate(sets: Path) -> Iterator[Gold]:
    folder = sets / "adbar+htmldate" / "tests"
    truth: dict[str, Any] = {}
    for name in ("eval_default.json", "eval_mediacloud_2020.json"):
        truth |= json.loads((folder / name).read_text())
    for number, (url, page) in enumerate(sorted(truth.items())):
        if path := _there(folder, page["file"]):
            yield Gold("htmldate", page["file"], url, path.read_bytes(), number % 2 == 1, _text(page["date"]))


def read_trafilatura(sets: Path) -> Iterator[Gold]:
    folder = sets / "adbar+trafilatura" / "tests"
    for number, (url, page) in enumerate(sorted(json.loads((folder / "evaldata.json").read_text()).items())):
        author = page.get("author") or ""
        if path := _there(folder, page["file"]):
            yield Gold(
                "trafilatura",
                page["file"],
                url,
                path.read_bytes(),
                number % 2 == 1,
                _text(page.get("date")),
                "; ".join(author) if isinstance(author, list) else _text(author),
                _text(page.get("sitename")),
            )


def read_fundus(sets: Path) -> Iterator[Gold]:
    """Only of publishers with one page and one truth: of the others nothing says which belongs to which."""
    folder = sets / "flairNLP+fundus" / "tests" / "resources" / "parser" / "test_data"
    number = 0
    for path in sorted(folder.glob("*/*.json")):
        versions = json.loads(path.read_text())
        pages = sorted(path.parent.glob(f"{path.stem}_[0-9]*.html.gz"))
        if len(versions) != 1 or len(pages) != 1:
            continue
        [truth] = versions.values()
        urls = json.loads((path.parent / "meta.info").read_text())
        number += 1
        yield Gold(
            "fundus",
            pages[0].name,
            urls[pages[0].name]["url"],
            gzip.decompress(pages[0].read_bytes()),
            number % 2 == 1,
            str(truth.get("publishing_date") or "")[:10],
            "; ".join(truth.get("authors") or ()),
        )


def _text(value: object) -> str:
    # Some are NaN.
    return value if isinstance(value, str) else ""


def _there(folder: Path, name: str) -> Path | None:
    paths = (folder / part / name for part in ("cache", "eval", "test_set"))
    return next((path for path in paths if path.is_file()), None)


def is_right(field: str, found: str, truth: str) -> bool:
    if field == "published":
        return found[: len(truth)] == truth
    if field == "author":
        return _people(found) == _people(truth)
    return " ".join(_words(found)) == " ".join(_words(truth))


def _people(names: str) -> set[str]:
    """Return the words of *names*, without what joins them: a person has several, in any order."""
    return set(_words(names)) - {"and", "und", "y", "et", "e", "by", "von"}


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text.lower())
    return _WORD.findall("".join(letter for letter in plain if not unicodedata.combining(letter)))


def found_in(metadata: Metadata) -> Found:
    return Found(
        metadata.published.date().isoformat() if metadata.published else "",
        metadata.author or "",
        metadata.site_name or "",
        metadata.kind or "",
    )


def peers() -> dict[str, Callable[[Gold], Found]]:
    found: dict[str, Callable[[Gold], Found]] = {}
    try:
        htmldate = import_module("htmldate")
        for extensive in (False, True):
            name = f"htmldate {version('htmldate')} {'extensive' if extensive else 'fast'}"
            found[name] = lambda page, extensive=extensive: Found(  # type: ignore[misc]
                htmldate.find_date(_html(page), url=page.url, extensive_search=extensive, original_date=True)
                or ""
            )
    except ImportError:
        say("htmldate is not installed")
    try:
        trafilatura = import_module("trafilatura.metadata")
        found[f"trafilatura {version('trafilatura')}"] = lambda page: _of_trafilatura(trafilatura, page)
    except ImportError:
        say("trafilatura is not installed")
    return found


def _of_trafilatura(trafilatura: Any, page: Gold) -> Found:
    document = trafilatura.extract_metadata(_html(page), default_url=page.url)
    if document is None:
        return Found()
    return Found(document.date or "", document.author or "", document.sitename or "")


def _html(page: Gold) -> str:
    return decode(page.body, "", False)[0]


def scores_of(pages: list[Gold], found: list[Found], field: str) -> str:
    """Return precision and recall, and of how many pages with a truth."""
    both = [(getattr(one, field), getattr(page, field)) for page, one in zip(pages, found, strict=True)]
    with_truth = [(value, truth) for value, truth in both if truth]
    given = [(value, truth) for value, truth in with_truth if value]
    right = sum(is_right(field, value, truth) for value, truth in given)
    if not with_truth or not any(value for value, _ in both):
        return "-"
    return f"{right / max(1, len(given)):.3f} / {right / len(with_truth):.3f} of {len(with_truth)}"


def reasons_of(pages: list[Gold], declared: list[Metadata]) -> Counter[str]:
    """Return how our days compare with the true ones."""
    reasons: Counter[str] = Counter()
    for page, metadata in zip(pages, declared, strict=True):
        if not page.published or metadata.published is None:
            continue
        day = metadata.published.date()
        try:
            truth = date.fromisoformat(page.published)
        except ValueError:
            truth = date.min
        if is_right("published", day.isoformat(), page.published):
            reasons["right"] += 1
        elif abs(day - truth).days <= 1:
            reasons["a day beside it"] += 1
        elif metadata.modified and metadata.modified.date() == truth:
            reasons["the truth is our `modified`"] += 1
        else:
            reasons["other"] += 1
    return reasons


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, metavar="DIR")
    parser.add_argument("--held-out", action="store_true", help="the pages that are held out, and only those")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    given = parser.parse_args()
    report = Report(redis_version="none")
    readers = (read_wcxb, read_htmldate, read_trafilatura, read_fundus)
    pages = [page for read in readers for page in read(given.sets)]
    looked_at = {page.name for page in pages if not page.is_held_out}
    pages = [page for page in pages if (page.name not in looked_at) == given.held_out]
    half = "held out" if given.held_out else "looked at"
    title = f"metadata of {len(pages)} pages {half}; precision / recall of the pages with a truth"
    table = report.table(title, "method", "collection", *FIELDS, "CPU ms/page")
    declared, our_ms = measure(pages)
    results = {"crawlproj": ([found_in(metadata) for metadata in declared], our_ms)}
    for name, read_page in peers().items():
        began_s = time.process_time()
        values = [read_page(page) for page in pages]
        results[name] = values, (time.process_time() - began_s) / len(pages) * 1000
    for name, (values, cpu_ms) in results.items():
        for collection in [*sorted({page.collection for page in pages}), "all"]:
            chosen = [number for number, page in enumerate(pages) if collection in (page.collection, "all")]
            some, theirs = [pages[number] for number in chosen], [values[number] for number in chosen]
            cells = [scores_of(some, theirs, field) for field in FIELDS]
            table.add(name, collection, *cells, f"{cpu_ms:.3f}" if collection == "all" else "")
    table.notes.append("CPU: the peers' includes the parse of the page, ours does not")
    reasons = reasons_of(pages, declared)
    days = report.table("the days of `published` beside those of the truth", "", "pages")
    for reason, count in reasons.most_common():
        days.add(reason, count)
    right = reasons["right"] / reasons.total()
    explained = 1 - reasons["other"] / reasons.total()
    measured = f"{right:.1%} ({explained:.1%} but for time zones and the day of the last change)"
    report.goals.append(
        Goal("published", "right on >= 95 % of the pages that have one", measured, right >= 0.95)
    )
    report.goals.append(Goal("CPU of metadata", "<= 0.05 ms a page", f"{our_ms:.3f} ms", our_ms <= 0.05))
    report.finish(Options(quick=False, redis_server="", most_urls=0, json_path=given.json))


def measure(pages: list[Gold]) -> tuple[list[Metadata], float]:
    """Return what we read of *pages*, and the CPU of one in ms, without the parse."""
    heads = [head_of(page.body) for page in pages]
    gc.collect()
    # As a parser does: long-lived objects are hidden from the collector.
    gc.freeze()
    best_s = float("inf")
    declared: list[Metadata] = []
    for _ in range(_PASSES):
        began_s = time.process_time()
        declared = [metadata_of(head, page.url) for head, page in zip(heads, pages, strict=True)]
        best_s = min(best_s, time.process_time() - began_s)
    return declared, best_s / len(pages) * 1000


if __name__ == "__main__":
    main()
