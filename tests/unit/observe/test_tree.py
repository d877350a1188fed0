"""The memory of a tree of processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crawlproj.observe.tree import tree_memory_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

#: A process whose child has 40 MB of its own.
_PARENT = """
import subprocess, sys
child = "import sys; kept = bytearray(b'x') * 40_000_000; print(flush=True); sys.stdin.read()"
process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
sys.stdin.read()
process.communicate()
"""


def test_the_memory_of_a_process_includes_that_of_its_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        both, alone = tree_memory_bytes(parent.pid), tree_memory_bytes(child)
        parent.stdin.close()

    assert alone > 40_000_000
    assert both > alone
    assert tree_memory_bytes(child) == 0
