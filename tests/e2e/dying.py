"""A scrapy command that is killed at one crash point after the other, and started again each time.

``python -m tests.e2e.dying DEATHS PLAN python -m scrapy.cmdline ARGUMENT...``: PLAN is a list of crashes (see
`Crash.read`), DEATHS a file that gets a line for each death. The exit code is that of the last process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Self

import scrapy.commands
from scrapy.cmdline import execute

import crawlproj.commands
from crawlproj.observe import crashpoints

_PR_SET_CHILD_SUBREAPER = 36
#: Imported once and not by every process that is started.
_MODULES = (
    *("crawlproj.settings", "crawlproj.scheduler", "crawlproj.spiders.web", "crawlproj.parsing.thread"),
    *("crawlproj.extensions.components", "crawlproj.middlewares", "crawlproj.pipelines"),
    "crawlproj.shard.single",
    *(module.name for module in iter_modules(scrapy.commands.__path__, "scrapy.commands.")),
    *(module.name for module in iter_modules(crawlproj.commands.__path__, "crawlproj.commands.")),
)


@dataclass(frozen=True, slots=True)
class Crash:
    """Death when a process passes *point* for the *nth* time.

    *who* dies: the "process" that was started, its "child" alone, "both" when the child passes it, or "any"
    that passes it together with the one that was started.
    """

    point: str
    nth: int = 1
    who: str = "process"

    @classmethod
    def read(cls, text: str, who: str = "process") -> Self:
        """Read ``point``, ``point:3``, ``point@child`` or ``point:3@both``; *who* unless it says."""
        head, _, said = text.partition("@")
        point, _, nth = head.partition(":")
        return cls(point, int(nth or 1), said or who)

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}@{self.who}"


def killed_at(plan: Sequence[Crash], deaths: Path) -> list[str]:
    """Return what to put before a scrapy command that is to die as in *plan*."""
    deaths.touch()
    return [sys.executable, "-m", __name__, str(deaths), " ".join(map(str, plan))]


class Executioner:
    """Watches the points that this process and its forks pass, and kills at the one whose turn it is."""

    def __init__(self, deaths: Path, plan: Sequence[Crash]) -> None:
        self._deaths = deaths
        self._plan = plan
        self._started = os.getpid()
        self._seen: Counter[int] = Counter()

    def __call__(self, point: str) -> None:
        turn = count_deaths(self._deaths)
        if turn == len(self._plan):
            return
        crash = self._plan[turn]
        is_started = os.getpid() == self._started
        if point != crash.point or (crash.who != "any" and is_started != (crash.who == "process")):
            return
        self._seen[turn] += 1
        if self._seen[turn] < crash.nth:
            return
        with self._deaths.open("a") as file:
            file.write(f"{point}\n")
        if crash.who in ("both", "any"):
            os.kill(self._started, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def count_deaths(deaths: Path) -> int:
    return deaths.read_text().count("\n")


def main(deaths: Path, plan: Sequence[Crash], arguments: Sequence[str]) -> int:
    for name in _MODULES:
        import_module(name)
    # A child whose parent was killed is ours to bury.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    while True:
        before = count_deaths(deaths)
        pid = os.fork()
        if pid == 0:
            crashpoints.watcher = Executioner(deaths, plan)
            sys.argv = ["scrapy", *arguments]
            execute()
        code = _wait_for(pid)
        if code != -signal.SIGKILL or count_deaths(deaths) == before:
            return code


def _wait_for(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Crash.read(text) for text in sys.argv[2].split()], sys.argv[6:]))
