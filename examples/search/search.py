"""A full-text index of crawled pages in one SQLite file.

scrapy pages --run RUN --columns url,title,text --format jsonl | python search.py build FILE
python search.py find FILE WORDS
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable

#: Words are folded to their stems, so that `tasting` finds `taste`; accents do not matter.
CREATE = "CREATE VIRTUAL TABLE pages USING fts5(url UNINDEXED, title, text, tokenize = 'porter unicode61')"
#: A word in the title counts as much as five in the text.
FIND = """
    SELECT title, url, snippet(pages, 2, '[', ']', ' ... ', 12) FROM pages
    WHERE pages MATCH ? ORDER BY bm25(pages, 0, 5, 1) LIMIT 10
"""


def build(database: sqlite3.Connection, lines: Iterable[str]) -> int:
    """Index the pages that have text, one JSON object per line; returns how many."""
    with database:
        database.execute("DROP TABLE IF EXISTS pages")
        database.execute(CREATE)
        rows = (page for page in map(json.loads, lines) if page["text"])
        added = database.executemany("INSERT INTO pages VALUES (:url, :title, :text)", rows)
    return added.rowcount


def find(database: sqlite3.Connection, words: list[str]) -> list[tuple[str, str, str]]:
    """Return title, URL and an excerpt of the best pages that have all *words*, best first."""
    # In quotation marks a word is only a word, whatever signs it has.
    quoted = " ".join('"{}"'.format(word.replace('"', '""')) for word in words)
    return database.execute(FIND, [quoted]).fetchall()


def main() -> None:
    match sys.argv[1:]:
        case ["build", file]:
            print(f"{build(sqlite3.connect(file), sys.stdin)} pages are in {file}")
        case ["find", file, word, *words]:
            for title, url, excerpt in find(sqlite3.connect(file), [word, *words]):
                print(f"{title}\n  {url}\n  {' '.join(excerpt.split())}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
