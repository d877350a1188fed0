from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawlproj.parsing.refresh import refresh_target


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0;url=x", (0.0, "x")),
        ("5; URL='x'", (5.0, "x")),
        ("0", (0.0, "")),
        ("900", (900.0, "")),
        ("1600;url=https://a.test", (1600.0, "https://a.test")),
        ("0; url=/service/bitte-aktivieren.html", (0.0, "/service/bitte-aktivieren.html")),
        ("\n 12.5 ;\turl = \"a b\" c", (12.0, "a b")),
        (".5;x", (0.0, "x")),
        ("0 x", (0.0, "x")),
        ("0,url=x", (0.0, "x")),
        ("0;url='x", (0.0, "x")),
        ("0;'x'y", (0.0, "x")),
        ("0;url=x'", (0.0, "x'")),
        ("0;", (0.0, "")),
        ("0;url=", (0.0, "")),
        # As browsers have it: what is not quite "url=" belongs to the target.
        ("0;url x", (0.0, "url x")),
        ("0;;url=x", (0.0, ";url=x")),
        ("0;u", (0.0, "u")),
        ("9" * 400 + ";x", (float("inf"), "x")),
    ],
)  # fmt: skip
def test_delay_and_target_are_read_as_the_standard_has_it(content: str, expected: tuple[float, str]) -> None:
    assert refresh_target(content) == expected


@pytest.mark.parametrize("content", ["", "url=x", ";url=x", "0x", "-1;url=x", "\u0661;url=x", "0\xa0;url=x"])
def test_what_the_standard_refuses_says_nothing(content: str) -> None:
    assert refresh_target(content) is None


@given(st.text(alphabet="0.;, \turlURL='\"x"))
@example("0" * 1000 + "'")
def test_any_text_is_read_without_an_error(content: str) -> None:
    found = refresh_target(content)

    assert found is None or found[0] >= 0


@pytest.mark.parametrize("part", ["0", " ", "0;", "0;url=", "0;url", "'", "\t"])
def test_a_long_content_takes_no_longer_than_its_length(part: str) -> None:
    begun_s = time.process_time()

    refresh_target("0" + part * 1_000_000)

    assert time.process_time() - begun_s < 1.0
