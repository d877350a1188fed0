"""docker-compose.yml with a real engine: scaled, killed, restarted, upgraded and stopped during a crawl.

Only `make containers` runs it, for it takes minutes. PIP_CONFIG names a pip.conf, if the build needs
one to reach an index. Grafana is not started.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from crawlproj.simweb.graph import World
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.composefile import PROJECT
from tests.e2e.conftest import wait_until

pytestmark = pytest.mark.timeout(1500)

DELAY_S = 0.5
PORT = 8900
PASSWORD = "f00dcafe"
IMAGE = "crawlproj-test"
PATIENCE_S = 180.0
SETTINGS = {
    "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "CRAWL_SCOPE": "everything",
    "DOWNLOAD_DELAY": str(DELAY_S),
    "CRAWL_SEGMENT_SECONDS": "5",
}


class Compose:
    """`docker compose` with the files of the project and of this folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = (PROJECT / "docker-compose.yml", Path(__file__).parent / "compose.yml")
        self._before = [
            *("docker", "compose", "--project-name", IMAGE, "--project-directory", str(PROJECT)),
            *(word for file in files for word in ("--file", str(file))),
        ]
        self._environment = os.environ | {
            "WEB": str(folder),
            # An engine that runs in a container of its own may allow no more.
            "CRAWL_FILES": "4096",
            "SEEDS": str(folder / "seeds.txt"),
            "ARGS": " ".join(f"-s {name}={value}" for name, value in SETTINGS.items()),
        }

    def __call__(self, *words: str) -> str:
        done = self._run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout

    def succeeds(self, *words: str) -> bool:
        return self._run(*words).returncode == 0

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._before, *words], env=self._environment, capture_output=True, text=True, check=False
        )

    def inside(self, service: str, *words: str) -> str:
        return self("exec", "--no-TTY", service, *words)

    def status(self, service: str = "crawl") -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.inside(service, "scrapy", "status", "--json"))
        return status

    def containers(self, *services: str) -> list[dict[str, Any]]:
        """What the engine knows of the containers of *services*."""
        names = self("ps", "--all", "--quiet", *services).split()
        found: list[dict[str, Any]] = json.loads(docker("inspect", *names)) if names else []
        return found

    def states(self, *services: str) -> list[tuple[str, int]]:
        return [(one["State"]["Status"], one["State"]["ExitCode"]) for one in self.containers(*services)]


