"""Crawls of the same seeds, compared with the first of them, and what limited each. Pure values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

#: The kinds of processes, as a table names them.
KINDS = {"shard": "shards", "parser": "parsers", "supervisor": "supervisor", "redis": "Redis"}
#: From this share of the time on something is what limits a crawl.
_LIMITS = 0.7
#: A difference in speed below this is none: two crawls in the same mode differ as much.
_NOTICEABLE = 1.15
#: How many URLs a sentence or a table names.
NAMED = 5


@dataclass(frozen=True, slots=True)
class SlowDomain:
    """The domain whose pages take the longest, one after the other."""

    domain: str
    pages: int
    delay_s: float
    #: Of a response, on average.
    latency_s: float

    @property
    def least_s(self) -> float:
        # The first page waits for nothing.
        return self.pages * self.latency_s + max(0, self.pages - 1) * self.delay_s


@dataclass(frozen=True, slots=True)
class Texts:
    """What a crawl stored beside what the first one did."""

    #: Pages that both have.
    common: int = 0
    #: URLs of pages that both have, with different texts.
    different: Sequence[str] = ()
    #: URLs of pages that one of them has.
    only_in_one: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One crawl. ``name`` says how it was run, and ``shards`` is 0 in single mode."""

    name: str
    shards: int
    pages: int
    domains: int
    failed: int
    #: From the start of the command to its end.
    seconds: float
    #: From the first page to the last.
    fetching_s: float
    #: By kind of process, with what starting it costs.
    cpu_s: Mapping[str, float]
    #: The most that all its processes had together; 0 where that is not known.
    memory_bytes: int
    #: By how much the memory of Redis grew.
    redis_bytes: int
    slowest: SlowDomain | None = None
    #: Why it ended, unless nothing was left to do: a limit.
    limit: str = ""
    texts: Texts = field(default_factory=Texts)

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms_per_page(self) -> float:
        return self._per_page_ms(sum(self.cpu_s.values()))

    def cpu_ms_of(self, kind: str) -> float:
        """Return the CPU time per page of one kind of process."""
        return self._per_page_ms(self.cpu_s.get(kind, 0.0))

    def _per_page_ms(self, seconds: float) -> float:
        return 1000 * seconds / self.pages if self.pages else 0.0


def stored_texts(ours: Mapping[str, int], first: Mapping[str, int]) -> Texts:
    """Compare what two crawls stored: hashes of the texts, by URL."""
    common = ours.keys() & first.keys()
    return Texts(
        len(common),
        sorted(url for url in common if ours[url] != first[url]),
        sorted(ours.keys() ^ first.keys()),
    )


# -- the table


def table_of(crawls: Sequence[Measured]) -> list[list[str]]:
    """Return a heading and the rows: a column for each crawl, and for all but the first its ratio to that."""
    head = [""]
    for number, crawl in enumerate(crawls):
        head += [crawl.name, "ratio"] if number else [crawl.name]
    figures: list[tuple[str, Callable[[Measured], float], Callable[[float], str]]] = [
        ("pages", lambda crawl: crawl.pages, "{:,.0f}".format),
        ("seconds", lambda crawl: crawl.seconds, "{:,.1f}".format),
        ("seconds to start and end", lambda crawl: crawl.seconds - crawl.fetching_s, "{:,.1f}".format),
        ("pages/s", lambda crawl: crawl.pages_per_s, "{:,.1f}".format),
        ("CPU ms/page", lambda crawl: crawl.cpu_ms_per_page, "{:,.1f}".format),
    ]
    for kind, label in KINDS.items():
        figures.append((f"CPU ms/page, {label}", partial(Measured.cpu_ms_of, kind=kind), "{:,.1f}".format))
    figures += [
        ("peak memory, MB", lambda crawl: crawl.memory_bytes / 1e6, "{:,.0f}".format),
        ("Redis memory, MB", lambda crawl: crawl.redis_bytes / 1e6, "{:,.1f}".format),
        ("domains", lambda crawl: crawl.domains, "{:,.0f}".format),
        ("failed", lambda crawl: crawl.failed, "{:,.0f}".format),
    ]
    rows = [head]
    for label, figure, shown in figures:
        row = [label]
        for number, crawl in enumerate(crawls):
            row.append(shown(figure(crawl)) if figure(crawl) or label != "peak memory, MB" else "-")
            if number:
                row.append(ratio(figure(crawl), figure(crawls[0])))
        rows.append(row)
    counts: list[tuple[str, Callable[[Texts], int]]] = [
        ("pages in both", lambda texts: texts.common),
        ("texts that differ", lambda texts: len(texts.different)),
        ("pages in one only", lambda texts: len(texts.only_in_one)),
    ]
    for label, count in counts:
        others = (cell for crawl in crawls[1:] for cell in (f"{count(crawl.texts):,}", ""))
        rows.append([label, "", *others])
    return rows


