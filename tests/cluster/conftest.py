"""A Redis Cluster of three masters with a replica each, and crawls on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crawlproj.redisio.client import RedisClient
from tests.cluster.servers import ClusterOfServers
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

PROJECT = Path(__file__).parents[2]

#: Quick versions of what is minutes in a real crawl.
QUICK = {
    "DOWNLOAD_DELAY": "0.1",
    "DOWNLOAD_TIMEOUT": "5",
    "CRAWL_SHARD_LEASE_SECONDS": "3",
    "CRAWL_BACKOFF_SECONDS": "0.3",
    "CRAWL_DRAIN_SECONDS": "5",
}

MakeCluster = Callable[..., ClusterOfServers]
StartCrawl = Callable[..., "Crawl"]


class Crawl:
    """`scrapy run --simweb`, judged by the web's own log."""

    def __init__(self, data: Path, url: str, *arguments: str, **settings: str) -> None:
        self.data = data
        self.access_log = data / "runs" / "simweb" / "access.jsonl"
        self._log = data / "run.log"
        data.mkdir(parents=True)
        options = {**QUICK, "REDIS_URL": url, "LOG_LEVEL": "INFO", **settings}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "scrapy.cmdline",
                        "run",
                        "--json",
                        "--data",
                        str(data),
                        *arguments,
                    ),
                    *(f"--set={name}={value}" for name, value in options.items()),
                ],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_requests(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.access_log.exists() or self.access_log.read_text().count("\n") < count:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def summary(self) -> Any:
        """Wait for the end."""
        code = self.process.wait(PATIENCE_S)
        assert code == 0, self.log
        return json.loads(re.findall(r"^\{.*\}$", self.log, re.MULTILINE)[-1])


@pytest.fixture(scope="session")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    with ExitStack() as stack:
        ports = stack.enter_context(HeldPorts())

        def make(nodes: int = 6, **options: Any) -> ClusterOfServers:
            # The bus of a node is 10,000 above its port.
            numbers = [ports.hold(10_000) for _ in range(nodes)]
            made = ClusterOfServers(tmp_path_factory.mktemp("cluster"), numbers, **options)
            stack.callback(made.kill)
            return made.start()

        yield make


@pytest.fixture
def start_crawl(tmp_path: Path) -> Iterator[StartCrawl]:
    started: list[Crawl] = []

    def start(url: str, *arguments: str, **settings: str) -> Crawl:
        started.append(Crawl(tmp_path / "data", url, *arguments, **settings))
        return started[-1]

    yield start
    for crawl in started:
        if crawl.process.poll() is None:
            crawl.process.terminate()
            try:
                crawl.process.wait(15)
            except subprocess.TimeoutExpired:
                crawl.process.kill()
                crawl.process.wait()


@pytest.fixture
async def open_client(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    opened: list[RedisClient] = []

    async def open_one(url: str, **options: Any) -> RedisClient:
        opened.append(await RedisClient.open(url=url, data_dir=tmp_path, wait_s=PATIENCE_S, **options))
        return opened[-1]

    yield open_one
    for client in opened:
        await client.close()
