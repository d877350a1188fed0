"""A process of a run as others see it: its name in the log, its figures, its metrics."""

from __future__ import annotations

from crawlproj.config import Config
from crawlproj.observe import logs
from crawlproj.observe.descriptors import Descriptors
from crawlproj.observe.endpoint import Endpoint, open_endpoint
from crawlproj.observe.lag import LoopLag
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import ProcessFigures
from crawlproj.redisio.client import MOST_CONNECTIONS
from crawlproj.runs.record import Run


class Presence:
    """Make one at the start of a process: it hears of errors. From `show` until `close` it can be watched."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.figures = ProcessFigures()
        self._lag: LoopLag | None = None
        self._endpoint: Endpoint | None = None

    def show(self, config: Config, run: Run, kind: str, number: int | None = None) -> None:
        """Be seen as the *number*-th of its *kind*, None: the first that is free. Call it in the loop."""
        metrics, figures, door = self.metrics, self.figures, run.door
        figures.look_every(config.figures_seconds)
        figures.descriptors = Descriptors(door.where, config.data / "runs" / run.name / "pages")
        figures.show_in(metrics)
        self._lag = lag = LoopLag(config.figures_seconds)
        metrics.event_loop_lag_seconds = lambda: lag.worst_s
        metrics.redis_connections_max = lambda: MOST_CONNECTIONS
        door.on_answer, door.on_break = metrics.redis_seconds.add, metrics.note_redis_error
        logs.name_process(run.name, kind, "" if number is None else number)
        self._endpoint = endpoint = open_endpoint(config, run.name, metrics, kind, number)
        if endpoint is not None:
            logs.name_process(run.name, kind, endpoint.number)
            figures.endpoint = lambda: endpoint.url
            figures.descriptors.tell_by(endpoint.descriptors)

    def close(self) -> None:
        """Write the last figures, and leave."""
        if self._lag is not None:
            self._lag.close()
        if self._endpoint is not None:
            self._endpoint.close()
        self.figures.close()
