"""Whether a Redis server is one that a crawl can use, by what INFO says about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from crawlproj.errors import RedisRefused
from crawlproj.redisio.servers import OLDEST_VERSION

logger = logging.getLogger(__name__)


def check_server(fields: Mapping[str, str], where: str, *, is_cluster: bool) -> None:
    """Raise RedisRefused if the crawl cannot use it; warn if it may lose URLs."""
    version = fields["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < OLDEST_VERSION[:2]:
        raise RedisRefused(f"Redis at {where} is version {version}; 6.2 or newer is needed.")
    if fields["role"] != "master":
        raise RedisRefused(
            f"Redis at {where} is a read-only replica. Use its master: "
            f"{fields.get('master_host')}:{fields.get('master_port')}."
        )
    if fields.get("cluster_enabled") == "1" and not is_cluster:
        raise RedisRefused(
            f"Redis at {where} is a node of a Redis Cluster. Write REDIS_URL=redis+cluster://{where}, "
            "with the addresses of several of its nodes."
        )
    policy = fields.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        logger.warning(
            "Redis at %s loses URLs when its memory is full: set maxmemory-policy to noeviction, not %s",
            where,
            policy,
            extra={"redis": where, "policy": policy},
        )