def docker(*words: str, given: str | None = None) -> str:
    done = subprocess.run(["docker", *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr[-3000:]}"
    return done.stdout


@dataclass
class Story:
    """A crawl in containers as it was seen."""

    compose: Compose
    folder: Path
    world: World
    seen: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    if not os.environ.get("CRAWL_CONTAINERS"):
        pytest.skip("only `make containers` starts containers")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers")
    folder = tmp_path_factory.mktemp("containers")
    folder.chmod(0o777)
    spec = WorldSpec.calm(domains=12, pages_per_domain=400, size_spread=0)
    world = World(replace(spec, port=PORT))
    (folder / "world.json").write_text(spec.to_json())
    (folder / "seeds.txt").write_text("".join(f"{url}\n" for url in world.seeds()))
    (folder / "redis_password").write_text(f"{PASSWORD}\n")
    compose = Compose(folder)
    try:
        yield _play(Story(compose, folder, world))
    finally:
        (folder / "containers.log").write_text(compose("logs", "--no-color", "--timestamps"))
        compose("down", "--volumes", "--remove-orphans", "--timeout", "0")


def _play(story: Story) -> Story:
    compose, seen = story.compose, story.seen
    compose("build", "crawl")
    docker("tag", IMAGE, f"{IMAGE}-web")
    compose("up", "--detach", "--no-build", "redis", "simweb", "crawl", "parser", "prometheus")
    wait_until(lambda: has(story, shards=2, parsers=2), "two shards and two parsers work", PATIENCE_S)
    wait_until(lambda: compose.status()["fetched"] > 20, "pages are fetched", PATIENCE_S)

    # So that it does not end before all has been tried.
    compose.inside("crawl", "scrapy", "pause")
    _scale(story)
    _look_inside(story)
    compose.inside("crawl", "scrapy", "resume")
    _kill(story)
    before_s = time.monotonic()
    compose("restart", "redis")
    seen["restarts after Redis"] = _wait_for_more(story)
    seen["Redis was away"] = time.monotonic() - before_s
    _upgrade(story)
    _stop(story)

    compose("up", "--detach", "--no-build", "crawl", "parser")
    wait_until(lambda: {state for state, _ in compose.states("crawl")} == {"exited"}, "the end", 600)
    wait_until(lambda: {state for state, _ in compose.states("parser")} == {"exited"}, "all parsers end", 120)
    seen["exit codes"] = {code for _, code in compose.states("crawl", "parser")}
    compose("stop", "simweb")
    compose("cp", "crawl:/data/runs/web/pages", str(story.folder / "pages"))
    return story


def has(story: Story, *, shards: int, parsers: int) -> bool:
    status = story.compose.status()
    return (len(status["shards_alive"]), len(status["parsers"])) == (shards, parsers)


def _wait_for_more(story: Story) -> int:
    """Wait until more pages are fetched and stored; returns how often containers were restarted."""
    compose = story.compose

    def works() -> bool:
        return compose.succeeds("exec", "--no-TTY", "crawl", "scrapy", "status", "--json")

    wait_until(works, "the crawl answers", PATIENCE_S)
    before = compose.status()

    def has_more() -> bool:
        now = compose.status()
        return now["fetched"] > before["fetched"] and now["pages_stored"] > before["pages_stored"]

    wait_until(has_more, "more pages are fetched and stored", PATIENCE_S)
    return sum(one["RestartCount"] for one in compose.containers("crawl", "parser"))


def _scale(story: Story) -> None:
    compose = story.compose
    compose("up", "--detach", "--no-recreate", "--no-build", "--scale", "parser=3", "parser")
    wait_until(lambda: has(story, shards=2, parsers=4), "there are four parsers", PATIENCE_S)
    compose("up", "--detach", "--no-recreate", "--no-build", "--scale", "parser=2", "parser")
    wait_until(lambda: has(story, shards=2, parsers=3), "there are three parsers", PATIENCE_S)
    compose.inside("crawl", "scrapy", "shards", "3")
    wait_until(lambda: has(story, shards=3, parsers=3), "there are three shards", PATIENCE_S)
    compose.inside("crawl", "scrapy", "shards", "2")
    wait_until(lambda: has(story, shards=2, parsers=3), "there are two shards", PATIENCE_S)


def _look_inside(story: Story) -> None:
    compose, seen = story.compose, story.seen
    services = ("redis", "crawl", "parser", "prometheus")

    def healths() -> dict[str, str]:
        return {one["Name"]: one["State"]["Health"]["Status"] for one in compose.containers(*services)}

    wait_until(lambda: set(healths().values()) == {"healthy"}, "all are healthy", PATIENCE_S)
    seen["users"] = {service: compose.inside(service, "id", "-u").strip() for service in services}
    seen["written"] = [
        service
        for service in services
        if compose.succeeds("exec", "--no-TTY", service, "sh", "-c", ": > /var/tmp/written")
    ]
    seen["described"] = json.dumps(compose.containers(*services))
    seen["metrics"] = _query(story, "crawlproj_process_info")
    seen["up"] = _query(story, 'up{job=~"crawl|parser"} == 1')
    seen["alerts loaded"] = compose.inside(
        "prometheus", "wget", "-q", "-O", "-", "http://127.0.0.1:9090/api/v1/rules"
    )


def _query(story: Story, query: str) -> list[dict[str, str]]:
    def ask() -> list[dict[str, str]]:
        url = f"http://127.0.0.1:9090/api/v1/query?query={query.replace(' ', '%20')}"
        answer = json.loads(story.compose.inside("prometheus", "wget", "-q", "-O", "-", url))
        return [one["metric"] for one in answer["data"]["result"]]

    return wait_until(lambda: found if len(found := ask()) >= 3 else None, query, PATIENCE_S)


def _kill(story: Story) -> None:
    compose = story.compose
    for service in ("parser", "crawl"):
        # As the kernel does for lack of memory. `docker kill` would count as stopped by a person. If the
        # container ends first, this command is killed, too.
        compose.succeeds("exec", "--no-TTY", service, "python", "-c", "import os, signal; os.kill(int(open('/proc/1/task/1/children').read().split()[0]), signal.SIGKILL)")  # fmt: skip  # noqa: E501
        wait_until(
            lambda service=service: any(one["RestartCount"] for one in compose.containers(service)),
            f"{service} is started again",
            PATIENCE_S,
        )
        _wait_for_more(story)
    story.seen["restarts"] = {
        service: sum(one["RestartCount"] for one in compose.containers(service))
        for service in ("crawl", "parser")
    }


def _upgrade(story: Story) -> None:
    compose = story.compose
    old = {one["Image"] for one in compose.containers("crawl", "parser")}
    docker("build", "--tag", IMAGE, "-", given=f"FROM {IMAGE}\nLABEL release=next\n")
    started_s = time.monotonic()
    compose("up", "--detach", "--no-build", "--scale", "parser=2", "crawl", "parser")
    story.seen["upgrade took"] = time.monotonic() - started_s
    wait_until(lambda: has(story, shards=2, parsers=3), "all of the next release work", PATIENCE_S)
    _wait_for_more(story)
    story.seen["old images"] = old & {one["Image"] for one in compose.containers("crawl", "parser")}


def _stop(story: Story) -> None:
    compose = story.compose
    # The pages of the parsers that were killed wait until these count as dead.
    compose.inside("crawl", "scrapy", "pause")
    wait_until(lambda: not compose.status()["pages_being_parsed"], "all is stored", PATIENCE_S)
    compose.inside("crawl", "scrapy", "resume")
    _wait_for_more(story)
    started_s = time.monotonic()
    compose("stop", "crawl", "parser")
    story.seen["stop took"] = time.monotonic() - started_s
    story.seen["killed"] = [code for _, code in compose.states("crawl", "parser") if code == 137]
    printed = compose(
        "run", "--rm", "--no-TTY", "--no-deps", "--entrypoint", "scrapy", "parser", "status", "--json"
    )
    story.seen["stopped"] = json.loads(printed[printed.index("{") :])


def test_it_ends_complete_and_polite_with_every_page_stored_once(story: Story) -> None:
    stored = Counter(page["url"] for page in read_pages(story.folder / "pages"))

    referee = Referee(story.world, story.folder / "access.jsonl")
    # What was in flight when the shards were killed is fetched again.
    verdict = referee.verdict(min_gap_ms=DELAY_S * 1000, twice_allowed=story.world.spec.domains)
    assert verdict.ok, verdict.report()
    assert set(stored.values()) == {1}
    assert referee.expected - set(stored) == set()
    assert story.seen["exit codes"] == {0}


def test_killed_containers_are_started_again(story: Story) -> None:
    assert story.seen["restarts"] == {"crawl": 1, "parser": 1}


def test_a_restart_of_redis_restarts_nothing_else(story: Story) -> None:
    assert story.seen["restarts after Redis"] == 2


def test_an_upgrade_replaces_every_container(story: Story) -> None:
    assert story.seen["old images"] == set()


def test_a_stop_ends_within_the_grace_period_and_leaves_no_lease(story: Story) -> None:
    stopped = story.seen["stopped"]

    assert story.seen["killed"] == []
    assert (stopped["state"], stopped["leased"], stopped["pages_being_parsed"]) == ("stopped", 0, 0)


def test_no_container_has_root_or_writes_into_its_image(story: Story) -> None:
    assert story.seen["users"] == {"redis": "999", "crawl": "10001", "parser": "10001", "prometheus": "65534"}
    assert story.seen["written"] == []


def test_no_description_of_a_container_has_the_password(story: Story) -> None:
    assert "REDIS_PASSWORD_FILE" in story.seen["described"]
    assert PASSWORD not in story.seen["described"]


def test_prometheus_finds_all_containers_and_loads_the_alerts(story: Story) -> None:
    assert Counter(target["job"] for target in story.seen["up"]) == {"crawl": 1, "parser": 2}
    assert {(one["job"], one["kind"]) for one in story.seen["metrics"]} >= {
        *(("crawl", "shard"), ("crawl", "supervisor"), ("crawl", "parser"), ("parser", "parser"))
    }
    alerts = (PROJECT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
    for alert in re.findall(r"- alert: (\w+)", alerts):
        assert alert in story.seen["alerts loaded"]
