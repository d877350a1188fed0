"""A process of a run as others see it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.config import Config, load_config
from crawlproj.observe.logs import TextLine, name_process
from crawlproj.redisio.client import MOST_CONNECTIONS, RedisClient
from crawlproj.runs import Run
from crawlproj.runs.telemetry import Telemetry
from tests.ports import HeldPorts


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=4)


@pytest.fixture
def config(tmp_path: Path, ports: HeldPorts) -> Config:
    return load_config({"CRAWL_DATA": str(tmp_path), "CRAWL_METRICS_PORT": ports.hold()})


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.close()
    name_process("", "", "")


def words_of_a_line() -> list[str]:
    record = logging.LogRecord("any", logging.INFO, "", 1, "words", (), None)
    return TextLine().format(record).split()


async def test_a_process_publishes_the_common_metrics_and_names_its_log_lines(
    run: Run, config: Config, telemetry: Telemetry
) -> None:
    telemetry.start(config, run, "parser")
    await run.state()

    snapshot = telemetry.metrics.snapshot()
    assert sum(snapshot.histograms["redis_seconds"][1:]) >= 1
    assert snapshot.gauges["redis_connections_max"] == {"": MOST_CONNECTIONS}
    assert snapshot.gauges["event_loop_lag_seconds"][""] >= 0
    assert snapshot.gauges["open_descriptors"]["redis"] >= 1
    assert words_of_a_line()[2:5] == ["web", "parser", "0"]


async def test_heartbeats_name_the_metrics_url_for_every_component(
    run: Run, config: Config, telemetry: Telemetry
) -> None:
    telemetry.start(config, run, "shard", 0)
    beside = telemetry.heartbeat.of_component()

    urls = {heartbeat.beat(1)["metrics"] for heartbeat in (telemetry.heartbeat, beside)}

    beside.close()
    assert urls == {f"http://127.0.0.1:{config.metrics_port}/metrics"}


async def test_without_a_port_it_is_named_and_counts_all_the_same(
    run: Run, tmp_path: Path, telemetry: Telemetry
) -> None:
    telemetry.start(load_config({"CRAWL_DATA": str(tmp_path)}), run, "shard", 3)

    assert words_of_a_line()[2:5] == ["web", "shard", "3"]
    assert telemetry.heartbeat.beat(1)["metrics"] == ""
    assert telemetry.metrics.snapshot().gauges["memory_bytes"][""] > 0
    assert not (tmp_path / "runs").exists()
