"""Public sets of real pages with reviewed texts: what texts are judged by, and learnt from.

Each is a clone of its repository, found under one directory by the name of the repository (its owner may
stand in front, as ``mozilla+readability``). The odd half of each set, by sorted names, is held out: it is
scored, never learnt from and never looked at. WCXB comes with a held-out part of its own.

| set | pages | licence |
|---|---|---|
| mozilla/readability, test/test-pages | 130 | Apache-2.0 |
| scrapinghub/article-extraction-benchmark | 181 articles | MIT |
| Murrough-Foley/web-content-extraction-benchmark (WCXB) | 2,008 of seven kinds | CC-BY-4.0 |
| flairNLP/fundus, tests | 260 news, 40 countries | MIT |
| adbar/trafilatura, tests | 990, five languages; phrases that belong to the text or do not | Apache-2.0 |

The sixth, ``reference-docs``, is made by docs_set.py from packages of Debian: reference documentation by some
40 generators. Whole packages of it are held out, some of them by generators that nothing is learnt from.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lxml import html as lxml_html

from crawlproj.parsing.charset import transcode

WORD = re.compile(r"\w+")
#: The set that docs_set.py makes.
REFERENCE_DOCS = "reference-docs"


@dataclass(frozen=True, slots=True)
class GoldPage:
    """A page and its main text; of some sets only phrases that are part of it, and others that are not."""

    of_set: str
    name: str
    html: bytes
    is_held_out: bool
    text: str = ""
    kind: str = ""
    inside: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def word_f1(found: str, wanted: str) -> float:
    """F1 of the words of *found*, each as often as it stands there: the measure of WCXB."""
    have, want = Counter(words(found)), Counter(words(wanted))
    total = have.total() + want.total()
    return 2 * (have & want).total() / total if total else 1.0


def shingle_f1(pairs: Sequence[tuple[str, str]]) -> float:
    """F1 as article-extraction-benchmark has it: shingles of four words, precision and recall averaged."""
    precisions, recalls = [], []
    for found, wanted in pairs:
        have, want = _shingles(found), _shingles(wanted)
        right = (have & want).total()
        if have:
            precisions.append(right / have.total())
        if want:
            recalls.append(right / want.total())
    precision, recall = statistics.mean(precisions), statistics.mean(recalls)
    return 2 * precision * recall / (precision + recall)


def phrase_f1(pages: Sequence[GoldPage], texts: Sequence[str]) -> float:
    """F1 as trafilatura's evaluation has it: phrases found that should be, and not found that should not."""
    true_positives = false_negatives = false_positives = 0
    for page, text in zip(pages, texts, strict=True):
        folded = " ".join(text.split())
        for phrase in page.inside:
            is_there = " ".join(phrase.split()) in folded
            true_positives += is_there
            false_negatives += not is_there
        false_positives += sum(" ".join(phrase.split()) in folded for phrase in page.outside)
    return 2 * true_positives / (2 * true_positives + false_positives + false_negatives)


def score(pages: Sequence[GoldPage], texts: Sequence[str]) -> float:
    """The measure of the set that *pages* are of."""
    if pages[0].of_set == "trafilatura":
        return phrase_f1(pages, texts)
    pairs = [(text, page.text) for page, text in zip(pages, texts, strict=True)]
    if pages[0].of_set == "articles":
        return shingle_f1(pairs)
    return statistics.mean(word_f1(found, wanted) for found, wanted in pairs)


def read_sets(folder: Path) -> list[GoldPage]:
    """All pages of all sets that are found in *folder*."""
    pages: list[GoldPage] = []
    for repository, read in _SETS.items():
        for name in (repository.replace("/", "+"), repository.partition("/")[2]):
            if (folder / name).is_dir():
                pages += read(folder / name)
                break
    return pages


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    found = WORD.findall(text)
    last = max(1, len(found) - 3) if found else 0
    return Counter(tuple(found[start : start + 4]) for start in range(last))


def _utf8(body: bytes) -> bytes:
    return transcode(body, "text/html", False)[0]


def _readability(clone: Path) -> Iterator[GoldPage]:
    for number, page in enumerate(sorted((clone / "test" / "test-pages").iterdir())):
        wanted = (page / "expected.html").read_text(encoding="utf-8") or "<p></p>"
        source = _utf8((page / "source.html").read_bytes())
        text = "\n".join(lxml_html.fromstring(wanted).itertext())
        yield GoldPage("readability", page.name, source, number % 2 == 1, text, "article")


def _articles(clone: Path) -> Iterator[GoldPage]:
    truth = json.loads((clone / "ground-truth.json").read_text(encoding="utf-8"))
    for number, name in enumerate(sorted(truth)):
        source = gzip.decompress((clone / "html" / f"{name}.html.gz").read_bytes())
        yield GoldPage(
            "articles", name, _utf8(source), number % 2 == 1, truth[name]["articleBody"], "article"
        )


def _wcxb(clone: Path) -> Iterator[GoldPage]:
    for part in ("dev", "test"):
        for path in sorted((clone / part / "ground-truth").glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            source = gzip.decompress((clone / part / "html" / f"{path.stem}.html.gz").read_bytes())
            truth, kind = record["ground_truth"], record["_internal"]["page_type"]["primary"]
            yield GoldPage(
                "wcxb", path.stem, _utf8(source), part == "test", truth.get("main_content") or "", kind
            )


def _fundus(clone: Path) -> Iterator[GoldPage]:
    folder = clone / "tests" / "resources" / "parser" / "test_data"
    for number, path in enumerate(sorted(folder.glob("*/*.json"))):
        versions = json.loads(path.read_text(encoding="utf-8"))
        sources = sorted(path.parent.glob(f"{path.stem}_20*.html.gz"))
        body = versions[max(versions)].get("body")
        if not sources or not body:
            continue
        parts = list(body["summary"])
        for section in body["sections"]:
            parts += section["headline"] + section["paragraphs"]
        source = _utf8(gzip.decompress(sources[-1].read_bytes()))
        yield GoldPage("fundus", path.stem, source, number % 2 == 1, "\n".join(parts), "article")


def _trafilatura(clone: Path) -> Iterator[GoldPage]:
    tests = clone / "tests"
    records = json.loads((tests / "evaldata.json").read_text(encoding="utf-8"))
    for number, url in enumerate(sorted(records)):
        record = records[url]
        for folder in ("cache", "eval"):
            path = tests / folder / record["file"]
            if path.exists():
                source = _utf8(path.read_bytes())
                yield GoldPage(
                    "trafilatura", url, source, number % 2 == 1,
                    inside=record["with"], outside=record["without"],
                )  # fmt: skip
                break


def _docs(folder: Path) -> Iterator[GoldPage]:
    for record in json.loads((folder / "index.json").read_text(encoding="utf-8")):
        part, package = record["part"], record["package"].partition("_")[0]
        kind = f"{'unseen' if part == 'unseen' else 'known'} {record['generator']}: {package}"
        source = (folder / record["page"]).read_bytes()
        yield GoldPage("docs", record["path"], source, part != "learnt", record["text"], kind)


_SETS: dict[str, Callable[[Path], Iterator[GoldPage]]] = {
    "mozilla/readability": _readability,
    "scrapinghub/article-extraction-benchmark": _articles,
    "Murrough-Foley/web-content-extraction-benchmark": _wcxb,
    "flairNLP/fundus": _fundus,
    "adbar/trafilatura": _trafilatura,
    f"crawlproj/{REFERENCE_DOCS}": _docs,
}
