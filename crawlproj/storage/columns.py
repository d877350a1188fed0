"""Columns for items of any shape: their names from the keys, their types from the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

#: What Spark does not take in the name of a column.
_ODD = re.compile(r"[ ,;{}()\n\t=]")
_INT64 = range(-(2**63), 2**63)
#: Integers that a float holds exactly.
_EXACT = range(-(2**53), 2**53 + 1)
#: The kinds of values that have a type; all others are written as text.
_TYPES = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
}
_LIST = "list of "


class ItemColumns:
    """The columns of *items*, in the order in which their keys are first seen.

    A column has the type of its values where they agree: bool, integer, float, text, or a list of one of
    these. Otherwise it is text, and what is not text is written as JSON.
    """

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self._kinds: dict[str, str] = {}
        for item in items:
            for key, value in item.items():
                self._kinds[key] = _common(self._kinds.get(key, "none"), _kind_of(value))
        self._names = _names_of(self._kinds)
        self._types = {key: _type_of(kind) for key, kind in self._kinds.items()}

    @property
    def keys(self) -> list[str]:
        return list(self._kinds)

    def schema(self) -> pa.Schema:
        """Return the schema of a Parquet file, with names that every tool takes."""
        return pa.schema([(name, self._types[key]) for key, name in self._names.items()])

    def cells(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of *item* in that file."""
        return {
            name: _as_text(item.get(key)) if self._types[key] == pa.string() else item.get(key)
            for key, name in self._names.items()
        }


def _names_of(keys: Iterable[str]) -> dict[str, str]:
    """Return a name for each key; no two are the same, in capitals or not."""
    names: dict[str, str] = {}
    for key in keys:
        plain = name = _ODD.sub("_", key) or "_"
        number = 2
        while name.lower() in map(str.lower, names.values()):
            name, number = f"{plain}_{number}", number + 1
        names[key] = name
    return names


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "bool"
        case int():
            return "int" if value in _EXACT else "long" if value in _INT64 else "mixed"
        case float():
            return "float"
        case str():
            return "text"
        case list():
            return _list_of(reduce(_common, map(_kind_of, value), "none"))
        case _:
            return "mixed"


def _list_of(kind: str) -> str:
    return f"{_LIST}{kind}" if kind in _TYPES or kind == "none" else "mixed"


def _common(one: str, other: str) -> str:
    """Return the kind that holds the values of both."""
    if one == other or other == "none":
        return one
    if one == "none":
        return other
    if {one, other} == {"int", "float"}:
        return "float"
    if {one, other} == {"int", "long"}:
        return "long"
    if one.startswith(_LIST) and other.startswith(_LIST):
        return _list_of(_common(one.removeprefix(_LIST), other.removeprefix(_LIST)))
    return "mixed"


def _type_of(kind: str) -> pa.DataType:
    members = _TYPES.get(kind.removeprefix(_LIST))
    if members is None:
        return pa.string()
    return pa.list_(members) if kind.startswith(_LIST) else members


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
