"""Candidates, as `admit_urls` takes them: by partition and domain, not too many at once. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, encode_entry, lane_of
from crawlproj.model.urls import domain_of, origin_of

#: Candidates per script call; more would block other clients for too long.
_ADMIT_BATCH = 500


@dataclass(slots=True, frozen=True)
class Admitted:
    """What became of candidates."""

    new: int = 0
    seen: int = 0
    over_budget: int = 0
    out_of_scope: int = 0


def grouped(candidates: Iterable[Candidate], partitions: int) -> Iterable[tuple[int, list[str | int]]]:
    """Yield (partition, script arguments) for calls of at most _ADMIT_BATCH candidates."""
    by_domain: defaultdict[str, list[Candidate]] = defaultdict(list)
    # Nearly all links of a page are of one origin.
    domains: dict[str, str] = {}
    for candidate in candidates:
        origin = origin_of(candidate.url)
        domain = domains.get(origin)
        if domain is None:
            domain = domains[origin] = domain_of(origin)
        by_domain[domain].append(candidate)
    open_calls: dict[int, tuple[int, list[str | int]]] = {}
    for domain, members in by_domain.items():
        partition = partition_of(domain, partitions)
        for start in range(0, len(members), _ADMIT_BATCH):
            group = members[start : start + _ADMIT_BATCH]
            size, arguments = open_calls.get(partition, (0, []))
            if size + len(group) > _ADMIT_BATCH:
                yield partition, arguments
                size, arguments = 0, []
            arguments += (domain, len(group))
            for candidate in group:
                arguments += (
                    candidate.mark,
                    lane_of(candidate.priority),
                    encode_entry(candidate.url, domain, candidate.depth, 0, candidate.extra),
                )
            open_calls[partition] = size + len(group), arguments
    for partition, (_, arguments) in open_calls.items():
        yield partition, arguments
