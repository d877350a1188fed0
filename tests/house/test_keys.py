"""Every key is made in keys.py, and keys.py is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: How every key of ours begins, and the one scrapy-redis gave us ends.
KEY = re.compile(r"^crawl:|^\{.*\}:|:start_urls$")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string in *path* that is not a docstring."""
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_no_key_is_written_outside_keys_py() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "crawlproj").rglob("*.py"))
        if path.relative_to(ROOT).as_posix() != "crawlproj/redisio/keys.py"
        for line, text in literals(path)
        if KEY.search(text)
    ]

    assert found == []


def test_the_search_for_keys_would_find_one(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text('"""crawl: not this."""\nkey = f"crawl:{{{run}}}:pages"\n', "utf-8")

    assert [line for line, text in literals(planted) if KEY.search(text)] == [2]
