"""A process of a run as others see it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.config import Config, load_config
from crawlproj.observe.logs import TextLine, name_process
from crawlproj.redisio.client import MOST_CONNECTIONS, Door
from crawlproj.runs import Run
from crawlproj.runs.presence import Presence


@pytest.fixture
async def run(door: Door) -> Run:
    return await Run.open(door, "web", partitions=4)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return load_config({"CRAWL_DATA": str(tmp_path), "CRAWL_METRICS_PORT": port})


@pytest.fixture
def presence() -> Iterator[Presence]:
    made = Presence()
    yield made
    made.close()
    name_process("", "", "")


def words_of_a_line() -> list[str]:
    record = logging.LogRecord("any", logging.INFO, "", 1, "words", (), None)
    return TextLine().format(record).split()


async def test_a_process_that_is_shown_tells_what_every_process_has_and_names_its_lines(
    run: Run, config: Config, presence: Presence
) -> None:
    presence.show(config, run, "parser")
    await run.state()

    told = presence.metrics.snapshot()
    assert sum(told.histograms["redis_seconds"][1:]) >= 1
    assert told.gauges["redis_connections_max"] == {"": MOST_CONNECTIONS}
    assert told.gauges["event_loop_lag_seconds"][""] >= 0
    assert told.gauges["open_descriptors"]["redis"] >= 1
    assert words_of_a_line()[2:5] == ["web", "parser", "0"]


async def test_figures_say_where_its_metrics_are_also_those_of_what_works_beside_it(
    run: Run, config: Config, presence: Presence
) -> None:
    presence.show(config, run, "shard", 0)
    beside = presence.figures.beside()

    urls = {figures.tell(1)["metrics"] for figures in (presence.figures, beside)}

    beside.close()
    assert urls == {f"http://127.0.0.1:{config.metrics_port}/metrics"}


async def test_without_a_port_it_is_named_and_counts_all_the_same(
    run: Run, tmp_path: Path, presence: Presence
) -> None:
    presence.show(load_config({"CRAWL_DATA": str(tmp_path)}), run, "shard", 3)

    assert words_of_a_line()[2:5] == ["web", "shard", "3"]
    assert presence.figures.tell(1)["metrics"] == ""
    assert presence.metrics.snapshot().gauges["memory_bytes"][""] > 0
    assert not (tmp_path / "runs").exists()
