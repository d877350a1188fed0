"""Metrics of whole crawls: they agree with the web's own log, and outlive the processes that counted."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawlproj.observe.metrics import METRICS, RUN_METRICS
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.conftest import Crew, wait_until
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

SMALL = WorldSpec(seed=3, domains=8, pages_per_domain=8, size_spread=0.3, latency_ms=5, throttle_share=0.0)
CrewOf = Callable[..., Crew]
#: Name, labels but that of the run, value.
Sample = tuple[str, dict[str, str], float]


#: From the first port: those of the processes that tests start.
OTHERS = (1, 100, 101, 200, 201)


@pytest.fixture
def port(ports: HeldPorts) -> int:
    return ports.hold(*OTHERS)


def scrape(url: str) -> list[Sample]:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return [
        (sample.name, {name: value for name, value in sample.labels.items() if name != "run"}, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    return sum(
        value
        for found, has, value in samples
        if found == f"crawlproj_{name}" and labels.items() <= has.items()
    )


def counters(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    """Return what processes counted, which must never fall; those of the run come from its leader."""
    return {
        (name, *map(str, sorted(labels.items()))): value
        for name, labels, value in samples
        if "kind" in labels and name.endswith(("_total", "_bucket", "_count", "_sum"))
    }


def status_of(crew: Crew) -> Any:
    process = crew.scrapy("status", "--json", name="status")
    assert process.wait() == 0, process.log
    return json.loads(process.log.strip().splitlines()[-1])


def asked(crew: Crew) -> Counter[str]:
    """Return how many requests the simulated web answered, by what they were for."""
    answered = [request for request in read_log(crew.simweb.log_path) if request.status]
    return Counter("robots" if request.url.endswith("/robots.txt") else "page" for request in answered)


def is_done(crew: Crew) -> bool:
    status = crew.status()
    left = [status.get(name, 0) for name in ("waiting", "leased", "pages_queued", "pages_being_parsed")]
    return status["fetched"] > 0 and not any(left)


@dataclass(frozen=True)
class Scraped:
    """A crawl that has nothing left to do and has not ended yet, scraped everywhere."""

    crew: Crew
    port: int
    status: Any
    samples: list[Sample]


@pytest.fixture(scope="module")
def scraped(shared_crew_of: CrewOf) -> Iterator[Scraped]:
    with HeldPorts() as ports:
        yield _scraped(shared_crew_of, ports.hold(*OTHERS))


def _scraped(shared_crew_of: CrewOf, port: int) -> Scraped:
    crew = shared_crew_of(
        SMALL,
        CRAWL_METRICS_PORT=str(port),
        CRAWL_FIGURES_SECONDS="0.3",
        CRAWL_SEGMENT_SECONDS="0.5",
        SCHEDULER_IDLE_BEFORE_CLOSE="600",
    )
    crew.start(shards=2)
    wait_until(lambda: is_done(crew), "all is fetched and stored")
    status = status_of(crew)
    urls = [line["metrics"] for line in status["processes"]]
    samples = wait_until(
        lambda: _settled(urls, status["pages_stored"]), "the leader has read the last figures"
    )
    return Scraped(crew, port, status, samples)


def _settled(urls: list[str], stored: int) -> list[Sample]:
    samples = [sample for url in urls for sample in scrape(url)]
    return samples if total(samples, "run_pages_stored_total") == stored else []


def test_the_metrics_of_all_processes_agree_with_the_log_of_the_web(scraped: Scraped) -> None:
    samples, status = scraped.samples, scraped.status
    seen = asked(scraped.crew)

    assert total(samples, "fetches_total", kind_of="robots") == seen["robots"] > 0
    assert total(samples, "fetches_total") == seen.total()
    assert total(samples, "fetch_seconds_count") == seen["page"]
    assert total(samples, "pages_parsed_total") == status["pages_stored"]
    assert total(samples, "run_pages_fetched_total") == status["fetched"]
    # The others were seeds, or where redirects led to.
    assert 0 < total(samples, "links_admitted_total") < status["admitted"]


def test_status_names_the_endpoint_and_the_descriptors_of_every_process(scraped: Scraped) -> None:
    lines = scraped.status["processes"]

    assert sorted(line["metrics"] for line in lines) == [
        f"http://127.0.0.1:{scraped.port + offset}/metrics" for offset in (0, 1, 100)
    ]
    assert all(line["descriptors"]["redis"] for line in lines)
    assert all(line["descriptors"]["prometheus"] for line in lines)


def test_every_metric_is_published_and_those_of_the_run_once(scraped: Scraped) -> None:
    seen = Counter(name for name, labels, _ in scraped.samples if labels.get("state", "running") == "running")

    for metric in METRICS.values():
        assert seen[f"{metric.name}_count" if metric.kind == "histogram" else metric.name], metric.name
    assert {seen[metric.name] for metric in RUN_METRICS.values()} == {1}


def test_a_killed_shard_leaves_no_gauge_and_its_counters_do_not_fall(crew_of: CrewOf, port: int) -> None:
    crew = crew_of(SMALL, CRAWL_METRICS_PORT=str(port), CRAWL_FIGURES_SECONDS="0.5", DOWNLOAD_DELAY="0.6")
    crew.hold_open(held=True)
    _, victim = crew.start(shards=2)
    url = f"http://127.0.0.1:{port + 1}/metrics"

    def scraped() -> list[Sample]:
        samples = _try(lambda: scrape(url)) or []
        return samples if total(samples, "fetches_total") else []

    before = wait_until(scraped, "it has fetched something")

    victim.send(signal.SIGKILL)
    victim.process.wait()

    with pytest.raises(OSError, match="refused"):
        scrape(url)
    again = crew.shard(1)
    after = wait_until(lambda: _try(lambda: scrape(url)), "it is scraped again")
    fallen = {key: value for key, value in counters(before).items() if counters(after).get(key, 0) < value}
    assert fallen == {}
    assert total(after, "process_start_time_seconds") > total(before, "process_start_time_seconds")
    assert again.is_running


def test_one_endpoint_serves_all_processes_of_a_host(crew_of: CrewOf, port: int) -> None:
    crew = crew_of(
        SMALL,
        CRAWL_METRICS_PORT=str(port),
        CRAWL_METRICS_SHARED="1",
        CRAWL_FIGURES_SECONDS="0.3",
        DOWNLOAD_DELAY="0.6",
    )
    crew.hold_open(held=True)
    shard, victim = crew.start(shards=2)
    url = f"http://127.0.0.1:{port}/metrics"
    crew.wait_for_fetched(12)

    def whose() -> set[str]:
        samples = _try(lambda: scrape(url)) or []
        return {
            f"{labels['kind']}-{labels['number']}"
            for name, labels, _ in samples
            if name == "crawlproj_memory_bytes"
        }

    wait_until(lambda: whose() == {"shard-0", "shard-1", "parser-0"}, "all are scraped")
    before = counters(scrape(url))

    victim.send(signal.SIGKILL)
    victim.process.wait()

    # Whichever process served it: the others notice, and counters of the dead are still published.
    wait_until(lambda: whose() == {"shard-0", "parser-0"}, "no gauge of the dead is published")
    after = counters(scrape(url))
    assert {key for key, value in before.items() if after.get(key, 0) < value} == set()
    assert shard.is_running


def _try(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except OSError:
        return None


def test_a_supervisor_that_joined_is_in_the_status_with_the_first_one(crew_of: CrewOf, port: int) -> None:
    # Not finished before Ctrl-C, however slow the machine is.
    crew = crew_of(replace(SMALL, pages_per_domain=100), CRAWL_METRICS_PORT=str(port), DOWNLOAD_DELAY="2")
    first = crew.scrapy("run", str(crew.seeds_file), "--shards=1", "--parsers=1", name="run")
    crew.wait_for_fetched(1)
    second = crew.scrapy("run", "--join", "--shards=1", "--parsers=1", name="run")

    def supervisors() -> list[Any]:
        lines: list[Any] = status_of(crew)["supervisors"]
        return lines if len([line for line in lines if "metrics" in line]) == 2 else []

    lines = wait_until(supervisors, "both have published their URL")
    second.send(signal.SIGINT)

    assert [line["pid"] for line in lines] == [first.process.pid, second.process.pid]
    assert [line["metrics"] for line in lines] == [
        f"http://127.0.0.1:{port + offset}/metrics" for offset in (200, 201)
    ]
    assert second.wait() == 130, second.log
    assert [line["pid"] for line in status_of(crew)["supervisors"]] == [first.process.pid]
    first.send(signal.SIGINT)
    assert first.wait() == 130, first.log


def test_in_single_mode_shard_and_parser_name_the_one_endpoint(crew_of: CrewOf, port: int) -> None:
    crew = crew_of(SMALL, CRAWL_METRICS_PORT=str(port), DOWNLOAD_DELAY="2")
    crew.hold_open(held=True)
    crew.scrapy("crawl", "web", f"-aseeds={crew.seeds_file}", name="single")
    crew.wait_for_fetched(1)

    def named() -> set[tuple[str, str]]:
        return {(line["kind"], line["metrics"]) for line in status_of(crew)["processes"]}

    url = f"http://127.0.0.1:{port}/metrics"
    wait_until(lambda: named() == {("shard", url), ("parser", url)}, "both have published their URL")


def test_a_supervisor_reports_in_the_end_that_the_run_stopped_at_its_limit(
    crew_of: CrewOf, port: int
) -> None:
    crew = crew_of(SMALL, CRAWL_METRICS_PORT=str(port), CRAWL_FIGURES_SECONDS="1", DOWNLOAD_DELAY="0.3")

    run = crew.scrapy("run", str(crew.seeds_file), "--max-pages=40", "--parsers=1", name="run")

    assert run.wait() == 0, run.log
    [written] = (crew.data / "runs" / "web" / "metrics").glob("*/supervisor-0.json")
    figures = json.loads(written.read_text())["run_figures"]
    assert figures["run_state"]["stopped"] == 1
    assert figures["run_pages_fetched_total"] == 40
