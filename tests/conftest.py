"""A real Redis, private to the session (to the worker, under xdist), and others to be killed at will."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from crawlproj.parsing import worker
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.servers import OLDEST_VERSION, find_servers, newest_that_reads
from crawlproj.storage.objects import store_at
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts
from tests.stores import FaultyProxy, S3Server, environment

# Three tests run at once, beside whatever else the machine does: no example is too slow.
hypothesis.settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "quick", hypothesis.settings.get_profile("shared machine"), max_examples=10
)
hypothesis.settings.load_profile("shared machine")

# How every run of the tests is held.
pytest_plugins = ["tests.leftovers", "tests.shuffle", "tests.skips"]


def pytest_configure() -> None:
    """In the background of a shell Ctrl-C is ignored, and every process of the tests would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def redis_server() -> str:
    """The newest redis-server here."""
    server = newest_that_reads(find_servers(), OLDEST_VERSION)
    assert server is not None
    return server.path


class RedisServer:
    """A redis-server on a unix socket, which can be killed and started again with its data."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self, *more_options: str) -> RedisServer:
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    redis_server(),
                    *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)),
                    *("--save", "", "--appendonly", "no", *self.options, *more_options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._listens():
            assert self.process.poll() is None, (self.folder / "redis.log").read_text()
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.005)
        return self

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def unpause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return False
        return True


@pytest.fixture(autouse=True)
def settings_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves a settings module to the processes of others: the commands set it for their own."""
    for name in ("SCRAPY_SETTINGS_MODULE", "SCRAPY_PROJECT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def root_log_level() -> Iterator[None]:
    """What Scrapy sets for a crawl must not decide what later tests find logged."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


@pytest.fixture
def quick_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsers of this process wait at an empty queue for a moment only."""
    monkeypatch.setattr(worker, "_IDLE_S", 0.05)
    monkeypatch.setattr(worker, "_SOON_S", 0.05)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    # Not pytest's own folder: its names are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="crawl-") as folder:
        server = RedisServer(Path(folder)).start()
        yield server.url
        server.kill()


@pytest.fixture
async def client(redis_url: str, tmp_path: Path) -> AsyncIterator[RedisClient]:
    """A client to the session's Redis, which is empty when the test starts."""
    opened = await RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10)
    await opened.command("FLUSHDB")
    yield opened
    await opened.close()


@pytest.fixture
def redis_server_factory() -> Iterator[Callable[..., RedisServer]]:
    """Makes running servers of the test's own: ``factory("--requirepass", "x")``."""
    servers: list[RedisServer] = []

    def make(*options: str) -> RedisServer:
        servers.append(RedisServer(Path(tempfile.mkdtemp(prefix="crawl-")), *options))
        return servers[-1].start()

    yield make
    for server in servers:
        server.kill()
        shutil.rmtree(server.folder)


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server with one bucket, `tests.stores.BUCKET`."""
    server = S3Server(tmp_path_factory.mktemp("s3") / "log")
    yield server.port
    server.stop()


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy in front of it, which this process and its children find through the environment."""
    with FaultyProxy(s3_port) as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        # Clients of earlier tests know another proxy.
        store_at.cache_clear()
        yield proxy


@pytest.fixture
def ports() -> Iterator[HeldPorts]:
    """Ports of the test's own: ``ports.hold()``."""
    with HeldPorts() as held:
        yield held
