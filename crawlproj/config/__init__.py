"""The options of a crawl: `load_config` reads and checks them, `options.py` lists them.

Nothing here reads the environment, Scrapy's settings or a file; the caller passes a plain mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches

from crawlproj.config.declare import PREFIX, name_of, read
from crawlproj.config.foreign import attempts_by_retries, log_level_problems
from crawlproj.config.options import Config
from crawlproj.config.validate import RUN_NAME, problems_of
from crawlproj.errors import BadSetting, Problem

__all__ = ["RUN_NAME", "Config", "load_config", "read_config"]


def load_config(values: Mapping[str, object]) -> Config:
    """Return the options in *values*, a mapping of setting names; the others have their defaults.

    Text is parsed as on the command line (``-s CRAWL_CHAIN=8``), and "false" means false. Settings of others
    are ignored, but an unknown ``CRAWL_*`` is a `BadSetting`, which has all problems that were found.
    """
    config, problems = read_config(values)
    if problems:
        raise BadSetting(*problems)
    return config


def read_config(values: Mapping[str, object]) -> tuple[Config, list[Problem]]:
    """Return the options in *values* that are valid, and what is wrong with the others."""
    known = {name_of(option): option for option in fields(Config)}
    problems = [_unknown(name, known) for name in values if name.startswith(PREFIX) and name not in known]
    problems += log_level_problems(values)
    if values.get("CRAWL_MAX_ATTEMPTS") is None:
        attempts, wrong = attempts_by_retries(values)
        values, problems = {**values, "CRAWL_MAX_ATTEMPTS": attempts}, [*problems, *wrong]
    valid, invalid = {}, set()
    for name, option in known.items():
        if values.get(name) is None:
            continue
        try:
            valid[option.name] = read(option, values[name])
        except BadSetting as exc:
            problems += exc.problems
            invalid.add(option.name)
    # What belongs together is judged only if all of it could be read.
    found = [(names, bad) for names, bad in problems_of(Config(**valid)) if invalid.isdisjoint(names)]
    for names, problem in found:
        problems.append(problem)
        invalid.update(names)
    return Config(**{name: value for name, value in valid.items() if name not in invalid}), problems


def _unknown(name: str, known: Iterable[str]) -> Problem:
    close = get_close_matches(name, known, n=1)
    return Problem(
        name,
        "",
        f"Unknown setting {name}.",
        f"Did you mean {close[0]}?" if close else "docs/settings.md lists all settings.",
    )
