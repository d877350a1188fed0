"""A test run that leaves processes behind fails, and names them and the tests that started them.

What a failing test started is killed once its fixtures are done: the test has failed already.
Whatever the tests start is marked by a resource limit that Linux ignores: its soft value names the process
that runs the test, its hard value the run. Every descendant inherits both and none loses
them: its session, its parents and its environment may change; redis-server overwrites the last.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from bisect import bisect
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.patience import PATIENCE_S

#: "Max file locks": without effect since Linux 2.4.
_MARK = 10
#: Added to the mark of a run, which must be higher than that of any process.
_RUN = 1_000_000_000


class _Process(NamedTuple):
    pid: int
    started_s: float
    command: str


class Leftovers:
    """Runs in the process that runs tests: in each worker, or in the only one."""

    def __init__(self) -> None:
        self._number = os.getpid()
        self._called_s = 0.0
        self._has_failed = False
        self._tests: list[tuple[float, str]] = [(0.0, "collection")]
        resource.setrlimit(_MARK, (self._number, resource.getrlimit(_MARK)[1]))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests.append((_now_s(), nodeid))

    def pytest_runtest_call(self) -> None:
        self._called_s = _now_s()
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed and report.when == "call"

    def pytest_runtest_logfinish(self) -> None:
        if self._has_failed:
            _kill(one for one in _marked(self._number) if one.started_s > self._called_s)

    # After pytest's own, which ends what the fixtures of the session hold.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        left = _end(self._number, PATIENCE_S)
        reported = [f"{one.pid} of {self._test_of(one)}: {one.command}" for one in left]
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            _report(session.config, reported)
        else:
            output["leftovers"] = reported

    def _test_of(self, process: _Process) -> str:
        return self._tests[bisect(self._tests, (process.started_s, "")) - 1][1]


class LeftoversOfWorkers:
    """Runs in the process that has workers: finds what those left that were killed, as on Ctrl-C."""

    def __init__(self) -> None:
        self._number = _RUN + os.getpid()
        resource.setrlimit(_MARK, (os.getpid(), self._number))

    # After that of xdist, which ends the workers.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # No fixture has stopped anything then.
        is_interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        left = _end(self._number, 0.0 if is_interrupted else PATIENCE_S)
        _report(session.config, [f"{one.pid}: {one.command}" for one in left])


def _end(number: int, within_s: float) -> list[_Process]:
    """Wait until what *number* has marked has ended; kill the rest and return it."""
    deadline = time.monotonic() + within_s
    while (left := list(_marked(number))) and time.monotonic() < deadline:
        time.sleep(0.05)
    _kill(left)
    return left


def _marked(number: int) -> Iterator[_Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and str(number) in _marks(folder):
                yield _read(folder)
        except (FileNotFoundError, ProcessLookupError):
            continue


def _marks(folder: Path) -> list[str]:
    """The marks of a process; none of one that has ended and is only waited for."""
    [limit] = [line for line in (folder / "limits").read_text().splitlines() if "file locks" in line]
    return [] if ") Z " in (folder / "stat").read_text() else limit.split()[3:5]


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _kill(processes: Iterable[_Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _read(folder: Path) -> _Process:
    after_name = (folder / "stat").read_text().rpartition(")")[2].split()
    # In whole ticks, the one that has not ended included.
    started_s = (int(after_name[19]) + 1) / os.sysconf("SC_CLK_TCK")
    command = (folder / "cmdline").read_text().replace("\0", " ").strip()
    return _Process(int(folder.name), started_s, command or (folder / "comm").read_text().strip())


_LEFT = pytest.StashKey[list[str]]()


def _report(config: pytest.Config, left: list[str]) -> None:
    config.stash.setdefault(_LEFT, []).extend(left)


def pytest_configure(config: pytest.Config) -> None:
    runs_tests = hasattr(config, "workeroutput") or config.getoption("dist", "no") == "no"
    config.pluginmanager.register(Leftovers() if runs_tests else LeftoversOfWorkers())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _report(node.config, getattr(node, "workeroutput", {}).get("leftovers", []))


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    if session.config.stash.get(_LEFT, None):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(_LEFT, None):
        terminalreporter.section("processes left behind, now killed", red=True)
        for one in left:
            terminalreporter.line(one)
