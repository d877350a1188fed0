"""What crawlproj@RUN.service starts, stopped and started again as systemd does it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crawlproj.errors import EXIT_REDIS
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.e2e.conftest import PROJECT, QUICK, wait_until
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

#: Not finished before the signal comes.
SLOW = QUICK | {"DOWNLOAD_DELAY": "0.3"}
UNIT = (PROJECT / "deploy" / "systemd" / "crawlproj@.service").read_text("utf-8")


def value_of(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_the_unit_of_a_run_stops_in_order_and_resumes_by_the_same_command(tmp_path: Path) -> None:
    with SimwebProcess(WorldSpec.calm(domains=4, pages_per_domain=15, size_spread=0), tmp_path) as simweb:
        seeds = tmp_path / "web.seeds"
        seeds.write_text("".join(f"{url}\n" for url in simweb.seeds()))
        options = " ".join(f"-s {name}={value}" for name, value in SLOW.items())
        variables = {"SEEDS": str(seeds), "OPTIONS": f"--shards 2 --parsers 1 {options}"}
        # A variable that is a word of its own becomes several; %i is the name behind the @.
        command = re.sub(r"\$(\w+)", lambda found: variables[found[1]], value_of("ExecStart"))
        program, *words = shlex.split(command.replace("%i", "web"))
        environment = dict(word.split("=", 1) for word in value_of("Environment").split())
        environment["CRAWL_DATA"] = str(tmp_path / "data")

        def start() -> subprocess.Popen[bytes]:
            with (tmp_path / "log").open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, "-P", "-m", "crawlproj", *words],
                    cwd=tmp_path,
                    env=os.environ | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

        def fetched() -> int:
            simweb.flush()
            return simweb.log_path.read_bytes().count(b"\n")

        first = start()
        wait_until(lambda: fetched() > 8, "pages are fetched")
        first.send_signal(signal.SIGTERM)
        stopped = first.wait(float(value_of("TimeoutStopSec")))
        ended = start().wait(PATIENCE_S)
        after_the_end = start().wait(PATIENCE_S)
        verdict = simweb.referee().verdict(min_gap_ms=1000 * float(SLOW["DOWNLOAD_DELAY"]))

    assert program == "/srv/crawlproj/bin/crawlproj"
    assert {str(stopped), str(after_the_end)} <= set(value_of("SuccessExitStatus").split())
    assert ended == 0, (tmp_path / "log").read_text()[-3000:]
    assert verdict.ok, verdict.report()
    stored = Counter(page["url"] for page in read_pages(tmp_path / "data" / "runs" / "web" / "pages"))
    assert len(stored) >= 60
    assert set(stored.values()) == {1}


def test_a_unit_is_started_again_until_redis_is_back(tmp_path: Path, ports: HeldPorts) -> None:
    redis_url = f"redis://127.0.0.1:{ports.hold()}/0"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "crawlproj", "run", "https://example.org/", "--run", "web"],
        cwd=tmp_path,
        env=os.environ | {"REDIS_URL": redis_url, "CRAWL_CONTACT": "me@example.org"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == EXIT_REDIS, done.stderr
    assert str(EXIT_REDIS) not in value_of("RestartPreventExitStatus").split()
    # 0: systemd never gives up.
    assert value_of("StartLimitIntervalSec") == "0"
