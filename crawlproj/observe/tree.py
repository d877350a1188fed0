"""The memory of a process and all its descendants."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")


def tree_memory_bytes(pid: int) -> int:
    """Return the memory of process *pid* and of all below it, shared pages counted once; 0 without /proc.

    Processes that end meanwhile are left out.
    """
    children = defaultdict(list)
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # The name before it may contain anything, also blanks and parentheses.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children[parent].append(int(path.parent.name))
    total, todo = 0, [pid]
    while todo:
        process = todo.pop()
        todo += children[process]
        total += _proportional_bytes(process)
    return total


def _proportional_bytes(pid: int) -> int:
    """Return the memory of one process, each page it shares with others divided among them."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return 0
