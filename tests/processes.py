"""Finds the processes of a crawl in /proc, as an operator would."""

from __future__ import annotations

import re
from pathlib import Path

#: How the titles of processes begin.
SHARD = "shard "
PARSER = "parser "


def title_of(process: Path) -> str:
    """Return what a process of /proc is: 'shard 1', 'parser 0', '' for another."""
    name = (process / "comm").read_text().strip()
    if name.startswith((SHARD, PARSER)):
        return name
    # One that was restarted is a Python of its own, identified by its command line.
    command = (process / "cmdline").read_text(errors="replace")
    if shard := re.search(r"-ashard=(\d+)", command):
        return f"{SHARD}{shard[1]}"
    return PARSER if "\0parser\0" in command else ""


def children_of(pid: int, title: str = "") -> list[int]:
    """Return the children of a process whose title begins with *title*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and title_of(process).startswith(title):
                found.append(int(process.name))
        except (OSError, IndexError):
            continue
    return sorted(found)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
