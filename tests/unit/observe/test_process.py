"""What a process tells of itself."""

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
from crawlproj.observe.process import ProcessFigures, memory_bytes, open_files


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def figures(clock: Clock) -> Iterator[ProcessFigures]:
    made = ProcessFigures(clock)
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
    monkeypatch.setattr(os, "listdir", no_such)

    assert memory_bytes() > 1 << 20
    assert open_files() == 0


def test_the_pace_is_that_since_it_was_last_told(figures: ProcessFigures, clock: Clock) -> None:
    clock.now_s += 10
    first = figures.tell(50)
    clock.now_s += 5
    second = figures.tell(250)

    assert (first["pages_per_s"], second["pages_per_s"]) == (5.0, 40.0)


def test_figures_told_twice_at_once_have_no_pace(figures: ProcessFigures) -> None:
    assert figures.tell(50)["pages_per_s"] == 0.0


def test_what_else_a_process_knows_of_itself_is_told(figures: ProcessFigures) -> None:
    told = figures.tell(1, in_flight=3, bytes=4096)

    assert (told["in_flight"], told["bytes"]) == (3, 4096)


def test_the_last_error_is_told_and_warnings_are_not(figures: ProcessFigures) -> None:
    logger = logging.getLogger("anything")
    logger.error("disk of %s is full", "shard 1")
    logger.warning("slow")

    assert figures.tell(1)["last_error"] == "disk of shard 1 is full"


def test_a_long_error_is_cut_and_a_broken_one_told_as_it_is(figures: ProcessFigures) -> None:
    logger = logging.getLogger("anything")

    logger.error("x" * 10_000)
    assert len(str(figures.tell(1)["last_error"])) == 200

    record = logging.LogRecord("anything", logging.ERROR, "", 1, "%d pages", ("many",), None)
    for handler in logging.getLogger().handlers:
        if type(handler).__name__ == "LastError":
            handler.handle(record)
    assert figures.tell(1)["last_error"] == "%d pages"


def test_after_its_close_it_hears_of_no_errors(figures: ProcessFigures) -> None:
    figures.close()

    logging.getLogger("anything").error("too late")

    assert figures.tell(1)["last_error"] == ""


def test_descriptors_are_told_by_kind_with_the_endpoint(figures: ProcessFigures) -> None:
    figures.endpoint = lambda: "http://127.0.0.1:9100/metrics"
    figures.descriptors.tell_by(lambda: {"http": 1})
    with socket.socket():
        told = figures.tell(1)

    assert told["descriptors"]["http"] == 1
    assert told["metrics"] == "http://127.0.0.1:9100/metrics"


def test_what_every_process_has_is_shown_in_its_metrics(figures: ProcessFigures) -> None:
    metrics = Metrics()

    figures.show_in(metrics)
    gauges = metrics.snapshot().gauges

    assert gauges["memory_bytes"][""] > 1 << 20
    assert gauges["open_descriptors"].keys() == set(KINDS)
    assert gauges["open_descriptors_max"][""] > 0
    assert time.time() - 60 < gauges["process_start_time_seconds"][""] <= time.time()
