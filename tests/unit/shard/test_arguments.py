"""Which shard of which run a spider is."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider

from crawlproj.config import load_config
from crawlproj.errors import BadArgument
from crawlproj.shard.arguments import ShardArguments


class Numbered(Spider):
    name = "numbered"
    shard = "1"
    shards = 4


def arguments(spider: Spider, **settings: Any) -> ShardArguments:
    return ShardArguments.of(spider, load_config(settings))


@pytest.mark.parametrize(
    ("spider", "shard", "shards"),
    [
        (Spider("mine"), 0, None),
        (Spider("mine", shard="2", shards="3"), 2, 3),
        (Spider("mine", shard="0"), 0, None),
        (Numbered(), 1, 4),
    ],
)
def test_the_number_comes_from_the_arguments_or_the_class(
    spider: Spider, shard: int, shards: int | None
) -> None:
    assert (arguments(spider).shard, arguments(spider).shards) == (shard, shards)


def test_a_run_is_named_by_the_argument_then_by_the_setting_then_by_the_spider() -> None:
    named = [
        arguments(Spider("mine", run="news"), CRAWL_RUN="other").run,
        arguments(Spider("mine"), CRAWL_RUN="other").run,
        arguments(Spider("mine")).run,
    ]

    assert named == ["news", "other", "mine"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shard": "x"}, r"-a shard=x is not a whole number from 0"),
        ({"shards": "-1"}, r"-a shards=-1 is not a whole number from 1"),
        ({"shard": "2", "shards": "2"}, r"out of range: with -a shards=2 it is 0 to 1"),
    ],
)
def test_a_number_that_cannot_be_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        arguments(Spider("mine", **given))
