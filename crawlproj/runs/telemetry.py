"""How a process of a run can be watched: its name in the log, its heartbeat, its metrics."""

from __future__ import annotations

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.observe import logs
from crawlproj.observe.descriptors import Descriptors
from crawlproj.observe.endpoint import Endpoint
from crawlproj.observe.lag import LoopLag
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat
from crawlproj.redisio.client import MOST_CONNECTIONS
from crawlproj.runs.record import Run


class Telemetry:
    """Make one at the start of a process: it keeps errors. Publishes metrics from `start` until `close`."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.heartbeat = Heartbeat()
        self._lag: LoopLag | None = None
        self._endpoint: Endpoint | None = None

    def start(self, config: Config, run: Run, kind: str, number: int | None = None) -> None:
        """Publish as *number* of its *kind*; None: the first that is free. Call it in the event loop."""
        metrics, heartbeat, client = self.metrics, self.heartbeat, run.client
        heartbeat.check_growth_every(config.figures_seconds)
        heartbeat.descriptors = Descriptors(client.where, RunPaths(config.data, run.name).pages)
        heartbeat.data = config.data
        heartbeat.publish_to(metrics)
        self._lag = lag = LoopLag(config.figures_seconds)
        metrics.event_loop_lag_seconds = lambda: lag.worst_s
        metrics.redis_connections_max = lambda: MOST_CONNECTIONS
        client.on_answer, client.retry.on_failure = metrics.redis_seconds.add, metrics.note_redis_error
        logs.name_process(run.name, kind, "" if number is None else number)
        if config.metrics_port:
            self._endpoint = endpoint = Endpoint(config, run.name, metrics, kind, number)
            logs.name_process(run.name, kind, endpoint.number)
            heartbeat.endpoint = lambda: endpoint.url
            heartbeat.descriptors.add_source(endpoint.descriptors)

    def close(self) -> None:
        """Save the last metrics and stop publishing."""
        if self._lag is not None:
            self._lag.close()
        if self._endpoint is not None:
            self._endpoint.close()
        self.heartbeat.close()
