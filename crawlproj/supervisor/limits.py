"""The limit of open files, which a shard with many connections may need higher than a shell sets it."""

from __future__ import annotations

import resource

from crawlproj.config import Config
from crawlproj.errors import BadArgument

#: What a process has open besides its connections to sites: Redis, logs, libraries, names being resolved.
_BESIDES = 128


def files_needed(config: Config) -> int:
    """Return how many files a shard may have open at once."""
    return config.concurrent_requests + config.idle_connections + _BESIDES


def soft_limit_for(needed: int, soft: int, hard: int) -> int:
    """Return the soft limit to set. Raises BadArgument when the hard limit is below what is needed."""
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return soft
    if hard != unlimited and hard < needed:
        raise BadArgument(
            f"A shard may need {needed} open files, and no more than {hard} are allowed here. Raise it "
            "(ulimit -n, or LimitNOFILE of a systemd unit), or lower CONCURRENT_REQUESTS or "
            "CRAWL_IDLE_CONNECTIONS."
        )
    return needed


def raise_file_limit(config: Config) -> None:
    """Allow this process and those it starts the files a shard needs. Raises BadArgument if it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit_for(files_needed(config), soft, hard), hard))
