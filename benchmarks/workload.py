"""Candidates as pages of real sites would give them: URLs of about 60 bytes, hosts with and without www."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate

_FILL_AT_ONCE = 20_000
HOLD_MS = 3_600_000


def domain_name(number: int) -> str:
    return f"site-{number:07d}.com"


def url_of(domain: int, page: int) -> str:
    # Of ten sites, five use www, four do not, and one has its pages on a third host.
    host = ("www.", "www.", "www.", "www.", "www.", "", "", "", "", "blog.")[domain % 10] + domain_name(
        domain
    )
    return f"https://{host}/news/{page % 89:02d}/a-longer-title-{page:07d}"


def domains_of_partition(partition: int, partitions: int) -> Iterator[int]:
    return (number for number in count() if partition_of(domain_name(number), partitions) == partition)


async def fill(frontier: Frontier, domains: int, pages: int, *, first_page: int = 0) -> None:
    """Admit *pages* URLs of each of *domains* domains."""
    batch: list[Candidate] = []
    for domain in range(domains):
        batch += [Candidate(url_of(domain, page), 1) for page in range(first_page, first_page + pages)]
        if len(batch) >= _FILL_AT_ONCE:
            await frontier.admit(batch)
            batch = []
    await frontier.admit(batch)


async def hold_all(frontier: Frontier) -> list[Hold]:
    holds = []
    for partition in range(frontier.partitions):
        hold = await frontier.acquire(partition, "bench", ttl_ms=HOLD_MS, delay_ms=0, delays_ms={})
        assert hold is not None
        holds.append(hold)
    return holds
