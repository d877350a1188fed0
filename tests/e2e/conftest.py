"""A whole crawl under test: a simulated web, shards and parsers as real processes, and ways to hurt them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config.rules import RULES
from crawlproj.model.spill import SpillRecord
from crawlproj.redisio import embedded, keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, status_of
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.timing import Rules
from crawlproj.storage import read_pages
from tests.e2e.warm import WarmProcess, WarmPython
from tests.patience import PATIENCE_S
from tests.processes import is_alive

PROJECT = Path(__file__).parents[2]

#: Quick versions of what is minutes in a real crawl.
QUICK = {
    "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "CRAWL_SCOPE": "everything",
    "DOWNLOAD_DELAY": "0.1",
    "CRAWL_SHARD_LEASE_SECONDS": "3",
    "CRAWL_BACKOFF_SECONDS": "0.3",
    "CRAWL_DRAIN_SECONDS": "5",
    "DOWNLOAD_TIMEOUT": "5",
    # Tests read what people would.
    "CRAWL_LOG": "text",
}


#: How long a Redis may have clients whose processes were killed; it is named in the end if it is left behind.
_LEAVING_S = 60.0


def wait_until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
    """Wait for *condition* to give something true, and return that."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {within_s:g} s in vain until {what}"
        time.sleep(0.05)
    return value


def error_lines(log: str) -> list[str]:
    return [line for line in log.splitlines() if re.search(r"\] (ERROR|CRITICAL): ", line)]


def summary_of(process: Process) -> Any:
    """Return what `scrapy run --json` printed last."""
    return json.loads(re.findall(r"^\{.*\}$", process.log, re.MULTILINE)[-1])


def stop_redis(data: Path) -> None:
    """Stop the embedded Redis in *data*, if there is one.

    On a busy machine it may be slow to answer, or to notice that those who were killed have left.
    """
    deadline = time.monotonic() + _LEAVING_S
    while (data / "redis").exists() and not embedded.stop_if_unused(data):
        # Removed when it ends in order; a killed one leaves it.
        pid_file = data / "redis" / "redis.pid"
        if not pid_file.exists() or not is_alive(int(pid_file.read_text())) or time.monotonic() > deadline:
            break
        time.sleep(0.05)


WARM = WarmPython()


@pytest.fixture(scope="session", autouse=True)
def _warm_python() -> Iterator[None]:
    yield
    WARM.close()


