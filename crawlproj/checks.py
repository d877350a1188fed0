"""What can be wrong with a crawl, found before anything is created. Nothing here writes or prints.

Problems are returned, so that a command shows all of them on one screen and a program field by field.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from crawlproj.config import Config
from crawlproj.download.guard import BAD_PORTS, AddressGuard, AddressRefusedError, NoContactError
from crawlproj.errors import (
    EXIT_NO_SEEDS,
    EXIT_STORE,
    BadSetting,
    CrawlError,
    NoSeeds,
    Problem,
)
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.seeds import SeedSource, judge_seeds
from crawlproj.model.records import Candidate
from crawlproj.model.run import RunPaths
from crawlproj.parsing.fields import field_problems
from crawlproj.redisio.client import RedisClient
from crawlproj.storage.probe import trouble_with

#: More invalid seeds are counted, not shown: all problems fit on one screen.
_MOST_SEEDS = 15
#: With less space left, no segment could be written.
_LEAST_FREE_BYTES = 20_000_000


def fetch_problems(config: Config) -> Iterator[Problem]:
    """Yield what would keep every process that fetches or parses from its work."""
    if not config.contact and not config.allow_addresses:
        yield _no_contact("CRAWL_CONTACT is not set: public sites are not crawled without it.")
    yield from rule_problems(config)


def crawl_problems(
    config: Config, sources: Sequence[SeedSource], *, skip_invalid: bool = False
) -> list[Problem]:
    """Return `fetch_problems` and `seed_problems`.

    A missing contact is none if all seeds are private: once their addresses are allowed, it is not needed.
    """
    about_seeds = seed_problems(config, sources, skip_invalid=skip_invalid)
    is_private = bool(about_seeds) and all(
        problem.exit_code == EXIT_NO_SEEDS and "CRAWL_ALLOW_ADDRESSES" in str(problem)
        for problem in about_seeds
    )
    others = [one for one in fetch_problems(config) if one.field != "CRAWL_CONTACT" or not is_private]
    return [*others, *about_seeds]


def rule_problems(config: Config) -> Iterator[Problem]:
    """Yield what is wrong with rules for links, and with fields."""
    try:
        load_rules(config)
    except BadSetting as exc:
        yield from exc.problems
    yield from field_problems(config.fields)


def seed_problems(
    config: Config, sources: Sequence[SeedSource], *, skip_invalid: bool = False
) -> list[Problem]:
    """Return what is wrong with the seeds: files, syntax, scheme, exclusions, addresses.

    *skip_invalid*: it is enough that some seeds are valid.
    """
    problems: list[Problem] = []
    valid = left_out = 0
    for source in sources:
        try:
            for seed in judge_all(config, source):
                if isinstance(seed, Candidate):
                    valid += 1
                elif len(problems) < _MOST_SEEDS:
                    problems.append(seed)
                else:
                    left_out += 1
        except NoSeeds as exc:
            problems.append(Problem("seeds", source.name, str(exc), exit_code=EXIT_NO_SEEDS))
    if left_out:
        problems.append(Problem("seeds", "", f"... and {left_out:,} more invalid seeds."))
    if valid or not sources:
        return [problem for problem in problems if not skip_invalid or problem.exit_code == EXIT_NO_SEEDS]
    if not problems:
        names = ", ".join("standard input" if source.name == "-" else source.name for source in sources)
        remedy = "Write one URL or domain per line."
        problems.append(Problem("seeds", names, f"No valid seeds in {names}.", remedy))
    return [replace(problem, exit_code=EXIT_NO_SEEDS) for problem in problems]


def judge_all(config: Config, source: SeedSource) -> Iterator[Candidate | Problem]:
    """Yield what `judge_seeds` does, and a problem for each seed whose address is refused."""
    try:
        rules, _ = load_rules(config)
    except BadSetting:
        # `fetch_problems` has it.
        rules = AdmissionRules(Config())
    guard = AddressGuard(config.allow_addresses, config.contact)
    for seed in judge_seeds(source, rules):
        wrong = None if isinstance(seed, Problem) else _address_problem(seed.url, guard, config)
        yield wrong or seed


def disk_problems(config: Config, run: str, least_bytes: int = _LEAST_FREE_BYTES) -> Iterator[Problem]:
    """Yield the first reason why the run could not write its files."""
    paths = RunPaths(config.data, run)
    own_redis = () if config.redis_url else (config.data / "redis",)
    for path in (*own_redis, paths.directory, paths.pages, paths.logs):
        place = _nearest(path)
        if wrong := _wrong_with(place, least_bytes):
            remedy = "Choose another directory with --data (CRAWL_DATA)."
            if place.is_file():
                remedy = "Move it away, or choose another directory with --data (CRAWL_DATA)."
            where = str(config.data)
            yield Problem("CRAWL_DATA", where, f"Cannot write to {path}: {wrong}.", remedy, EXIT_STORE)
            return


def log_problem(file: str | None) -> Problem | None:
    """Return why processes could not log to LOG_FILE."""
    if not file or not (wrong := _wrong_with(_nearest(Path(file).parent), _LEAST_FREE_BYTES)):
        return None
    wrong = f"Cannot write the log {file}: {wrong}."
    return Problem("LOG_FILE", file, wrong, "Choose another file with LOG_FILE.", EXIT_STORE)


def port_problems(config: Config) -> Iterator[Problem]:
    """Yield why metrics could not be served. A port that is taken is no problem: there are spare ones."""
    if not config.metrics_port:
        return
    for name, port in (("CRAWL_METRICS_HOST", 0), ("CRAWL_METRICS_PORT", config.metrics_port)):
        value = port or config.metrics_host
        try:
            family = socket.AF_INET6 if ":" in config.metrics_host else socket.AF_INET
            with socket.socket(family) as listener:
                listener.bind((config.metrics_host, port))
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                continue
            remedy = (
                "Give a port from 1024." if port else "Give an address of this machine, such as 127.0.0.1."
            )
            wrong = f"{name}={value!r}: metrics cannot be served there: {exc.strerror or exc}."
            yield Problem(name, str(value), wrong, remedy)
            return


async def redis_problem(config: Config) -> Problem | None:
    """Return why the Redis in REDIS_URL cannot be used. An embedded one is not asked: it would be started."""
    if not config.redis_url:
        return None
    try:
        client = await RedisClient.connect(config)
    except CrawlError as exc:
        return Problem("REDIS_URL", "", str(exc), exit_code=exc.exit_code)
    await client.close()
    return None


def store_problem(config: Config, run: str) -> Problem | None:
    """Return why the run could not write to the object store of CRAWL_STORE."""
    wrong = trouble_with(config.store, run) if config.store else ""
    return Problem("CRAWL_STORE", "", wrong, exit_code=EXIT_STORE) if wrong else None


def _no_contact(wrong: str) -> Problem:
    remedy = (
        "Give an email address or a URL where site owners can reach you: -s CRAWL_CONTACT=you@example.org"
    )
    return Problem("CRAWL_CONTACT", "", wrong, remedy)


def _address_problem(url: str, guard: AddressGuard, config: Config) -> Problem | None:
    """Return why the address of a seed is refused. Names are not resolved: a connection is checked again."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not (address.replace(".", "").isdigit() or ":" in address):
        if port not in BAD_PORTS or config.allow_addresses:
            return None
        wrong = f"{url}: port {port} is not for web pages and not crawled."
        return Problem("seeds", url, wrong, "To crawl it, add the address to CRAWL_ALLOW_ADDRESSES.")
    try:
        guard.check(address, port)
    except AddressRefusedError as exc:
        return Problem("seeds", url, f"{url}: {exc}")
    except NoContactError:
        # Without allowed addresses `fetch_problems` has it.
        wrong = f"{url} is public, and CRAWL_CONTACT is not set."
        return _no_contact(wrong) if config.allow_addresses else None
    return None


def _nearest(path: Path) -> Path:
    """Return *path*, or what is nearest to it of what exists above: there it would be created."""
    for place in (path, *path.parents):
        try:
            if place.exists():
                return place
        except PermissionError:
            # Nobody knows, and nothing can be created there.
            continue
    return Path(path.anchor)


def _wrong_with(place: Path, least_bytes: int) -> str:
    place = place.absolute()
    if not place.is_dir():
        return f"{place} is not a directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} is not writable for this user, or on a read-only disk"
    free = shutil.disk_usage(place).free
    if free < least_bytes:
        return f"its disk has {free / 1e6:,.0f} MB left, and {least_bytes / 1e6:,.0f} MB are needed"
    return ""
