"""Figures as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from crawlproj.observe.ledger import Told
from crawlproj.observe.metrics import METRICS, RUN_METRICS, Metric


def exposition(run: str, told: Iterable[Told]) -> bytes:
    """Return the text of a scrape. Of a process that is gone only what it counted is told."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(run, list(told)))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, run: str, told: list[Told]) -> None:
        self._run = run
        self._told = told

    def collect(self) -> Iterator[Family]:
        for name, metric in METRICS.items():
            family = _family(metric)
            for told in self._told:
                self._add(family, name, metric, told)
            if family.samples:
                yield family
        # Two may believe to lead for a moment; one of them is enough.
        leading = [told.snapshot.run_figures for told in self._told if told.is_live]
        figures = next((figures for figures in leading if figures), {})
        for name, metric in RUN_METRICS.items():
            if name in figures:
                family = _family(metric)
                _add_values(family, (self._run,), figures[name], metric)
                yield family

    def _add(self, family: Family, name: str, metric: Metric, told: Told) -> None:
        labels = (self._run, told.kind, str(told.number))
        snapshot = told.snapshot
        if isinstance(family, HistogramMetricFamily):
            total, *counts = snapshot.histograms.get(name, [0.0])
            bounds = [*(f"{bound:g}" for bound in metric.bounds), "+Inf"]
            # One that is gone may have been of a version with others.
            if len(counts) == len(bounds):
                family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        elif metric.kind == "counter":
            _add_values(family, labels, snapshot.counters.get(name, {}), metric)
        elif told.is_live:
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
