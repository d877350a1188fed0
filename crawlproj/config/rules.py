"""The rules of a run: the options that belong to it, as one text that is stored with the run. Pure.

Which options these are is said where they are declared, in `options.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from crawlproj.config.declare import CHANGEABLE, PROCESS, name_of, read
from crawlproj.config.options import Config
from crawlproj.errors import RunMismatch

#: Version of the text. A text of another version is refused.
VERSION = 1
#: How many changes are remembered.
_MOST_CHANGES = 50

#: The options that belong to a run, by setting.
RULES: Mapping[str, Field[Any]] = {
    name_of(option): option for option in fields(Config) if option.metadata["owner"] != PROCESS
}


@dataclass(frozen=True, slots=True)
class Rules:
    """The values of the settings of a run, its spider, and how they were changed since."""

    values: Mapping[str, Any]
    spider: str
    #: The last changes, each with ``at_ms``, ``by`` and ``values``: setting -> [before, after].
    changes: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, config: Config, spider: str) -> Rules:
        return cls({name: getattr(config, option.name) for name, option in RULES.items()}, spider)

    @classmethod
    def decode(cls, text: str, run: str) -> Rules:
        """Read the text of *run*. Raises RunMismatch for one that a later release has written."""
        stored = json.loads(text)
        unknown = [name for name in stored.get("values", ()) if name not in RULES]
        if stored.get("version") != VERSION or unknown:
            what = f"{unknown[0]} is unknown here" if unknown else f"version {stored.get('version')}"
            raise RunMismatch(
                f"The rules of run {run!r} were written by another release ({what}). Use that release, or "
                "another run name."
            )
        # An option that is newer than the run has its default.
        values = {
            name: _typed(option, stored["values"][name]) if name in stored["values"] else _default(option)
            for name, option in RULES.items()
        }
        return cls(values, stored["spider"], tuple(stored["changes"]))

    def encode(self) -> str:
        """Return the text, the same one for equal rules."""
        words = {"version": VERSION, "spider": self.spider, "values": self.values, "changes": self.changes}
        return json.dumps(words, sort_keys=True, separators=(",", ":"))

    def obeyed_by(self, config: Config, names: Collection[str] = RULES.keys()) -> Config:
        """Return *config* with the rules in place of its own; only those in *names*."""
        return replace(config, **{RULES[name].name: self.values[name] for name in names})

    def differing(self, config: Config, names: Iterable[str] = RULES) -> list[Difference]:
        """Return where *config* says something else, among the settings in *names*."""
        own = {name: getattr(config, RULES[name].name) for name in RULES}
        return [
            Difference(name, self.values[name], own[name])
            for name in sorted(names)
            if self.values[name] != own[name]
        ]

    def changed(self, changes: Iterable[Difference], by: str, at_ms: int) -> Rules:
        """Return the rules with *changes* made by someone."""
        made = {change.name: [_plain(change.before), _plain(change.after)] for change in changes}
        if not made:
            return self
        values = dict(self.values) | {name: _typed(RULES[name], after) for name, (_, after) in made.items()}
        record = {"at_ms": at_ms, "by": by, "values": made}
        return replace(self, values=values, changes=(*self.changes, record)[-_MOST_CHANGES:])

    def unusual(self) -> dict[str, Any]:
        """Return the values that are not the defaults."""
        return {
            name: _plain(self.values[name])
            for name, option in RULES.items()
            if self.values[name] != _default(option)
        }

    def plain(self) -> dict[str, Any]:
        """Return all values, as in JSON."""
        return {name: _plain(value) for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule of a run, ``before``, and what somebody wants or has instead, ``after``."""

    name: str
    before: Any
    after: Any
    is_changeable: bool = field(init=False)

    def __post_init__(self) -> None:
        changeable = RULES[self.name].metadata["owner"] == CHANGEABLE
        object.__setattr__(self, "is_changeable", changeable)

    def __str__(self) -> str:
        return f"{self.name} {shown(self.before)} -> {shown(self.after)}"


def shown(value: Any) -> str:
    """Return a value as a person would write it after ``-s NAME=``."""
    value = _plain(value)
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, list):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(option: Field[Any], value: Any) -> Any:
    return None if value is None else read(option, value)


def _default(option: Field[Any]) -> Any:
    return {} if isinstance(option.default_factory, type) else option.default
