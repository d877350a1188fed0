"""Requests that cannot be stored are found again by their lease, each once, in the process that made them."""

from __future__ import annotations

import logging

import pytest
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from crawlproj.errors import RequestNotSerialisable
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Lease
from crawlproj.shard.kept import KeptRequests, is_kept, is_unpaced
from crawlproj.shard.requests import Marks

WHY = RequestNotSerialisable("its callback is a lambda")


def kept_requests(*, is_ours: bool = True) -> KeptRequests:
    return KeptRequests(Marks(RequestFingerprinter(get_crawler())), lambda url: is_ours)


def lease_of(candidate: Candidate | None) -> Lease:
    """The lease that comes of *candidate*, after its way through Redis."""
    assert candidate is not None
    extra = Extra.decode(candidate.extra.encode())
    return Lease(b"1", 0, "1", 1, 0, "a.test", candidate.depth, 0, candidate.url, extra, 0, 0)


def test_a_lease_finds_the_very_request_that_was_kept_until_it_ends() -> None:
    kept, request = kept_requests(), Request("https://a.test/#x", meta={"depth": 3}, priority=7)

    candidate = kept.keep(request, WHY)
    lease = lease_of(candidate)

    assert candidate is not None
    assert (candidate.url, candidate.depth, candidate.priority) == ("https://a.test/", 3, 7)
    assert is_kept(lease)
    assert kept.find(lease) is request
    kept.drop(lease)
    assert kept.find(lease) is None


def test_another_process_does_not_find_it_unless_it_has_made_the_same() -> None:
    lease = lease_of(kept_requests().keep(Request("https://a.test/"), WHY))
    other, again = kept_requests(), Request("https://a.test/")

    assert other.find(lease) is None
    other.keep(again, WHY)
    assert other.find(lease) is again


def test_a_duplicate_is_kept_once_unless_it_is_not_filtered() -> None:
    kept = kept_requests()

    made = [
        kept.keep(Request("https://a.test/", dont_filter=free), WHY) for free in (False, False, True, True)
    ]

    assert [candidate is not None for candidate in made] == [True, False, True, True]


def test_a_request_for_another_shard_is_refused() -> None:
    with pytest.raises(RequestNotSerialisable, match=r"a lambda.*its own shard"):
        kept_requests(is_ours=False).keep(Request("https://a.test/"), WHY)


def test_one_warning_says_what_is_lost_when_the_process_ends(caplog: pytest.LogCaptureFixture) -> None:
    kept = kept_requests()

    with caplog.at_level(logging.WARNING):
        for number in range(3):
            kept.keep(Request(f"https://a.test/{number}"), WHY)

    [message] = caplog.messages
    assert "its callback is a lambda" in message
    assert "are lost" in message


def test_a_request_that_goes_to_no_server_is_queued_and_the_shard_is_busy_until_it_ends() -> None:
    kept = kept_requests()
    queued = [kept.queue(Request("data:,x")) for _ in range(2)]

    request = kept.next_unpaced()

    assert queued == [True, False]
    assert request is not None
    assert (is_unpaced(request), kept.next_unpaced(), kept.is_busy) == (True, None, True)
    kept.left(request)
    assert not kept.is_busy


@pytest.mark.parametrize("url", ["https://a.test/", "file:///etc/passwd", "ftp://a.test/x", "s3://bucket/x"])
def test_a_request_that_reads_files_or_goes_to_a_server_is_not_queued(url: str) -> None:
    assert not is_unpaced(Request(url))
