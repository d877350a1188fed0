"""Crawl profiles: a crawl in one TOML file, checked before anything is started.

``docs/profiles.md`` has every key. An error is one line: file, key, value, remedy.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from crawlproj.config import RUN_NAME, load_config
from crawlproj.errors import BadArgument, BadSetting
from crawlproj.frontier.seeds import parse_seeds

#: Where profiles given by name are looked up: a person's own, then those that come with this package.
OWN = Path("profiles")
SHIPPED = Path(__file__).parent
_MODES = ("single", "sharded")
#: Keys that stand for a setting.
_SETTINGS = {
    "scope": "CRAWL_SCOPE",
    "scope_domains": "CRAWL_SCOPE_DOMAINS",
    "include": "CRAWL_INCLUDE",
    "exclude": "CRAWL_EXCLUDE",
    "limits.depth": "DEPTH_LIMIT",
    "limits.domain_pages": "CRAWL_DOMAIN_PAGES",
}
_LIMITS = ("pages", "seconds", "bytes", *(key[7:] for key in _SETTINGS if key.startswith("limits.")))
_KEYS = (
    *("seeds", "mode", "run", "shards", "parsers"),
    *(key for key in _SETTINGS if "." not in key),
    *("limits", "settings"),
)
_PARSERS = re.compile(r"([1-9][0-9]{0,3})(?:\.\.([1-9][0-9]{0,3}))?")


@dataclass(frozen=True, slots=True)
class Profile:
    """A crawl as its file describes it.

    ``seeds`` are URLs, domains, and paths of seeds files. ``parsers`` is as on the command line: 2, or 1..4.
    A limit of 0 is none; those of depth and per domain are among the ``settings``, whose values are strings
    as for ``-s``. In mode ``single`` there is one shard and no parser.
    """

    run: str
    seeds: tuple[str, ...]
    shards: int = 2
    parsers: str = "1"
    pages: int = 0
    seconds: float = 0.0
    bytes: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


def find(word: str, folder: Path = OWN) -> Path | None:
    """Return the profile file that *word* names, by name in *folder*, by name of a shipped one, or by path.

    None if it is not a profile but a URL, a domain or a seeds file.
    """
    if word.endswith(".toml") and "://" not in word:
        return Path(word)
    paths = [place / f"{word}.toml" for place in (folder, SHIPPED)]
    return next(filter(Path.is_file, paths), None) if re.fullmatch(RUN_NAME, word) else None


def load(word: str, folder: Path = OWN) -> Profile:
    """Return the profile that *word* names. Raises BadArgument when it is missing or invalid."""
    path = find(word, folder)
    if path is None:
        known = sorted(file.stem for place in (folder, SHIPPED) for file in place.glob("*.toml"))
        raise BadArgument(f"There is no profile {word!r} in {str(folder)!r}; {_choice(word, known)}")
    try:
        values = tomllib.loads(path.read_bytes().decode())
    except OSError as exc:
        raise BadArgument(f"Cannot read the profile {str(path)!r}: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise BadArgument(f"The profile {str(path)!r} is not UTF-8 text.") from exc
    except tomllib.TOMLDecodeError as exc:
        raise BadArgument(f"The profile {str(path)!r} is not valid TOML: {exc}.") from exc
    return _Reader(path, values).profile()


def _choice(word: str, known: list[str] | tuple[str, ...]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}."


class _Reader:
    """Turns the values of one file into a profile."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self._path = path
        self._values = values
        self._limits = self._table("limits")
        self._check_names("", values, _KEYS)
        self._check_names("limits.", self._limits, _LIMITS)

    def profile(self) -> Profile:
        is_single = self._is_single()
        return Profile(
            run=self._run(),
            seeds=tuple(self._seeds()),
            shards=1 if is_single else self._whole("shards", self._values.get("shards", 2), 1),
            parsers="0" if is_single else self._parsers(),
            pages=self._limit("pages"),
            seconds=float(self._limit("seconds")),
            bytes=self._limit("bytes"),
            settings=self._settings(),
        )

    def _wrong(self, key: str, value: object, remedy: str) -> BadArgument:
        return BadArgument(f"{self._path}: {key} = {_shown(value)}: {remedy}")

    def _check_names(self, prefix: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for name in table:
            if name not in known:
                raise BadArgument(f"{self._path}: unknown key {prefix}{name}; {_choice(name, known)}")

    def _table(self, key: str) -> dict[str, Any]:
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, f"must be a table, [{key}].")
        return value

    def _whole(self, key: str, value: object, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, value, f"must be a whole number, at least {least}.")
        return value

    def _limit(self, name: str) -> int:
        return self._whole(f"limits.{name}", self._limits.get(name, 0), 0)

    def _is_single(self) -> bool:
        mode = self._values.get("mode", "sharded")
        if mode not in _MODES:
            raise self._wrong("mode", mode, f"must be one of {', '.join(_MODES)}.")
        for name in ("shards", "parsers"):
            if mode == "single" and name in self._values:
                remedy = 'leave it out, or set mode = "sharded": mode single is one process.'
                raise self._wrong(name, self._values[name], remedy)
        return bool(mode == "single")

    def _run(self) -> str:
        run = self._values.get("run", self._path.stem)
        if not isinstance(run, str) or not RUN_NAME.fullmatch(run):
            remedy = "must be up to 64 letters, digits, dots, dashes and underscores, no sign first."
            raise self._wrong("run", run, remedy)
        return run

    def _parsers(self) -> str:
        parsers = self._values.get("parsers", 1)
        match = None if isinstance(parsers, bool) else _PARSERS.fullmatch(str(parsers))
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise self._wrong("parsers", parsers, 'must be a number from 1, or a range such as "1..4".')
        return match[0]

    def _seeds(self) -> Iterator[str]:
        seeds = self._values.get("seeds")
        if isinstance(seeds, str) and seeds:
            # Relative to the profile.
            file = self._path.parent / seeds
            if not file.is_file():
                raise self._wrong("seeds", seeds, f"there is no file {str(file)!r}; put URLs into a list.")
            yield str(file)
            return
        if not isinstance(seeds, list) or not seeds:
            remedy = "must be a seeds file, or a list of URLs and domains."
            raise (
                self._wrong("seeds", seeds, remedy)
                if seeds is not None
                else BadArgument(f"{self._path}: seeds are missing: {remedy}")
            )
        for number, seed in enumerate(seeds, 1):
            found = list(parse_seeds([(number, seed)])) if isinstance(seed, str) else []
            result = found[0][2] if found else "must be a URL or a domain."
            if isinstance(result, str):
                why = result
                raise self._wrong(f"seeds, number {number}", seed, why)
            yield seed

    def _settings(self) -> dict[str, str]:
        given = {f"settings.{name}": (name, value) for name, value in self._table("settings").items()}
        for key, name in _SETTINGS.items():
            table, short = (self._limits, key[7:]) if key.startswith("limits.") else (self._values, key)
            if short not in table:
                continue
            if f"settings.{name}" in given:
                raise self._wrong(f"settings.{name}", given[f"settings.{name}"][1], f"{key} already sets it.")
            given[key] = name, table[short]
        for key, (name, value) in given.items():
            if name != name.upper():
                raise self._wrong(key, value, f"setting names are upper-case: {name.upper()}.")
            # CRAWL_SCOPE=list needs its list, so it is checked only below, with the others.
            self._check(f"{key}: ", {name: value} if value != "list" else {})
        self._check("", dict(given.values()))
        return {name: _as_text(value) for name, value in given.values()}

    def _check(self, prefix: str, settings: Mapping[str, object]) -> None:
        try:
            load_config(settings)
        except BadSetting as exc:
            raise BadArgument(f"{self._path}: {prefix}{exc}") from exc


def _shown(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)[:200]


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    # An empty list is an empty string on the command line.
    return "" if value == [] else json.dumps(value, default=str)