def ratio(value: float, first: float) -> str:
    return f"{value / first:.2f}" if first and value else "-"


# -- what limited a crawl


def limit_of(crawl: Measured, cores: int) -> str:
    """Return what limited *crawl*: start, politeness, network, process, machine."""
    if crawl.fetching_s < crawl.seconds - crawl.fetching_s:
        return "start"
    slowest = crawl.slowest
    shares = {
        "machine": sum(crawl.cpu_s.values()) / (cores * crawl.seconds),
        "process": crawl.cpu_s.get("shard", 0.0) / (max(1, crawl.shards) * crawl.seconds),
        # A slow site has nothing to do with politeness.
        "politeness": slowest.least_s / crawl.fetching_s
        if slowest is not None and slowest.delay_s >= slowest.latency_s
        else 0.0,
    }
    most = max(shares, key=lambda what: shares[what])
    return most if shares[most] >= _LIMITS else "network"


def limit_sentence(crawl: Measured, cores: int) -> str:
    """Return what limited *crawl*, with the figures that show it."""
    slowest = crawl.slowest
    used = sum(crawl.cpu_s.values()) / crawl.seconds if crawl.seconds else 0.0
    match limit_of(crawl, cores):
        case "start":
            gone = crawl.seconds - crawl.fetching_s
            why = f"it was too short to say: {gone:.1f} of {crawl.seconds:.1f} s were starting and ending"
        case "machine":
            why = f"the CPU of this machine limits it: {used:.1f} of {cores} cores were busy on average"
        case "process":
            shard_s = crawl.cpu_s["shard"] / max(1, crawl.shards)
            who = "its only process was" if not crawl.shards else "each shard was"
            why = f"CPU limits it: {who} busy for {shard_s:.1f} of {crawl.seconds:.1f} s"
        case "politeness":
            assert slowest is not None
            why = (
                f"politeness limits it: the {slowest.pages:,} pages of {slowest.domain}, one at a time with "
                f"{slowest.delay_s:g} s between them, take {slowest.least_s:.1f} s at least, and fetching "
                f"took {crawl.fetching_s:.1f} s"
            )
        case _:
            why = f"the network and the sites limit it: only {used:.1f} of {cores} cores were busy on average"
            if slowest is not None:
                why += f", and {slowest.domain} takes {slowest.latency_s:.2f} s to respond"
    return f"{crawl.name}: {why}."


def verdict(crawls: Sequence[Measured], cores: int) -> list[str]:
    """Return, in sentences, which mode to choose, what limited each crawl, and whether they agree."""
    return [
        _choice(crawls, [limit_of(crawl, cores) for crawl in crawls]),
        *(limit_sentence(crawl, cores) for crawl in crawls),
        *(_agreement(crawl, crawls[0]) for crawl in crawls[1:]),
    ]


def _agreement(crawl: Measured, first: Measured) -> str:
    texts = crawl.texts
    if texts.different:
        which = f"{len(texts.different):,} of {texts.common:,} differ: {named(texts.different)}"
        text = f"stored texts: {which}. Pages that change with every visit do that in any mode."
    else:
        text = f"stored texts: all {texts.common:,} pages that both have are equal."
    if texts.only_in_one:
        why = ", as each stopped at its limit" if crawl.limit or first.limit else ""
        count = len(texts.only_in_one)
        text += f" {count:,} {'pages are' if count > 1 else 'page is'} in one of the two only{why}"
        text += "." if why else f": {named(texts.only_in_one)}."
    return f"{crawl.name} and {first.name}, {text}"


def named(urls: Sequence[str]) -> str:
    more = len(urls) - NAMED
    return ", ".join(urls[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _choice(crawls: Sequence[Measured], limits: Sequence[str]) -> str:
    first, others = crawls[0], crawls[1:]
    best = max(others, key=lambda crawl: crawl.pages_per_s)
    if not all(crawl.pages for crawl in crawls):
        return "A crawl without pages cannot be compared: see why they failed with --keep and scrapy status."
    faster = best.pages_per_s / first.pages_per_s
    costs = f"{best.cpu_ms_per_page / first.cpu_ms_per_page:.1f} times the CPU a page"
    if first.memory_bytes and best.memory_bytes:
        costs += f" and {best.memory_bytes / first.memory_bytes:.1f} times the memory"
    if faster >= _NOTICEABLE:
        return f"Sharding pays here: {best.name} made it {faster:.1f} times as fast, for {costs}."
    if "start" in limits:
        return "To decide, crawl for longer: raise --max-pages, or give more domains."
    choice = f"Single mode is enough here: {best.name} made it {faster:.2f} times as fast, for {costs}."
    if limits[0] == "politeness":
        choice += (
            " No number of processes makes a polite crawl of few domains faster; more domains at once do."
        )
    return choice
