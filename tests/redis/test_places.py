"""Jobs on scrapyd servers that the jobs API starts again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crawlproj.api import starter as starter_of_jobs
from crawlproj.api.lead import Lead
from crawlproj.api.places import Places
from crawlproj.api.starter import Starter
from crawlproj.config import load_config
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord


class FullScrapyd(BaseHTTPRequestHandler):
    """A scrapyd that has no jobs and takes none."""

    def do_GET(self) -> None:
        self._answer({"status": "ok", "pending": [], "running": [], "finished": []})

    def do_POST(self) -> None:
        self._answer({"status": "error", "message": "OSError: the disk is full"})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def full_scrapyd() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FullScrapyd)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_why_a_missing_job_is_not_scheduled_is_logged(
    client: RedisClient, full_scrapyd: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = await Run.open(client, "news", partitions=4)
    await run.begin(is_first=True)
    places = Places(load_config({"CRAWL_JOBS_ON": full_scrapyd}), {})

    why = await places.complete(run, JobRecord("news"))

    assert "the disk is full" in why
    assert {line for line in caplog.messages if "the disk is full" in line} == {
        f"cannot schedule a job: scrapyd at {full_scrapyd} refused the call: OSError: the disk is full"
    }


async def test_a_job_that_no_server_takes_fails_with_what_they_say(
    client: RedisClient, full_scrapyd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter_of_jobs, "_MOST_STARTS", 2)
    config = replace(load_config({"CRAWL_JOBS_ON": full_scrapyd}), data=tmp_path)
    starter = Starter(client, config, {}, Places(config, {}), Lead(tmp_path))
    await starter.records.create("news", {}, ["example.org"])
    run = await Run.open(client, "news", partitions=4)
    await run.begin(is_first=True)

    for _ in range(3):
        record = await starter.records.find("news")
        assert record is not None
        await starter._complete(run, record)

    record = await starter.records.find("news")
    assert record is not None
    assert "the disk is full" in record.error
