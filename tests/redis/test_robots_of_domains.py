"""What robots.txt says of the domains that the API lists."""

from __future__ import annotations

import pytest

from crawlproj.api import domains
from crawlproj.api.domains import add_robots
from crawlproj.config import Config
from crawlproj.frontier.robots import RobotsStore
from crawlproj.model.partition import partition_of
from crawlproj.politeness.robots import KnownRules, RobotRules
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run

KNOWN = {
    "https://free.test": (200, b""),
    "https://some.test": (200, b"User-agent: *\nDisallow: /private"),
    "https://closed.test": (200, b"User-agent: *\nDisallow: /"),
    "https://www.closed.test": (404, b""),
    "http://shop.ports.test:8080": (500, b""),
    "http://notfree.test": (500, b""),
}
EXPECTED = {
    "free.test": "allowed",
    "some.test": "partly",
    "closed.test": "refused",
    "ports.test": "unreachable",
    "new.test": "",
}


@pytest.mark.parametrize("most", [500, 0])
async def test_the_worst_of_the_sites_of_a_domain_is_listed(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(domains, "_MOST_SITES", most)
    config = Config()
    run = await Run.open(client, "web", partitions=4)
    store = RobotsStore(client, run.name, run.partitions, config.robots_bytes, config.robots_agent)
    for origin, (status, body) in KNOWN.items():
        domain = ".".join(origin.partition("://")[2].partition(":")[0].split(".")[-2:])
        rules = RobotRules.from_response(status, body, config.robots_agent)
        await store.keep({partition_of(domain, run.partitions): {origin: KnownRules(rules, 60.0)}})
    lines = [{"domain": name} for name in EXPECTED]

    await add_robots(run, config, lines)

    # Of a partition with very many sites only the usual names are tried.
    found = EXPECTED if most else EXPECTED | {"ports.test": ""}
    assert {line["domain"]: line["robots"] for line in lines} == found
