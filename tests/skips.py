"""A skipped test fails the run unless its reason is one of these: a test that never runs proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

#: Pattern of a reason -> why the run is as good without the test.
ALLOWED = {
    "WHATWG_URLS names no copy": "the deviations are in a table beside it; the whole data is 300 kB",
    "no Chromium": "the files of the page are checked, and the API it uses has tests of its own",
    "no docker-compose": "docker-compose.yml is checked by the Compose schema, and its services are run",
    "only `make containers`": "the same commands, environment and health checks are run as processes",
    "no Docker engine answers": "the same, where there is none",
    "no systemd-analyze": "a machine without systemd has no use for its units",
    "no promtool": "another parser of PromQL reads the same queries",
    "html5lib-.* could not be downloaded": "a machine without a package index",
    "this redis-server has no TLS": "redis-py's own options; other servers, such as Debian's, have it",
    "not a git checkout": "an unpacked archive has nothing to list",
    "rsync is not installed": "the same files are gathered from directories",
    "only root|only who may mount|mounting": "the build server is root; who is not cannot",
    "only Linux|nothing is forked": "what the kernel of another system does not offer",
}


class _Skips:
    def __init__(self) -> None:
        self.unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if not any(re.match(allowed, reason) for allowed in ALLOWED):
                self.unexpected.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        if self.unexpected:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unexpected:
            terminalreporter.section("skipped for reasons that tests/skips.py does not list", red=True)
            for one in self.unexpected:
                terminalreporter.line(one)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Skips())
