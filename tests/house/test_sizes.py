"""A module is one idea and a function one thought: neither grows beyond what can be read at once."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "crawlproj"
MOST_MODULE_LINES, MOST_FUNCTION_LINES = 400, 60


def test_no_module_and_no_function_is_too_long() -> None:
    long = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        name = path.relative_to(PACKAGE)
        if (lines := len(text.splitlines())) > MOST_MODULE_LINES:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    long.append(f"{name}:{node.lineno} {node.name}: {lines} lines")

    assert long == []
