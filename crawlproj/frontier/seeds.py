"""Seeds: lines a person gave us, turned into candidates or into complaints with their line number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from crawlproj.errors import BadUrl, NoSeeds
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.model.urls import canonicalise, is_below_known_suffix

#: Why rules refuse a seed.
_REFUSALS = {
    "length": "is longer than CRAWL_MAX_URL allows; raise that, or shorten it",
    "excluded": "is excluded by CRAWL_EXCLUDE or CRAWL_EXCLUDE_FILE; change these, or leave it out",
}
#: Seeds of a file may be more than fit into memory.
_AT_ONCE = 5000


@dataclass(slots=True)
class SeedCount:
    """How many seeds were good, how many of these new, and how many lines were refused."""

    given: int = 0
    new: int = 0
    refused: int = 0


async def admit_seeds(
    frontier: Frontier, sources: Sequence[str], rules: AdmissionRules, complain: Callable[[str], None]
) -> SeedCount:
    """Admit what *sources* hold, each as `seed_lines` reads it; complain about each line that is refused."""
    count = SeedCount()
    for source in sources:
        seeds = parse_seeds(seed_lines(source), rules)
        while batch := list(islice(seeds, _AT_ONCE)):
            candidates = [seed for seed in batch if not isinstance(seed, str)]
            for complaint in (seed for seed in batch if isinstance(seed, str)):
                complain(f"{source}, {complaint}")
            count.given += len(candidates)
            count.refused += len(batch) - len(candidates)
            count.new += (await frontier.admit(candidates)).new
    return count


def seed_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of what a person named: a file, ``-`` for standard input, or a seed itself."""
    if source == "-":
        yield from enumerate(sys.stdin, 1)
    elif "://" in source or (is_below_known_suffix(source) and not Path(source).exists()):
        yield 1, source
    else:
        yield from read_seeds(source)


def read_seeds(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a seeds file. Raises NoSeeds when it cannot be read."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            yield from enumerate(lines, 1)
    except OSError as exc:
        raise NoSeeds(f"Cannot read the seeds file {str(path)!r}: {exc.strerror}.") from exc


def parse_seeds(
    lines: Iterable[tuple[int, str]], rules: AdmissionRules | None = None
) -> Iterator[Candidate | str]:
    """Yield a candidate for each good line, a complaint for each bad one; blanks and comments are skipped.

    With *rules*, a line is also bad when they refuse it.
    """
    for number, line in lines:
        text = line.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            continue
        try:
            url = canonicalise(text if "://" in text else _as_url(text))
        except BadUrl as exc:
            yield f"line {number}: {exc}"
            continue
        if rules is not None:
            url = rules.urls.clean(url)
            if reason := rules.refusal(url, 0, None):
                yield f"line {number}: {url[:200]!r} {_REFUSALS[reason]}"
                continue
        yield Candidate(url)


def _as_url(text: str) -> str:
    """Return the home page for a bare domain name, the only other thing a seed may be."""
    host = text.partition("/")[0].partition(":")[0]
    if is_below_known_suffix(host):
        return f"https://{text}"
    return text
