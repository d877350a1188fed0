"""The names of authors, out of what pages write where a name should be. Pure."""

from __future__ import annotations

import re
from html import unescape

from crawlproj.parsing.dates import MONTH_OF

_MOST_CHARS = 200
_MOST_AUTHORS = 50
#: A byline with more is a sentence; and what follows the first ones is about other people.
_MOST_WORDS = 5
_MOST_BYLINES = 3

_PREFIX = re.compile(
    r"(?:(?i:written|posted|post|published|recipe|guide|story|words|article|report|text|edited|veröffentlicht"
    r"|eingestellt|erstellt|geschrieben|publié|écrit|escrito|publicado|scritto|beitrag)?\s*"
    r"(?:[Bb]y|BY|[Vv]on|VON|[Pp]ar|[Pp]or|[Dd]oor)(?=[\sA-ZÀ-Ý:])"
    r"|(?i:authors?|auteure?s?|autore?n?)(?=\s*:|\s)|(?i:text|words)\s*:)[\s:]*"
)
_MAIL_OR_URL = re.compile(
    r"[(<\[]?(?:https?://\S+|www\.\S+|[^\s<>()@]{1,64}@[^\s<>()@]{1,100})[)>\]]?", re.IGNORECASE
)
#: Where the name ends in a line that has more than that.
_END_OF_NAME = re.compile(
    r"[\d|·•»—{}<>*(/@]|\s[-–]\s|, |\b(?:on|am|at|in|from|via|sagt|says|[Uu]pdated|[Pp]ublished|[Pp]osted)\b"
)
_MONTH_AT_END = re.compile(rf"(?:{'|'.join(sorted(MONTH_OF, key=len, reverse=True))})\.?,?$", re.IGNORECASE)
_AROUND = " ,;:|/-–—•·()"
#: Not the name of a person.
_NOBODY = frozenset({
    "admin", "administrator", "anonymous", "author", "authors", "default", "editor", "false", "guest",
    "n/a", "na", "name", "none", "null", "root", "superuser", "true", "undefined", "unknown", "user",
    "webmaster", "wordpress",
})  # fmt: skip


def authors_of(names: list[str]) -> list[str]:
    """Return the people in *names*, each once: without "By", addresses and placeholders."""
    authors: dict[str, str] = {}
    for name in names[: 4 * _MOST_AUTHORS]:
        if len(name) > _MOST_AUTHORS * _MOST_CHARS:
            continue
        for part in unescape(name).split(";") if ";" in name else (name,):
            if person := _person(part):
                authors.setdefault(person.casefold(), person)
    return list(authors.values())[:_MOST_AUTHORS]


def in_bylines(bylines: list[str]) -> list[str]:
    """Return the name in the first of *bylines* that is little more than a name."""
    for line in bylines[:_MOST_BYLINES]:
        line = " ".join(line[:_MOST_CHARS].split())
        start = prefix.end() if (prefix := _PREFIX.match(line)) else 0
        end = rest.start() if (rest := _END_OF_NAME.search(line, start)) else len(line)
        name = line[start:end].strip()
        if rest is not None and rest[0].isdecimal():
            name = _MONTH_AT_END.sub("", name).strip()
        is_comment = rest is not None and rest[0] in ("sagt", "says")
        if name and not is_comment and ";" not in line and len(name.split()) <= _MOST_WORDS:
            return [name]
    return []


def _person(name: str) -> str | None:
    """Return *name* as one line, without what does not belong to it; None if nothing is left."""
    name = " ".join(name.split())
    if name.startswith(("http:", "https:", "//", "@")):
        return None
    if "@" in name or "://" in name or "www." in name:
        name = _MAIL_OR_URL.sub("", name)
    start = prefix.end() if (prefix := _PREFIX.match(name)) else 0
    name = name[start:].strip(_AROUND)
    if not 1 < len(name) <= _MOST_CHARS or name.lower() in _NOBODY or not any(map(str.isalpha, name)):
        return None
    return name
