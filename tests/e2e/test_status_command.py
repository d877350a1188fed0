"""`scrapy status --watch` as a person uses it: on a terminal, into a file, until Ctrl-C."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.patience import PATIENCE_S

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def hears_ctrl_c() -> Iterator[None]:
    """What a shell starts in the background is deaf to Ctrl-C, and so would be all that tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run_url(empty_redis_url: str) -> str:
    """A Redis with a run in it."""

    async def make() -> None:
        client = await RedisClient.open(url=empty_redis_url, data_dir=Path())
        await Run.open(client, "web", partitions=8, shards=2)
        await client.close()

    asyncio.run(make())
    return empty_redis_url


class Watch:
    """A `scrapy status` at work; ``text`` is what it printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.text = ""
        self._output = output

    def read_until(self, word: str, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.text.count(word) < count:
            assert time.monotonic() < deadline, self.text
            self._read(1.0)

    def end(self) -> int:
        """Press Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        while self._read(PATIENCE_S):
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self, within_s: float) -> bool:
        if not select.select([self._output], [], [], within_s)[0]:
            return False
        try:
            more = os.read(self._output, 65536)
        except OSError:
            # How the other end of a terminal says that it has been closed.
            return False
        self.text += more.decode(errors="replace")
        return bool(more)


@contextmanager
def watching(url: str, *options: str, terminal: bool) -> Iterator[Watch]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy.cmdline", "status", *options, f"--set=REDIS_URL={url}"],
        cwd=PROJECT,
        env=os.environ | {"TERM": "xterm", "FORCE_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
    )
    os.close(theirs)
    try:
        yield Watch(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_on_a_terminal_it_is_drawn_again_on_a_screen_of_its_own_until_ctrl_c(run_url: str) -> None:
    with watching(run_url, "--watch", "0.5", terminal=True) as watch:
        watch.read_until("shards alive: none, of 2", 3)

        assert watch.end() == 0

    # The screen as it was before, and the cursor, are back.
    assert watch.text.rindex("\x1b[?1049l") > watch.text.rindex("\x1b[?1049h")
    assert "\x1b[?25h" in watch.text
    assert "Traceback" not in watch.text


def test_into_a_file_goes_a_plain_block_with_its_time_until_ctrl_c(run_url: str) -> None:
    with watching(run_url, "--watch", "0.5", terminal=False) as watch:
        watch.read_until("run web, created", 2)

        assert watch.end() == 0

    time_of_day, first = watch.text.splitlines()[:2]
    assert time.strptime(time_of_day, "%Y-%m-%d %H:%M:%S")
    assert first == "run web, created"
    assert "\x1b" not in watch.text


def test_for_programs_every_look_is_one_line_of_json(run_url: str) -> None:
    with watching(run_url, "--watch", "0.5", "--json", terminal=False) as watch:
        watch.read_until("\n", 2)

        assert watch.end() == 0

    looks = [json.loads(line) for line in watch.text.splitlines()]
    assert {look["run"] for look in looks} == {"web"}
    assert {"processes", "pages_per_second", "hottest_domains", "remaining"} <= looks[0].keys()


def test_a_single_look_on_a_terminal_ends_by_itself_and_stays_there(run_url: str) -> None:
    with watching(run_url, terminal=True) as watch:
        watch.read_until("in open files", 1)

        assert watch.process.wait(PATIENCE_S) == 0

    assert "\x1b[1mrun web, created\x1b[0m" in watch.text
    assert "\x1b[?1049h" not in watch.text


def test_a_wrong_time_to_watch_is_one_clear_line(run_url: str) -> None:
    with watching(run_url, "--watch", "often", terminal=False) as watch:
        assert watch.process.wait(PATIENCE_S) == 2
        watch.read_until("\n", 1)

    assert watch.text == "scrapy status: --watch often: must be at least 0.5 seconds.\n"
