"""The endpoint of a process or of a host, asked as Prometheus would."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.observe.endpoint import Endpoint
from crawlproj.observe.metrics import METRICS, RUN_METRICS, Metrics
from crawlproj.observe.slots import remove_stale_hosts
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

Samples = dict[tuple[str, str], float]


def scrape(url: str) -> Samples:
    """Ask as Prometheus does; returns values by name and '{kind}-{number} {label}'."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run") == "web"
            who = f"{labels.pop('kind', '')}-{labels.pop('number', '')}"
            found[sample.name, " ".join([who, *labels.values()])] = sample.value
    return found


PAGES = ("crawlproj_fetches_total", "shard-1 page")


def wait_for_pages(url: str, count: int) -> Samples:
    deadline_s = time.monotonic() + PATIENCE_S
    while (scraped := scrape(url)).get(PAGES) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return scraped


@pytest.fixture
def base_port(ports: HeldPorts) -> int:
    """Return a port that is ours, as are those that our processes would choose with it."""
    return ports.hold(1, 3, 100, 101, 300)


@pytest.fixture
def config(tmp_path: Path, base_port: int) -> Config:
    return Config(data=tmp_path, metrics_port=base_port, figures_seconds=60)


@pytest.fixture
def shared(config: Config) -> Config:
    return replace(config, metrics_shared=True, figures_seconds=0.05)


def folder_of(config: Config) -> Path:
    return RunPaths(config.data, "web").metrics / socket.gethostname()


@pytest.fixture
def endpoint_of(config: Config) -> Iterator[Callable[..., Endpoint]]:
    made: list[Endpoint] = []

    def make(metrics: Metrics, kind: str, number: int | None = None, like: Config = config) -> Endpoint:
        made.append(Endpoint(like, "web", metrics, kind, number))
        return made[-1]

    yield make
    for endpoint in made:
        if endpoint.url:
            endpoint.close()


def test_counters_are_served_at_the_port_of_the_process(
    endpoint_of: Callable[..., Endpoint], base_port: int
) -> None:
    metrics = Metrics()
    metrics.active_downloads = lambda: 7
    metrics.run_figures = {"run_state": {"running": 1, "finished": 0}, "shards_wanted": 2}
    endpoint = endpoint_of(metrics, "shard", 3)
    metrics.fetches["page"] += 2
    metrics.fetch_seconds.add(0.03)
    metrics.fetch_seconds.add(100.0)

    scraped = scrape(endpoint.url)

    assert endpoint.url == f"http://127.0.0.1:{base_port + 3}/metrics"
    assert scraped["crawlproj_fetches_total", "shard-3 page"] == 2
    assert scraped["crawlproj_active_downloads", "shard-3"] == 7
    assert scraped["crawlproj_fetch_seconds_bucket", "shard-3 0.05"] == 1
    assert scraped["crawlproj_fetch_seconds_bucket", "shard-3 +Inf"] == 2
    assert scraped["crawlproj_fetch_seconds_count", "shard-3"] == 2
    assert scraped["crawlproj_run_state", "- running"] == 1
    assert scraped["crawlproj_shards_wanted", "-"] == 2


def test_every_declared_metric_is_served(endpoint_of: Callable[..., Endpoint]) -> None:
    metrics = Metrics()
    for name, metric in METRICS.items():
        if metric.kind == "gauge":
            setattr(metrics, name, (lambda: {"x": 1.0}) if metric.label else (lambda: 1.0))
    metrics.run_figures = {n: {"x": 1} if metric.label else 1 for n, metric in RUN_METRICS.items()}

    scraped = {name for name, _ in scrape(endpoint_of(metrics, "shard", 0).url)}

    for metric in [*METRICS.values(), *RUN_METRICS.values()]:
        assert f"{metric.name}_count" in scraped if metric.kind == "histogram" else metric.name in scraped


def test_a_taken_port_is_one_warning_and_another_port(
    endpoint_of: Callable[..., Endpoint], base_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base_port))
        taken.listen()
        endpoint = endpoint_of(Metrics(), "shard", 0)

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"metrics port {base_port} is taken; using {base_port + 300}"]
    assert scrape(endpoint.url)


def test_an_endpoint_at_all_addresses_is_named_by_its_host(
    endpoint_of: Callable[..., Endpoint], config: Config
) -> None:
    everywhere = replace(config, metrics_host="0.0.0.0")

    endpoint = endpoint_of(Metrics(), "shard", 0, everywhere)

    assert endpoint.url == f"http://{socket.gethostname()}:{config.metrics_port}/metrics"
    assert scrape(f"http://127.0.0.1:{config.metrics_port}/metrics")


