"""Every metric, declared once: the counters that processes increment, and what a scrape returns.

Counting touches plain numbers only; they become Prometheus's format at a scrape (`observe.exposition`).
`docs/metrics.md` is printed from here by ``python -m crawlproj.observe.metrics``.
"""

# ruff: noqa: RUF009, T201  # the fields are declarations, not shared values; it prints its page

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PREFIX = "crawlproj_"
#: Labels of every metric of a process; those of a run have only the first.
PROCESS_LABELS = ("run", "kind", "number")

#: Histogram buckets, in seconds.
_FETCH_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PARSE_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)
_QUEUE_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_REDIS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A Prometheus metric. ``label`` is its own label, ``values`` those exported from the start."""

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
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        #: One more than bounds: the last is for values above all of them.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


#: By the value of the metric's label.
Counts = defaultdict[str, int]
#: Called at a scrape, from another thread: it must read only memory or /proc.
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
    """The values of a process's metrics at one moment, by the names in `METRICS`; label '' for none."""

    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The sum, then the counts.
    histograms: dict[str, list[float]] = field(default_factory=dict)
    gauges: dict[str, dict[str, float]] = field(default_factory=dict)
    run_figures: dict[str, Any] = field(default_factory=dict)
    #: Unix time.
    taken_s: float = 0.0


@dataclass(slots=True)
class Metrics:
    """The metrics of one process. Those of another kind of process stay at zero."""

    fetches: Counts = _counts(
        "kind_of", ("page", "robots", "sitemap"), "requests", "Requests that got a response, by purpose."
    )
    fetch_errors: Counts = _counts(
        "reason", ("http_4xx", "http_5xx"), "requests", "Requests that failed or got an error status."
    )
    fetched_bytes: int = _count("bytes", "Body bytes received, before decompression.")
    retries: int = _count("requests", "URLs returned to the frontier for a retry.")
    pages_parsed: int = _count("pages", "Pages parsed.")
    parse_errors: int = _count("pages", "Pages that could not be parsed.")
    links_admitted: int = _count("URLs", "Links that were new to the frontier.")
    dead_letters: int = _count(
        "pages", "Pages given up after several attempts, except those that killed their parser."
    )
    back_pressure: Counts = _counts(
        "level",
        ("soft", "hard", "memory"),
        "events",
        "Times the page queue made a shard lease fewer URLs (soft) or none (hard), or the memory of Redis "
        "(memory) did.",
    )
    ownership_changes: Counts = _counts(
        "change", ("taken", "given_up", "fenced"), "partitions", "Partitions that changed their owner."
    )
    robots_decisions: Counts = _counts(
        "decision",
        ("allowed", "disallowed", "unavailable"),
        "URLs",
        "URLs by what robots.txt says about them.",
    )
    circuits_opened: int = _count("domains", "Domains parked because too many requests in a row failed.")
    redis_errors: int = _count("calls", "Calls that Redis did not answer in time.")

    fetch_seconds: Histogram = _histogram(_FETCH_S, "From sending a request to the end of its response.")
    parse_seconds: Histogram = _histogram(_PARSE_S, "Time to parse one page.")
    page_queue_seconds: Histogram = _histogram(
        _QUEUE_S, "From a page being fetched to being taken by a parser."
    )
    refill_seconds: Histogram = _histogram(_REDIS_S, "Time to lease a batch of URLs.")
    redis_seconds: Histogram = _histogram(_REDIS_S, "Round-trip time to Redis.")

    active_downloads: Gauge | None = _gauge("requests", "Requests in flight.")
    buffered_urls: Gauge | None = _gauge("URLs", "URLs leased by this shard and not requested yet.")
    redis_connections: Gauge | None = _gauge("connections", "Open connections to Redis.")
    redis_connections_max: Gauge | None = _gauge("connections", "Limit of connections to Redis.")
    event_loop_lag_seconds: Gauge | None = _gauge("seconds", "The longest recent lag of the event loop.")
    process_info: Gauge | None = _gauge(
        "", "Always 1: the host of the process, to be joined by run, kind, number and instance.", "host"
    )
    memory_bytes: Gauge | None = _gauge("bytes", "Resident memory.")
    disk_free_bytes: Gauge | None = _gauge("bytes", "Free space on the disk of its data directory.")
    open_descriptors: Gauge | None = _gauge("descriptors", "Open descriptors, by kind.", "descriptor")
    open_descriptors_max: Gauge | None = _gauge("descriptors", "Limit of open descriptors.")
    process_start_time_seconds: Gauge | None = _gauge("seconds", "Start time of the process, in Unix time.")
    heartbeat_age_seconds: Gauge | None = _gauge("seconds", "Since the last heartbeat.")

    #: The metrics of the run, if this process leads it; see `RUN_METRICS`.
    run_figures: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    #: The counters of earlier processes in this slot: counters must not fall at a restart.
    earlier: Snapshot = field(default_factory=Snapshot)

    def note_redis_error(self) -> None:
        self.redis_errors += 1

    def snapshot(self) -> Snapshot:
        """Return all values now, those of earlier processes included. May be called from any thread."""
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
                # Counts of a version with other bounds cannot be added.
                if len(before) == len(values):
                    values[:] = map(sum, zip(values, before, strict=True))
            elif value is not None:
                answer = value()
                taken.gauges[name] = dict(answer) if isinstance(answer, Mapping) else {"": answer}
        return taken


