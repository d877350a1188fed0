"""Shards and parsers as jobs of a real scrapyd: in the project, as an egg, and spread by `scrapy launch`."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest

from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from crawlproj.supervisor.scrapyd import ScrapydError, ScrapydServer
from tests.e2e.scrapyd_server import Scrapyd, open_url
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
SMALL = WorldSpec(seed=3, domains=8, pages_per_domain=8, size_spread=0.3, latency_ms=5, throttle_share=0.0)
#: More than is fetched before the test stops it.
LARGE = WorldSpec(seed=4, domains=12, pages_per_domain=60, size_spread=0.3, latency_ms=20, throttle_share=0.0)
#: What a drained job may take beyond its time to drain, on a busy machine.
A_LITTLE_S = 60.0


@pytest.fixture(scope="module")
def scrapyd_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Scrapyd]]:
    """Starts a scrapyd: ``scrapyd_in(PROJECT)``, or in a directory of its own without a project."""
    servers: list[Scrapyd] = []

    def start(
        directory: Path | None = None, environment: dict[str, str] | None = None, **options: str
    ) -> Scrapyd:
        home = tmp_path_factory.mktemp("scrapyd")
        servers.append(Scrapyd(directory or home, home, environment or {}, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def in_project(scrapyd_in: Callable[..., Scrapyd]) -> tuple[Scrapyd, Scrapyd]:
    """Two servers in the project's directory, with its scrapyd.conf."""
    return scrapyd_in(PROJECT, max_proc="8"), scrapyd_in(PROJECT, max_proc="8")