def test_no_name_server_is_asked_for_the_name_of_the_address(
    endpoint_of: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", asked.append)

    assert scrape(endpoint_of(Metrics(), "shard", 0).url)
    assert asked == []


def test_without_free_descriptors_a_client_waits_and_costs_nothing(
    endpoint_of: Callable[..., Endpoint], base_port: int
) -> None:
    # Once before, so that the endpoint has opened and imported all that it needs.
    scrape(endpoint_of(Metrics(), "shard", 0).url)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as one:
        one.settimeout(0.5)
        # Those are always open, so nothing can be opened, whatever is closed meanwhile.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            began_s = time.process_time()
            one.connect(("127.0.0.1", base_port))
            one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with pytest.raises(TimeoutError):
                one.recv(1)
            spent_s = time.process_time() - began_s
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        one.settimeout(PATIENCE_S)

        assert one.recv(12) == b"HTTP/1.0 200"
        assert spent_s < 0.2


def test_other_paths_are_not_found_and_the_endpoint_stays(endpoint_of: Callable[..., Endpoint]) -> None:
    endpoint = endpoint_of(Metrics(), "shard", 0)

    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(endpoint.url.replace("/metrics", "/secrets"), timeout=PATIENCE_S)

    assert scrape(endpoint.url)


def test_parsers_take_the_first_number_that_is_free(endpoint_of: Callable[..., Endpoint]) -> None:
    first, second = endpoint_of(Metrics(), "parser"), endpoint_of(Metrics(), "parser")
    assert (first.number, second.number) == (0, 1)

    first.close()
    first.url = ""

    assert endpoint_of(Metrics(), "parser").number == 0


def test_a_restarted_process_continues_its_counters(endpoint_of: Callable[..., Endpoint]) -> None:
    metrics = Metrics()
    endpoint = endpoint_of(metrics, "shard", 0)
    metrics.fetches["page"] = 10
    endpoint.close()
    endpoint.url = ""

    again = Metrics()
    endpoint = endpoint_of(again, "shard", 0)
    again.fetches["page"] += 1

    assert scrape(endpoint.url)["crawlproj_fetches_total", "shard-0 page"] == 11


#: A process that counts a page for every line it reads.
CHILD = """
import sys
from pathlib import Path
from crawlproj.config import Config
from crawlproj.observe.endpoint import Endpoint
from crawlproj.observe.metrics import Metrics
data, port, shared = sys.argv[1:]
metrics = Metrics()
metrics.active_downloads = lambda: 5
metrics.run_figures = {"shards_wanted": 1}
config = Config(data=Path(data), metrics_port=int(port), metrics_shared=shared == "1", figures_seconds=0.05)
endpoint = Endpoint(config, "web", metrics, "shard", 1)
print(endpoint.url, flush=True)
for line in sys.stdin:
    metrics.fetches["page"] += 1
    print("counted", flush=True)
"""


class Child:
    def __init__(self, config: Config) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                config.data,
                str(config.metrics_port),
                str(int(config.metrics_shared)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def count(self, pages: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for _ in range(pages):
            print(file=self.process.stdin, flush=True)
            self.process.stdout.readline()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def child_of() -> Iterator[Callable[[Config], Child]]:
    children: list[Child] = []

    def make(config: Config) -> Child:
        children.append(Child(config))
        return children[-1]

    yield make
    for child in children:
        if child.process.poll() is None:
            child.kill()


def test_counters_that_were_scraped_do_not_fall_when_the_process_is_killed(
    config: Config, child_of: Callable[[Config], Child]
) -> None:
    child = child_of(config)
    child.count(3)
    before = scrape(child.url)
    child.kill()

    after = scrape(child_of(config).url)

    assert before["crawlproj_fetches_total", "shard-1 page"] == 3
    fallen = {key for key in before if key[0].endswith(("_total", "_bucket")) and after[key] < before[key]}
    assert fallen == set()


def test_one_endpoint_serves_a_host_and_a_dead_process_leaves_counters_and_no_gauge(
    shared: Config,
    child_of: Callable[[Config], Child],
    endpoint_of: Callable[..., Endpoint],
) -> None:
    endpoint = endpoint_of(Metrics(), "supervisor", 0, shared)
    child = child_of(shared)
    child.count(2)
    live = wait_for_pages(endpoint.url, 2)

    child.kill()
    dead = scrape(endpoint.url)

    assert endpoint.url == f"http://127.0.0.1:{shared.metrics_port}/metrics"
    assert (live["crawlproj_active_downloads", "shard-1"], live["crawlproj_shards_wanted", "-"]) == (5, 1)
    assert dead[PAGES] == 2
    assert ("crawlproj_active_downloads", "shard-1") not in dead
    assert ("crawlproj_shards_wanted", "-") not in dead


def test_a_frozen_process_leaves_counters_and_no_gauge(
    shared: Config,
    child_of: Callable[[Config], Child],
    endpoint_of: Callable[..., Endpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crawlproj.observe.endpoint._LEAST_LIVE_S", 1.0)
    endpoint = endpoint_of(Metrics(), "supervisor", 0, shared)
    child = child_of(shared)
    child.count(2)
    gauges = {("crawlproj_active_downloads", "shard-1"), ("crawlproj_shards_wanted", "-")}
    assert wait_for_pages(endpoint.url, 2).keys() >= gauges

    child.freeze()
    deadline_s = time.monotonic() + PATIENCE_S
    while (scraped := scrape(endpoint.url)).keys() & gauges:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)

    assert scraped[PAGES] == 2


def test_stale_metrics_of_other_hosts_are_removed_and_the_rest_kept(tmp_path: Path) -> None:
    ours, living, gone = (tmp_path / "metrics" / name for name in ("ours", "living", "gone"))
    for folder in (ours, living, gone):
        folder.mkdir(parents=True)
        (folder / "shard-0.json").write_text("{}")
    for folder in (ours, gone):
        os.utime(folder, (0, time.time() - 90_000))

    remove_stale_hosts(ours)

    assert sorted(folder.name for folder in (tmp_path / "metrics").iterdir()) == ["living", "ours"]


def test_another_process_takes_over_the_shared_endpoint(
    shared: Config,
    child_of: Callable[[Config], Child],
    endpoint_of: Callable[..., Endpoint],
) -> None:
    child = child_of(shared)
    child.count(4)
    endpoint = endpoint_of(Metrics(), "shard", 0, shared)
    assert endpoint.url == child.url
    wait_for_pages(child.url, 4)

    child.kill()
    deadline_s = time.monotonic() + PATIENCE_S
    while not endpoint.descriptors()["prometheus"] and time.monotonic() < deadline_s:
        time.sleep(0.01)

    assert scrape(endpoint.url)[PAGES] == 4


def test_a_failing_disk_is_logged_once_and_metrics_are_still_served(
    endpoint_of: Callable[..., Endpoint], config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_of(Metrics(), "shard", 0)
    (folder_of(config) / "shard-0.new").mkdir()
    scrape(endpoint.url)
    scrape(endpoint.url)
    (folder_of(config) / "shard-0.new").rmdir()
    scrape(endpoint.url)
    scrape(endpoint.url)

    warnings = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert warnings == ["cannot save counters", "counters are saved again"]


def test_a_damaged_file_is_as_good_as_none(endpoint_of: Callable[..., Endpoint], config: Config) -> None:
    folder_of(config).mkdir(parents=True)
    (folder_of(config) / "shard-0.json").write_text('{"counters":')

    assert scrape(endpoint_of(Metrics(), "shard", 0).url)
    assert json.loads((folder_of(config) / "shard-0.json").read_text())


def test_what_a_process_of_another_version_left_does_not_silence_the_host(
    endpoint_of: Callable[..., Endpoint], config: Config
) -> None:
    folder_of(config).mkdir(parents=True)
    left = {"counters": {"fetches": {"page": 3}}, "histograms": {"fetch_seconds": [0.5, 1, 2]}}
    (folder_of(config) / "shard-1.json").write_text(json.dumps(left))
    shared = replace(config, metrics_shared=True)

    scraped = scrape(endpoint_of(Metrics(), "shard", 0, shared).url)

    assert scraped[PAGES] == 3
    assert ("crawlproj_fetch_seconds_count", "shard-1") not in scraped


def test_without_a_place_to_write_to_figures_are_served_all_the_same(
    endpoint_of: Callable[..., Endpoint], config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    folder_of(config).parent.mkdir(parents=True)
    os.close(os.open(folder_of(config), os.O_CREAT))

    endpoint = endpoint_of(Metrics(), "shard", 0)

    assert scrape(endpoint.url)
    assert "counters of this process start at 0" in caplog.text