#: The metrics of a process by their attribute of `Metrics`.
METRICS: dict[str, Metric] = {
    declared.name: Metric(
        PREFIX + declared.name + ("_total" if declared.metadata["kind"] == "counter" else ""),
        **declared.metadata,
    )
    for declared in fields(Metrics)
    if declared.metadata
}


def _of_run(name: str, unit: str, sentence: str, label: str = "") -> tuple[str, Metric]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return name, Metric(f"{PREFIX}{name}", kind, unit, sentence, label, of_run=True)


#: The metrics of a run, published only by its leader.
RUN_METRICS: dict[str, Metric] = dict(
    (
        _of_run("frontier_waiting_urls", "URLs", "URLs waiting in the frontier."),
        _of_run("frontier_leased_urls", "URLs", "URLs leased by shards."),
        _of_run("frontier_ready_domains", "domains", "Domains with URLs waiting."),
        _of_run("frontier_spilled_links", "links", "Links on disk that wait for room in Redis."),
        _of_run("frontier_parked_domains", "domains", "Domains parked, for a while or for good."),
        _of_run("circuits_open", "domains", "Domains parked because too many requests in a row failed."),
        _of_run("page_queue_pages", "pages", "Pages waiting for a parser."),
        _of_run("page_queue_bytes", "bytes", "Bytes waiting for a parser."),
        _of_run("page_queue_hard_limit_pages", "pages", "Queue length at which fetching stops."),
        _of_run("page_queue_hard_limit_bytes", "bytes", "Queue size in bytes at which fetching stops."),
        _of_run(
            "dead_letters", "pages", "Pages kept as dead letters, including those that killed their parser."
        ),
        _of_run("run_pages_fetched_total", "pages", "Pages fetched by all processes of the run."),
        _of_run("run_pages_stored_total", "pages", "Pages stored by the run."),
        _of_run("run_pages_cut_total", "pages", "Stored pages whose body was truncated."),
        _of_run(
            "limit_ratio", "", "Progress to the nearest limit of the run: 1 at the limit, 0 without one."
        ),
        _of_run("shards_wanted", "processes", "Shards the run should have."),
        _of_run("shards_alive", "processes", "Shards that hold their number."),
        _of_run("parsers_alive", "processes", "Parsers with a recent heartbeat."),
        _of_run("redis_memory_bytes", "bytes", "Memory used by Redis."),
        _of_run("redis_memory_max_bytes", "bytes", "Limit of the memory of Redis; 0 for none."),
        _of_run("run_state", "", "1 for the state the run is in, 0 for the others.", "state"),
    )
)


def metrics_page() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# Metrics\n",
        "Printed by `python -m crawlproj.observe.metrics`; change that module, not this page.\n",
        (
            "With `CRAWL_METRICS_PORT` every process serves its own, at the port + its number (shards), "
            "+ 100 + its number (parsers), + 200 (the supervisor); `scrapy status --json` names them. With "
            "`CRAWL_METRICS_SHARED` there is one for all processes of a run on a host, at the port itself. "
            "Counters continue after a restart. A process that is gone, or silent for three times "
            "`CRAWL_FIGURES_SECONDS`, has only its counters there. No label grows with the number of sites."
        ),
    ]
    for title, metrics in (
        ("Metrics of every process, with the labels `run`, `kind` and `number`", METRICS),
        ("Metrics of a run, published by its leader, with the label `run`", RUN_METRICS),
    ):
        lines += ("", f"## {title}", "", "| metric | kind | unit | label | |", "|---|---|---|---|---|")
        for metric in metrics.values():
            label = f"`{metric.label}`" if metric.label else ""
            lines.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {label} | {metric.help} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(metrics_page(), end="")
