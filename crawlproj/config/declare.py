"""How an option is declared, and how its value is read, checked and described."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import Field, field
from pathlib import Path
from typing import Any

from crawlproj.errors import BadSetting, Problem

PREFIX = "CRAWL_"
#: To whom the value of an option belongs: to a process; to the run, which keeps the one it was created with;
#: or to the run, where it may be changed at any time.
PROCESS, FIXED, CHANGEABLE = "process", "run", "run, changeable"
#: What may be said of an option. *renamed* maps old names of choices to new ones, a *secret* value is never
#: shown, an *optional* list may be empty, an *example* shows what to give where the default does not.
_RULES: dict[str, Any] = {
    "least": None,
    "most": None,
    "choices": (),
    "renamed": {},
    "secret": False,
    "optional": False,
    "example": "",
}
#: Title and introduction of the group that the options declared next are in.
_group = ("", "")
#: To whom they belong.
_owner = PROCESS


def group(title: str, introduction: str) -> None:
    """Begin a group of options, a section of docs/settings.md."""
    global _group
    _group = title, introduction
    belong_to(PROCESS)


def belong_to(owner: str) -> None:
    """Say to whom the next options of the group belong."""
    global _owner
    _owner = owner


def ours(default: Any, sentence: str, **rules: Any) -> Any:
    """Declare an option of this project, read from ``CRAWL_<ATTRIBUTE>``."""
    return _declare(default, sentence, PREFIX, rules)


def theirs(default: Any, sentence: str, **rules: Any) -> Any:
    """Declare an option under the name that Scrapy or scrapy-redis gave it, ``<ATTRIBUTE>``."""
    return _declare(default, sentence, "", rules)


def _declare(default: Any, sentence: str, prefix: str, rules: dict[str, Any]) -> Any:
    said = {"group": _group, "owner": _owner, "sentence": sentence, "prefix": prefix}
    metadata = {**said, **_RULES, **rules}
    shown = not metadata["secret"]
    if isinstance(default, dict):
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=default, repr=shown, metadata=metadata)


def name_of(option: Field[Any]) -> str:
    return f"{option.metadata['prefix']}{option.name.upper()}"


def noun_of(option: Field[Any]) -> str:
    """Return what a person would call the option's type."""
    return _READERS[str(option.type)][1]


def default_of(option: Field[Any]) -> str:
    """Return the default as a person would write it in settings.py; empty for none."""
    default = option.default
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) if isinstance(default, (int, str, Path)) else ""


def limits_of(option: Field[Any]) -> str:
    rules = option.metadata
    if rules["choices"]:
        return ", ".join(rules["choices"])
    least, most = rules["least"], rules["most"]
    if least is None:
        return ""
    return f"{least} to {most}" if most is not None else f"at least {least}"


def read(option: Field[Any], value: object) -> Any:
    """Return *value* as the option's type; raises BadSetting unless it is valid."""
    name, rules = name_of(option), option.metadata
    reader, noun = _READERS[str(option.type)]
    shown = "" if rules["secret"] else f"={value!r}"

    def bad(wrong: str) -> BadSetting:
        given = "" if rules["secret"] else str(value)
        return BadSetting(Problem(name, given, f"{name}{shown} {wrong}.", _remedy(option)))

    try:
        # An empty list: -s CRAWL_EXCLUDE= on the command line.
        result = () if rules["optional"] and value in ("", (), []) else reader(value)
    except (ValueError, TypeError, KeyError):
        raise bad(f"is not a valid {noun}") from None
    if rules["renamed"] and result in rules["renamed"]:
        result = rules["renamed"][result]
        warnings.warn(f"{name}{shown} is now called {result!r}.", FutureWarning, stacklevel=2)
    chosen = result if isinstance(result, tuple) else (result,)
    if rules["choices"] and not set(chosen) <= set(rules["choices"]):
        raise bad("is not one of its choices")
    least, most = rules["least"], rules["most"]
    if (least is not None and result < least) or (most is not None and result > most):
        raise bad("is out of range")
    return result


def _remedy(option: Field[Any]) -> str:
    noun, limits, default = noun_of(option), limits_of(option), default_of(option)
    if option.metadata["choices"]:
        return f"Choose from {limits}."
    shown = option.metadata["example"] or default
    example = f", such as {shown}" if shown else ""
    return f"Give {'an' if noun[0] in 'aeiou' else 'a'} {noun}{limits and f' ({limits})'}{example}."


def _read_int(value: object) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    return int(value)  # type: ignore[call-overload,no-any-return]  # any other type raises TypeError


def _read_float(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)  # type: ignore[arg-type]  # any other type raises TypeError
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_bool(value: object) -> bool:
    word = str(value).lower()
    if word not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ValueError
    return word in ("true", "1", "yes", "on")


def _read_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
    if not isinstance(value, (list, tuple)):
        raise TypeError
    # A name given twice is meant once.
    names = dict.fromkeys(_read_str(name).strip() for name in value)
    if not names or "" in names:
        raise ValueError
    return tuple(names)


def _read_path(value: object) -> Path:
    if not value:
        raise ValueError
    return Path(value)  # type: ignore[arg-type]  # any other type raises TypeError


def _read_mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _read_slots(value: object) -> Mapping[str, Mapping[str, Any]]:
    return {domain: _read_mapping(slot) for domain, slot in _read_mapping(value).items()}


#: How the value of each declared type is read, and what a person would call it.
_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "int": (_read_int, "int"),
    "float": (_read_float, "float"),
    "bool": (_read_bool, "bool (true or false)"),
    "str": (_read_str, "text"),
    "str | None": (lambda value: _read_str(value) or None, "text"),
    "Path": (_read_path, "path"),
    "tuple[str, ...]": (_read_names, "list (or names separated by commas)"),
    "Mapping[str, Any]": (_read_mapping, "dict (or JSON object)"),
    "Mapping[str, Mapping[str, Any]]": (_read_slots, "dict of dicts (or JSON object of objects)"),
}
