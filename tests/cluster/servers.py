"""A Redis Cluster, or a master with a replica and Sentinels, made of real servers."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.conftest import redis_server
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

SLOTS = 16384
#: How long a silent node is waited for, in ms: one that a busy machine keeps from running is not dead.
PATIENT_MS = 120_000
#: The same once one is killed.
QUICK_MS = 1000


def until(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
    """Wait until *condition* is true, however long its servers do not answer."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if result := condition():
                return result
        except RedisError:
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Node:
    """A redis-server on a port of its own."""

    def __init__(self, folder: Path, port: int, options: Sequence[str], *, tls: bool, password: str) -> None:
        self.folder = folder
        self.port = port
        self.tls = tls
        self.password = password
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> Node:
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = ("--port", "0", "--tls-port") if self.tls else ("--port",)
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    redis_server(),
                    *arguments,
                    *(*ports, str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self.ask().ping, f"{self.folder} did not start")
        return self

    def ask(self) -> Redis:
        tls = {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False} if self.tls else {}
        return Redis("127.0.0.1", self.port, password=self.password or None, **tls)  # type: ignore[arg-type]

    def info(self, name: str) -> Any:
        return self.ask().info()[name]

    def kill(self) -> None:
        if self._process is not None:
            # A paused one, too.
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)


class ClusterOfServers:
    """Masters that share the slots evenly, each with a replica."""

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        options: Sequence[str] = (),
        *,
        tls: bool = False,
        password: str = "",
    ) -> None:
        common = [*("--cluster-enabled", "yes", "--cluster-node-timeout", str(PATIENT_MS)), *options]
        common += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        if password:
            common += ["--requirepass", password, "--masterauth", password]
        self.nodes = [Node(folder / str(port), port, common, tls=tls, password=password) for port in ports]
        masters = -(-len(ports) // 2)
        self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]

    @property
    def url(self) -> str:
        scheme = "rediss" if self.masters[0].tls else "redis"
        user = f":{self.masters[0].password}@" if self.masters[0].password else ""
        return f"{scheme}+cluster://{user}" + ",".join(f"127.0.0.1:{node.port}" for node in self.masters)

    def start(self) -> ClusterOfServers:
        for node in self.nodes:
            node.start()
        count = len(self.masters)
        for number, node in enumerate(self.masters):
            slots = range(SLOTS * number // count, SLOTS * (number + 1) // count)
            node.ask().execute_command("CLUSTER ADDSLOTS", *slots)
            # Epochs of their own: nobody has to find out who is right.
            node.ask().execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask().execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes did not meet")
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask().execute_command("CLUSTER REPLICATE", master.ask().execute_command("CLUSTER MYID"))
        until(lambda: all(self._is_ready(node) for node in self.nodes), "the cluster is not ready")
        return self

    def move(self, slot: int, source: Node, target: Node) -> None:
        """Move *slot* as redis-cli does: its keys one after the other, while it is in use."""
        self.begin_to_move(slot, source, target)
        while found := source.ask().execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
            self._migrate(source, target, found)
        for node in (target, source):
            node.ask().execute_command("CLUSTER SETSLOT", slot, "NODE", _id_of(target))

    def begin_to_move(self, slot: int, source: Node, target: Node, *names: str) -> None:
        """Begin to move *slot*, and move the keys with these *names*."""
        target.ask().execute_command("CLUSTER SETSLOT", slot, "IMPORTING", _id_of(source))
        source.ask().execute_command("CLUSTER SETSLOT", slot, "MIGRATING", _id_of(target))
        if names:
            self._migrate(source, target, names)

    def _migrate(self, source: Node, target: Node, names: Sequence[str]) -> None:
        auth = ("AUTH", source.password) if source.password else ()
        source.ask().execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, *auth, "KEYS", *names)

    def fail_over(self, master: Node) -> None:
        """Kill *master*, and wait until its replica has taken its place."""
        replica = self.replicas[self.masters.index(master)]
        master.kill()
        self._wait_for_silent_nodes(QUICK_MS)
        until(lambda: replica.info("role") == "master", "the replica was not promoted")
        self._wait_for_silent_nodes(PATIENT_MS)

    def _wait_for_silent_nodes(self, limit_ms: int) -> None:
        for node in self.nodes:
            if node._process is not None:
                node.ask().config_set("cluster-node-timeout", limit_ms)

    def owner(self, slot: int) -> Node:
        """Return the master of *slot*, as a living node knows it."""
        living = next(node for node in self.nodes if node._process is not None)
        for first, last, (_, port, *_), *_ in living.ask().execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"slot {slot} has no master")

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def _knows_all(self, node: Node) -> bool:
        lines = node.ask().execute_command("CLUSTER NODES")
        text = lines.decode() if isinstance(lines, bytes) else str(lines)
        return text.count("handshake") == 0 and text.count("connected") >= len(self.nodes)

    def _is_ready(self, node: Node) -> bool:
        is_ok = b"cluster_state:ok" in _bytes(node.ask().execute_command("CLUSTER INFO"))
        info = node.ask().info("replication")
        if node in self.replicas:
            return is_ok and info["role"] == "slave" and info["master_link_status"] == "up"
        return is_ok and (not self.replicas or info["connected_slaves"] == 1)


