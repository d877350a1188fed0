"""The language of a text: by its script, or by how its words start and end. Pure.

The starts and ends of words are in ``languages.txt``, made by ``benchmarks/make_languages.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from itertools import compress
from struct import Struct

#: The part of a long text that is read: three pieces, none of them its start, which is often a menu; and
#: larger ones if these are not conclusive.
_PIECE_CHARS = (120, 1000)
#: Fewer words than this are not enough; more are not read, so that no score outgrows its 16 bits.
_FEWEST_WORDS = 6
_MOST_WORDS = 700
#: How many letters at the start and at the end of a word count; the table is made for as many.
AFFIX_CHARS = 4
#: How far ahead of the others the first language must be: scores are logarithms, four for each time that a
#: text is twice as likely. With the second, no larger pieces are read.
_LEAD = 24
_CLEAR_LEAD = 120
#: The language that a page says it is in may be behind by this share.
_BEHIND = 0.1

WORD = re.compile(r"[^\W\d_]+")
_NOT_LATIN = re.compile("[\u0370-\u1dff\u1f00-\u1fff\u3040-\ud7af]")
_HINT = re.compile(r"[a-z]{2,3}(?=$|[-_])")
#: Other codes for the same languages.
_ALIASES = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "fil": "tl", "cmn": "zh"}

#: Scripts that one language of the web writes; first and last character.
_SCRIPTS = (
    ("el", 0x0370, 0x03FF),
    ("hy", 0x0530, 0x058F),
    ("he", 0x0590, 0x05FF),
    ("bn", 0x0980, 0x09FF),
    ("pa", 0x0A00, 0x0A7F),
    ("gu", 0x0A80, 0x0AFF),
    ("or", 0x0B00, 0x0B7F),
    ("ta", 0x0B80, 0x0BFF),
    ("te", 0x0C00, 0x0C7F),
    ("kn", 0x0C80, 0x0CFF),
    ("ml", 0x0D00, 0x0D7F),
    ("si", 0x0D80, 0x0DFF),
    ("th", 0x0E00, 0x0E7F),
    ("lo", 0x0E80, 0x0EFF),
    ("bo", 0x0F00, 0x0FFF),
    ("my", 0x1000, 0x109F),
    ("ka", 0x10A0, 0x10FF),
    ("am", 0x1200, 0x137F),
    ("km", 0x1780, 0x17FF),
    ("el", 0x1F00, 0x1FFF),
    ("ja", 0x3040, 0x30FF),
    ("zh", 0x3400, 0x4DBF),
    ("zh", 0x4E00, 0x9FFF),
    ("ko", 0xAC00, 0xD7AF),
)
_BLOCK_BITS = 4
_LANGUAGE_OF_BLOCK = {
    block: language
    for language, first, last in _SCRIPTS
    for block in range(first >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1)
}
#: A character of these says as much as three letters.
_DENSE = ("ja", "zh", "ko")
_DENSITY = 3
#: Japanese writes mostly in the characters of Chinese; this share of its own is proof.
_KANA_SHARE = 0.1


def _read_table() -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Return the languages, and what the starts and the ends of words say for each of them.

    That is one number for each, in which every language has sixteen bits of its own: sums of such
    numbers are the scores of all languages at once.
    """
    languages: list[str] = []
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    # Not by its path: in an egg it has none.
    table = files("crawlproj.parsing").joinpath("languages.txt").read_text(encoding="utf-8")
    for line in table.splitlines():
        language, *columns = line.split("\t")
        for affixes, column in zip((starts, ends), columns, strict=True):
            weight = 0
            for part in column.split():
                if part.isdecimal():
                    weight = int(part) << 16 * len(languages)
                else:
                    affixes[part] = affixes.get(part, 0) | weight
        languages.append(language)
    return languages, starts, ends


_LANGUAGES, _STARTS, _ENDS = _read_table()
_SCORES = Struct(f"<{len(_LANGUAGES)}H")


def language_of(text: str, hint: str = "") -> str | None:
    """Return the ISO 639 code of the language of *text*, or None when it is not clear.

    *hint* is what the page says of itself, as in ``<html lang="en-GB">``: templates say it of pages in
    other languages, so it only decides where the text is ambiguous.
    """
    claimed = match[0] if (match := _HINT.match(hint.strip().lower())) else ""
    claimed = _ALIASES.get(claimed, claimed)
    for piece_chars in _PIECE_CHARS:
        sample = _sample(text, piece_chars)
        if not sample.isascii() and _NOT_LATIN.search(sample) and (language := _by_script(sample)):
            return language
        words = WORD.findall(sample)[:_MOST_WORDS]
        if len(words) >= _FEWEST_WORDS:
            scores = _scores(words)
            best = max(scores)
            language = _LANGUAGES[scores.index(best)]
            lead = best - max(compress(scores, map(language.__ne__, _LANGUAGES)))
            if lead >= _CLEAR_LEAD:
                return language
        if len(text) <= 3 * piece_chars:
            break
    if len(words) < _FEWEST_WORDS:
        return claimed or None
    if claimed in _LANGUAGES and scores[_LANGUAGES.index(claimed)] >= best * (1 - _BEHIND):
        return claimed
    return language if lead >= _LEAD else claimed or None


def _scores(words: list[str]) -> tuple[int, ...]:
    total = sum(filter(None, map(_STARTS.get, [word[:AFFIX_CHARS] for word in words])))
    total += sum(filter(None, map(_ENDS.get, [word[-AFFIX_CHARS:] for word in words])))
    return _SCORES.unpack(total.to_bytes(_SCORES.size, "little"))


def _sample(text: str, piece_chars: int) -> str:
    length = len(text)
    if length <= 3 * piece_chars:
        return text.lower()
    starts = (length // 5, length // 2, length * 4 // 5 - piece_chars)
    return " ".join([text[start : start + piece_chars] for start in starts]).lower()


def _by_script(sample: str) -> str | None:
    """Return the language whose own script most of *sample* is in, None for scripts of several languages."""
    some = sample[::4]
    letters = sum(map(str.isalpha, some))
    found = Counter(map(_LANGUAGE_OF_BLOCK.get, [ord(character) >> _BLOCK_BITS for character in some]))
    del found[None]
    if not found:
        return None
    language, count = found.most_common(1)[0]
    if language not in _DENSE:
        return language if count > letters / 2 else None
    dense = sum(found[other] for other in _DENSE)
    if dense * _DENSITY < letters - dense:
        return None
    return "ja" if language == "zh" and found["ja"] > _KANA_SHARE * dense else language
