"""Loads the Lua steps by name, each behind the prelude, and checks that headers declare their keys."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable

from crawlproj.errors import CrawlError

#: What all steps share; it is joined to the first line of each, so line numbers in errors are the step's own.
PRELUDE = "prelude"
_LUA = files("crawlproj.redisio") / "lua"
_TITLE = re.compile(r"-- (\w+): \S")
#: Takes the key away that `Scripts.guarded` adds.
_GUARD = "KEYS[#KEYS] = nil"
_KEY = re.compile(r"-- KEYS\[(\d+)(\.\.)?\]\s+(\w+)")


class BadScript(CrawlError):
    """A Lua file that is missing, has a wrong header, or was called with a wrong number of keys."""


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str
    #: What KEYS[1], KEYS[2], ... are, as the header names them.
    keys: tuple[str, ...]
    #: Whether any number of others may follow: the header ends with KEYS[N..].
    takes_more: bool = False

    def takes(self, count: int) -> bool:
        return count == len(self.keys) or (self.takes_more and count > len(self.keys))


class Scripts:
    """The Lua files of one folder; each is read and checked when it is first asked for, then kept."""

    def __init__(self, folder: Traversable | None = None) -> None:
        self._folder = folder or _LUA
        self._loaded: dict[str, Script] = {}
        self._guarded: dict[str, Script] = {}
        self._prelude = _in_one_line((_LUA / f"{PRELUDE}.lua").read_text("utf-8"))

    def __getitem__(self, name: str) -> Script:
        script = self._loaded.get(name)
        if script is None:
            script = self._loaded[name] = self._load(name)
        return script

    def guarded(self, name: str) -> Script:
        """Return a step that is called with a key more, which must not exist: see `keys.absent`."""
        guarded = self._guarded.get(name)
        if guarded is None:
            step = self[name]
            text = f"{_GUARD} {step.text}"
            guarded = self._guarded[name] = replace(step, text=text, sha=_sha_of(text))
        return guarded

    def names(self) -> list[str]:
        return sorted(
            entry.name.removesuffix(".lua")
            for entry in self._folder.iterdir()
            if entry.name.endswith(".lua") and entry.name != f"{PRELUDE}.lua"
        )

    def _load(self, name: str) -> Script:
        if name not in self.names():
            raise BadScript(
                f"There is no Lua script {name!r}. There are: {', '.join(self.names()) or 'none'}."
            )
        step = (self._folder / f"{name}.lua").read_text("utf-8")
        text = f"{self._prelude} {step}"
        declared = _declared_keys(name, step)
        is_open = bool(declared) and declared[-1].endswith("..")
        return Script(name, text, _sha_of(text), declared[:-1] if is_open else declared, is_open)


def _sha_of(text: str) -> str:
    # Only names the script in Redis; SHA-1 is what EVALSHA takes.
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _in_one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if not line.lstrip().startswith("--"))


def _declared_keys(name: str, text: str) -> tuple[str, ...]:
    lines = text.splitlines()
    title = _TITLE.match(lines[0]) if lines else None
    if title is None or title[1] != name:
        raise BadScript(f"{name}.lua must open with '-- {name}: what it does', not {lines[:1]}.")
    keys: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.startswith("--"):
            break
        if not line.startswith("-- KEYS["):
            continue
        declared = _KEY.match(line)
        if declared is None or int(declared[1]) != len(keys) + 1:
            raise BadScript(
                f"{name}.lua line {number} must declare '-- KEYS[{len(keys) + 1}] name', not {line!r}."
            )
        keys.append(f"{declared[3]}{declared[2] or ''}")
    return tuple(keys)
