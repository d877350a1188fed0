"""docker-compose.yml as Compose reads it: anchors resolved, variables replaced."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

PROJECT = Path(__file__).parents[1]
#: $$ stands for a dollar; ${NAME} and ${NAME:-default} for what the person who types has set.
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text("utf-8"))


def read_compose(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file with *variables* set; a plain ``$`` in it is an error, as it is for Compose."""
    compose: dict[str, Any] = _filled_in(read_yaml(PROJECT / "docker-compose.yml"), variables or {})
    return compose


def command_of(service: Mapping[str, Any]) -> list[str]:
    command = service.get("command", [])
    return shlex.split(command) if isinstance(command, str) else list(command)


def _filled_in(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled_in(part, variables) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled_in(part, variables) for part in value]
    return _fill(value, variables) if isinstance(value, str) else value


def _fill(text: str, variables: Mapping[str, str]) -> str:
    assert "$" not in _VARIABLE.sub("", text), f"Compose would not understand the $ in {text!r}"
    return _VARIABLE.sub(
        lambda found: "$" if found["dollar"] else variables.get(found["name"]) or found["default"] or "", text
    )
