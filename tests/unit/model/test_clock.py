from __future__ import annotations

from crawlproj.model.clock import Unchanged


def test_a_value_that_stays_the_same_is_unchanged_since_it_was_first_seen() -> None:
    unchanged = Unchanged()

    seen = [unchanged.for_s("a", "value", now_s) for now_s in (10.0, 11.0, 15.0)]

    assert seen == [0.0, 1.0, 5.0]


def test_a_value_that_changes_is_new_also_if_it_had_been_there_before() -> None:
    unchanged = Unchanged()
    for now_s, value in ((10.0, "a"), (11.0, "b")):
        unchanged.for_s("name", value, now_s)

    assert unchanged.for_s("name", "a", 12.0) == 0.0


def test_names_are_judged_each_by_itself_and_forgotten_on_request() -> None:
    unchanged = Unchanged()
    for name in ("a", "b"):
        unchanged.for_s(name, "value", 10.0)

    unchanged.forget("a")

    assert (unchanged.for_s("a", "value", 12.0), unchanged.for_s("b", "value", 12.0)) == (0.0, 2.0)
