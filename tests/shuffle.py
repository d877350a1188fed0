"""Tests run in random order: within each file, and among the files, except that the slow ones come first.

The order is printed as `--seed=N`; pass that to repeat it.
"""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

#: The files that take longest, with their seconds. They run first, so that none is left for the end.
SLOW = {
    "test_crawl.py": 184,
    "test_supervisor.py": 180,
    "test_politeness.py": 111,
    "test_parsers.py": 79,
    "test_run_command.py": 64,
    "test_scrapyd.py": 50,
    "test_runs.py": 38,
    "test_addresses.py": 38,
    "test_single_mode.py": 37,
    "test_hostile.py": 37,
    "test_safety.py": 36,
    "test_other_spiders.py": 35,
    "test_ways_on.py": 34,
    "test_metrics.py": 24,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="the order of tests, as an earlier run printed it")


def pytest_configure(config: pytest.Config) -> None:
    # All workers must agree.
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = random.SystemRandom().randrange(1_000_000) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"order: --seed={config.option.seed}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus:
        terminalreporter.line(f"The same order again: --seed={config.option.seed}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chance = random.Random(config.option.seed)
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    chance.shuffle(files)
    files.sort(key=lambda tests: _seconds(tests[0].path), reverse=True)
    for tests in files:
        chance.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


def _seconds(path: Path) -> int:
    """How long a file takes; the others of tests/e2e less than those named, and the rest next to nothing."""
    return SLOW.get(path.name, 20) if path.parent.name == "e2e" else 0
