"""A server of the jobs API as a process, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.conftest import PROJECT, QUICK, stop_redis, wait_until
from tests.patience import PATIENCE_S

TOKEN = "correct-horse"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`crawlproj serve` on a port of its own. Its jobs outlive it, as they should: see `serving`."""

    def __init__(self, data: Path, log: Path, environment: dict[str, str], *words: str) -> None:
        self.log_path = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crawlproj", "serve", "--port", "0", "--data", str(data), *words],
                cwd=PROJECT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        found = wait_until(lambda: self._address() or self.process.poll() is not None, "the server is ready")
        assert found is not True, log.read_text()
        self.host, self.port = found

    def _address(self) -> tuple[str, int] | None:
        found = re.search(r"serving http://([^/]+):(\d+)/", self.log_path.read_text())
        return (found[1], int(found[2])) if found else None

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; *body* is JSON unless it is bytes. Underscores in *headers* are hyphens."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.send("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.send("POST", path, body)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json

    def wait_for_state(self, job: str, state: str) -> dict[str, Any]:
        def reached() -> Any:
            view = self.get(f"/api/jobs/{job}")
            return view if view["state"] == state else None

        found: dict[str, Any] = wait_until(reached, f"{job} is {state}")
        return found

    def wait_until_unused(self, job: str) -> None:
        """Wait until the processes of *job* have left; before, it cannot be deleted."""
        wait_until(lambda: not self.get(f"/api/jobs/{job}")["processes"], f"the processes of {job} have left")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


class Site:
    """A data directory with servers on it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self._directory = directory
        self._servers: list[Server] = []

    def serve(self, *words: str, environment: dict[str, str] | None = None, **settings: str) -> Server:
        pairs = [f"--set={name}={value}" for name, value in (QUICK | settings).items()]
        log = self._directory / f"server-{len(self._servers)}.log"
        self._servers.append(Server(self.data, log, environment or {}, *pairs, *words))
        return self._servers[-1]

    def processes(self) -> list[int]:
        """The processes of jobs of this directory."""
        words = f"\0{self.data}\0".encode(), b"\0run\0"
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        for server in self._servers:
            if server.process.poll() is None:
                server.kill()
        kill_all(self.processes())
        if (self.data / "redis").exists():
            wait_until(lambda: not self.processes(), "jobs have ended")
            stop_redis(self.data)


def kill_all(processes: list[int]) -> None:
    for pid in processes:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def site_in(directory: Path) -> Iterator[Site]:
    site = Site(directory)
    try:
        yield site
    finally:
        site.close()
