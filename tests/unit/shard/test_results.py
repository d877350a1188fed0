"""What an answer means for its URL, redirects and their cookies above all."""

from __future__ import annotations

import pytest

from crawlproj.config import load_config
from crawlproj.download.client import Answer
from crawlproj.frontier.exclusions import load_rules
from crawlproj.model.extra import NO_EXTRA, Extra
from crawlproj.model.records import COOKIE_RETRY, Lease, Outcome
from crawlproj.shard.results import Result, Results

URL, MAX_REDIRECTS = "https://a.test/page", 5
RESULTS = Results("web", 3, load_rules(load_config({}))[0], MAX_REDIRECTS)


def lease_of(extra: Extra = NO_EXTRA) -> Lease:
    return Lease(b"token", 1, 1, 7, 1, "a.test", 2, 0, URL, extra, 0, 0)


def redirected(location: str, extra: Extra = NO_EXTRA, *, cookie: str = "") -> tuple[Result, Lease]:
    lease, headers = lease_of(extra), {b"Location": [location.encode()]}
    if cookie:
        headers[b"Set-Cookie"] = [cookie.encode()]
    return RESULTS.of(lease, Answer(302, headers)), lease


def test_a_redirect_is_followed_as_often_as_it_may_and_no_more() -> None:
    last, _ = redirected("/next", Extra(hops=MAX_REDIRECTS - 1))
    beyond, _ = redirected("/next", Extra(hops=MAX_REDIRECTS))

    assert last.target is not None
    assert last.target.extra == Extra(hops=MAX_REDIRECTS, redirected_from=URL)
    assert (beyond.target, beyond.reason) == (None, "redirects")
    assert beyond.page is not None
    assert beyond.page.error == "redirects"


@pytest.mark.parametrize("location", ["", "ftp://a.test/", "https://"])
def test_a_redirect_to_nowhere_has_a_page_that_says_so(location: str) -> None:
    result, _ = redirected(location)

    assert result.target is None
    assert result.page is not None
    assert result.page.error == result.reason != ""


@pytest.mark.parametrize(
    ("location", "carried"),
    [("/next", "a=1"), ("https://b.test/", ""), ("http://a.test/next", ""), ("https://a.test:8443/", "")],
)
def test_a_cookie_goes_as_far_as_the_redirects_of_its_origin(location: str, carried: str) -> None:
    result, _ = redirected(location, cookie="a=1")

    assert result.target is not None
    assert result.target.extra.cookie == carried


def test_a_redirect_to_itself_that_sets_a_cookie_is_retried_with_it_once() -> None:
    first, lease = redirected(URL, cookie="a=1")
    again, _ = redirected(URL, lease.extra, cookie="b=2")
    same, _ = redirected(URL, Extra(cookie="a=1"), cookie="a=1")
    bare, _ = redirected(URL)

    assert (first.outcome, first.reason, first.page) == (Outcome.RETRY, COOKIE_RETRY, None)
    assert lease.extra == Extra(hops=1, redirected_from=URL, cookie="a=1")
    assert [result.reason for result in (again, same, bare)] == ["redirect_loop"] * 3


def test_there_and_back_for_a_cookie_is_requested_once_more() -> None:
    back, _ = redirected("https://a.test/start", Extra(1, "https://a.test/start"), cookie="a=1")
    plain, _ = redirected("https://a.test/start", Extra(1, "https://a.test/start"))

    assert back.target is not None
    assert plain.target is not None
    # It was seen, so it needs a mark of its own; without a cookie nothing would be different.
    assert back.target.mark != plain.target.mark
    assert (back.target.priority, back.target.extra.cookie) == (1, "a=1")


@pytest.mark.parametrize(
    ("answer", "reason", "truncated"),
    [
        (Answer(200, {}, b"text"), "", False),
        (Answer(200, {}, b"te", flags=["cut"]), "", True),
        (Answer(200, {}, b"te", flags=["dataloss"]), "", True),
        (Answer(200, {}, b"", flags=["unwanted"]), "content_type", False),
        (Answer(404, {}, b"text"), "http_404", False),
    ],
)
def test_an_answer_makes_a_page(answer: Answer, reason: str, truncated: bool) -> None:
    result = RESULTS.of(lease_of(), answer)

    assert (result.outcome, result.reason) == (Outcome.DONE, reason)
    assert result.page is not None
    assert (result.page.status, result.page.body) == (answer.status, answer.body)
    assert (result.page.truncated, result.page.error) == (truncated, "")
    assert (result.page.shard, result.page.depth) == (3, 2)
