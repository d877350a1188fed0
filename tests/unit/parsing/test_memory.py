"""The memory of a parser. In a process of its own: what is set there stays set."""

from __future__ import annotations

import subprocess
import sys

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
