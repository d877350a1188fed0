"""Every metric, declared once: what the rooms of a process count on, and what a scrape is made of.

Counting touches plain numbers only; Prometheus is met when somebody asks (`observe.exposition`).
`docs/metrics.md` is printed from here by ``python -m crawlproj.observe.metrics``.
"""

# ruff: noqa: RUF009, T201  # the fields are declarations, not shared values; it prints its page

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

#: How the name of every metric begins.
PREFIX = "crawlproj_"
#: Labels of every metric of a process; those of a run have the first only.
PROCESS_LABELS = ("run", "kind", "number")

#: Upper bounds of what is counted together, in seconds.
_FETCH_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PARSE_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)
_QUEUE_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_REDIS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as Prometheus knows it. ``label`` is its own one, ``values`` those it has from the start."""

    name: str
    kind: str
    unit: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    of_run: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        own = (self.label,) if self.label else ()
        return (PROCESS_LABELS[:1] if self.of_run else PROCESS_LABELS) + own


class Histogram:
    """How many values fell below each of some bounds, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        #: One more than bounds: the last is for what is above all of them.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


#: Counts by the value of the metric's label.
Counts = defaultdict[str, int]
#: What is asked at a scrape, also from another thread: it must read memory only, or /proc.
Gauge = Callable[[], float | Mapping[str, float]]


def _declare(kind: str, unit: str, sentence: str, make: Callable[[], Any], **more: Any) -> Any:
    return field(default_factory=make, metadata={"kind": kind, "unit": unit, "help": sentence, **more})


def _count(unit: str, sentence: str) -> Any:
    return _declare("counter", unit, sentence, int)


def _counts(label: str, values: tuple[str, ...], unit: str, sentence: str) -> Any:
    def make() -> Counts:
        return defaultdict(int, dict.fromkeys(values, 0))

    return _declare("counter", unit, sentence, make, label=label, values=values)


def _histogram(bounds: tuple[float, ...], sentence: str) -> Any:
    return _declare("histogram", "seconds", sentence, lambda: Histogram(bounds), bounds=bounds)


def _gauge(unit: str, sentence: str, label: str = "") -> Any:
    return _declare("gauge", unit, sentence, lambda: None, label=label)


@dataclass(slots=True)
class Snapshot:
    """Figures of a process at one moment, by the names in `METRICS`; the label '' where there is none."""

    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The sum, then the counts.
    histograms: dict[str, list[float]] = field(default_factory=dict)
    gauges: dict[str, dict[str, float]] = field(default_factory=dict)
    run_figures: dict[str, Any] = field(default_factory=dict)
    #: When that was, since 1970.
    taken_s: float = 0.0


@dataclass(slots=True)
class Metrics:
    """What one process counts. A shard leaves at zero what only parsers do, and the other way round."""

    fetches: Counts = _counts(
        "kind_of", ("page", "robots", "sitemap"), "requests", "Requests that were answered, by what for."
    )
    fetch_errors: Counts = _counts(
        "reason", ("http_4xx", "http_5xx"), "requests", "Requests without an answer, or with one of an error."
    )
    fetched_bytes: int = _count("bytes", "Bodies as they came over the wire.")
    retries: int = _count("requests", "URLs given back to be tried again.")
    pages_parsed: int = _count("pages", "Pages read by parsers.")
    parse_errors: int = _count("pages", "Pages that could not be read.")
    links_admitted: int = _count("URLs", "Links that were new to the frontier.")
    dead_letters: int = _count(
        "pages", "Pages given up after several tries, but for those that killed their parser."
    )
    back_pressure: Counts = _counts(
        "level", ("soft", "hard"), "events", "Times the page queue made a shard lease less, or nothing."
    )
    ownership_changes: Counts = _counts(
        "change", ("taken", "given_up", "fenced"), "partitions", "Partitions that changed their owner."
    )
    robots_decisions: Counts = _counts(
        "decision", ("allowed", "disallowed", "unavailable"), "URLs", "What robots.txt said of URLs."
    )
    circuits_opened: int = _count("domains", "Domains parked, as too many requests in a row failed.")
    redis_errors: int = _count("calls", "Calls that Redis did not answer, or not in time.")

    fetch_seconds: Histogram = _histogram(_FETCH_S, "From a page being asked for to its end.")
    parse_seconds: Histogram = _histogram(_PARSE_S, "Time to read one page.")
    page_queue_seconds: Histogram = _histogram(_QUEUE_S, "From a page being fetched to being taken.")
    refill_seconds: Histogram = _histogram(_REDIS_S, "Time to lease a batch of URLs.")
    redis_seconds: Histogram = _histogram(_REDIS_S, "Round trips to Redis.")

    active_downloads: Gauge | None = _gauge("requests", "Requests on their way.")
    buffered_urls: Gauge | None = _gauge("URLs", "URLs lent to this shard and not asked for yet.")
    redis_connections: Gauge | None = _gauge("connections", "Connections to Redis.")
    redis_connections_max: Gauge | None = _gauge("connections", "How many there can be.")
    event_loop_lag_seconds: Gauge | None = _gauge("seconds", "The longest the loop was late of late.")
    memory_bytes: Gauge | None = _gauge("bytes", "Memory in RAM.")
    open_descriptors: Gauge | None = _gauge(
        "descriptors", "Open descriptors, by what they are.", "descriptor"
    )
    open_descriptors_max: Gauge | None = _gauge("descriptors", "How many there can be.")
    process_start_time_seconds: Gauge | None = _gauge("seconds", "When this process began, since 1970.")
    heartbeat_age_seconds: Gauge | None = _gauge("seconds", "Since the hold on the number was renewed.")

    #: The figures of the run, if this process leads it; see `RUN_METRICS`.
    run_figures: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    #: What was counted by earlier processes in our place: counters must not fall with a restart.
    earlier: Snapshot = field(default_factory=Snapshot)

    def note_redis_error(self) -> None:
        self.redis_errors += 1

    def snapshot(self) -> Snapshot:
        """Return all figures as they are now, what came before included. May be called from any thread."""
        taken = Snapshot(run_figures=dict(self.run_figures), taken_s=time.time())
        for name, metric in METRICS.items():
            value = getattr(self, name)
            if metric.kind == "counter":
                taken.counters[name] = counts = dict(value) if metric.label else {"": value}
                for label, count in self.earlier.counters.get(name, {}).items():
                    counts[label] = counts.get(label, 0) + count
            elif metric.kind == "histogram":
                taken.histograms[name] = values = [value.sum, *value.counts]
                before = self.earlier.histograms.get(name, [])
                # Of a version with other bounds nothing can be taken over.
                if len(before) == len(values):
                    values[:] = map(sum, zip(values, before, strict=True))
            elif value is not None:
                answer = value()
                taken.gauges[name] = dict(answer) if isinstance(answer, Mapping) else {"": answer}
        return taken