@pytest.fixture(scope="module")
def egg(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The egg, built as docs/scrapyd.md says, from a copy: building leaves files behind."""
    copy = tmp_path_factory.mktemp("egg")
    shutil.copytree(PROJECT / "crawlproj", copy / "crawlproj", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "requirements.in", "README.md"):
        shutil.copy(PROJECT / name, copy)
    subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "bdist_egg"],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    [built] = copy.glob("dist/*.egg")
    return built.read_bytes()


def deploy(server: Scrapyd, egg: bytes, version: str) -> Any:
    edge = "the-edge-of-a-part"
    parts = [("project", "", b"crawlproj"), ("version", "", version.encode()), ("egg", "; filename=egg", egg)]
    body = b"".join(
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, more, content in parts
    )
    request = Request(
        f"{server.url}/addversion.json",
        body + f"--{edge}--\r\n".encode(),
        {"Content-Type": f"multipart/form-data; boundary={edge}"},
    )
    return json.load(open_url(request))


def test_jobs_are_scheduled_listed_and_drained_over_http(
    in_project: tuple[Scrapyd, Scrapyd], crew_of: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    server, crew = in_project[0], crew_of(LARGE)
    wait_for(server.is_up, "scrapyd is up")
    seeds = str(crew.seeds_file)

    shards = [server.schedule(crew, "web", shard=n, shards="2", run="web", seeds=seeds) for n in "01"]
    parser = server.schedule(crew, "parser", run="web")
    crew.wait_for_fetched(40)
    running = server.jobs("running")
    stopped_s = time.monotonic()
    for job in [*shards, parser]:
        server.cancel(job)
    wait_for(lambda: server.has_ended(*shards, parser), "all jobs have ended")
    took_s = time.monotonic() - stopped_s

    assert {job: running.get(job) for job in [*shards, parser]} == dict(
        zip([*shards, parser], ["web", "web", "parser"], strict=True)
    )
    assert server.exit_codes([*shards, parser]) == ["0"] * 3, server.log[-3000:]
    assert took_s < float(crew.settings["CRAWL_DRAIN_SECONDS"]) + A_LITTLE_S
    status = crew.status()
    assert (status["leased"], status["pages_being_parsed"]) == (0, 0)
    assert status["waiting"] > 0
    assert len(crew.pages()) == status["pages_stored"]


def test_one_job_as_documented_is_a_whole_crawl(
    in_project: tuple[Scrapyd, Scrapyd], crew_of: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    server, crew = in_project[0], crew_of(SMALL)
    wait_for(server.is_up, "scrapyd is up")
    [line] = re.findall(
        r"^curl localhost:6800/schedule.json (.*CRAWL_CONTACT.*)$",
        (PROJECT / "docs/scrapyd.md").read_text(),
        re.M,
    )
    fields = [field.split("=", 1) for field in line.replace("-d ", "").split()]
    # Not the web, and not the data of the project.
    here = crew.settings | {"CRAWL_DATA": str(crew.data)}
    [seed] = crew.simweb.seeds(1)

    job = server.post(
        "schedule.json",
        [
            *((name, seed if name == "seeds" else value) for name, value in fields),
            *(("setting", f"{name}={value}") for name, value in here.items()),
        ],
    )["jobid"]
    wait_for(lambda: server.has_ended(job), "the job has ended")

    assert server.exit_codes([job]) == ["0"], server.job_logs()[-3000:]
    assert len(list(read_pages(crew.data / "runs" / "news" / "pages"))) > SMALL.pages_per_domain


def test_the_egg_has_every_file_of_the_package_but_c_sources(egg: bytes) -> None:
    files = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "crawlproj").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".c", ".h")
    }

    with zipfile.ZipFile(io.BytesIO(egg)) as archive:
        assert files - set(archive.namelist()) == set()


def test_a_deployed_egg_crawls_to_the_end(
    scrapyd_in: Callable[..., Scrapyd],
    egg: bytes,
    crew_of: Callable[..., Any],
    wait_for: Callable[..., Any],
) -> None:
    server, crew = scrapyd_in(max_proc="4"), crew_of(SMALL)
    wait_for(server.is_up, "scrapyd is up")

    deployed = deploy(server, egg, "7")
    jobs = [
        server.schedule(crew, "web", shard=n, shards="2", run="web", seeds=str(crew.seeds_file)) for n in "01"
    ]
    jobs.append(server.schedule(crew, "parser", run="web", _version="7"))
    wait_for(lambda: server.has_ended(*jobs), "the crawl has ended by itself")

    assert (deployed["status"], deployed["spiders"]) == ("ok", 2), deployed
    assert server.exit_codes(jobs) == ["0"] * 3, server.job_logs()[-3000:]
    crew.assert_content()


def test_a_launched_run_is_spread_drained_and_launched_again_to_its_end(
    in_project: tuple[Scrapyd, Scrapyd], crew_of: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    crew = crew_of(WorldSpec(seed=6, domains=12, pages_per_domain=15, size_spread=0.3, throttle_share=0.0))
    for server in in_project:
        wait_for(server.is_up, "scrapyd is up")
    servers = [argument for server in in_project for argument in ("--scrapyd", server.url)]
    # Without seeds a run is resumed all the same.
    crew.settings["SCHEDULER_FLUSH_ON_START"] = "1"

    first = crew.scrapy("launch", *servers, "--shards", "2", str(crew.seeds_file))
    assert first.wait() == 0, first.log
    jobs = job_ids(first.log)
    # Not before: launched with seeds, it begins anew.
    crew.wait_for_fetched(1)
    crew.hold_open(held=True)
    again = crew.scrapy("launch", *servers)
    assert again.wait() == 4, again.log
    crew.wait_for_fetched(30)
    drained = crew.scrapy("launch", *servers, "--cancel")
    assert drained.wait() == 0, drained.log
    between = crew.status()
    crew.hold_open(held=False)
    second = crew.scrapy("launch", *servers)
    assert second.wait() == 0, second.log
    wait_for(lambda: crew.status()["state"] == "finished", "the run has ended by itself")
    wait_for(lambda: in_project[0].has_ended(*job_ids(second.log)[:2]), "its last segment is stored")

    assert [re.sub(r"\.\w+$", "", job) for job in jobs] == ["web.shard-0", "web.parser-0", "web.shard-1"]
    assert "cancel it with --cancel" in again.log
    assert "3 jobs ended" in drained.log
    assert between["leased"] == 0
    codes = [*in_project[0].exit_codes(jobs[:2]), *in_project[1].exit_codes(jobs[2:])]
    assert codes == ["0"] * 3
    crew.assert_content()


def job_ids(log: str) -> list[str]:
    return re.findall(r"^  \S+ \d+ +(\S+)$", log, re.MULTILINE)


def test_a_server_that_refuses_in_between_is_reported_with_what_was_scheduled(
    in_project: tuple[Scrapyd, Scrapyd],
    crew_of: Callable[..., Any],
    wait_for: Callable[..., Any],
    echo: Any,
) -> None:
    server, crew = in_project[0], crew_of(SMALL)
    wait_for(server.is_up, "scrapyd is up")
    echo.answers |= {
        "/daemonstatus.json?": [(200, {}, b'{"status": "ok"}')],
        "/listspiders.json?project=crawlproj": [(200, {}, b'{"status": "ok", "spiders": ["parser", "web"]}')],
        "/listjobs.json?project=crawlproj": [
            (200, {}, b'{"status": "ok", "pending": [], "running": [], "finished": []}')
        ],
        "/schedule.json": [(200, {}, b'{"status": "error", "message": "OSError: the disk is full"}')],
    }
    servers = ["--scrapyd", server.url, "--scrapyd", echo.url]

    launched = crew.scrapy("launch", *servers, "--parsers", "3", str(crew.seeds_file))
    code = launched.wait()
    jobs = job_ids(launched.log)
    wait_for(lambda: server.has_ended(*jobs), "the run has ended without the rest")

    assert code == 1, launched.log
    assert [job.split(".")[1] for job in jobs] == ["shard-0", "parser-0", "parser-2"]
    assert server.exit_codes(jobs) == ["0"] * 3, server.job_logs()[-3000:]
    assert re.search(
        rf"shard 1 +scrapyd at {echo.url} refused the call: OSError: the disk is full", launched.log
    ), launched.log
    assert len(echo.asked("/schedule.json")) == 1
    crew.assert_content()


def test_jobs_above_max_proc_are_said_to_wait_and_can_be_cancelled(
    scrapyd_in: Callable[..., Scrapyd], crew_of: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    server, crew = scrapyd_in(PROJECT, max_proc="1"), crew_of(LARGE)
    wait_for(server.is_up, "scrapyd is up")

    launched = crew.scrapy("launch", "--scrapyd", server.url, "--shards", "1", str(crew.seeds_file))
    code = launched.wait()
    listed = crew.scrapy("launch", "--scrapyd", server.url, "--status")
    listed.wait()
    drained = crew.scrapy("launch", "--scrapyd", server.url, "--cancel")

    assert code == 0, launched.log
    assert f"{server.url} has no free slot (max_proc) for parser 0" in launched.log
    assert re.search(r"running +web\.shard-0\..*\n +pending +web\.parser-0\.", listed.log), listed.log
    assert drained.wait() == 0, drained.log
    assert "2 jobs ended" in drained.log
    assert server.jobs("pending") == server.jobs("running") == {}
    assert server.log.count("Process started") == 1, (
        "the job that waited took the place of the one that ended"
    )


def test_whatever_is_wrong_with_a_server_is_said_before_anything_is_done(
    scrapyd_in: Callable[..., Scrapyd],
    in_project: tuple[Scrapyd, Scrapyd],
    crew_of: Callable[..., Any],
    wait_for: Callable[..., Any],
    echo: Any,
    ports: HeldPorts,
) -> None:
    crew, away, empty = crew_of(SMALL), f"http://127.0.0.1:{ports.hold()}", scrapyd_in()
    for server in (empty, in_project[0]):
        wait_for(server.is_up, "scrapyd is up")
    servers = [
        argument for url in (in_project[0].url, away, empty.url, echo.url) for argument in ("--scrapyd", url)
    ]

    launched = crew.scrapy("launch", *servers, str(crew.seeds_file))

    assert launched.wait() == 1, launched.log
    assert "nothing was scheduled" in launched.log
    assert f"scrapyd at {away} is unreachable" in launched.log
    assert f"scrapyd at {empty.url} has no project crawlproj. Start scrapyd in the project's" in launched.log
    assert f"{echo.url} answered 200, but not like scrapyd" in launched.log
    assert "Traceback" not in launched.log
    assert not crew.data.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "redis://:hunter2@127.0.0.1:1/0"),
        ("REDIS_PARAMS", '{"username": "me", "password": "hunter2"}'),
        ("REDIS_PARAMS", '{"username": "hunter2"}'),
    ],
)
def test_a_secret_never_reaches_scrapyd(
    in_project: tuple[Scrapyd, Scrapyd],
    crew_of: Callable[..., Any],
    wait_for: Callable[..., Any],
    name: str,
    value: str,
) -> None:
    server, crew = in_project[0], crew_of(SMALL)
    wait_for(server.is_up, "scrapyd is up")
    before = [server.jobs(state) for state in ("pending", "running", "finished")]

    launched = crew.scrapy("launch", "--scrapyd", server.url, str(crew.seeds_file), f"--set={name}={value}")
    code = launched.wait()

    assert code == 2, launched.log
    assert re.search(f"-s {name} has a secret.*REDIS_PASSWORD_FILE", launched.log), launched.log
    assert "hunter2" not in launched.log + server.log + server.job_logs()
    assert [server.jobs(state) for state in ("pending", "running", "finished")] == before
    assert not crew.data.exists()


async def test_a_missing_version_or_spider_is_reported(
    in_project: tuple[Scrapyd, Scrapyd], wait_for: Callable[..., Any]
) -> None:
    wait_for(in_project[0].is_up, "scrapyd is up")
    server = ScrapydServer(in_project[0].url)

    with pytest.raises(ScrapydError, match=r"version '9' not found\. Deploy it"):
        await server.check({"web"}, "9")
    with pytest.raises(ScrapydError, match="has no spider other: it is another version"):
        await server.check({"web", "other"}, "")


async def test_a_password_is_read_from_the_url_or_from_netrc(
    scrapyd_in: Callable[..., Scrapyd],
    wait_for: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    locked = scrapyd_in(PROJECT, {"SCRAPYD_USERNAME": "me", "SCRAPYD_PASSWORD": "p@ss"})
    wait_for(locked.is_up, "scrapyd is up")

    with pytest.raises(ScrapydError, match="requires a username and password"):
        await ScrapydServer(locked.url).jobs()
    with pytest.raises(ScrapydError, match="rejected the username and password") as refused:
        await ScrapydServer(locked.url.replace("//", "//me:wrong@")).jobs()
    by_address = await ScrapydServer(locked.url.replace("//", "//me:p%40ss@")).jobs()
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password p@ss\n")
    (tmp_path / ".netrc").chmod(0o600)
    by_netrc = await ScrapydServer(locked.url).jobs()

    assert by_address == by_netrc == []
    assert "wrong" not in str(refused.value)
