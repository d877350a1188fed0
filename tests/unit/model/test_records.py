"""Records: what is written into the frontier is what is read from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawlproj.model.extra import NO_EXTRA, Extra
from crawlproj.model.records import Candidate, Lease, decode_entry, encode_entry, lane_of, new_mark
from crawlproj.model.urls import fingerprint

paths = st.from_regex(r"[!-~]{0,30}", fullmatch=True)
hosts = st.sampled_from(
    ["https://a.test", "http://a.test", "https://www.a.test", "https://x.a.test", "http://a.test:81"]
)
extras = st.just(NO_EXTRA) | st.text(max_size=20).map(lambda text: Extra(cookie=f"{text} "))


@given(hosts, paths, st.integers(0, 10**6), st.integers(0, 99), extras)
def test_an_entry_decodes_to_what_was_encoded(
    host: str, path: str, depth: int, attempt: int, extra: Extra
) -> None:
    url = f"{host}/{path}"

    assert decode_entry(encode_entry(url, "a.test", depth, attempt, extra), "a.test") == (
        depth,
        attempt,
        url,
        extra,
    )


@given(hosts, paths, st.integers(1, 10**12), st.integers(0, 2), extras)
def test_a_lease_is_read_from_its_token(host: str, path: str, number: int, lane: int, extra: Extra) -> None:
    url = f"{host}/{path}"
    token = f"{number} {lane} a.test {encode_entry(url, 'a.test', 3, 1, extra)}".encode()

    lease = Lease.from_token(token, 5, "7:a", 2, 900)

    assert (lease.token, lease.number, lease.lane, lease.domain) == (token, number, lane, "a.test")
    assert (lease.url, lease.depth, lease.attempt, lease.extra) == (url, 3, 1, extra)
    assert (lease.partition, lease.epoch, lease.fails, lease.delay_ms) == (5, "7:a", 2, 900)


def test_two_leases_are_never_equal() -> None:
    token = b"1 1 a.test 0 0 s/"

    assert Lease.from_token(token, 0, 1) != Lease.from_token(token, 0, 1)


def test_a_candidate_is_marked_by_its_url_by_default() -> None:
    assert Candidate("https://a.test/").mark == fingerprint("https://a.test/")
    assert Candidate("https://a.test/", mark=5).mark == 5


def test_a_new_mark_is_one_of_its_own_and_fits_into_63_bits() -> None:
    marks = {new_mark() for _ in range(1000)}

    assert len(marks) == 1000
    assert all(0 <= mark < 2**63 for mark in marks)


@given(st.integers(), st.integers())
def test_a_higher_priority_is_never_in_a_later_lane(one: int, other: int) -> None:
    if one >= other:
        assert lane_of(one) <= lane_of(other)


def test_there_are_three_lanes() -> None:
    assert [lane_of(priority) for priority in (10, 1, 0, -1, -10)] == [0, 0, 1, 2, 2]
