"""`crawlproj serve`: jobs over HTTP, from the request to the pages, through deaths of everything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config import Config
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.e2e.conftest import wait_until
from tests.e2e.server import Server, Site, kill_all, site_in
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path) as site:
        yield site


@pytest.fixture
def simweb(tmp_path: Path) -> Iterator[SimwebProcess]:
    with SimwebProcess(WorldSpec(domains=8, pages_per_domain=12), tmp_path / "simweb") as simweb:
        yield simweb


def job_for(simweb: SimwebProcess, **fields: Any) -> dict[str, Any]:
    return {"seeds": simweb.seeds(), "scope": "everything", "name": "news", **fields}


def first_events(server: Server, job: str, count: int) -> list[dict[str, Any]]:
    connection = HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.request("GET", f"/api/jobs/{job}/events")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    events = []
    while len(events) < count:
        line = response.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            events.append(json.loads(line[6:]))
    connection.close()
    return events


def test_a_job_is_crawled_watched_read_and_exported(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve()

    created = server.send("POST", "/api/jobs", job_for(simweb), Idempotency_Key="one")
    again = server.send("POST", "/api/jobs", job_for(simweb), Idempotency_Key="one")
    taken = server.send("POST", "/api/jobs", job_for(simweb))

    assert (created.status, created.headers["Location"]) == (201, "/api/jobs/news")
    assert (again.status, again.json["id"]) == (200, "news")
    assert taken.status == 409
    assert taken.json["errors"][0]["field"] == "name"

    server.wait_for_state("news", "processing")
    running = wait_until(
        lambda: (view := server.get("/api/jobs/news"))["processes"] and view["completed"] and view,
        "its processes are seen",
    )
    assert {line["kind"] for line in running["processes"]} >= {"supervisor", "shard"}
    # Settings may be secrets, and `ps` shows command lines to everybody.
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in site.processes()]
    assert lines
    assert not any(b"DOWNLOAD_DELAY" in line for line in lines)
    assert "news" in {line["job"] for line in server.get("/api/workers")["workers"]}
    assert b'crawlproj_run_pages_fetched_total{run="news"}' in server.send("GET", "/metrics").body
    assert [event["id"] for event in first_events(server, "news", 2)] == ["news"] * 2

    done = server.wait_for_state("news", "completed")
    stored = list(read_pages(site.data / "runs" / "news" / "pages"))
    assert done["pages_stored"] == len(stored) == done["completed"] + done["failed"] + done["skipped"]
    assert done["percent"] == 100.0
    assert done["remaining"] == 0

    listed: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = server.get(f"/api/jobs/news/pages?limit=7&cursor={cursor}")
        listed += page["pages"]
        cursor = page["next"]
    assert Counter(line["url"] for line in listed) == Counter(row["url"] for row in stored)
    shown = server.get(f"/api/jobs/news/pages/{listed[0]['id']}")
    assert shown["text"] == next(row["text"] for row in stored if row["url"] == shown["url"])

    whole = server.send("GET", "/api/jobs/news/export?format=jsonl")
    assert len(whole.body.splitlines()) == len(stored)
    part = server.send(
        "GET", "/api/jobs/news/export?format=jsonl", Range="bytes=100-", If_Range=whole.headers["ETag"]
    )
    assert (part.status, part.body) == (206, whole.body[100:])
    ignored = server.send("GET", "/api/jobs/news/export?format=jsonl", Range="pages=2-1")
    assert (ignored.status, ignored.body) == (200, whole.body)
    beyond = server.send("GET", "/api/jobs/news/export?format=jsonl", Range=f"bytes={len(whole.body)}-")
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{len(whole.body)}")
    assert f"{len(whole.body):,} bytes" in beyond.json["detail"]
    assert [summary["id"] for summary in server.get("/api/jobs?state=completed")["jobs"]] == ["news"]
    assert server.get("/api/health")["status"] == "ok"

    server.wait_until_unused("news")
    assert server.send("DELETE", "/api/jobs/news?pages=true").status == 204
    assert server.send("GET", "/api/jobs/news").status == 404
    assert not (site.data / "runs" / "news").exists()
    assert server.end() == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_in_order(site: Site, signum: int) -> None:
    server = site.serve()
    server.get("/api/health")

    server.process.send_signal(signum)

    assert server.process.wait(PATIENCE_S) == 0


def test_no_job_runs_twice_when_servers_are_killed(site: Site, simweb: SimwebProcess) -> None:
    first, second = site.serve(), site.serve()
    job = first.post("/api/jobs", job_for(simweb))

    wait_until(site.processes, "its supervisor is started")
    # In the middle of the start, then in the middle of the crawl.
    first.kill()
    second.wait_for_state("news", "processing")
    second.kill()
    third = site.serve()
    third.wait_for_state(job["id"], "completed")

    urls = Counter(row["url"] for row in read_pages(site.data / "runs" / "news" / "pages"))
    assert [url for url, count in urls.items() if count > 1] == []
    verdict = simweb.referee().verdict(min_gap_ms=100)
    assert verdict.ok, verdict.report()


def test_a_job_whose_processes_are_killed_is_resumed(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve(CRAWL_SHARD_LEASE_SECONDS="2")
    server.post("/api/jobs", job_for(simweb))
    wait_until(lambda: server.get("/api/jobs/news")["completed"] > 5, "some pages are fetched")
    before = server.get("/api/jobs/news")

    kill_all(site.processes())

    done = server.wait_for_state("news", "completed")
    assert done["completed"] > before["completed"]
    supervisors = (site.data / "runs" / "news" / "logs" / "serve.out").read_text()
    assert "resuming with" in supervisors or "new seeds: 0" in supervisors


def test_jobs_wait_for_a_place_and_may_be_held_back(site: Site, simweb: SimwebProcess) -> None:
    # So slow that none is completed before it is stopped.
    server = site.serve(CRAWL_JOBS_AT_ONCE="1", DOWNLOAD_DELAY="2")
    server.post("/api/jobs", job_for(simweb, name="one"))
    server.post("/api/jobs", job_for(simweb, name="two", seeds=simweb.seeds()[:1]))
    server.post("/api/jobs", job_for(simweb, name="three", seeds=simweb.seeds()[:1]))
    server.wait_for_state("one", "processing")

    assert server.get("/api/jobs/two")["state"] == "pending"
    assert server.post("/api/jobs/two/pause")["state"] == "paused"
    assert server.post("/api/jobs/one/pause")["state"] == "paused"
    server.post("/api/jobs/one/resume")
    # Pending for a moment if its shards had not started yet.
    server.wait_for_state("one", "processing")
    assert server.post("/api/jobs/one/shards", {"shards": 1})["shards"] == 1
    server.post("/api/jobs/one/stop")
    server.wait_for_state("one", "stopped")

    server.wait_for_state("three", "processing")
    assert server.get("/api/jobs/two")["state"] == "paused"
    assert server.send("DELETE", "/api/jobs/three").status == 409
    server.post("/api/jobs/two/resume")
    server.post("/api/jobs/three/stop")
    wait_until(lambda: server.get("/api/jobs/two")["state"] not in ("pending", "paused"), "two is started")


def test_a_leader_that_hangs_is_reported_by_the_others(site: Site) -> None:
    first = site.serve()
    leader = f"{socket.gethostname()}, process {first.process.pid}"
    wait_until(lambda: first.get("/api/health")["leader"] == leader, "the first server leads")
    second = site.serve()
    assert second.get("/api/health")["leader"] == leader

    os.kill(first.process.pid, signal.SIGSTOP)
    os.waitpid(first.process.pid, os.WUNTRACED)
    long_ago_s = time.time() - 60
    os.utime(site.data / "serve.lock", (long_ago_s, long_ago_s))

    unwell = second.send("GET", "/api/health")
    assert unwell.status == 503
    assert leader in unwell.json["problems"][0]["what"]
    first.kill()
    wait_until(lambda: second.send("GET", "/api/health").status == 200, "the second one is well")
    assert second.get("/api/health")["leader"].endswith(f" {second.process.pid}")


def test_seeds_added_after_the_end_start_the_job_again(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve()
    seeds = simweb.seeds()
    server.post("/api/jobs", {"seeds": seeds[0], "scope": "seeds", "name": "news", "mode": "single"})
    first = server.wait_for_state("news", "completed")
    assert (first["mode"], first["completed"]) == ("single", 1)

    invalid = ["http://10.0.0.1", "no url", *(f"http://192.168.{n}.1/" for n in range(120))]
    added = server.post("/api/jobs/news/seeds", {"seeds": [*seeds[:2], *invalid]})

    assert (added["new"], added["known"]) == (1, 1)
    assert {one["value"] for one in added["invalid"]} >= {"http://10.0.0.1/", "no"}
    assert "23 more" in added["invalid"][-1]["problem"]
    wait_until(lambda: server.get("/api/jobs/news")["completed"] == 2, "the second seed is fetched")


async def state_of_run(data: Path) -> str:
    client = await RedisClient.connect(Config(data=data))
    try:
        return await Run(client, "news", 1).state()
    finally:
        await client.close()


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("stop", "stopped")])
def test_a_job_is_held_that_is_being_started(
    site: Site, simweb: SimwebProcess, verb: str, state: str
) -> None:
    server = site.serve()
    server.post("/api/jobs", job_for(simweb))
    wait_until(lambda: server.get("/api/jobs/news")["reason"] == "starting", "it is being started")

    answer = server.post(f"/api/jobs/news/{verb}")

    assert answer["state"] == state
    wait_until(lambda: asyncio.run(state_of_run(site.data)) == state, "the run is held, too")


def test_seeds_added_while_a_job_is_being_started_are_fetched(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve()
    first, second, *_ = simweb.seeds()
    server.post("/api/jobs", job_for(simweb) | {"seeds": first, "scope": "seeds"})
    wait_until(lambda: server.get("/api/jobs/news")["reason"] == "starting", "it is being started")

    def add() -> Any:
        answer = server.send("POST", "/api/jobs/news/seeds", {"seeds": second})
        # The answer on a machine where a start takes its time.
        return answer if answer.status != 409 or "Retry-After" not in answer.headers else None

    added = wait_until(add, "the job takes seeds")

    assert (added.status, added.json["new"]) == (200, 1)
    wait_until(lambda: server.get("/api/jobs/news")["completed"] == 2, "both are fetched")


def test_a_job_at_its_limit_is_resumed_with_a_higher_one(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve()
    server.post("/api/jobs", job_for(simweb, max_pages=5, mode="single"))
    assert server.wait_for_state("news", "stopped")["reason"] == "max_pages"

    bodies = (None, {"max_pages": 4}, {"max_bytes": 1})
    refused = [server.send("POST", "/api/jobs/news/resume", body) for body in bodies]
    server.post("/api/jobs/news/resume", {"max_pages": 10})

    assert [(answer.status, "max_pages" in answer.json["detail"]) for answer in refused] == [(409, True)] * 3
    wait_until(lambda: server.get("/api/jobs/news")["pages_stored"] >= 10, "five more pages are stored")


def test_a_job_that_cannot_start_has_failed_with_the_reason(site: Site, simweb: SimwebProcess) -> None:
    server = site.serve()
    (site.data / "runs").mkdir(parents=True)
    # Found when it starts, not when it is created: a file where its pages belong.
    server.post("/api/jobs", job_for(simweb, name="one"))
    (site.data / "runs" / "one").mkdir()
    (site.data / "runs" / "one" / "pages").write_text("")

    failed = server.wait_for_state("one", "failed")

    assert failed["reason"].startswith(f"Cannot write to {site.data}/runs/one/pages: ")
    assert failed["problems"][0]["what"] == failed["reason"]
    (site.data / "runs" / "one" / "pages").unlink()
    server.post("/api/jobs/one/resume")
    server.wait_for_state("one", "processing")
