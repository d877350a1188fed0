"""The memory of a parser. In a process of its own: what is set there stays set."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import resource
from crawlproj.parsing.html import read_html
from crawlproj.parsing.memory import settle_memory
settle_memory()
page = b"<p>some <b>text</b></p>" * 2_000
for _ in range(3):
    read_html(page)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    read_html(page)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_memory_of_a_page_is_used_again_for_the_next() -> None:
    found = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)

    # Without it, thousands: what a page takes is returned to the system and fetched again for each page.
    assert int(found.stdout) < 500


_BOMB = """
from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.memory import limit_memory, settle_memory

def read(body):
    page = Page("http://a.test/", "web", "a.test", 0, 200, 0, 0, {"Content-Type": "text/html"}, body)
    return extract(page, ExtractOptions(Config(max_body=50_000_000)))

settle_memory()
limit_memory(200_000_000)
bomb = b"<p class=x>x" * 2_000_000
for _ in range(3):
    try:
        read(bomb)
        print("it was read")
    except Exception as exc:
        print(type(exc).__name__)
print(read(b"<title>good</title>").title)
"""


def test_a_page_that_takes_too_much_memory_fails_and_the_next_one_is_read() -> None:
    found = subprocess.run([sys.executable, "-c", _BOMB], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["MemoryError"] * 3 + ["good"]
