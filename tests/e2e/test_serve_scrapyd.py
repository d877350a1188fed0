"""`crawlproj serve` with CRAWL_JOBS_ON: its jobs are those of a real scrapyd."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproj.redisio import embedded
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.e2e.conftest import PROJECT, hold_open, wait_until
from tests.e2e.scrapyd_server import Scrapyd
from tests.e2e.server import Site, site_in

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path) as site:
        yield site


@pytest.fixture
def scrapyd(tmp_path: Path) -> Iterator[Scrapyd]:
    home = tmp_path / "scrapyd"
    home.mkdir()
    server = Scrapyd(PROJECT, home, {}, max_proc="8")
    wait_until(server.is_up, "scrapyd is up")
    yield server
    server.stop()


def roles(scrapyd: Scrapyd, job: str) -> set[str]:
    """The processes of *job* that scrapyd runs."""
    names = (name.split(".") for name in scrapyd.jobs("running"))
    return {role for run, role, _ in names if run == job}


# Eight processes start one after the other, each with Python, Scrapy and a poll of scrapyd.
def test_a_job_runs_grows_and_is_mended_on_scrapyd(site: Site, scrapyd: Scrapyd, tmp_path: Path) -> None:
    secret = scrapyd.url.replace("://", "://me:hunter2@")
    spec = WorldSpec.calm(domains=8, pages_per_domain=25)
    with SimwebProcess(spec, tmp_path / "simweb") as simweb:
        server = site.serve(environment={"CRAWL_JOBS_ON": secret})
        server.post("/api/jobs", {"seeds": simweb.seeds(), "name": "news", "shards": 1, "parsers": "1..2"})
        wait_until(lambda: roles(scrapyd, "news") == {"shard-0", "parser-0", "parser-1"}, "scrapyd runs it")
        running = wait_until(
            lambda: (view := server.get("/api/jobs/news"))["completed"] > 5 and view, "pages are fetched"
        )

        redis = embedded.ensure_running(site.data)
        hold_open(redis, "news", held=True)

        server.post("/api/jobs/news/shards", {"shards": 2})
        wait_until(lambda: "shard-1" in roles(scrapyd, "news"), "there is a second shard")
        [shard] = [line["pid"] for line in running["processes"] if line["kind"] == "shard"]
        os.kill(shard, signal.SIGKILL)
        wait_until(lambda: "shard-0" not in roles(scrapyd, "news"), "scrapyd has noticed")
        # Also by another server: the first one is gone.
        server.kill()
        server = site.serve(environment={"CRAWL_JOBS_ON": secret})
        wait_until(lambda: "shard-0" in roles(scrapyd, "news"), "the shard is replaced")
        hold_open(redis, "news", held=False)

        assert {line["kind"] for line in server.get("/api/jobs/news")["processes"]} <= {"shard", "parser"}
        done = server.wait_for_state("news", "completed")
        # Of each domain, what was being fetched when the shard was killed.
        verdict = simweb.referee().verdict(min_gap_ms=100, twice_allowed=spec.domains)

    urls = Counter(row["url"] for row in read_pages(site.data / "runs" / "news" / "pages"))
    assert sum(urls.values()) == done["pages_stored"] > spec.domains
    assert [url for url, count in urls.items() if count > 1] == []
    assert verdict.ok, verdict.report()
    assert "hunter2" not in (site.data / "runs/news/logs/serve.out").read_text() + scrapyd.log


def test_a_job_without_parsers_is_one_scrapyd_job_and_stops(
    site: Site, scrapyd: Scrapyd, tmp_path: Path
) -> None:
    with SimwebProcess(WorldSpec.calm(domains=3, pages_per_domain=300), tmp_path / "simweb") as simweb:
        server = site.serve(CRAWL_JOBS_ON=scrapyd.url)
        server.post("/api/jobs", {"seeds": simweb.seeds(), "name": "one", "mode": "single", "max_pages": 200})
        wait_until(lambda: server.get("/api/jobs/one")["completed"], "a page is fetched")
        assert roles(scrapyd, "one") == {"shard-0"}

        server.post("/api/jobs/one/stop")
        server.wait_for_state("one", "stopped")
        wait_until(lambda: not scrapyd.jobs("running"), "its job has ended")

    stopped = server.get("/api/jobs/one")
    assert stopped["pages_stored"] == stopped["completed"] < 200
    assert stopped["limits"]["max_pages"] == 200
    # A server that does not answer is no reason to start anything a second time.
    scrapyd.stop()
    wait_until(lambda: server.send("GET", "/api/health").status == 503, "it is noticed")
    server.post("/api/jobs/one/resume")
    assert server.get("/api/jobs/one")["state"] == "pending"
