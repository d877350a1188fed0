"""Machines on one machine: network namespaces on a bridge, each with an address, hostname, boot id and disk.

Redis is on a machine of its own at 100.64.7.1. So is the simulated web: all machines route 127.0.0.0/8 to it,
except for 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.overview import overview_of
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.conftest import RedisServer
from tests.e2e.conftest import PROJECT, QUICK, Crew, Process, ask_redis

_CLONE_NEWNET = 0x40000000
_REDIS, _WEB = "100.64.7.1", "100.64.7.2"
_PORT = 6379
#: Between requests to a domain. Long enough to be at work still when a busy machine does what a test wants.
DELAY_S = 1.0
#: Given a hostname and the file of a boot id, runs a command with them.
_BECOME = 'hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id && shift 2 && exec "$@"'


class Machine:
    """A machine with a disk. Processes that it starts stay on it."""

    def __init__(self, lab: Lab, name: str, number: int, host: str) -> None:
        self.lab, self.name, self.host = lab, name, host
        self.address = f"100.64.7.{10 + number}"
        self.disk = lab.directory / name
        self.disk.mkdir()
        self.environment = {"REDIS_URL": f"redis://{_REDIS}:{_PORT}/0"}
        self._boot_id = self.disk / "boot-id"
        self._boot()

    @property
    def boot_id(self) -> str:
        return self._boot_id.read_text().strip()

    @property
    def data(self) -> Path:
        return self.disk / f"data-{self.lab.crawls}"

    def _boot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def run(self, *arguments: str, seeds: bool = True, **settings: str) -> Process:
        """Start `scrapy run`, by default as on every machine: with the seeds and all settings."""
        given = self.lab.settings if seeds else {}
        options = [f"--set={name}={value}" for name, value in (given | settings).items()]
        urls = [str(self.lab.seeds_file)] if seeds else []
        before = ["ip", "netns", "exec", self.lab.namespace(self.name), "unshare", "--uts", "--mount"]
        before += ["sh", "-c", _BECOME, "sh", self.host, str(self._boot_id)]
        process = Process(
            ["run", *urls, *arguments, *options, f"--set=CRAWL_DATA={self.data}"],
            self.disk / "run.log",
            self.environment,
            before,
        )
        self.lab.processes.append(process)
        return process

    @property
    def log(self) -> str:
        return (self.disk / "run.log").read_text(errors="replace")

    @property
    def shard_logs(self) -> str:
        logs = (self.data / "runs/web/logs").glob("shard-*.log")
        return "".join(log.read_text(errors="replace") for log in sorted(logs))

    def crash(self) -> float:
        """Kill everything on it at once, as a power cut does; returns when, in ms. It boots again at once."""
        listed = self.lab.do("ip", "netns", "pids", self.lab.namespace(self.name))
        now_ms = time.time() * 1000
        for pid in map(int, listed.split()):
            os.kill(pid, signal.SIGKILL)
        self._boot()
        return now_ms

    def link(self, *, up: bool) -> None:
        """Cut it off from everything, or mend that."""
        self.lab.inside("ctl", "ip", "link", "set", f"v{self.name}", "up" if up else "down")

    def reach_redis(self, *, can: bool) -> None:
        how = "del" if can else "add"
        self.lab.inside(self.name, "ip", "route", how, "blackhole", f"{_REDIS}/32")

    def reach_web(self, *, can: bool) -> None:
        how = "del" if can else "add"
        self.lab.inside(self.name, "ip", "route", how, "unreachable", "127.0.0.0/9", "metric", "1")


class Lab:
    """A bridge with Redis, a simulated web, and machines."""

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        self.directory = directory
        # No site is given up, however late its answers come on a busy machine.
        self.settings = QUICK | {"DOWNLOAD_DELAY": str(DELAY_S), "CRAWL_GIVE_UP_FAILURES": "0"}
        self.processes: list[Process] = []
        self.crawls = 0
        self._far: list[subprocess.Popen[bytes]] = []
        options = ("--bind", _REDIS, "--port", str(_PORT), "--protected-mode", "no")
        self.redis = RedisServer(directory / "redis", *options)
        self._prefix = f"lab{os.getpid()}-"
        self.machines = [Machine(self, f"m{n}", n, host) for n, host in enumerate(hosts)]
        self._names = ["web", *(machine.name for machine in self.machines)]

    def namespace(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def do(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def inside(self, name: str, *command: str) -> str:
        return self.do("ip", "netns", "exec", self.namespace(name), *command)

    def up(self) -> None:
        for name in ("ctl", *self._names):
            self.do("ip", "netns", "add", self.namespace(name))
            self.inside(name, "ip", "link", "set", "lo", "up")
        bridge = (
            f"ip link add name bridge0 type bridge && ip addr add {_REDIS}/24 dev bridge0 && "
            "ip link set bridge0 up"
        )
        self.inside("ctl", "sh", "-c", bridge)
        for name, address in zip(self._names, [_WEB, *(m.address for m in self.machines)], strict=True):
            peer = f"ip link add v{name} type veth peer name eth0 netns {self.namespace(name)}"
            self.inside("ctl", "sh", "-c", f"{peer} && ip link set v{name} master bridge0 up")
            # Addresses of the loopback network travel over the bridge.
            routes = "for d in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$d/route_localnet; done"
            own = f"ip addr add {address}/24 dev eth0 && ip link set eth0 up && {routes}"
            if name != "web":
                own += (
                    " && ip route del local 127.0.0.0/8 dev lo table local"
                    f" && ip route add 127.0.0.0/8 via {_WEB} src {address}"
                )
            self.inside(name, "sh", "-c", own)
        self.redis.folder.mkdir()
        with self.entered("ctl"):
            self.redis.start()

    def far_redis(self, port: int, round_trip_s: float) -> str:
        """Return the URL of the same Redis, as far away as that."""
        far = [sys.executable, "-m", "tests.machines.far", _REDIS, str(port), str(_PORT), str(round_trip_s)]
        with self.entered("ctl"):
            self._far.append(subprocess.Popen(far, cwd=PROJECT))
        return f"redis://{_REDIS}:{port}/0"

    def shards_on(self, machine: Machine) -> set[int]:
        """Return the shard numbers that processes of *machine* hold, since it has booted."""

        async def read(run: Run) -> set[int]:
            alive = (await run.read_map()).alive
            return {n for n, holder in alive.items() if holder.process.machine.startswith(machine.boot_id)}

        found: set[int] | None = self._ask(read)
        return found or set()

    def silent_s(self) -> list[float]:
        """Return for how long each process of the run is said to be silent."""

        async def read(run: Run) -> list[float]:
            return [line["silent_seconds"] for line in (await overview_of(run))["processes"]]

        found: list[float] | None = self._ask(read)
        return found or []

    def _ask(self, question: Callable[[Run], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            client = await RedisClient.open(url=self.redis.url, data_dir=Path())
            try:
                if not await Run(client, "web", 1).state():
                    return None
                return await question(await Run.find(client, "web"))
            finally:
                await client.close()

        return asyncio.run(ask())

    def down(self) -> None:
        for process in self.processes:
            process.end()
        for far in self._far:
            far.kill()
            far.wait()
        self.redis.kill()
        for name in ("ctl", *self._names):
            listed = subprocess.run(
                ["ip", "netns", "pids", self.namespace(name)], capture_output=True, text=True, check=False
            )
            for pid in map(int, listed.stdout.split()):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)

    @contextmanager
    def entered(self, name: str) -> Iterator[None]:
        """Have this thread, and what it starts, on the machine *name*."""
        libc = ctypes.CDLL(None, use_errno=True)
        with (
            Path("/proc/thread-self/ns/net").open() as ours,
            Path(f"/run/netns/{self.namespace(name)}").open() as theirs,
        ):
            assert libc.setns(theirs.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                libc.setns(ours.fileno(), _CLONE_NEWNET)

    @contextmanager
    def web(self, spec: WorldSpec) -> Iterator[_Crawl]:
        """Serve a simulated web for one crawl; ``Crew`` reads its log, the status and the pages."""
        ask_redis(self.redis.url, "FLUSHALL")
        self.crawls += 1
        directory = self.directory / f"web-{self.crawls}"
        simweb = _Simweb(self, spec, directory)
        with self.entered("web"):
            simweb.__enter__()
        try:
            crew = _Crawl(directory, simweb, {"REDIS_URL": self.redis.url} | self.settings)
            crew.disks = [machine.data for machine in self.machines]
            self.seeds_file = crew.seeds_file
            yield crew
        finally:
            for process in self.processes:
                process.end()
            simweb.stop()

    def assert_complete(self, crew: _Crawl, *, twice_at_most: int = 0) -> None:
        """By the web's log nothing is missing and nobody was impolite; by all disks it is stored, once."""
        referee = crew.simweb.referee()
        verdict = referee.verdict(min_gap_ms=1000 * DELAY_S, twice_allowed=twice_at_most)
        assert verdict.ok, verdict.report()
        disks = [data / "runs/web/pages" for data in crew.disks]
        stored = Counter(page["url"] for disk in disks if disk.exists() for page in read_pages(disk))
        assert [url for url, count in stored.items() if count > 1] == []
        assert referee.expected - set(stored) == set()


class _Crawl(Crew):
    #: The data directories of all machines.
    disks: list[Path]


class _Simweb(SimwebProcess):
    """A simulated web on the machine `web`."""

    def __init__(self, lab: Lab, spec: WorldSpec, directory: Path) -> None:
        directory.mkdir(parents=True)
        super().__init__(spec, directory)
        self._lab = lab

    def referee(self, **arguments: Any) -> Any:
        with self._lab.entered("web"):
            return super().referee(**arguments)


def laboratory(directory: Path, hosts: Sequence[str]) -> Iterator[Lab]:
    """Yield a lab with one machine for each hostname; skips where namespaces cannot be made."""
    if sys.platform != "linux":
        pytest.skip("only Linux has network namespaces")
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("only root may make machines of network namespaces")
    lab = Lab(directory, hosts)
    try:
        try:
            lab.up()
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"only root may make machines of network namespaces: {exc.stderr}")
        yield lab
    finally:
        lab.down()
