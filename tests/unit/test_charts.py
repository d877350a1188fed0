from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.charts import COLOURS, DARK_STYLE, bar_chart, column_chart, line_chart, stacked_bars

#: Possible measurements, and values that are not numbers.
AMOUNTS = st.just(0.0) | st.floats(1e-9, 1e12)
NUMBERS = AMOUNTS | AMOUNTS.map(lambda value: -value) | st.sampled_from([math.inf, -math.inf, math.nan])


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def all_of(svg: str, name: str) -> list[ElementTree.Element]:
    return parsed(svg).findall(f".//{{http://www.w3.org/2000/svg}}{name}")


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in all_of(svg, "text")]


def bars(svg: str) -> list[float]:
    """The lengths of the bars; signs of a legend are drawn before them, and are no bars."""
    return [float(rect.get("width", "")) for rect in all_of(svg, "rect")[1:] if len(rect)]


def places(svg: str, line: int = 0) -> list[tuple[float, float]]:
    points = all_of(svg, "polyline")[line].get("points", "").split()
    return [(float(x), float(y)) for x, y in (point.split(",") for point in points)]


def test_a_line_goes_where_its_numbers_say() -> None:
    svg = line_chart("t", "x", "y", {"a": [(0, 0), (5, 50), (10, 100)]})

    (x0, y0), (x1, y1), (x2, y2) = places(svg)
    assert math.isclose(x1, (x0 + x2) / 2, abs_tol=0.1)
    assert math.isclose(y1, (y0 + y2) / 2, abs_tol=0.1)
    assert x0 < x2
    assert y0 > y2


def test_a_tenfold_is_always_the_same_step_on_a_logarithmic_axis() -> None:
    svg = line_chart("t", "x", "y", {"a": [(10, 1), (100, 10), (1000, 100)]}, log_x=True, log_y=True)

    (x0, y0), (x1, y1), (x2, y2) = places(svg)
    assert math.isclose(x1 - x0, x2 - x1, abs_tol=0.2)
    assert math.isclose(y0 - y1, y1 - y2, abs_tol=0.2)


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out() -> None:
    svg = line_chart("t", "x", "y", {"a": [(0, 1), (1, 1), (10, math.inf), (10, 1)]}, log_x=True)

    assert len(places(svg)) == 2


def test_ticks_are_readable() -> None:
    svg = line_chart("t", "pages", "ms", {"a": [(0, 0.1), (2_000_000, 0.35)]})

    assert {"500k", "1M", "2M", "0", "0.1", "0.3"} <= set(texts(svg))


def test_several_lines_have_a_legend_and_one_has_none() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]

    assert {"one", "two"} <= set(texts(line_chart("t", "x", "y", {"one": points, "two": points})))
    assert "one" not in texts(line_chart("t", "x", "y", {"one": points}))


def test_no_two_of_many_lines_look_the_same() -> None:
    svg = line_chart("t", "x", "y", {f"{n}": [(0, n), (1, n)] for n in range(3 * len(COLOURS))})

    looks = {(line.get("stroke"), line.get("stroke-dasharray")) for line in all_of(svg, "polyline")}
    assert len(looks) == 3 * len(COLOURS)


def test_bars_are_as_long_as_their_values_and_say_them() -> None:
    svg = bar_chart("t", "pages/s", {"a": 250, "b": 1000, "c": 0})

    short, long = bars(svg)
    assert math.isclose(long, 4 * short, rel_tol=0.01)
    assert {"a", "b", "c", "250", "1,000", "0", "pages/s"} <= set(texts(svg))


def test_however_little_it_is_it_can_be_seen() -> None:
    assert min(bars(bar_chart("t", "", {"a": 1, "b": 1e9}))) >= 1


def test_stacked_bars_end_at_the_sum_and_name_the_parts() -> None:
    svg = stacked_bars("t", "ms", {"a": {"shard": 1, "parser": 2}, "b": {"shard": 3}})

    shard, parser, other = bars(svg)
    assert math.isclose(shard + parser, other, abs_tol=2)
    assert texts(svg).count("3") == 2
    assert {"shard", "parser"} <= set(texts(svg))


def test_labels_of_many_columns_do_not_touch() -> None:
    svg = column_chart("t", "depth", "pages", {f"{n:,}": n for n in range(1000, 1200)})

    places = [float(text.get("x", "")) for text in all_of(svg, "text") if "," in (text.text or "")]
    assert min(b - a for a, b in pairwise(places)) > 40


@pytest.mark.parametrize(
    "svg", [line_chart("t", "x", "y", {}), bar_chart("t", "", {}), column_chart("t", "", "", {})]
)
def test_a_chart_of_nothing_says_so(svg: str) -> None:
    assert "no data" in texts(svg)


def test_what_the_web_calls_itself_stays_text() -> None:
    name = "<script>&\x00\x1b\u202e\ud800"

    svg = bar_chart(name, name, {name: 1})

    assert parsed(svg) is not None
    assert "<script>" not in svg


def test_every_colour_has_one_for_dark_pages() -> None:
    assert DARK_STYLE.count(".chart-fill") == len(COLOURS)


@given(
    st.dictionaries(st.text(), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_any_points_give_a_chart_with_all_of_it_inside(
    series: dict[str, list[tuple[float, float]]], log_x: bool, log_y: bool
) -> None:
    svg = line_chart("t", "x", "y", series, log_x=log_x, log_y=log_y)

    _, _, width, height = map(float, parsed(svg).get("viewBox", "").split())
    for line in range(len(all_of(svg, "polyline"))):
        for x, y in places(svg, line):
            assert 0 <= x <= width
            assert 0 <= y <= height


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), AMOUNTS, max_size=3), max_size=4))
def test_any_amounts_give_bars_inside_the_chart(values: dict[str, dict[str, float]]) -> None:
    svg = stacked_bars("t", "u", values)

    assert all(0 <= width <= 720 for width in bars(svg))
