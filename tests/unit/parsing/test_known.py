from __future__ import annotations

from crawlproj.parsing.known import KnownLinks


def test_links_not_known_keep_their_order() -> None:
    known = KnownLinks()
    known.add(["http://a.test/2"])

    assert known.unknown([f"http://a.test/{n}" for n in (3, 2, 1)]) == ["http://a.test/3", "http://a.test/1"]


def test_a_known_link_that_begins_otherwise_is_not_taken_for_known() -> None:
    known = KnownLinks()
    known.add(["http://a.test/", "http://b.test/"])

    assert known.unknown(["http://a.test/", "http://b.test/"], "http://a.test/") == ["http://b.test/"]


def test_no_more_links_are_known_than_there_is_room_for_and_the_last_are_among_them() -> None:
    known = KnownLinks(most=10)
    links = [f"http://a.test/{n}" for n in range(101)]

    for link in links:
        known.add([link])
        assert len(known) <= 10

    assert len(known) >= 5
    assert known.unknown(links) == links[: -len(known)]


def test_nothing_is_known_once_it_was_cleared() -> None:
    known = KnownLinks(most=4)
    links = [f"http://a.test/{n}" for n in range(3)]
    known.add(links)

    known.clear()

    assert known.unknown(links) == links
    assert len(known) == 0


def test_long_links_are_not_kept_as_they_would_take_ten_times_the_memory() -> None:
    known = KnownLinks()
    links = ["http://a.test/", f"http://a.test/{'x' * 1000}"]

    known.add(links)

    assert known.unknown(links) == links[1:]
