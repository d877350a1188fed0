"""What a lease carries besides its URL comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.extra import NO_EXTRA, Extra

texts = st.text(max_size=30)
requests = st.dictionaries(texts, texts | st.integers() | st.none(), max_size=3)


@given(st.builds(Extra, st.integers(0, 9), texts, st.integers(0, 3), texts, st.booleans(), texts, requests))
def test_an_extra_comes_back_as_it_was(extra: Extra) -> None:
    assert Extra.decode(extra.encode()) == extra


@given(texts, requests)
def test_an_extra_is_one_line_of_ascii(text: str, request: dict[str, object]) -> None:
    written = Extra(cookie=text, request=request).encode()

    assert written.isascii()
    assert "\n" not in written


def test_most_urls_carry_nothing() -> None:
    assert NO_EXTRA.encode() == Extra().encode() == ""
    assert Extra.decode("") is NO_EXTRA


def test_the_kind_follows_from_what_is_set() -> None:
    assert Extra(request={"robots_for": "x", "sitemap": 1}).kind == "page"
    assert Extra(sitemap_level=2).kind == "sitemap"
    assert Extra(robots_for="https://a.test").kind == "robots"


def test_a_redirect_adds_a_hop_and_keeps_what_its_target_is() -> None:
    extra = Extra(2, "http://a.test/", 1, "a=1", is_freed=True, request={"method": "POST"})

    assert extra.onward("http://b.test/") == Extra(3, "http://b.test/", 1, "", is_freed=True)
