"""Items of any shape as a table that every tool loads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.storage.columns import ItemColumns

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text("aé"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("found", "kind", "cells"),
    [
        ([1, 2], pa.int64(), [1, 2]),
        ([1, 2.5, None], pa.float64(), [1, 2.5, None]),
        ([True, None], pa.bool_(), [True, None]),
        (["a", None], pa.string(), ["a", None]),
        ([True, 1], pa.string(), ["true", "1"]),
        (["a", 1], pa.string(), ["a", "1"]),
        ([None], pa.string(), [None]),
        ([2**70], pa.string(), [str(2**70)]),
        ([1, 2**53 + 1], pa.int64(), [1, 2**53 + 1]),
        ([2**53 + 1, 0.5], pa.string(), [str(2**53 + 1), "0.5"]),
        ([["a"], [], None], pa.list_(pa.string()), [["a"], [], None]),
        ([[1], [2.5, None]], pa.list_(pa.float64()), [[1], [2.5, None]]),
        ([[]], pa.string(), ["[]"]),
        ([[1], ["a"]], pa.string(), ["[1]", '["a"]']),
        ([[{"a": 1}]], pa.string(), ['[{"a":1}]']),
        ([{"a": "ä"}, "text"], pa.string(), ['{"a":"ä"}', "text"]),
    ],
)
def test_a_column_has_the_type_of_its_values_or_is_text(
    found: list[Any], kind: pa.DataType, cells: list[Any]
) -> None:
    items = [{"x": value} for value in found]

    columns = ItemColumns(items)

    assert columns.schema().field("x").type == kind
    assert [columns.cells(item)["x"] for item in items] == cells


def test_a_missing_key_is_none_and_columns_come_as_first_seen() -> None:
    columns = ItemColumns([{"b": 1}, {"a": 2, "b": 3}])

    assert columns.keys == ["b", "a"]
    assert columns.cells({"a": 2}) == {"b": None, "a": 2}


def test_names_are_such_as_spark_takes_and_differ() -> None:
    columns = ItemColumns([{"the price (€)": 1, "a=b": 2, "a;b": 3, "Title": 4, "title": 5, "": 6}])

    assert columns.schema().names == ["the_price__€_", "a_b", "a_b_2", "Title", "title_2", "_"]


@given(st.lists(st.dictionaries(st.text("ab "), values, max_size=3), max_size=4))
def test_any_items_make_a_table(items: list[dict[str, Any]]) -> None:
    columns = ItemColumns(items)
    schema = columns.schema()

    table = pa.Table.from_pylist([columns.cells(item) for item in items], schema)

    assert table.num_columns == len({key for item in items for key in item})
