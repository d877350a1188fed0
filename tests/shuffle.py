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
    "test_supervisor.py": 209,
    "test_crawl.py": 186,
    "test_politeness.py": 114,
    "test_parsers.py": 98,
    "test_run_command.py": 95,
    "test_crash_points.py": 78,
    "test_model.py": 70,
    "test_serve.py": 68,
    "test_scrapyd.py": 59,
    "test_both_ways.py": 54,
    "test_other_spiders.py": 51,
    "test_single_mode.py": 47,
    "test_runs.py": 45,
    "test_crash_points_of_supervisors.py": 42,
    "test_hostile.py": 38,
    "test_chaos.py": 38,
    "test_addresses.py": 37,
    "test_web_page.py": 37,
    "test_scrapy_redis_users.py": 36,
    "test_rules.py": 34,
    "test_safety.py": 33,
    "test_ways_on.py": 32,
    "test_examples.py": 32,
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
    return SLOW.get(path.name, 20) if path.parent.name in ("e2e", "model") else 0
