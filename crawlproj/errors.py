"""Every error of the project, with the exit code of a process that it ends.

The codes are documented in docs/operations.md; supervisors and scripts rely on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Success.
EXIT_OK = 0
#: A bug, or another unexpected error.
EXIT_UNEXPECTED = 1
#: A wrong argument or setting.
EXIT_USAGE = 2
#: Redis is unreachable, or refuses us.
EXIT_REDIS = 3
#: The shard number is held by a live process.
EXIT_SHARD_TAKEN = 4
#: The run was created with other fixed properties, or by another release.
EXIT_RUN_MISMATCH = 5
#: Another process took over what this one owned.
EXIT_FENCED = 6
#: No valid seed, or a run without seeds.
EXIT_NO_SEEDS = 7
#: Pages cannot be written: the disk is full, or the directory is read-only.
EXIT_STORE = 8
#: The run ended without a single page: no seed could be fetched.
EXIT_NOTHING_FETCHED = 9
#: The run had finished, and there was nothing new to fetch.
EXIT_FINISHED = 10
#: Interrupted by a signal; what shells expect of SIGINT: 128 + its number.
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a person gave and that cannot be used.

    ``field`` is the setting, option or argument, ``value`` what was given ('' if it is secret or missing).
    ``wrong`` is a sentence that names both, ``remedy`` one that says what would be right.
    """

    field: str
    value: str
    wrong: str
    remedy: str = ""
    exit_code: int = EXIT_USAGE

    def __str__(self) -> str:
        return f"{self.wrong} {self.remedy}".strip()


class CrawlError(Exception):
    """Base of all errors of this project."""

    exit_code = EXIT_UNEXPECTED


class BadArgument(CrawlError):
    exit_code = EXIT_USAGE


class BadSetting(CrawlError):
    """One or more settings cannot be used."""

    exit_code = EXIT_USAGE

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = [Problem("", "", one) if isinstance(one, str) else one for one in problems]
        super().__init__("\n".join(map(str, self.problems)))


class CannotStart(CrawlError):
    """Checks found *problems*, and nothing was created. The exit code is theirs if they agree, else 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        codes = {problem.exit_code for problem in problems}
        self.exit_code = codes.pop() if len(codes) == 1 else EXIT_USAGE
        super().__init__("\n".join(map(str, problems)))


class BadUrl(CrawlError):
    """A URL that cannot be crawled: not absolute, not http(s), or not parseable."""

    exit_code = EXIT_USAGE


class NoSeeds(CrawlError):
    exit_code = EXIT_NO_SEEDS


class RunFinished(CrawlError):
    """A finished run was started again, without anything new to fetch."""

    exit_code = EXIT_FINISHED

    def __init__(self, run: str, spider: str) -> None:
        again = "scrapy run SEEDS" if spider == "web" else f"scrapy run --spider {spider}"
        stored = "pages" if spider == "web" else "items"
        super().__init__(
            f"Run {run!r} has finished, and there is nothing new to fetch. To see what it stored: "
            f"scrapy {stored} --run {run}. To crawl it again from the start: {again} --run {run} --restart"
        )


class RedisUnreachable(CrawlError):
    """Redis did not answer within the time we wait for it."""

    exit_code = EXIT_REDIS


class RedisFull(RedisUnreachable):
    """Redis is at its `maxmemory` and stores nothing more; what empties it still works."""


class RedisRefused(CrawlError):
    """Redis refused us: password, permissions, version, database."""

    exit_code = EXIT_REDIS


class ShardTaken(CrawlError):
    exit_code = EXIT_SHARD_TAKEN


class RunMismatch(CrawlError):
    exit_code = EXIT_RUN_MISMATCH


class RunReplaced(RunMismatch):
    """The run was deleted, and another one of its name has begun. Started again, a process joins that."""

    # Not that of a mismatch, with which nobody starts it again.
    exit_code = EXIT_FENCED

    def __init__(self, run: str) -> None:
        super().__init__(
            f"Run {run!r} was deleted and has begun again while this process worked on the earlier one. To "
            "join the new one, run the same command."
        )


class Fenced(CrawlError):
    """A newer epoch owns what this process owned; it must stop."""

    exit_code = EXIT_FENCED


class Replaced(Fenced):
    """Another process has our shard number."""


class SetBack(CrawlError):
    """Redis came back with older data: what this process knew of it must be read again.

    Raised instead of the first step that relies on it; nothing was sent.
    """

    exit_code = EXIT_REDIS


class RequestNotSerialisable(CrawlError):
    """A request that cannot be written as JSON, so the frontier cannot store it."""


class StoreUnavailable(CrawlError):
    """Pages cannot be written now; nothing was acknowledged, so none is lost."""

    exit_code = EXIT_STORE


class BadSegment(CrawlError):
    """A page file that is damaged or in an unknown format."""


class BadEnvelope(CrawlError):
    """A page record that is damaged or of an unknown version."""
