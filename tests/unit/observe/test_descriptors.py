"""Descriptors by kind, and the rule that says that one kind grows."""

from __future__ import annotations

import logging
import os
import random
import socket
from pathlib import Path

import pytest

from crawlproj.observe.descriptors import KINDS, Descriptors, GrowthWatch, grows_steadily
from tests.clock import Clock


def difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {kind: after[kind] - before[kind] for kind in KINDS if after[kind] != before[kind]}


def test_files_segments_and_pipes_are_distinguished(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    descriptors = Descriptors(pages=pages)
    before = descriptors.count()

    files = [(tmp_path / "log").open("w"), (pages / "a.part").open("w"), (pages / "b.part").open("w")]
    ends = os.pipe()

    assert difference(before, descriptors.count()) == {"segment": 2, "file": 1, "pipe": 2}
    for file in files:
        file.close()
    for end in ends:
        os.close(end)
    assert descriptors.count() == before


def test_redis_is_known_by_the_path_of_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "redis.sock")
    descriptors = Descriptors(redis=path)
    before = descriptors.count()

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(path)
        listening.listen()
        client.connect(path)

        assert difference(before, descriptors.count()) == {"redis": 1, "socket": 1}
        # Looking at it has not closed it.
        assert client.getpeername() == path


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_redis_is_known_by_its_port(host: str) -> None:
    with socket.socket() as listening, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        descriptors = Descriptors(redis=f"{host}:{listening.getsockname()[1]}")
        before = descriptors.count()

        client.connect(listening.getsockname())

        assert difference(before, descriptors.count()) == {"redis": 1, "socket": -1}


def test_sockets_have_the_kind_their_owner_reports() -> None:
    descriptors = Descriptors()
    descriptors.add_source(lambda: {"http": 2})
    before = descriptors.count()

    made = [socket.socket() for _ in range(5)]

    after = descriptors.count()
    assert (after["http"], after["socket"] + after["http"]) == (2, before["socket"] + before["http"] + 5)
    for one in made:
        one.close()


def test_no_more_sockets_are_counted_than_there_are() -> None:
    descriptors = Descriptors()
    descriptors.add_source(lambda: {"http": 10_000})

    assert descriptors.count()["socket"] == 0
    assert descriptors.count()["http"] < 10_000


def test_a_straight_line_up_is_growth_also_with_noise() -> None:
    noise = random.Random(1)

    assert grows_steadily([20 + 3 * n + noise.randint(-4, 4) for n in range(30)])


@pytest.mark.parametrize(
    "samples",
    [
        [100] * 30,
        [200 - 3 * n for n in range(30)],
        # A crawl begins, and has then what it needs.
        [min(300, 30 * n) for n in range(30)],
        # The same, slowly: a line would fit well, but it grows less and less.
        [100 * (1 - 0.95**n) for n in range(30)],
        # Full, empty, full.
        [50 + 40 * (n % 10) for n in range(30)],
        # Too little to matter.
        [1000 + n // 3 for n in range(30)],
        [1, 100],
    ],
)
def test_other_courses_are_not(samples: list[float]) -> None:
    assert not grows_steadily(samples)


def test_growth_is_logged_with_its_kind_once_and_again_when_it_has_doubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    watch = GrowthWatch(10.0, clock)
    with caplog.at_level(logging.WARNING):
        for number in range(120):
            clock.now_s += 10
            watch.note({"http": 4 * number, "file": 7})

    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == [
        "open descriptors of kind http grow steadily: from 0 to 116",
        "open descriptors of kind http grow steadily: from 116 to 232",
        "open descriptors of kind http grow steadily: from 348 to 464",
    ]


def test_looks_that_come_too_soon_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = GrowthWatch(10.0, clock)
    for number in range(200):
        clock.now_s += 1
        watch.note({"http": 4 * number})

    assert caplog.records == []
