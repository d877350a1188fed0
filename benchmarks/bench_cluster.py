"""CPU of a page on a Redis Cluster of three masters beside one server, in the same run.

The crawl of `bench_shard`: a shard and a parser, each a process, on a simulated web without delays. Redis
counts with all its servers, which have append-only files and no replicas. Also how evenly masters are used.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench_shard import REPEATS, Cost, Web
from measuring import (
    Goal,
    Options,
    RedisServer,
    Report,
    interleaved,
    median,
    process_cpu_s,
    read_options,
    spread,
)
from redis import Redis

from crawlproj.simweb.spec import WorldSpec

MASTERS = 3
SLOTS = 16384
READY_S = 20.0


class Cluster(ExitStack):
    """Masters that share the slots evenly."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._ports: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def cpu_s(self) -> float:
        return sum(self.each_cpu_s())

    def each_cpu_s(self) -> list[float]:
        return [process_cpu_s(process.pid) for process in self._processes]

    def each_keys(self) -> list[int]:
        return [int(Redis(port=port).dbsize()) for port in self._ports]

    def start(self) -> Cluster:
        folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self._ports = _free_ports(MASTERS)
        for port in self._ports:
            (folder / str(port)).mkdir()
            process = subprocess.Popen(
                [
                    *(self._server, "--port", str(port), "--dir", str(folder / str(port)), "--save", ""),
                    *("--appendonly", "yes", "--cluster-enabled", "yes", "--hash-max-ziplist-entries", "64"),
                ],
                stdout=subprocess.DEVNULL,
            )
            self.callback(process.wait)
            self.callback(process.kill)
            self._processes.append(process)
        nodes = [Redis(port=port) for port in self._ports]
        _wait(lambda: all(node.ping() for node in nodes))
        for number, node in enumerate(nodes):
            slots = range(SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS)
            node.execute_command("CLUSTER ADDSLOTS", *slots)
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.execute_command("CLUSTER MEET", "127.0.0.1", self._ports[0])
        _wait(lambda: all(node.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes))
        _wait(lambda: all(len(node.execute_command("CLUSTER SLOTS")) == MASTERS for node in nodes))
        return self


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        ports: list[int] = []
        # The bus of a node is 10,000 above its port.
        for port in range(21_000, 30_000):
            try:
                for number in (port, port + 10_000):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                break
        return ports


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            if is_so():
                return
        except (ConnectionError, OSError):
            pass
        except Exception as exc:
            if time.monotonic() > deadline:
                raise RuntimeError("The cluster did not start.") from exc
        if time.monotonic() > deadline:
            raise RuntimeError("The cluster did not start.")
        time.sleep(0.05)


def main(options: Options) -> None:
    pages = 10 if options.quick else 75
    spec = WorldSpec.calm(
        domains=60, pages_per_domain=pages, size_spread=0.0, page_bytes=15_000, links_mean=30, latency_ms=2
    )
    web = Web(spec, options.redis_server)
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    shares: list[list[float]] = []

    def on_cluster() -> Cost:
        with Cluster(options.redis_server) as cluster:
            cost = web.crawl_on(cluster.start())
            used_by_each = cluster.each_cpu_s(), cluster.each_keys()
            shares.extend([MASTERS * value / sum(used) for value in used] for used in used_by_each)
        return cost

    costs = interleaved(
        {"one server": web.crawl_ours, "three masters": on_cluster}, 1 if options.quick else REPEATS
    )
    table = report.table(
        f"CPU ms per page, {spec.domains * pages:,} pages of {spec.domains} domains, no delay",
        "Redis",
        "fetching process",
        "parser",
        "Redis (AOF)",
        "all",
    )
    for name, found in costs.items():
        parts = (
            [cost.fetch for cost in found],
            [cost.parse for cost in found],
            [cost.redis for cost in found],
        )
        table.add(
            name, *(spread(part, ".2f") for part in parts), spread([cost.total for cost in found], ".2f")
        )
    ratio = median([cost.total for cost in costs["three masters"]]) / median(
        [cost.total for cost in costs["one server"]]
    )
    worst = max(map(max, shares))
    report.goals = [
        Goal("CPU of a page on three masters / on one server", "<= 1.15", f"{ratio:.2f}", ratio <= 1.15),
        Goal("the busiest or fullest master / the mean", "<= 1.30", f"{worst:.2f}", worst <= 1.3),
    ]
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