class Process:
    """A `scrapy` command as a person would start it, its output in a file."""

    def __init__(
        self, arguments: list[str], log: Path, environment: dict[str, str], before: Sequence[str] = ()
    ) -> None:
        self.log_path = log
        self.process: subprocess.Popen[bytes] | WarmProcess
        with log.open("ab") as out:
            # What changes how Python or the process itself starts needs one of its own.
            if before or any(name.startswith(("PYTHON", "LD_")) for name in environment):
                self.process = subprocess.Popen(
                    [*before, sys.executable, "-m", "scrapy.cmdline", *arguments],
                    cwd=PROJECT,
                    env=os.environ | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            else:
                self.process = WARM.start(arguments, PROJECT, os.environ | environment, out.fileno())

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it if it runs, and what it started, frozen or not."""
        if self.is_running:
            # It may end by itself at this moment.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """Return the exit code; -9 for one that had to be killed after waiting in vain."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.end()
            pytest.fail(f"still running after {within_s:g} s; its log ends:\n{self.log[-3000:]}")

    def says(self, text: str) -> bool:
        return text in self.log


class Crew:
    """The processes of one run in one data directory, on one simulated web."""

    def __init__(self, directory: Path, simweb: SimwebProcess, settings: dict[str, str]) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.simweb = simweb
        self.settings = QUICK | settings
        self.seeds_file = directory / "seeds.txt"
        self.seeds_file.write_text("".join(f"{url}\n" for url in simweb.seeds()))
        self.environment: dict[str, str] = {}
        #: A program that runs the next commands, with its arguments.
        self.before: Sequence[str] = ()
        self.processes: list[Process] = []

    def scrapy(self, *arguments: str, name: str = "command") -> Process:
        """Start any scrapy command with this crew's settings."""
        settings = [f"--set={key}={value}" for key, value in self.settings.items()]
        process = Process(
            [*arguments, *settings, f"--set=CRAWL_DATA={self.data}"],
            self.directory / f"{name}-{len(self.processes)}.log",
            self.environment,
            self.before,
        )
        self.processes.append(process)
        return process

    def shard(self, number: int, *arguments: str) -> Process:
        spider_arguments = [f"-a{argument}" for argument in arguments]
        return self.scrapy("crawl", "web", f"-ashard={number}", *spider_arguments, name=f"shard{number}")

    def parser(self) -> Process:
        return self.scrapy("parser", name="parser")

    def start(self, shards: int = 2, parsers: int = 1) -> list[Process]:
        """Start a crawl from the seeds; returns the shards."""
        started = [
            self.shard(number, f"shards={shards}", f"seeds={self.seeds_file}") for number in range(shards)
        ]
        for _ in range(parsers):
            self.parser()
        return started

    def status(self) -> dict[str, Any]:
        return asyncio.run(self._status())

    async def _status(self) -> dict[str, Any]:
        url = self.environment.get("REDIS_URL") or self.settings.get("REDIS_URL")
        client = await RedisClient.open(url=url or embedded.ensure_running(self.data), data_dir=self.data)
        try:
            if await client.command("EXISTS", "crawl:{web}:run"):
                return await status_of(await Run.find(client, "web"))
            return dict.fromkeys(("fetched", "waiting", "leased", "pages_stored"), 0)
        finally:
            await client.close()

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_until(condition, what)

    def wait_for_fetched(self, count: int) -> None:
        wait_until(lambda: self.status()["fetched"] >= count, f"{count} URLs are fetched")

    def requests_seen(self) -> int:
        return len(self.simweb.log_path.read_text().splitlines())

    def hold_open(self, *, held: bool) -> None:
        """Keep the run from ending, however fast it is."""
        url = self.environment.get("REDIS_URL") or self.settings.get("REDIS_URL")
        hold_open(url or embedded.ensure_running(self.data), "web", held=held)

    def finish(self, *expected_to_end: Process) -> None:
        """Wait until the run has ended by itself: every process given (or all) exits with 0."""
        for process in expected_to_end or [p for p in self.processes if p.is_running]:
            assert process.wait() == 0, process.log[-3000:]

    def referee(self, rules: Rules | None = None) -> Referee:
        return self.simweb.referee(rules=rules)

    def assert_polite(self, rules: Rules | None = None, *, twice_at_most: int = 0) -> None:
        """The referee finds no violations."""
        delay_ms = float(self.settings["DOWNLOAD_DELAY"]) * 1000
        verdict = self.referee(rules).verdict(min_gap_ms=delay_ms, twice_allowed=twice_at_most)
        assert verdict.ok, verdict.report()

    def assert_content(self, rules: Rules | None = None, *, twice_at_most: int = 0) -> None:
        """The referee finds no violations, and what was fetched is stored, once.

        *twice_at_most*: URLs that may have been fetched a second time, because a process that held them
        was killed while fetching.
        """
        self.assert_polite(rules, twice_at_most=twice_at_most)
        stored = Counter(page["url"] for page in self.pages())
        assert [url for url, count in stored.items() if count > 1] == []
        assert self.referee().expected - set(stored) == set()

    def pages(self) -> list[dict[str, Any]]:
        return list(read_pages(f"{self.settings.get('CRAWL_STORE', self.data)}/runs/web/pages"))

    def redis_pid(self) -> int:
        return int(_ask_redis(embedded.ensure_running(self.data), "process_id"))

    def stop(self) -> None:
        for process in self.processes:
            process.end()
        stop_redis(self.data)


def _ask_redis(url: str, field: str) -> str:
    async def ask() -> str:
        client = await RedisClient.open(url=url, data_dir=Path())
        try:
            info: bytes = await client.command("INFO", "server")
        finally:
            await client.close()
        return next(line.split(":")[1] for line in info.decode().splitlines() if line.startswith(field))

    return asyncio.run(ask())


@contextmanager
def crews_in(directory: Path) -> Iterator[Callable[..., Crew]]:
    crews: list[Crew] = []

    def make(spec: WorldSpec, **settings: str) -> Crew:
        simweb = SimwebProcess(spec, directory)
        simweb.__enter__()
        crews.append(Crew(directory, simweb, settings))
        return crews[-1]

    try:
        yield make
    finally:
        for crew in crews:
            crew.stop()
            crew.simweb.stop()


@pytest.fixture
def crew_of(tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    """Makes a crew on a simulated web: ``crew_of(WorldSpec(...), DOWNLOAD_DELAY="0.2")``."""
    with crews_in(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def shared_crew_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Crew]]:
    """The same for crawls that several tests of a module judge; each in a directory of its own."""
    with ExitStack() as stack:

        def make(spec: WorldSpec, **settings: str) -> Crew:
            return stack.enter_context(crews_in(tmp_path_factory.mktemp("crew")))(spec, **settings)

        yield make


@pytest.fixture
def json_of() -> Callable[[str], Any]:
    """Reads the last line of an output as JSON."""
    return lambda text: json.loads(text.strip().splitlines()[-1])


@pytest.fixture
def empty_redis_url(redis_url: str) -> str:
    """The session's Redis, emptied, for tests that are not asynchronous themselves."""
    ask_redis(redis_url, "FLUSHDB")
    return redis_url


@pytest.fixture
def ask() -> Callable[..., Any]:
    """Sends one command to a Redis: ``ask(url, "LLEN", "web:start_urls")``."""
    return ask_redis


def ask_redis(url: str, *command: str | int | bytes) -> Any:
    async def ask() -> Any:
        client = await RedisClient.open(url=url, data_dir=Path())
        try:
            return await client.command(*command)
        finally:
            await client.close()

    return asyncio.run(ask())


def hold_open(url: str, run: str, *, held: bool) -> None:
    """Keep a run from ending, however fast it is: links wait on the disk of a machine that is off."""
    spills, file = keys.spills(run), "held-open"
    command = ("HSET", spills, file, SpillRecord(1, "off").encode()) if held else ("HDEL", spills, file)
    ask_redis(url, *command)


@pytest.fixture
def scrapy(tmp_path: Path, empty_redis_url: str) -> Iterator[Callable[..., Process]]:
    """Starts a scrapy command on the session's Redis: ``scrapy("crawl", "web", DOWNLOAD_DELAY="0")``.

    *environment* goes over the environment of the tests; REDIS_URL='' there means an embedded Redis.
    *before* is a program that runs the command, with its arguments.
    """
    started: list[Process] = []

    def start(
        *arguments: str,
        environment: dict[str, str] | None = None,
        before: Sequence[str] = (),
        **settings: str,
    ) -> Process:
        # A parser takes the rules from the run, whatever the test gave to its shards.
        quick = {
            name: value for name, value in QUICK.items() if arguments[0] != "parser" or name not in RULES
        }
        settings = quick | {"CRAWL_DATA": str(tmp_path / "data")} | settings
        process = Process(
            [*arguments, *(f"--set={name}={value}" for name, value in settings.items())],
            tmp_path / f"{arguments[0]}-{len(started)}.log",
            {"REDIS_URL": empty_redis_url} | (environment or {}),
            before,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()
    stop_redis(tmp_path / "data")


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    return wait_until


@dataclass
class Seen:
    """A request as it reached the echo server. Times are of one monotonic clock."""

    method: str
    path: str
    headers: Message
    body: bytes
    start_s: float
    end_s: float = 0.0


class EchoServer:
    """A web server on a loopback address that writes down every request and answers with it as JSON.

    ``answers`` has other answers by path: a list of (status, headers, body), the last one for ever.
    ``delay_s`` is how long it takes over each.
    """

    def __init__(self, host: str) -> None:
        self.log: list[Seen] = []
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = {
            "/robots.txt": [(404, {}, b"")],
        }
        self.delay_s = 0.0
        self._server = ThreadingHTTPServer((host, 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def asked(self, prefix: str = "/") -> list[Seen]:
        """The requests below *prefix* in their order, robots.txt left out."""
        return [seen for seen in self.log if seen.path.startswith(prefix) and seen.path != "/robots.txt"]

    def gaps_s(self) -> list[float]:
        """The time from the end of each request to the start of the next; negative for two at once."""
        in_order = sorted(self.log, key=lambda seen: seen.start_s)
        return [after.start_s - before.end_s for before, after in pairwise(in_order)]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        echo = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                start_s = time.monotonic()
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                seen = Seen(self.command, self.path, self.headers, body, start_s)
                echo.log.append(seen)
                time.sleep(echo.delay_s)
                answers = echo.answers.get(self.path)
                if answers:
                    status, headers, content = answers.pop(0) if len(answers) > 1 else answers[0]
                else:
                    status, headers = 200, {"Content-Type": "application/json"}
                    content = json.dumps({"method": self.command, "path": self.path}).encode()
                # Before the last byte leaves: the client may be quicker than this line after it.
                seen.end_s = time.monotonic()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = answer  # noqa: N815  # the names http.server calls

            def log_message(self, *args: object) -> None:
                """Tests read `log`, not standard error."""

        return Handler


@pytest.fixture
def echo_at() -> Iterator[Callable[[str], EchoServer]]:
    """Starts an echo server at an address: ``echo_at("127.0.0.2")``."""
    servers: list[EchoServer] = []

    def start(host: str) -> EchoServer:
        servers.append(EchoServer(host))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def echo(echo_at: Callable[[str], EchoServer]) -> EchoServer:
    return echo_at("127.0.0.1")
