"""The header `Link` (RFC 8288): what a server says of a page whose type has no elements for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: What stands behind it is not read.
_MOST_CHARS = 16_384
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_PARAMETER = rf'\s*+;\s*+(?:[^\s=;,"<]++(?:\s*+=\s*+(?:{_QUOTED}|[^\s;,"]*+))?+)?+'
_LINK = re.compile(rf"<([^>]*+)>((?:{_PARAMETER})*+)", re.DOTALL)
_NAMED = re.compile(rf'([^\s=;,"]++)\s*+=\s*+({_QUOTED}|[^\s;,"]*+)', re.DOTALL)


def link_targets(header: str) -> Iterator[tuple[set[str], str]]:
    """Yield the relations of each link of *header*, in small letters, and its target as it is written.

    Links of something else than the page, which have an ``anchor``, are left out; broken ones are skipped.
    """
    for target, parameters in _LINK.findall(header[:_MOST_CHARS]):
        said: dict[str, str] = {}
        for name, value in _NAMED.findall(parameters):
            # Of several the first counts.
            said.setdefault(name.lower(), value.strip('"'))
        if not said.get("anchor"):
            yield set(said.get("rel", "").lower().split()), target.strip()
