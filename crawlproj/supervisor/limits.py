"""The limit of open files, often too low for a shard with many connections."""

from __future__ import annotations

import resource

from crawlproj.config import Config
from crawlproj.errors import BadArgument

#: Open files besides connections to sites: Redis, logs, libraries, DNS queries.
_OTHER_FILES = 128


def files_needed(config: Config) -> int:
    """Return how many files a shard may have open at once."""
    return config.concurrent_requests + config.idle_connections + _OTHER_FILES


def soft_limit_for(needed: int, soft: int, hard: int) -> int:
    """Return the soft limit to set. Raises BadArgument when the hard limit is below what is needed."""
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return soft
    if hard != unlimited and hard < needed:
        raise BadArgument(
            f"A shard may need {needed} open files, and the limit is {hard}. Raise it "
            "(ulimit -n, or LimitNOFILE in a systemd unit), or lower CONCURRENT_REQUESTS or "
            "CRAWL_IDLE_CONNECTIONS."
        )
    return needed


def raise_file_limit(config: Config) -> None:
    """Raise the limit for this process and its children to what a shard needs, or raise BadArgument."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit_for(files_needed(config), soft, hard), hard))
