"""Metrics in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from crawlproj.observe.metrics import METRICS, RUN_METRICS, Metric
from crawlproj.observe.slots import ProcessMetrics


def exposition(run: str, processes: Iterable[ProcessMetrics]) -> bytes:
    """Return the text of a scrape. Of a process that is gone it has only the counters."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(run, list(processes)))
    return generate_latest(registry)


def exposition_of_all(runs: Iterable[tuple[str, Mapping[str, Any], Iterable[ProcessMetrics]]]) -> bytes:
    """Return the text of a scrape of several runs: name, metrics of the run, processes."""
    families: dict[str, Family] = {}
    for run, figures, processes in runs:
        for family in _Collector(run, list(processes), figures).collect():
            if family.name in families:
                families[family.name].samples += family.samples
            else:
                families[family.name] = family
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families.values())))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


class _Collector(Collector):
    def __init__(
        self, run: str, processes: list[ProcessMetrics], figures: Mapping[str, Any] | None = None
    ) -> None:
        self._run = run
        self._processes = processes
        self._figures = figures

    def collect(self) -> Iterator[Family]:
        for name, metric in METRICS.items():
            family = _family(metric)
            for process in self._processes:
                self._add(family, name, metric, process)
            if family.samples:
                yield family
        # For a moment two processes may both believe they lead.
        leading = [process.snapshot.run_figures for process in self._processes if process.is_live]
        figures = self._figures or next((figures for figures in leading if figures), {})
        for name, metric in RUN_METRICS.items():
            if name in figures:
                family = _family(metric)
                _add_values(family, (self._run,), figures[name], metric)
                yield family

    def _add(self, family: Family, name: str, metric: Metric, process: ProcessMetrics) -> None:
        labels = (self._run, process.kind, str(process.number))
        snapshot = process.snapshot
        if isinstance(family, HistogramMetricFamily):
            total, *counts = snapshot.histograms.get(name, [0.0])
            bounds = [*(f"{bound:g}" for bound in metric.bounds), "+Inf"]
            # Saved by another version, with other bounds.
            if len(counts) == len(bounds):
                family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        elif metric.kind == "counter":
            _add_values(family, labels, snapshot.counters.get(name, {}), metric)
        elif process.is_live:
            _add_values(family, labels, snapshot.gauges.get(name, {}), metric)


def _family(metric: Metric) -> Family:
    make: type[Any] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }[metric.kind]
    family: Family = make(metric.name, metric.help, labels=metric.labels)
    return family


def _add_values(
    family: Family, labels: tuple[str, ...], values: float | Mapping[str, float], metric: Metric
) -> None:
    if not isinstance(values, Mapping):
        values = {"": values}
    for label, value in values.items():
        family.add_metric((*labels, label) if metric.label else labels, value)  # type: ignore[attr-defined]
