"""The limit of open files."""

from __future__ import annotations

import resource

import pytest

from crawlproj.config import load_config
from crawlproj.errors import BadArgument
from crawlproj.supervisor.limits import files_needed, soft_limit_for


def test_connections_in_use_and_kept_both_count() -> None:
    few = files_needed(load_config({"CONCURRENT_REQUESTS": 10, "CRAWL_IDLE_CONNECTIONS": 0}))
    many = files_needed(load_config({"CONCURRENT_REQUESTS": 1000, "CRAWL_IDLE_CONNECTIONS": 500}))

    assert many - few == 1490


def test_a_limit_that_suffices_is_left_alone() -> None:
    assert soft_limit_for(500, 1024, 4096) == 1024
    assert soft_limit_for(500, resource.RLIM_INFINITY, resource.RLIM_INFINITY) == resource.RLIM_INFINITY


def test_a_limit_is_raised_to_what_is_needed() -> None:
    assert soft_limit_for(3000, 1024, 4096) == 3000
    assert soft_limit_for(3000, 1024, resource.RLIM_INFINITY) == 3000


def test_what_may_not_be_raised_is_refused_with_both_numbers_and_the_remedy() -> None:
    with pytest.raises(
        BadArgument, match=r"need 5000 open files.*limit is 4096.*ulimit -n.*LimitNOFILE.*CONCURRENT"
    ):
        soft_limit_for(5000, 1024, 4096)
