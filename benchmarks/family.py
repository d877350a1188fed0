"""What processes and all their descendants cost: CPU time and peak memory, by their kind."""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from measuring import process_cpu_s

_LOOK_EVERY_S = 0.025
#: Searching for new processes costs more.
_LOOKS_PER_SEARCH = 10
_END_WITHIN_S = 20.0


@dataclass(slots=True)
class Cost:
    """CPU by kind is the last sample, up to 25 ms before a process ends; the total is exact."""

    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    all_cpu_s: float = 0.0
    #: Of the largest process of the kind.
    peak_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def watch(children: list[subprocess.Popen[bytes]], kind_of: Callable[[str], str], patience_s: float) -> Cost:
    """Wait for the end of *children*. *kind_of* says what a name with a command line is.

    Raises RuntimeError when one fails, or when they are not over after *patience_s*; the others
    are ended then.
    """
    kinds: dict[int, str] = {}
    seen: dict[int, tuple[float, int]] = {}
    cost = Cost()
    waiting = {child.pid: child for child in children}
    deadline_s = time.monotonic() + patience_s
    family: list[int] = []
    try:
        for look in count():
            if not look % _LOOKS_PER_SEARCH:
                family = _family(waiting)
            for pid in family:
                _look(pid, kinds, seen, kind_of)
            for pid in list(waiting):
                # Not Popen.poll: the usage of a child comes only with its end.
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                if not ended:
                    continue
                child = waiting.pop(pid)
                child.returncode = os.waitstatus_to_exitcode(status)
                cost.all_cpu_s += usage.ru_utime + usage.ru_stime
                if child.returncode:
                    raise RuntimeError(f"{_shown(child)} ended with {child.returncode}.")
            if not waiting:
                break
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"{_shown(next(iter(waiting.values())))} was not over after {patience_s:g} s."
                )
            time.sleep(_LOOK_EVERY_S)
    finally:
        for child in waiting.values():
            _end(child)
    for pid, (cpu_s, peak_bytes) in seen.items():
        cost.cpu_s[kinds[pid]] += cpu_s
        cost.peak_bytes[kinds[pid]] = max(cost.peak_bytes[kinds[pid]], peak_bytes)
    return cost


def _end(child: subprocess.Popen[bytes]) -> None:
    # SIGTERM first: a supervisor has children of its own to stop.
    child.terminate()
    try:
        child.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _look(
    pid: int, kinds: dict[int, str], seen: dict[int, tuple[float, int]], kind_of: Callable[[str], str]
) -> None:
    try:
        # The command line is that of the parent until the child has replaced itself.
        if pid not in kinds or pid not in seen or seen[pid][0] < 0.05:
            # And for good where it was forked, as the supervisor's first children are: those have names.
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            kinds[pid] = kind_of(f"{name} {Path(f'/proc/{pid}/cmdline').read_text()}".replace("\0", " "))
        status = Path(f"/proc/{pid}/status").read_text()
        _, found, rest = status.partition("VmHWM:")
        if found:
            seen[pid] = process_cpu_s(pid), int(rest.split(None, 1)[0]) * 1024
    except (OSError, IndexError):
        pass  # it has just ended


def _family(roots: Iterable[int]) -> list[int]:
    """*roots* and all that descend from them."""
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(path.name))
        except (OSError, ValueError, IndexError):
            continue
    pids = list(roots)
    for pid in pids:
        pids += children[pid]
    return pids


def _shown(child: subprocess.Popen[bytes]) -> str:
    assert isinstance(child.args, list)
    return " ".join(str(word) for word in child.args[:4])
