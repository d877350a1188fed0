"""The memory of a parser. In a process of its own: what is set there stays set."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import resource
from selectolax.lexbor import LexborHTMLParser
from crawlproj.parsing.memory import settle_memory
settle_memory()
page = "<p>some <b>text</b></p>" * 20_000
for _ in range(3):
    LexborHTMLParser(page)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    LexborHTMLParser(page)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_memory_of_a_page_is_used_again_for_the_next() -> None:
    found = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)

    # Without it, thousands: the tree is returned to the system and fetched again for each page.
    assert int(found.stdout) < 500


_BOMB = """
import sys
from crawlproj.model.records import Page
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.memory import limit_memory, settle_memory

def read(body):
    page = Page("http://a.test/", "web", "a.test", 0, 200, 0, 0, {"Content-Type": "text/html"}, body)
    return extract(page, ExtractOptions(fast=sys.argv[1] == "C"))

settle_memory()
limit_memory(500_000_000)
# Every paragraph opens all of these again.
bomb = b"<div>" + b"".join(b"<font a=%d>" % n for n in range(900)) + b"</div>" + b"<p>x" * 20_000
for _ in range(3):
    try:
        read(bomb)
        print("it was read")
    except Exception as exc:
        print(type(exc).__name__)
print(read(b"<title>good</title>").title)
"""


@pytest.mark.parametrize("reader", ["C", "Python"])
def test_a_page_that_takes_too_much_memory_fails_and_the_next_one_is_read(reader: str) -> None:
    found = subprocess.run([sys.executable, "-c", _BOMB, reader], capture_output=True, text=True, check=True)

    *failed, good = found.stdout.split()
    assert len(failed) == 3
    assert set(failed) <= {"MemoryError", "ValueError", "SelectolaxError"}
    assert good == "good"
