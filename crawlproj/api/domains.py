"""The domains of a job, sorted; read a few at a time, so that nobody waits for it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from crawlproj.config import Config
from crawlproj.frontier.robots import RobotsStore
from crawlproj.model.domain import DomainState
from crawlproj.model.partition import partition_of
from crawlproj.politeness.robots import KnownRules
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.runs import Run
from crawlproj.runs.overview import domain_line
from crawlproj.runs.rules import read_rules

#: Domains that are looked at; of a job with more, these are a sample.
MOST_READ = 20_000
#: Of each partition in a round trip.
_PAGE = 10
_FRESH_S = 5.0
_MOST_KEPT = 20
#: Sites of a partition that are looked through for those of a domain; with more, the usual names are tried.
_MOST_SITES = 500
_USUAL = ("https://{}", "http://{}", "https://www.{}", "http://www.{}")
#: What robots.txt says of a site, the worst first.
_ROBOTS = ("refused", "unreachable", "partly", "allowed", "")
_FIGURES = {"fetched": "fetched", "delay": "delay_ms", "failures": "failures"}


class Domains:
    """The last lists that were read, by job and order."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, list[dict[str, Any]], bool]] = {}

    async def read(self, run: Run, sort: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the domains of *run*, the highest first, and whether there are more."""
        kept = self._kept.get((run.name, sort))
        if kept is None or time.monotonic() - kept[0] > _FRESH_S:
            lines, is_sample = await _read(run)
            lines.sort(key=lambda line: (-line[_FIGURES[sort]], line["domain"]))
            self._kept.pop((run.name, sort), None)
            kept = self._kept[run.name, sort] = (time.monotonic(), lines, is_sample)
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return kept[1], kept[2]


async def _read(run: Run) -> tuple[list[dict[str, Any]], bool]:
    found: dict[str, dict[str, Any]] = {}
    cursors = dict.fromkeys(range(run.partitions), b"0")
    while cursors and len(found) < MOST_READ:
        answers = await run.client.pipeline(
            [("HSCAN", keys.domains(run.name, p), cursor, "COUNT", _PAGE) for p, cursor in cursors.items()]
        )
        for partition, (cursor, flat) in zip(list(cursors), answers, strict=True):
            for domain, text in pairs(flat):
                found[domain] = domain_line(domain, DomainState.decode(text))
            cursors[partition] = cursor
            if cursor == b"0":
                del cursors[partition]
    return list(found.values()), bool(cursors)


async def add_robots(run: Run, config: Config, lines: list[dict[str, Any]]) -> None:
    """Add to each line of a domain what robots.txt says, the worst of its sites."""
    rules = await read_rules(run)
    agent = (rules.obeyed_by(config) if rules else config).robots_agent
    domains: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        domains[partition_of(line["domain"], run.partitions)].append(line["domain"])
    counts = await run.client.pipeline([("HLEN", keys.robots(run.name, p)) for p in domains])
    small = [p for p, count in zip(domains, counts, strict=True) if 0 < count <= _MOST_SITES]
    answers = await run.client.pipeline([("HKEYS", keys.robots(run.name, p)) for p in small])
    sites = {p: [site.decode() for site in found] for p, found in zip(small, answers, strict=True)}
    of_domain = {name: _sites_of(name, sites.get(p)) for p, names in domains.items() for name in names}
    wanted = {p: [site for name in names for site in of_domain[name]] for p, names in domains.items()}
    store = RobotsStore(run.client, run.name, run.partitions, config.robots_bytes, agent)
    known = await store.read(wanted)
    for line in lines:
        found = {_say(known.get(site), site) for site in of_domain[line["domain"]]}
        line["robots"] = min(found, key=_ROBOTS.index, default="")


def _sites_of(domain: str, sites: Iterable[str] | None) -> list[str]:
    if sites is None:
        return [usual.format(domain) for usual in _USUAL]
    hosts = (
        (site, site.partition("://")[2].rpartition(":")[0] or site.partition("://")[2]) for site in sites
    )
    return [site for site, host in hosts if host == domain or host.endswith(f".{domain}")]


def _say(known: KnownRules | None, site: str) -> str:
    if known is None:
        return ""
    if known.rules.retry:
        return "unreachable"
    if not known.rules.may_fetch(f"{site}/"):
        return "refused"
    return "partly" if known.rules.rules.startswith("-") or "\n-" in known.rules.rules else "allowed"