class Sentinels:
    """A master, its replica, and three Sentinels; all want the password."""

    def __init__(
        self, folder: Path, ports: HeldPorts, options: Sequence[str] = (), *, tls: bool = False
    ) -> None:
        common = [
            *options,
            "--requirepass",
            "secret",
            "--masterauth",
            "secret",
            "--save",
            "",
            "--appendonly",
            "yes",
        ]
        common += ["--repl-diskless-sync-delay", "0"]
        numbers = [ports.hold() for _ in range(5)]
        self.servers = [
            Node(folder / str(port), port, common, tls=tls, password="secret") for port in numbers[:2]
        ]
        self.sentinels = [
            Node(folder / str(port), port, options, tls=tls, password="secret") for port in numbers[2:]
        ]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.sentinels)
        scheme = "rediss" if self.servers[0].tls else "redis"
        return f"{scheme}+sentinel://:secret@{hosts}/crawl/0?sentinel_password=secret"

    def start(self) -> Sentinels:
        master, replica = self.servers
        master.start()
        replica.start("--replicaof", "127.0.0.1", str(master.port))
        for node in self.sentinels:
            node.folder.mkdir()
            config = node.folder / "sentinel.conf"
            config.write_text(
                f"requirepass secret\nsentinel sentinel-pass secret\n"
                f"sentinel monitor crawl 127.0.0.1 {master.port} 2\n"
                f"sentinel auth-pass crawl secret\nsentinel down-after-milliseconds crawl {PATIENT_MS}\n"
                "sentinel failover-timeout crawl 5000\n"
            )
            node.start(str(config), "--sentinel")
        until(lambda: master.info("connected_slaves") == 1, "the replica is there")
        until(lambda: all(self._knows_all(node) for node in self.sentinels), "the Sentinels know all")
        return self

    def kill(self) -> None:
        for node in [*self.servers, *self.sentinels]:
            node.kill()

    def kill_master(self) -> None:
        """Kill the first server, and have the Sentinels notice soon."""
        self.servers[0].kill()
        for node in self.sentinels:
            node.ask().execute_command("SENTINEL SET crawl down-after-milliseconds", QUICK_MS)

    def _knows_all(self, node: Node) -> bool:
        [state] = node.ask().sentinel_masters().values()
        return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1)


def _id_of(node: Node) -> str:
    return str(node.ask().execute_command("CLUSTER MYID").decode())


def _bytes(answer: Any) -> bytes:
    if isinstance(answer, dict):
        return "\n".join(f"{name}:{value}" for name, value in answer.items()).encode()
    return answer if isinstance(answer, bytes) else str(answer).encode()
