from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.route import Route

texts = st.text(max_size=20)


@given(st.builds(Route, st.integers(0, 9), texts, st.integers(0, 3), texts, st.booleans()))
def test_a_route_comes_back_as_it_was(route: Route) -> None:
    assert Route.decode(route.encode()) == route


def test_a_url_reached_directly_carries_nothing() -> None:
    assert Route().encode() == ""


def test_what_others_look_for_in_the_text_is_there_and_nothing_else_can_write_it() -> None:
    assert Route(sitemap_level=1).encode() == '{"sitemap":1}'
    assert '"freed":true' in Route(is_freed=True).encode()
    assert '"freed":true' not in Route(cookie='"freed":true', redirected_from='"freed":true').encode()


def test_what_a_start_url_brings_is_no_route() -> None:
    assert Route.decode('{"method":"POST","cookies":{"a":"b"}}') == Route()


def test_a_step_further_forgets_the_cookie_and_keeps_the_rest() -> None:
    route = Route(2, "http://a.test/", 1, "a=1", is_freed=True)

    assert route.onward("http://b.test/") == Route(3, "http://b.test/", 1, "", is_freed=True)
