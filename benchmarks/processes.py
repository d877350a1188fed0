"""Starts scrapy as a process, and measures what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).parent.parent


def start_scrapy(
    arguments: Sequence[str],
    settings: Mapping[str, object] = {},
    *,
    cwd: Path = PROJECT,
    log: IO[bytes] | int | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start ``scrapy`` with our modules importable; without a *log* its errors go to the terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", *arguments, *(f"--set={key}={settings[key]}" for key in settings)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "benchmarks")])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if log is None else log,
        stderr=log,
    )


def cpu_of_child_s(child: subprocess.Popen[bytes]) -> float:
    """Wait for *child* to exit; returns the CPU time of it and its children, including Python's start."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{child.args!r} exited with {child.returncode}; run it by hand.")
    return usage.ru_utime + usage.ru_stime
