"""Pages printed from the code say what the code says now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("settings.md", "crawlproj.config"),
        ("keyspace.md", "crawlproj.redisio.keys"),
        ("metrics.md", "crawlproj.observe.metrics"),
        ("openapi.json", "crawlproj.api.description"),
    ],
)
def test_a_generated_page_is_fresh(page: str, module: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip()
    assert printed == (ROOT / "docs" / page).read_text("utf-8"), f"run `make fmt`: docs/{page} is stale"
