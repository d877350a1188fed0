"""Seeds: lines given by the user, turned into candidates or errors with their line number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from crawlproj.errors import BadUrl, NoSeeds
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.model.urls import canonicalise, is_below_known_suffix

#: Messages for refused seeds.
_REFUSALS = {
    "length": "is longer than CRAWL_MAX_URL; raise it, or shorten the URL",
    "excluded": "is excluded by CRAWL_EXCLUDE or CRAWL_EXCLUDE_FILE; change these, or leave it out",
}
#: A seeds file may not fit into memory.
_AT_ONCE = 5000


@dataclass(slots=True)
class SeedCount:
    """How many seeds were valid, how many of these new, and how many lines were refused."""

    given: int = 0
    new: int = 0
    refused: int = 0


async def admit_seeds(
    frontier: Frontier,
    sources: Sequence[str],
    rules: AdmissionRules,
    report: Callable[[str], None],
    adding: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> SeedCount:
    """Admit the seeds in *sources*, each read by `seed_lines`; report every refused line.

    *adding* is `Run.adding`, but for a shard that is starting: the run does not end meanwhile.
    """
    count = SeedCount()
    for source in sources:
        seeds = parse_seeds(seed_lines(source), rules)
        while batch := list(islice(seeds, _AT_ONCE)):
            candidates = [seed for seed in batch if not isinstance(seed, str)]
            for error in (seed for seed in batch if isinstance(seed, str)):
                report(f"{source}, {error}")
            count.given += len(candidates)
            count.refused += len(batch) - len(candidates)
            async with adding():
                count.new += (await frontier.admit(candidates)).new
    return count


def seed_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of *source*: a file, ``-`` for standard input, or a seed itself."""
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
    """Yield a candidate for each valid line and an error for each invalid one; skips blanks and comments.

    With *rules*, a line they refuse is invalid, too.
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
    """Return the home page of a bare domain name."""
    host = text.partition("/")[0].partition(":")[0]
    if is_below_known_suffix(host):
        return f"https://{text}"
    return text
