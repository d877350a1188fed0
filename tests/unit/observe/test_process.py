"""What a process reports about itself."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.observe.descriptors import KINDS
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat, memory_bytes, open_files
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def heartbeat(clock: Clock) -> Iterator[Heartbeat]:
    made = Heartbeat(clock)
    yield made
    made.close()


def test_memory_grows_by_what_is_taken() -> None:
    before = memory_bytes()

    taken = bytearray(os.urandom(1)) * (64 << 20)

    assert 60 << 20 < memory_bytes() - before < 80 << 20
    del taken


def test_files_that_are_opened_are_counted(tmp_path: Path) -> None:
    before = open_files()

    opened = [(tmp_path / str(number)).open("w") for number in range(5)]

    assert open_files() == before + 5
    for file in opened:
        file.close()
    assert open_files() == before


def test_without_proc_there_is_still_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_such)
    monkeypatch.setattr(Path, "iterdir", no_such)

    assert memory_bytes() > 1 << 20
    assert open_files() == 0


def test_the_rate_is_that_since_the_last_heartbeat(heartbeat: Heartbeat, clock: Clock) -> None:
    clock.now_s += 10
    first = heartbeat.beat(50)
    clock.now_s += 5
    second = heartbeat.beat(250)

    assert (first["pages_per_s"], second["pages_per_s"]) == (5.0, 40.0)


def test_the_cpu_is_that_since_the_last_heartbeat(heartbeat: Heartbeat, clock: Clock) -> None:
    clock.now_s += 10
    heartbeat.beat(0)
    begun_s = time.process_time()
    while time.process_time() < begun_s + 0.2:
        pass
    clock.now_s += 0.4
    busy = heartbeat.beat(0)
    clock.now_s += 1
    idle = heartbeat.beat(0)

    assert 0.5 <= busy["cpu"] < 0.9
    assert idle["cpu"] < 0.1


def test_two_heartbeats_at_once_have_no_rate(heartbeat: Heartbeat) -> None:
    assert heartbeat.beat(50)["pages_per_s"] == 0.0


def test_other_facts_of_a_process_are_in_its_heartbeat(heartbeat: Heartbeat) -> None:
    beat = heartbeat.beat(1, in_flight=3, bytes=4096)

    assert (beat["in_flight"], beat["bytes"]) == (3, 4096)


def test_the_last_error_is_kept_and_warnings_are_not(heartbeat: Heartbeat) -> None:
    logger = logging.getLogger("anything")
    logger.error("disk of %s is full", "shard 1")
    logger.warning("slow")

    assert heartbeat.beat(1)["last_error"] == "disk of shard 1 is full"


def test_a_long_error_is_cut_and_a_malformed_one_kept_as_it_is(heartbeat: Heartbeat) -> None:
    logger = logging.getLogger("anything")

    logger.error("x" * 10_000)
    assert len(str(heartbeat.beat(1)["last_error"])) == 200

    record = logging.LogRecord("anything", logging.ERROR, "", 1, "%d pages", ("many",), None)
    for handler in logging.getLogger().handlers:
        if type(handler).__name__ == "CallbackHandler":
            handler.handle(record)
    assert heartbeat.beat(1)["last_error"] == "%d pages"


def test_after_close_it_keeps_no_more_errors(heartbeat: Heartbeat) -> None:
    heartbeat.close()

    logging.getLogger("anything").error("too late")

    assert heartbeat.beat(1)["last_error"] == ""


def test_descriptors_are_reported_by_kind_with_the_endpoint(heartbeat: Heartbeat) -> None:
    heartbeat.endpoint = lambda: "http://127.0.0.1:9100/metrics"
    heartbeat.descriptors.add_source(lambda: {"http": 1})
    with socket.socket():
        beat = heartbeat.beat(1)

    assert beat["descriptors"]["http"] == 1
    assert beat["metrics"] == "http://127.0.0.1:9100/metrics"


def test_what_every_process_has_is_shown_in_its_metrics(heartbeat: Heartbeat) -> None:
    metrics = Metrics()

    heartbeat.publish_to(metrics)
    gauges = metrics.snapshot().gauges

    assert gauges["memory_bytes"][""] > 1 << 20
    assert gauges["open_descriptors"].keys() == set(KINDS)
    assert gauges["open_descriptors_max"][""] > 0
    assert time.time() - 60 < gauges["process_start_time_seconds"][""] <= time.time()