def _metric_of(declared: Field[Any]) -> Metric:
    facts = dict(declared.metadata)
    ending = "_total" if facts["kind"] == "counter" else ""
    return Metric(f"{PREFIX}{declared.name}{ending}", **facts)


#: The metrics of a process by their attribute of `Metrics`.
METRICS: dict[str, Metric] = {
    declared.name: _metric_of(declared) for declared in fields(Metrics) if declared.metadata
}


def _of_run(name: str, unit: str, sentence: str, label: str = "") -> tuple[str, Metric]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return name, Metric(f"{PREFIX}{name}", kind, unit, sentence, label, of_run=True)


#: The figures of a run, which its leader alone tells.
RUN_METRICS: dict[str, Metric] = dict(
    (
        _of_run("frontier_waiting_urls", "URLs", "URLs waiting in the frontier."),
        _of_run("frontier_leased_urls", "URLs", "URLs lent to shards."),
        _of_run("frontier_ready_domains", "domains", "Domains with URLs waiting."),
        _of_run("frontier_parked_domains", "domains", "Domains set aside for a while, or for good."),
        _of_run("circuits_open", "domains", "Those set aside as too many requests in a row failed."),
        _of_run("page_queue_pages", "pages", "Pages waiting for a parser."),
        _of_run("page_queue_bytes", "bytes", "Their bytes."),
        _of_run("page_queue_hard_limit_pages", "pages", "From how many on nothing more is fetched."),
        _of_run("page_queue_hard_limit_bytes", "bytes", "The same, for their bytes."),
        _of_run("dead_letters", "pages", "Pages kept as dead letters, whatever they did to their parser."),
        _of_run("run_pages_fetched_total", "pages", "Pages fetched by the run, by all its processes."),
        _of_run("run_pages_stored_total", "pages", "Pages stored by the run."),
        _of_run("run_pages_cut_total", "pages", "Those of them that lack a part of their body."),
        _of_run("limit_ratio", "", "How far the run is to its nearest limit; 1: there, 0: it has none."),
        _of_run("shards_wanted", "processes", "Shards the run should have."),
        _of_run("shards_alive", "processes", "Shards that hold their number."),
        _of_run("parsers_alive", "processes", "Parsers that show a heartbeat."),
        _of_run("disk_free_bytes", "bytes", "Room left on the disk of the leader's data directory."),
        _of_run("redis_memory_bytes", "bytes", "Memory that Redis uses."),
        _of_run("run_state", "", "1 for the state the run is in, 0 for the others.", "state"),
    )
)


def metrics_page() -> str:
    """Return docs/metrics.md."""
    return "\n".join(_page_lines()) + "\n"


def _page_lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Printed by `python -m crawlproj.observe.metrics`; change that module, not this page."
    yield ""
    yield (
        "With `CRAWL_METRICS_PORT` every process serves its own, at the port + its number (shards), + 100 + "
        "its number (parsers), + 200 (the supervisor); `scrapy status --json` names them. With "
        "`CRAWL_METRICS_SHARED` there is one for all processes of a run on a host, at the port itself. "
        "Counters go on after a restart; of a process that is gone, or was silent for three times "
        "`CRAWL_FIGURES_SECONDS`, nothing else is told there. No label grows with the web."
    )
    for title, metrics in (
        ("Of every process, with its `run`, `kind` and `number`", METRICS),
        ("Of a run, told once, by its leader, with its `run`", RUN_METRICS),
    ):
        yield from ("", f"## {title}", "", "| metric | kind | unit | label | |", "|---|---|---|---|---|")
        for metric in metrics.values():
            label = f"`{metric.label}`" if metric.label else ""
            yield f"| `{metric.name}` | {metric.kind} | {metric.unit} | {label} | {metric.help} |"


if __name__ == "__main__":
    print(metrics_page(), end="")
