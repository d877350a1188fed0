"""Every crash point is passed at one place in the code, and every process that passes it is killed there."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from crawlproj.observe.crashpoints import LEADER_POINTS, MERGE_POINTS, PARSER_POINTS, SHARD_POINTS
from tests.e2e import (
    test_compact,
    test_crash_points,
    test_crash_points_of_parsers,
    test_crash_points_of_supervisors,
)

PACKAGE = Path(__file__).parents[2] / "crawlproj"
CASES = {
    **test_crash_points.CASES,
    **test_crash_points_of_parsers.CASES,
    **test_crash_points_of_supervisors.CASES,
    **test_compact.CASES,
}
STORE_POINTS = {"file_uploaded", "file_copied", "object_recovered"}
#: What each case must die at.
POINTS_OF = {
    "shard": {*SHARD_POINTS, *LEADER_POINTS},
    "shard by Scrapy's engine": {*SHARD_POINTS, *LEADER_POINTS},
    "single": {*SHARD_POINTS, *LEADER_POINTS},
    "parser in single": {*PARSER_POINTS} - STORE_POINTS,
    "parser": {*PARSER_POINTS} - STORE_POINTS,
    "parser with a store": {*PARSER_POINTS} - {"file_renamed"},
    "child of a parser": {*PARSER_POINTS} - STORE_POINTS,
    "merger": {*MERGE_POINTS},
    **{f"supervisor at {point}": {point} for point in LEADER_POINTS},
}


def passed_in(text: str) -> list[str]:
    """Return the arguments of all calls of `passed` in *text*, as written."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        ast.unparse(call.args[0])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "passed"
    ]


def test_every_point_is_passed_at_one_place_under_its_name() -> None:
    places = Counter(point for path in PACKAGE.rglob("*.py") for point in passed_in(path.read_text("utf-8")))

    declared = {*SHARD_POINTS, *PARSER_POINTS, *LEADER_POINTS, *MERGE_POINTS}
    assert places == Counter(repr(point) for point in declared)


@pytest.mark.parametrize("kind", CASES)
def test_every_process_is_killed_at_every_point_that_it_passes(kind: str) -> None:
    assert {crash.point for crash in CASES[kind].plan} == POINTS_OF[kind]


def test_the_search_finds_a_point_however_it_is_written() -> None:
    assert passed_in("def f():\n    passed('a')\n    passed(name)") == ["'a'", "name"]
