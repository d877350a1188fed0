"""Seeds: lines given by the user, turned into candidates or errors with their line number."""

from __future__ import annotations

import errno
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO

from crawlproj.errors import BadUrl, NoSeeds, Problem
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
#: Hosts that are below no suffix but are certainly hosts.
_LOCAL_HOST = re.compile(r"localhost|\d{1,3}(\.\d{1,3}){3}").fullmatch
#: What may be the name of a host, with port and path.
_MAY_BE_HOST = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:\d+)?(/.*)?").fullmatch
#: To the end of the line; "#" within a URL begins its fragment.
_COMMENT = re.compile(r"(^|\s+)#.*", re.DOTALL)
#: So much of a file shows what it is.
_HEAD_BYTES = 1024
_BOM, _UTF_16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_FILE_ENDINGS = (".txt", ".csv", ".tsv", ".list", ".json", ".jsonl")


@dataclass(slots=True)
class SeedCount:
    """How many seeds were valid, how many of these new, and how many lines were refused."""

    given: int = 0
    new: int = 0
    refused: int = 0


class SeedSource:
    """What a person named as seeds: a file, ``-`` for standard input, or a seed itself.

    It can be read more than once: what can be read only once, such as a pipe, is kept in a temporary file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_seed = name != "-" and ("://" in name or _is_host(name)) and not Path(name).exists()
        self._kept: IO[str] | None = None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield numbered lines. Raises NoSeeds when they cannot be read."""
        if self.is_seed:
            yield 1, self.name
        elif self.name == "-" or Path(self.name).is_fifo():
            self._kept = self._kept or self._keep()
            self._kept.seek(0)
            yield from enumerate(self._kept, 1)
        else:
            yield from read_seeds(self.name)

    def place(self, number: int) -> str:
        """Return where a line is, for messages; '' if it is the source itself."""
        return "" if self.is_seed else f"{self.name}, line {number}: "

    def _keep(self) -> IO[str]:
        kept = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # read again
        weakref.finalize(self, kept.close)
        if self.name == "-":
            if isinstance(sys.stdin, TextIOWrapper):
                _check_head(sys.stdin.buffer, "What standard input has")
                sys.stdin.reconfigure(encoding="utf-8", errors="replace")
            # None if it is closed.
            kept.writelines(sys.stdin or ())
        else:
            kept.writelines(line for _, line in read_seeds(self.name))
        return kept


class SeedLines(SeedSource):
    """Seeds from memory. A line is never the name of a file."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.name = "seeds"
        self._lines = lines

    def lines(self) -> Iterator[tuple[int, str]]:
        yield from enumerate(self._lines, 1)

    def place(self, number: int) -> str:
        return ""


async def admit_seeds(
    frontier: Frontier,
    sources: Sequence[SeedSource],
    rules: AdmissionRules,
    report: Callable[[str], None],
    adding: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> SeedCount:
    """Admit the seeds in *sources*; report every refused line.

    *adding* is `Run.adding`, but for a shard that is starting: the run does not end meanwhile.
    """
    count = SeedCount()
    for source in sources:
        seeds = judge_seeds(source, rules)
        while batch := list(islice(seeds, _AT_ONCE)):
            candidates = [seed for seed in batch if isinstance(seed, Candidate)]
            for problem in (seed for seed in batch if isinstance(seed, Problem)):
                report(str(problem))
            count.given += len(candidates)
            count.refused += len(batch) - len(candidates)
            async with adding():
                count.new += (await frontier.admit(candidates)).new
    return count


def read_seeds(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a seeds file. Raises NoSeeds when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            _check_head(file, f"The seeds file {str(path)!r}")
            with TextIOWrapper(file, encoding="utf-8", errors="replace") as lines:
                yield from enumerate(lines, 1)
    except OSError as exc:
        hint = ""
        is_name = _MAY_BE_HOST(str(path)) and not str(path).endswith(_FILE_ENDINGS)
        if exc.errno == errno.ENOENT and is_name:
            hint = f" If it is a host and not a file, write http://{path}"
        raise NoSeeds(f"Cannot read the seeds file {str(path)!r}: {exc.strerror}.{hint}") from exc


def _check_head(file: BinaryIO, name: str) -> None:
    """Raise NoSeeds if *file* is certainly no list of URLs. Reads nothing from it."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES] if isinstance(file, BufferedReader) else b""
    found = ""
    if head.startswith(_UTF_16):
        found = "is in UTF-16; save it as UTF-8"
    elif b"\0" in head:
        found = "is not a text file; write one URL or domain per line"
    elif head.removeprefix(_BOM).lstrip().startswith(b"<"):
        found = "is HTML or XML; write one URL or domain per line"
    if found:
        raise NoSeeds(f"{name} {found}.")


def judge_seeds(source: SeedSource, rules: AdmissionRules | None = None) -> Iterator[Candidate | Problem]:
    """Yield a candidate for each valid line and a problem for each invalid one; skips blanks and comments.

    With *rules*, a line they refuse is invalid, too. Raises NoSeeds when the source cannot be read.
    """
    for number, text, seed in parse_seeds(source.lines(), rules):
        if isinstance(seed, Candidate):
            yield seed
        else:
            field = f"{source.name}, line {number}" if source.place(number) else "seeds"
            yield Problem(field, text, f"{source.place(number)}{seed}.")


def parse_seeds(
    lines: Iterable[tuple[int, str]], rules: AdmissionRules | None = None
) -> Iterator[tuple[int, str, Candidate | str]]:
    """Yield number, text and candidate of each line, or why it is invalid; skips blanks and comments."""
    for number, line in lines:
        text = _COMMENT.sub("", line.strip().lstrip("\ufeff"))
        if not text:
            continue
        try:
            url = canonicalise(text if "://" in text else _as_url(text))
        except BadUrl as exc:
            yield number, text, str(exc)
            continue
        if rules is not None:
            url = rules.urls.clean(url)
            if reason := rules.refusal(url, 0, None):
                yield number, text, f"{url[:200]!r} {_REFUSALS[reason]}"
                continue
        yield number, text, Candidate(url)


def _is_host(text: str) -> bool:
    """Whether *text* is a host, perhaps with port and path, rather than the name of a file."""
    host = text.partition("/")[0].partition(":")[0]
    return bool(_LOCAL_HOST(host)) or is_below_known_suffix(host)


def _as_url(text: str) -> str:
    """Return the URL of a bare host."""
    if not _is_host(text):
        return text
    return f"{'http' if _LOCAL_HOST(text.partition('/')[0].partition(':')[0]) else 'https'}://{text}"
