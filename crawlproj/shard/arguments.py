"""The arguments that every spider takes as a shard: -a shard, -a shards and -a run."""

from __future__ import annotations

from dataclasses import dataclass

from scrapy import Spider

from crawlproj.config import Config
from crawlproj.errors import BadArgument
from crawlproj.redisio import keys


@dataclass(frozen=True, slots=True)
class ShardArguments:
    """``shards`` is None when the run is to keep the number it has."""

    run: str
    shard: int
    shards: int | None
    #: The Redis list that start URLs are read from.
    start_urls_key: str
    #: Whether this process is the whole crawl: no number was given.
    is_whole: bool

    @classmethod
    def of(cls, spider: Spider, config: Config) -> ShardArguments:
        """Read and check what the spider was given. Raises BadArgument."""
        shard = _number(spider, "shard", 0) or 0
        shards = _number(spider, "shards", 1)
        if shards is not None and shard >= shards:
            raise BadArgument(
                f"-a shard={shard} is out of range: with -a shards={shards} it is 0 to {shards - 1}."
            )
        run = keys.check_run_name(_given(spider, "run") or config.run or spider.name)
        # As in scrapy-redis's spiders.
        start_urls_key = _given(spider, "redis_key") or keys.start_urls(spider.name)
        is_whole = bool(getattr(spider, "is_single", not _given(spider, "shard")))
        return cls(run, shard, shards, start_urls_key, is_whole)

    def check_range(self, shards: int, *, is_new: bool = False) -> None:
        """Raise BadArgument unless a run with *shards* has this one. *is_new*: it would be created."""
        if self.shard < shards:
            return
        more = f"-a shards={self.shard + 1}" if is_new else f"scrapy shards {self.shard + 1} --run {self.run}"
        raise BadArgument(
            f"Shard {self.shard} is out of range: the shards of run {self.run!r} are numbered 0 to "
            f"{shards - 1}. To have more: {more}"
        )


def _given(spider: Spider, name: str) -> str:
    """Return an argument as text; Scrapy makes every -a an attribute of the spider."""
    return str(getattr(spider, name, None) or "")


def _number(spider: Spider, name: str, least: int) -> int | None:
    text = _given(spider, name)
    if not text:
        return None
    if not text.isdigit() or int(text) < least:
        raise BadArgument(f"-a {name}={text} is not a whole number from {least}.")
    return int(text)
